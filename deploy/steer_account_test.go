package deploy_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/test/attack"
)

// withPorts returns nats.conf with a port for leaf nodes in the account APP, and one for
// gateways.
func withPorts(t *testing.T) (path string) {
	t.Helper()
	return withLines(t, map[string]string{"system_account: SYS": `
leafnodes {
  listen: "127.0.0.1:-1"
  authorization { users: [{ user: leaf, password: leaf, account: APP }] }
}
gateway { name: lapse, listen: "127.0.0.1:-1" }`})
}

// TestInfoOpensNothing: an account with JetStream that imports a subject of the API which the
// server answers cannot delete the log by it: NATS drops what names another subject. In older
// servers it can, so nats.conf exports none.
func TestInfoOpensNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t, withLines(t, map[string]string{
		`      { service: "lapse.main.api.>", accounts: [APP] }`:               `      { service: "$JS.API.INFO", accounts: [APP] }`,
		`      { service: { account: CLIENTS, subject: "lapse.main.api.>" } }`: `      { service: { account: CLIENTS, subject: "$JS.API.INFO" }, to: "LAPSE.API.INFO" }`,
	}))
	app := f.connect(t, "app")
	if m := request(t, app, "LAPSE.API.INFO", ""); !strings.Contains(string(m.Data), "account_info_response") {
		t.Fatalf("the import does not work: %s", m.Data)
	}
	for range 3 {
		repeat(t, func(ctx context.Context) error {
			return attack.Detour(ctx, app, "$JS.API.STREAM.DELETE."+log, []string{"LAPSE.API.INFO"})
		})
		// The leader deletes streams in the order of the requests.
		repeat(t, func(ctx context.Context) error {
			_, err := f.JS.CreateStream(ctx, jetstream.StreamConfig{Name: "MARK"})
			return err
		})
		repeat(t, func(ctx context.Context) error {
			if err := f.JS.DeleteStream(ctx, "MARK"); !errors.Is(err, jetstream.ErrStreamNotFound) {
				return err
			}
			return nil
		})
	}
	for _, name := range []string{log, muts} {
		repeat(t, func(ctx context.Context) error {
			_, err := f.JS.Stream(ctx, name)
			if errors.Is(err, jetstream.ErrStreamNotFound) {
				t.Fatalf("%s is gone", name)
			}
			return err
		})
	}
}

// TestSteeringFromAccount: the users of an account with JetStream that imports what APP
// does, and its leaf nodes, can do all that the account may, and nothing to the log: not
// by a reply subject, and not by messages with two subjects.
func TestSteeringFromAccount(t *testing.T) {
	t.Parallel()
	f := newFixture(t, withPorts(t))
	app := f.connect(t, "app")
	js, err := jetstream.NewWithAPIPrefix(app, "LAPSE.API")
	check(t, err)
	v, err := f.nodes[0].Varz(nil)
	check(t, err)
	leaf, err := attack.DialLeaf(fmt.Sprintf("127.0.0.1:%d", v.LeafNode.Port), "leaf", "leaf")
	check(t, err)
	t.Cleanup(leaf.Close)

	var requests []nats.Msg
	var subjects []string
	for _, r := range append(attack.Requests(db), nats.Msg{Subject: "$SRV.INFO.lapse"}) {
		r = attack.Imported(r, "LAPSE.API", "billing")
		requests = append(requests, r)
		if !slices.Contains(subjects, r.Subject) {
			subjects = append(subjects, r.Subject)
		}
	}
	for _, target := range someTargets(t) {
		repeat(t, func(ctx context.Context) error {
			_ = f.JS.DeleteConsumer(ctx, log, "billing")
			_, err := js.CreateConsumer(ctx, log, jetstream.ConsumerConfig{Durable: "billing", AckPolicy: jetstream.AckExplicitPolicy})
			return err
		})
		for _, way := range []struct {
			from interface {
				PublishMsg(*nats.Msg) error
				Flush() error
			}
			replies []string
		}{
			{app, []string{target}},
			{leaf, []string{target, "_R_.forged.x", "_R_." + target, "$JS.ACK.a.b.1.1.1.1.1@" + target}},
		} {
			for _, reply := range way.replies {
				for _, r := range requests {
					m := &nats.Msg{Subject: r.Subject, Reply: reply, Data: r.Data, Header: nats.Header{"Nats-Request-Info": {`{"acc":"LAPSE"}`}}}
					if !strings.HasPrefix(r.Subject, db.Mutations()) {
						m.Header.Set("Nats-Expected-Stream", log)
					}
					check(t, way.from.PublishMsg(m))
				}
			}
			check(t, way.from.Flush())
		}
		repeat(t, func(ctx context.Context) error { return attack.Detour(ctx, app, target, subjects) })
		// What the gate and JetStream were sent before is done when these are answered.
		repeat(t, func(ctx context.Context) error { _, err := js.Consumer(ctx, log, "standby"); return err })
		if m := request(t, app, db.Mutations()+"document.upsert.orders.last", "{}"); !strings.Contains(string(m.Data), muts) {
			t.Errorf("%s", m.Data)
		}
		f.Unchanged(t, target)
	}
}
