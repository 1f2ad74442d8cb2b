package client_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/schema"
)

// often is a heartbeat for tests that wait for several.
var often = client.Heartbeat(200 * time.Millisecond)

// TestPushedSurvivesItsConsumer: a reader whose consumer is lost, as with the node that
// has it, goes on after its last event.
func TestPushedSurvivesItsConsumer(t *testing.T) {
	t.Parallel()
	s := newStandin(t).log()
	s.created("orders", "a")
	ctx := patient(t)
	var got []string
	for e, err := range s.client(importedAPI, often).Changes(ctx, client.FromStart()) {
		check(t, err)
		if got = append(got, e.ID); len(got) == 3 {
			break
		}
		log := s.stream()
		for name := range log.ConsumerNames(ctx).Name() {
			if !strings.HasPrefix(name, schema.ReaderConsumer) {
				t.Errorf("consumer %s", name)
			}
			check(t, log.DeleteConsumer(ctx, name))
		}
		s.created("orders", fmt.Sprint(len(got)))
	}
	if strings.Join(got, " ") != "a 1 2" {
		t.Error(got)
	}
}

// TestPushedWaitsForReader: while the body of a loop does not return, NATS does not push
// more than flow control allows, and nothing is lost. User app may not answer it.
func TestPushedWaitsForReader(t *testing.T) {
	t.Parallel()
	const events, size = 100, 900 << 10
	s := newStandin(t).log()
	body := strings.Repeat("x", size)
	for i := range events {
		s.expired("orders", fmt.Sprint(i), `{"id":"`+body+`"}`)
	}
	for _, err := range s.client(importedAPI, often).Changes(t.Context(), client.FromStart()) {
		if err != nil && !strings.Contains(err.Error(), "$JS.FC.LAPSE_main.>") {
			t.Errorf("without flow control: %v", err)
		}
	}
	nc := s.connect("lapse")
	c := s.over(nc, importedAPI)
	n := 0
	for e, err := range c.Changes(t.Context(), client.FromStart(), client.UntilNow()) {
		check(t, err)
		if e.ID != fmt.Sprint(n) {
			t.Fatalf("event %d is %s", n, e.ID)
		}
		if n++; n == 1 {
			// A reply comes after all that was pushed before the question.
			for before, now := uint64(0), uint64(size); now-before > size/2; before, now = now, nc.Stats().InBytes {
				for range 20 {
					if _, err := c.Status(t.Context()); !errors.Is(err, client.ErrUnavailable) {
						t.Fatal(err)
					}
				}
			}
			if arrived := nc.Stats().InBytes; arrived > events*size*2/3 {
				t.Errorf("%d MiB were pushed to a reader that does not read", arrived>>20)
			}
		}
	}
	if n != events {
		t.Errorf("%d events", n)
	}
}

// TestPushedHoldsSmallMessages: a slow reader gets all messages, however many are pushed in
// the meantime: nats.go holds only so many for a subscription without a callback.
func TestPushedHoldsSmallMessages(t *testing.T) {
	t.Parallel()
	const events = 100
	s := newStandin(t).log()
	for i := range events {
		s.created("orders", fmt.Sprint(i))
	}
	nc := s.connect("lapse", nats.SyncQueueLen(events/10))
	c := s.over(nc, importedAPI)
	n := 0
	for e, err := range c.Changes(t.Context(), client.FromStart(), client.UntilNow()) {
		if err != nil {
			t.Fatalf("after %d events: %v", n, err)
		}
		if e.ID != fmt.Sprint(n) {
			t.Fatalf("event %d is %s", n, e.ID)
		}
		if n++; n == 1 {
			eventually(t, "all is pushed", func() bool { return nc.Stats().InMsgs > events })
		}
	}
	if n != events {
		t.Errorf("%d events", n)
	}
}

// TestImportedErrors: what is missing in an account that imports the log is said.
func TestImportedErrors(t *testing.T) {
	t.Parallel()
	s := newStandin(t).log()
	for _, bad := range []string{"LAPSE.>", "LAPSE.*"} {
		if _, err := client.New(s.connect("app"), client.APIPrefix(bad)); !errors.Is(err, client.ErrBadRequest) {
			t.Errorf("prefix %q: %v", bad, err)
		}
	}
	if _, err := client.New(s.connect("app"), importedAPI, client.WithJetStreamDomain("hub")); !errors.Is(err, client.ErrBadRequest) {
		t.Errorf("a prefix and a domain: %v", err)
	}
	// A gate answers pulls in place of the consumer.
	s.subscribe("GATE.API.>", func(m *nats.Msg) {
		if tail := strings.TrimPrefix(m.Subject, "GATE.API."); !strings.HasPrefix(tail, "CONSUMER.MSG.NEXT.") {
			_ = s.nc.PublishRequest("$JS.API."+tail, m.Reply, m.Data)
			return
		}
		_ = m.RespondMsg(&nats.Msg{Header: nats.Header{"Status": {"409"}, "Description": {"not permitted: import it by name"}}})
	})
	gated := s.as("lapse", client.APIPrefix("GATE.API"))
	for _, err := range gated.Changes(t.Context(), client.Durable("gated")) {
		if !errors.Is(err, client.ErrUnavailable) || !strings.Contains(err.Error(), "refused: import it by name") {
			t.Errorf("pulls through a gate: %v", err)
		}
	}
	elsewhere := s.as("lapse", client.APIPrefix("ELSEWHERE.API"))
	for name, opts := range map[string][]client.FeedOption{"pushed": {client.FromStart()}, "durable": {client.Durable("d")}} {
		for _, err := range elsewhere.Changes(t.Context(), opts...) {
			if !errors.Is(err, client.ErrUnavailable) || !errors.Is(err, nats.ErrNoResponders) || !strings.Contains(err.Error(), "ELSEWHERE.API.") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
