package embedded_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"
)

func TestMutationIsAcknowledged(t *testing.T) {
	t.Parallel()
	f := newServer(t)
	js, _ := jetstream.New(f.client)
	for n := range uint64(3) {
		ack, err := js.Publish(ctx(t), db.Mutations()+"document.upsert.orders.SO05", []byte(`{"total":5}`), jetstream.WithMsgID(fmt.Sprint(n)))
		if err != nil || ack.Stream != muts || ack.Sequence != n+1 {
			t.Fatalf("got %+v, %v", ack, err)
		}
	}
	ack, err := js.Publish(ctx(t), db.Mutations()+"document.upsert.orders.SO05", nil, jetstream.WithMsgID("1"))
	if err != nil || !ack.Duplicate {
		t.Fatalf("got %+v, %v", ack, err)
	}
	for range 1000 {
		if _, err := js.PublishAsync(db.Mutations()+"document.upsert.orders.SO05", []byte(`{}`)); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-time.After(patience):
		t.Fatal("acknowledgements are missing")
	}
	if n := f.Mutations(t); n != 1003 {
		t.Fatal(n)
	}
}

func TestService(t *testing.T) {
	t.Parallel()
	f := newServer(t)
	svc, err := micro.AddService(f.service, micro.Config{Name: "lapse", Version: "1.0.0"})
	if err != nil {
		t.Fatal(err)
	}
	defer svc.Stop()
	err = svc.AddEndpoint("api", micro.HandlerFunc(func(r micro.Request) {
		r.Respond(r.Data(), micro.WithHeaders(micro.Headers{"Lapse-Status": {"200"}}))
	}), micro.WithEndpointSubject(db.API()+">"))
	if err != nil {
		t.Fatal(err)
	}
	f.service.Flush()
	for range 3 {
		m, err := f.client.Request(db.API()+"document.get.orders.a", []byte("x"), patience)
		if err != nil || string(m.Data) != "x" || m.Header.Get("Lapse-Status") != "200" {
			t.Fatalf("got %+v, %v", m, err)
		}
	}
	for _, verb := range []string{"PING", "INFO", "STATS"} {
		for _, who := range []string{"", ".lapse", ".lapse." + svc.Info().ID} {
			m, err := f.client.Request("$SRV."+verb+who, nil, patience)
			if err != nil || !strings.Contains(string(m.Data), svc.Info().ID) {
				t.Fatalf("%s%s: got %+v, %v", verb, who, m, err)
			}
		}
	}
}

// TestNoResponders: a request that nobody serves fails at once, without an error of the
// connection, and reaches no stream: not even that of a database that is on the disk.
func TestNoResponders(t *testing.T) {
	t.Parallel()
	f := newServer(t)
	idle, err := f.JS.CreateStream(ctx(t), jetstream.StreamConfig{Name: "LAPSE_idle_MUTATIONS", Subjects: []string{"lapse.idle.mutations.>"}})
	if err != nil {
		t.Fatal(err)
	}
	nc, err := f.dial(nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { t.Error(err) }))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
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
	js, _ := jetstream.New(f.client)
	if _, err := js.AccountInfo(ctx(t)); err != nil {
		t.Error(err)
	}
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
