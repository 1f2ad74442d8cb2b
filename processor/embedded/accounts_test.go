package embedded_test

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/processor/embedded"
	"github.com/lapsedb/lapse/processor/gate"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/harness"
)

// TestAnyDatabase: with a wildcard in the place of the database, the accounts are those of
// databases that come later. Clients still cannot append to their logs.
func TestAnyDatabase(t *testing.T) {
	t.Parallel()
	o := harness.NATSOptions(t.TempDir())
	check(t, o.ProcessConfigString(embedded.AccountsConfig([]schema.DatabaseName{gate.AnyDatabase})))
	url := harness.StartNATS(t, o).ClientURL()
	js := jetStream(t, harness.Dial(t, url, nats.UserInfo("processor", "processor"), nats.CustomInboxPrefix("_PROCESSOR")))
	client := harness.Dial(t, url, quiet)
	streams := harness.Dial(t, url, nats.UserInfo("gate_log", "gate_log"), nats.CustomInboxPrefix("_GATE"))
	service := harness.Dial(t, url, nats.UserInfo("service", "service"))
	for _, db := range []schema.DatabaseName{"a", "b"} {
		for stream, subjects := range map[string]string{db.MutationStream(): db.Mutations() + ">", db.LogStream(): db.Append() + ">"} {
			must(t)(js.CreateStream(ctx(t), jetstream.StreamConfig{Name: stream, Subjects: []string{subjects}}))
		}
		subscribe(t, service, db.API()+">", func(m *nats.Msg) { _ = m.Respond(nil) })
		for subject, by := range map[string]*nats.Conn{
			db.Mutations() + "document.upsert.c.x": client, db.API() + "status": client, "$JS.API.CONSUMER.NAMES." + db.LogStream(): streams,
		} {
			if m, err := by.Request(subject, nil, patience); err != nil {
				t.Errorf("%s: %+v, %v", subject, m, err)
			}
		}
		check(t, client.Publish(db.Append()+"x", nil))
		if want := fmt.Sprintf("nats: permissions violation: Permissions Violation for Publish to %q", db.Append()+"x"); client.Flush() != nil || fmt.Sprint(client.LastError()) != want {
			t.Errorf("%v, want %s", client.LastError(), want)
		}
	}
}
