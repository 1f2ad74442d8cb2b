package eventlog_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/processortest"
	"github.com/lapsedb/lapse/schema"
)

// TestStreamsAreChecked: a start refuses an unfit stream or bucket with an error of one
// line, and changes nothing.
func TestStreamsAreChecked(t *testing.T) {
	ok := func(db schema.DatabaseName) jetstream.StreamConfig {
		return eventlog.LogConfig(db, db.Append()+"secret.")
	}
	mutations := func(change func(*jetstream.StreamConfig)) func(context.Context, jetstream.JetStream) error {
		return func(ctx context.Context, js jetstream.JetStream) error {
			config := jetstream.StreamConfig{Name: "LAPSE_main_MUTATIONS", Subjects: []string{"lapse.main.mutations.>"}, Duplicates: 100 * time.Millisecond}
			change(&config)
			_, err := js.CreateStream(ctx, config)
			return err
		}
	}
	log := func(change func(*jetstream.StreamConfig)) func(context.Context, jetstream.JetStream) error {
		return func(ctx context.Context, js jetstream.JetStream) error {
			config := ok("main")
			change(&config)
			_, err := js.CreateStream(ctx, config)
			return err
		}
	}
	bucket := func(config jetstream.KeyValueConfig, key, value string) func(context.Context, jetstream.JetStream) error {
		return func(ctx context.Context, js jetstream.JetStream) error {
			config.Bucket = "LAPSE_main_LEASE"
			kv, err := js.CreateKeyValue(ctx, config)
			if err == nil && key != "" {
				_, err = kv.PutString(ctx, key, value)
			}
			return err
		}
	}
	leases := jetstream.KeyValueConfig{LimitMarkerTTL: time.Minute}
	rows := []struct {
		there func(context.Context, jetstream.JetStream) error
		want  string
	}{
		{log(func(c *jetstream.StreamConfig) { c.SubjectTransform = nil }), "LAPSE_main exists but is not a lapse log: remove it, or serve another --database"},
		{log(func(c *jetstream.StreamConfig) { c.AllowAtomicPublish = false }), "LAPSE_main exists but is not a lapse log"},
		{log(func(c *jetstream.StreamConfig) { c.Subjects = []string{"orders.>"}; c.SubjectTransform = nil }), "is not a lapse log"},
		{log(func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour }), "LAPSE_main has max_age 1h0m0s; lapse needs unlimited"},
		{log(func(c *jetstream.StreamConfig) { c.MaxMsgs = 1000 }), "max_msgs 1000"},
		{log(func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 5 }), "max_msgs_per_subject 5"},
		{log(func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage }), "storage memory"},
		{log(func(c *jetstream.StreamConfig) { c.Duplicates = time.Minute }), "duplicate_window 1m0s"},
		{log(func(c *jetstream.StreamConfig) { c.DenyDelete, c.AllowMsgTTL = false, true }), "allow_msg_ttl"},
		{mutations(func(c *jetstream.StreamConfig) { c.Retention = jetstream.WorkQueuePolicy }), "retention workqueue"},
		{mutations(func(c *jetstream.StreamConfig) { c.Subjects = []string{"lapse.main.mutations.*"} }), "LAPSE_main_MUTATIONS exists but does not listen on lapse.main.mutations.>"},
		{mutations(func(c *jetstream.StreamConfig) { c.Name = "MINE" }), "stream MINE overlaps lapse.main.mutations.>, the subjects of LAPSE_main_MUTATIONS"},
		{mutations(func(c *jetstream.StreamConfig) { c.Name, c.Subjects = "MINE", []string{"lapse.>"} }), "stream MINE overlaps lapse.main."},
		{mutations(func(c *jetstream.StreamConfig) { c.Name, c.Subjects = "MINE", []string{"lapse.main.api.>"} }), "stream MINE overlaps lapse.main.api.>, the subjects of requests"},
		{mutations(func(c *jetstream.StreamConfig) { c.Name, c.Subjects = "MINE", []string{"lapse.*.events.>"} }), "stream MINE overlaps lapse.main.events.>, the subjects of events of LAPSE_main"},
		{bucket(jetstream.KeyValueConfig{}, "", ""), "LAPSE_main_LEASE exists but is not a lapse lease (its keys have no ttl)"},
		{bucket(jetstream.KeyValueConfig{LimitMarkerTTL: time.Minute, TTL: time.Hour}, "", ""), "a ttl of 1h0m0s for all keys"},
		{bucket(leases, "writer", "me"), `its key writer is "me"`},
		{bucket(leases, "writer", `{"node":"n"}`), "its key writer is"},
	}
	processortest.InCrew(t, 1, func(c *processortest.Crew) {
		m := c.Members[0]
		js := m.JS()
		for _, row := range rows {
			m.Check(row.there(m.Ctx(), js))
			before := streams(m, js)
			m.NoStart(row.want)
			if after := streams(m, js); after != before {
				t.Errorf("%s: changed from\n%s to\n%s", row.want, before, after)
			}
			for name := range js.StreamNames(m.Ctx()).Name() {
				m.Check(js.DeleteStream(m.Ctx(), name))
			}
			synctest.Wait() // NATS removes their files after its reply
		}
	})
}

// streams formats the configuration and last sequence of all streams.
func streams(m *processortest.Member, js jetstream.JetStream) string {
	m.T.Helper()
	var all []string
	list := js.ListStreams(m.Ctx())
	for info := range list.Info() {
		text, err := json.Marshal(info.Config)
		m.Check(err)
		all = append(all, fmt.Sprintf("%s %d", text, info.State.LastSeq))
	}
	m.Check(list.Err())
	slices.Sort(all)
	return strings.Join(all, "\n")
}
