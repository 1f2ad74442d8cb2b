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
	js, err := jetstream.New(client)
	if err != nil {
		t.Fatal(err)
	}
	c := jetstream.ConsumerConfig{Durable: "billing", AckPolicy: jetstream.AckExplicitPolicy}
	if _, err := js.CreateConsumer(ctx(t), log, c); err != nil {
		t.Fatal(err)
	}
	// A push consumer, whose inbox the auditor may know.
	pushed, err := client.SubscribeSync(nats.NewInbox())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreatePushConsumer(ctx(t), log, jetstream.ConsumerConfig{Durable: "push", AckPolicy: jetstream.AckExplicitPolicy, DeliverSubject: pushed.Subject}); err != nil {
		t.Fatal(err)
	}

	nc := connect(t, s, "clients", nats.CustomInboxPrefix("_INBOX.auditor"))
	auditor, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	for _, inbox := range []string{"_INBOX.somebody", "_INBOX.somebody.1", nats.NewInbox() + ".1", pushed.Subject} {
		if err := nc.PublishRequest("$JS.API.CONSUMER.CREATE."+log+".billing", inbox, text); err != nil {
			t.Fatal(err)
		}
	}
	if m, err := pushed.NextMsg(30 * time.Second); err != nil || !strings.Contains(string(m.Data), "already exists") {
		t.Errorf("%+v, %v", m, err)
	}

	c.Description = "a client's"
	for _, inboxes := range []string{"_INBOX", "_INBOX.app", "my.inbox"} {
		js, err := jetstream.New(connect(t, s, "clients", nats.CustomInboxPrefix(inboxes)))
		if err != nil {
			t.Fatal(err)
		}
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
		if err != nil {
			t.Fatal(err)
		}
		c.Description += "+"
		if _, err := js.UpdateConsumer(ctx(t), log, c); allowed != (err == nil) || !allowed && !errors.Is(err, jetstream.ErrConsumerExists) {
			t.Errorf("somebody listens to %s: %v", subject, err)
		}
		if err := all.Unsubscribe(); err != nil {
			t.Fatal(err)
		}
	}
}
