package test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/test/harness"
	"github.com/lapsedb/lapse/test/stress"
)

// TestStartWithManyConsumers: lapse starts on a log with more consumers of clients than a
// NATS server allows by default, reads it, and lets its operators read it. Clients can
// list and remove all of them, and add none.
func TestStartWithManyConsumers(t *testing.T) {
	if !stress.Long() {
		t.Skip("creating a thousand consumers takes long: set TEST_STRESS=1")
	}
	t.Parallel()
	const many = 1050
	s := harness.Serve(t)
	s.Run("collection", "create", "orders")
	s.Run("document", "upsert", "orders", "a", "{}")
	s.Stop()

	o := harness.NATSOptions(s.Dir)
	o.JetStreamLimits = server.JSLimitOpts{DefaultMaxConsumers: -1}
	check(t, o.ProcessConfigString(`accounts { LAPSE { jetstream: enabled, users: [{user: a, password: a}] } }`))
	ns := harness.StartNATS(t, o)
	nc := harness.Dial(t, ns.ClientURL(), nats.UserInfo("a", "a"))
	js, _ := jetstream.New(nc, jetstream.WithDefaultTimeout(patience))
	var all sync.WaitGroup
	for maker := range 10 { // each create waits for the disk
		all.Go(func() {
			for n := maker; n < many; n += 10 {
				if _, err := js.CreateConsumer(t.Context(), "LAPSE_main", jetstream.ConsumerConfig{Durable: fmt.Sprint("deploy-", n)}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	nc.Close()
	ns.Shutdown()
	ns.WaitForShutdown()

	remove(t, filepath.Join(s.Dir, "projection")) // so that it must read the log
	s.Restart()
	if r := s.Run("document", "get", "orders", "a"); r.Code != 0 {
		t.Errorf("%+v", r)
	}
	for _, read := range []string{"export", "audit"} {
		if r := s.Run(read); r.Code != 0 {
			t.Errorf("%s: %+v", read, r)
		}
	}
	client := dial(t, s)
	for _, one := range []struct{ subject, body, want string }{
		{"NAMES.LAPSE_main", `{"offset":1024}`, "deploy-"},
		{"LIST.LAPSE_main", `{"offset":1024}`, `"durable_name":"deploy-`},
		{"CREATE.LAPSE_main.more", `{"stream_name":"LAPSE_main","config":{"durable_name":"more"}}`, fmt.Sprintf("has %d consumers of clients, and 512 are allowed: remove those that nobody uses (nats consumer ls LAPSE_main, nats consumer rm)", many)},
		{"DELETE.LAPSE_main.deploy-0", ``, `"success":true`},
	} {
		m, err := client.Request("$JS.API.CONSUMER."+one.subject, []byte(one.body), patience)
		if err != nil || !json.Valid(m.Data) || !strings.Contains(string(m.Data), one.want) {
			t.Errorf("%s: %+v, %v", one.subject, m, err)
		}
	}
}
