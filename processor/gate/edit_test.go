package gate_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestEditors: a client that receives replies as client libraries do edits a consumer. An
// auditor, who may create consumers only, edits none, whatever inbox it names.
func TestEditors(t *testing.T) {
	s := newServer(t)
	open(t, s)
	client := connect(t, s, "clients")
	js := jetStream(t, client)
	c := jetstream.ConsumerConfig{Durable: "billing", AckPolicy: jetstream.AckExplicitPolicy}
	must(t)(js.CreateConsumer(ctx(t), log, c))
	// A push consumer, whose inbox the auditor may know.
	pushed, err := client.SubscribeSync(nats.NewInbox())
	check(t, err)
	must(t)(js.CreatePushConsumer(ctx(t), log, jetstream.ConsumerConfig{Durable: "push", AckPolicy: jetstream.AckExplicitPolicy, DeliverSubject: pushed.Subject}))

	nc := connect(t, s, "clients", nats.CustomInboxPrefix("_INBOX.auditor"))
	auditor := jetStream(t, nc)
	c.Description = "an auditor's"
	for how, ask := range map[string]func() error{
		"either": func() error { _, err := auditor.CreateOrUpdateConsumer(ctx(t), log, c); return err },
		"update": func() error { _, err := auditor.UpdateConsumer(ctx(t), log, c); return err },
	} {
		if err := ask(); !errors.Is(err, jetstream.ErrConsumerExists) || !strings.Contains(err.Error(), "an auditor edits no consumer") {
			t.Errorf("%s: %v", how, err)
		}
	}
	text, err := json.Marshal(map[string]any{"stream_name": log, "config": c, "action": "update"})
	check(t, err)
	for _, inbox := range []string{"_INBOX.somebody", "_INBOX.somebody.1", nats.NewInbox() + ".1", pushed.Subject} {
		check(t, nc.PublishRequest("$JS.API.CONSUMER.CREATE."+log+".billing", inbox, text))
	}
	if m, err := pushed.NextMsg(30 * time.Second); err != nil || !strings.Contains(string(m.Data), "already exists") {
		t.Errorf("%+v, %v", m, err)
	}

	c.Description = "a client's"
	for _, inboxes := range []string{"_INBOX", "_INBOX.app", "my.inbox"} {
		js := jetStream(t, connect(t, s, "clients", nats.CustomInboxPrefix(inboxes)))
		was, err := js.Consumer(ctx(t), log, "billing")
		if err != nil || was.CachedInfo().Config.Description == "an auditor's" {
			t.Fatalf("edited by an auditor: %v", err)
		}
		c.Description += "+"
		edited, err := js.UpdateConsumer(ctx(t), log, c)
		if err != nil || edited.CachedInfo().Config.Description != c.Description {
			t.Errorf("%s: %v", inboxes, err)
		}
	}
	for subject, allowed := range map[string]bool{"_INBOX.>": false, "_INBOX.*.*": false, "other.>": true} {
		all, err := client.SubscribeSync(subject)
		check(t, err)
		c.Description += "+"
		if _, err := js.UpdateConsumer(ctx(t), log, c); allowed != (err == nil) || !allowed && !errors.Is(err, jetstream.ErrConsumerExists) {
			t.Errorf("somebody listens to %s: %v", subject, err)
		}
		check(t, all.Unsubscribe())
	}
}
