package embedded_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"
)

// TestSteeredPushConsumer: a push consumer delivers to the subject that its creator
// names, so the gate accepts only inboxes.
func TestSteeredPushConsumer(t *testing.T) { newServers(t, testSteeredPushConsumer) }

func testSteeredPushConsumer(t *testing.T, f *fixture) {
	js, _ := jetstream.New(f.client)
	if _, err := js.CreateConsumer(ctx(t), log, jetstream.ConsumerConfig{Durable: "pull", AckPolicy: jetstream.AckExplicitPolicy}); err != nil {
		t.Fatal(err)
	}
	served := make(chan *nats.Msg, 64)
	if _, err := f.service.Subscribe(db.API()+">", func(m *nats.Msg) { served <- m }); err != nil {
		t.Fatal(err)
	}
	f.service.Flush()
	for _, target := range append(targets, "anything", "_INBOX", "_INBOX*", "_inbox.x", " _INBOX.x") {
		for n, key := range []string{"deliver_subject", "Deliver_Subject", `deliver_subject":"_INBOX.x","DELIVER_SUBJECT`} {
			name := fmt.Sprintf("push%d", n)
			config := fmt.Sprintf(`"ack_policy":"none","headers_only":true,"idle_heartbeat":100000000,%q:%q`, key, target)
			if n == 2 {
				config = strings.ReplaceAll(config, `\"`, `"`)
			}
			for subject, config := range map[string]string{
				"$JS.API.CONSUMER.CREATE." + log:                        config,
				"$JS.API.CONSUMER.CREATE." + log + "." + name:           `"name":"` + name + `",` + config,
				"$JS.API.CONSUMER.DURABLE.CREATE." + log + "." + name:   `"durable_name":"` + name + `",` + config,
				"$JS.API.CONSUMER.DURABLE.CREATE." + log + "." + "pull": `"durable_name":"pull",` + config, // an update
			} {
				m, err := f.client.Request(subject, []byte(`{"stream_name":"`+log+`","config":{`+config+`}}`), patience)
				if err != nil {
					t.Fatal(subject, err)
				}
				var r struct {
					Error *jetstream.APIError `json:"error"`
				}
				if err := json.Unmarshal(m.Data, &r); err != nil || r.Error == nil {
					t.Errorf("%s %s: %s", subject, config, m.Data)
				}
			}
		}
	}
	time.Sleep(200 * time.Millisecond)
	f.untouched(t)
	if n := f.Mutations(t); n != 0 {
		t.Errorf("%d mutations", n)
	}
	if len(served) > 0 {
		m := <-served
		t.Errorf("served %s with %v", m.Subject, m.Header)
	}
}

// TestUnreadableConsumerRequest: the gate refuses a request that it cannot parse. The
// server would read on after the end of the JSON, and merge the values.
func TestUnreadableConsumerRequest(t *testing.T) { newServers(t, testUnreadableConsumerRequest) }

func testUnreadableConsumerRequest(t *testing.T, f *fixture) {
	for _, body := range []string{
		``, `x`, `[]`, `{"stream_name":"LAPSE_main"`, `{"stream_name":"LAPSE_main","config":[]}`,
		`{"stream_name":"LAPSE_main","config":{"deliver_subject":["` + targets[3] + `"]}}`,
		`{"stream_name":"LAPSE_main","config":{"deliver_subject":"` + targets[3] + `","ack_policy":"none","idle_heartbeat":"x"}}`,
		`{"stream_name":"LAPSE_main","config":{"deliver_subject":"` + targets[3] + `","ack_policy":"none","idle_heartbeat":100000000}} {}`,
		`{} {"stream_name":"LAPSE_main","config":{"deliver_subject":"` + targets[3] + `","ack_policy":"none","idle_heartbeat":100000000}}`,
		`{"stream_name":"LAPSE_main","unknown":1,"config":{"deliver_subject":"` + targets[3] + `","ack_policy":"none","idle_heartbeat":100000000}}`,
		`{"stream_name":"LAPSE_main_MUTATIONS","config":{"ack_policy":"none"}}`,
	} {
		m, err := f.client.Request("$JS.API.CONSUMER.CREATE."+log, []byte(body), patience)
		if err != nil || !strings.Contains(string(m.Data), `"error"`) {
			t.Errorf("%q: %+v, %v", body, m, err)
		}
	}
	f.untouched(t)
}

// TestMutationStreamRefusesEvents: a copy of an event in the mutations stream must not be
// judged: it would make an event, whose copy arrives next, and so on for ever. The
// processor sets Nats-Expected-Stream on every append. It stays on the stored event, so
// JetStream itself refuses the copy.
func TestMutationStreamRefusesEvents(t *testing.T) {
	t.Parallel()
	f := newServer(t)
	m := nats.NewMsg(appendTo("orders.DocumentCreated"))
	m.Header.Set("Nats-Expected-Stream", log)
	b := m.Header
	m.Header = nil
	if _, err := f.JS.PublishMsg(ctx(t), m); err != nil {
		t.Fatal(err)
	}
	batch := make([]*nats.Msg, 3)
	for i := range batch {
		batch[i] = &nats.Msg{Subject: m.Subject, Header: nats.Header{"Nats-Expected-Stream": b["Nats-Expected-Stream"]}}
	}
	if _, err := jetstreamext.PublishMsgBatch(ctx(t), f.JS, batch); err != nil {
		t.Fatal(err)
	}
	// As the processor: no client can do this.
	if _, err := f.JS.CreateConsumer(ctx(t), log, jetstream.ConsumerConfig{Durable: "loop", AckPolicy: jetstream.AckNonePolicy}); err != nil {
		t.Fatal(err)
	}
	if err := f.log.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+log+".loop", db.Mutations()+"document.upsert.orders.x", []byte(`{"batch":100}`)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all is delivered", func() bool {
		c, err := f.JS.Consumer(ctx(t), log, "loop")
		return err == nil && c.CachedInfo().Delivered.Stream == 8
	})
	eventually(t, "the one without the header is there", func() bool { return f.Mutations(t) > 0 })
	if n := f.Mutations(t); n != 1 {
		t.Errorf("%d mutations", n)
	}
}
