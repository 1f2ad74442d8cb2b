package embedded_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/test/attack"
)

// TestReadStream: clients read the stream by all ordinary means, with any inbox prefix.
func TestReadStream(t *testing.T) { newServers(t, testReadStream) }

func testReadStream(t *testing.T, f *fixture) {
	for _, prefix := range []string{"_INBOX", "_MINE", "my.inbox"} {
		t.Run(prefix, func(t *testing.T) {
			nc := f.connect(t, nats.CustomInboxPrefix(prefix))
			readByStream(t, nc)
			readByConsumers(t, nc)
			readByLegacy(t, nc)
		})
	}
	f.untouched(t)
}

func readByStream(t *testing.T, nc *nats.Conn) {
	js := jetStream(t, nc)
	s, err := js.Stream(ctx(t), log)
	check(t, err)
	shown := func(info *jetstream.StreamInfo) {
		t.Helper()
		if c := info.Config; info.Config.Name == log && (!slices.Equal(c.Subjects, []string{db.Events() + ">"}) || c.SubjectTransform != nil || info.State.Msgs != 4) {
			t.Errorf("the stream shows %+v", info)
		}
		if text, _ := json.Marshal(info); strings.Contains(string(text), attack.Secret) || strings.Contains(string(text), db.Append()) {
			t.Errorf("the stream shows its secret: %s", text)
		}
	}
	shown(s.CachedInfo())
	info, err := s.Info(ctx(t), jetstream.WithSubjectFilter(db.Events()+"orders.>"))
	if err != nil || len(info.State.Subjects) != 3 || info.State.Subjects[allEvents[0]] != 1 {
		t.Errorf("subjects: %+v, %v", info, err)
	}
	shown(info)
	var names []string
	list := js.ListStreams(ctx(t))
	for info := range list.Info() {
		names = append(names, info.Config.Name)
		shown(info)
	}
	if !slices.Equal(names, []string{log, muts}) || list.Err() != nil {
		t.Error(names, list.Err())
	}
	buckets := js.KeyValueStoreNames(ctx(t))
	for name := range buckets.Name() {
		t.Error("bucket", name)
	}
	check(t, buckets.Error())
	for seq, subject := range allEvents {
		if m, err := s.GetMsg(ctx(t), uint64(seq)+1); err != nil || m.Subject != subject {
			t.Errorf("%+v, %v", m, err)
		}
	}
	if m, err := s.GetLastMsgForSubject(ctx(t), db.Events()+"orders.>"); err != nil || m.Sequence != 4 {
		t.Errorf("%+v, %v", m, err)
	}
	if _, err := s.GetMsg(ctx(t), 99); err == nil {
		t.Error("there is message 99")
	}
	// The stream allows no direct get.
	if m, err := nc.Request("$JS.API.DIRECT.GET."+log, []byte(`{"seq":1}`), patience); err != nil || !strings.HasPrefix(m.Header.Get("Description"), "not permitted: ") {
		t.Errorf("%+v, %v", m, err)
	}
}

func readByConsumers(t *testing.T, nc *nats.Conn) {
	js := jetStream(t, nc)
	c, err := js.CreateConsumer(ctx(t), log, jetstream.ConsumerConfig{Durable: "reader", AckPolicy: jetstream.AckExplicitPolicy})
	check(t, err)
	for _, subject := range allEvents[:2] {
		m, err := c.Next(jetstream.FetchMaxWait(patience))
		if err != nil || m.Subject() != subject || m.DoubleAck(ctx(t)) != nil {
			t.Fatalf("%+v, %v", m, err)
		}
	}
	until := time.Now().Add(time.Hour)
	if r, err := js.PauseConsumer(ctx(t), log, "reader", until); err != nil || !r.Paused {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := js.ResumeConsumer(ctx(t), log, "reader"); err != nil || r.Paused {
		t.Errorf("%+v, %v", r, err)
	}
	var reset struct {
		Error    *jetstream.APIError
		ResetSeq uint64 `json:"reset_seq"`
	}
	m, err := nc.Request("$JS.API.CONSUMER.RESET."+log+".reader", []byte(`{"seq":2}`), patience)
	if err != nil || json.Unmarshal(m.Data, &reset) != nil || reset.Error != nil || reset.ResetSeq != 2 {
		t.Errorf("%+v, %v", reset, err)
	}
	if m, err := c.Next(jetstream.FetchMaxWait(patience)); err != nil || m.Subject() != allEvents[1] {
		t.Errorf("after the reset: %+v, %v", m, err)
	}
	check(t, js.DeleteConsumer(ctx(t), log, "reader"))
	if m, err := nc.Request("$JS.API.CONSUMER.RESET."+log+".reader", nil, patience); err != nil || !strings.Contains(string(m.Data), `"err_code":10014`) {
		t.Errorf("%+v, %v", m, err)
	}
	ordered, err := js.OrderedConsumer(ctx(t), log, jetstream.OrderedConsumerConfig{})
	check(t, err)
	for _, subject := range allEvents {
		if m, err := ordered.Next(jetstream.FetchMaxWait(patience)); err != nil || m.Subject() != subject {
			t.Fatalf("%+v, %v", m, err)
		}
	}
}

// readByLegacy reads with the older API, whose consumers push.
func readByLegacy(t *testing.T, nc *nats.Conn) {
	js, _ := nc.JetStream()
	for name, opts := range map[string][]nats.SubOpt{
		"plain": {}, "bound": {nats.BindStream(log)}, "ordered": {nats.OrderedConsumer()}, "bound and ordered": {nats.BindStream(log), nats.OrderedConsumer()},
		// Of names of their own: NATS may still write the state of a consumer that it has deleted.
		"durable": {nats.Durable("old")}, "acknowledged": {nats.Durable("acknowledged"), nats.AckExplicit(), nats.DeliverAll()},
		"flow": {nats.EnableFlowControl(), nats.IdleHeartbeat(time.Second)}, "headers": {nats.HeadersOnly()},
	} {
		got := make(chan string, 64)
		sub, err := js.Subscribe(db.Events()+">", func(m *nats.Msg) { got <- m.Subject }, opts...)
		if err != nil {
			t.Fatal(name, err)
		}
		want(t, got, allEvents...)
		// The info has the inbox as the client named it.
		if info, err := sub.ConsumerInfo(); err != nil || info.Config.DeliverSubject != sub.Subject {
			t.Errorf("%s: %+v, %v", name, info, err)
		}
		if err := sub.Unsubscribe(); err != nil {
			t.Fatal(name, err)
		}
	}
	sub, err := js.PullSubscribe(db.Events()+">", "pulled")
	check(t, err)
	if m, err := sub.Fetch(4, nats.MaxWait(patience)); err != nil || len(m) != 4 {
		t.Errorf("%d messages, %v", len(m), err)
	}
	check(t, sub.Unsubscribe())
}

// TestDeliverSubjects: a consumer can deliver only to _INBOX.> and to the inbox prefix of
// the connection that creates it.
func TestDeliverSubjects(t *testing.T) {
	t.Parallel()
	f := newServer(t)
	nc := f.connect(t, nats.CustomInboxPrefix("_MINE"))
	for subject, permitted := range map[string]bool{
		"_INBOX.x": true, "_MINE.x": true, "_OTHER.x": false, "_MINE": false, "_MINE.*": false, "_CLIENTS.x": false, db.Mutations() + "document.upsert.c.a": false, "$KV.x.y": false,
	} {
		body := fmt.Sprintf(`{"stream_name":%q,"config":{"deliver_subject":%q,"ack_policy":"explicit","max_ack_pending":1}}`, log, subject)
		m, err := nc.Request("$JS.API.CONSUMER.CREATE."+log, []byte(body), patience)
		if err != nil || strings.Contains(string(m.Data), "not permitted: deliver_subject") == permitted || strings.Contains(string(m.Data), `"error"`) == permitted {
			t.Errorf("%s: %+v, %v", subject, m, err)
		}
	}
}
