package embedded_test

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestNoResponders: a request that nobody serves fails at once, without an error of the
// connection, and reaches no stream: not even that of a database that is on the disk.
func TestNoResponders(t *testing.T) {
	t.Parallel()
	f := newServer(t)
	idle, err := f.JS.CreateStream(ctx(t), jetstream.StreamConfig{Name: "LAPSE_idle_MUTATIONS", Subjects: []string{"lapse.idle.mutations.>"}})
	check(t, err)
	nc := f.connect(t, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { t.Error(err) }))
	for _, subject := range []string{
		"lapse.other.api.document.get.orders.a", "lapse.idle.api.status", "lapse.Main.api.status", "lapse.*.api.status",
		"lapse.main.api", "lapse.main", "lapse.main.status", "lapse.main.v2.api.status",
		"lapse.other.mutations.document.upsert.orders.a", "lapse.idle.mutations.document.upsert.orders.a", "lapse.main.mutations",
		"lapse.other.events.orders.DocumentCreated", "$SRV.PING.nobody",
	} {
		if m, err := nc.Request(subject, []byte("{}"), patience); !errors.Is(err, nats.ErrNoResponders) {
			t.Errorf("%s: got %v, %v", subject, m, err)
		}
	}
	if info, err := idle.Info(ctx(t)); err != nil || info.State.Msgs > 0 {
		t.Errorf("got %+v, %v", info, err)
	}
}

func TestStreamNamesAndInfo(t *testing.T) { newServers(t, testStreamNamesAndInfo) }

func testStreamNamesAndInfo(t *testing.T, f *fixture) {
	js := jetStream(t, f.client)
	must(t)(js.AccountInfo(ctx(t)))
	for subject, stream := range map[string]string{db.Events() + ">": log, allEvents[0]: log, db.Mutations() + "document.create.a.b": muts, appendTo(">"): "", db.Append() + "*.>": ""} {
		name, err := js.StreamNameBySubject(ctx(t), subject)
		if name != stream || (err == nil) != (stream != "") {
			t.Errorf("%s is stored by %q, %v", subject, name, err)
		}
	}
	m, err := f.client.Request("$JS.API.STREAM.NAMES", []byte(`{"offset":1}`), patience)
	var r struct {
		Total   int
		Streams []string
	}
	if err != nil || json.Unmarshal(m.Data, &r) != nil || r.Total != 2 || !slices.Equal(r.Streams, []string{muts}) {
		t.Errorf("got %+v, %v", r, err)
	}
}
