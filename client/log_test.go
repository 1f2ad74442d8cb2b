package client_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/client"
)

// TestLog: Log and LogBounds include internal events and foreign messages, and begin at
// the first message that the stream still has.
func TestLog(t *testing.T) {
	s := newStandin(t).log()
	c := s.client()
	read := func() string {
		t.Helper()
		var got []string
		for entry, err := range c.Log(t.Context()) {
			switch {
			case err != nil:
				t.Fatal(err)
			case entry.Event == nil:
				got = append(got, fmt.Sprintf("%d %v", entry.Seq, entry.Fault))
			default:
				got = append(got, fmt.Sprintf("%d %s", entry.Event.Seq, entry.Event.Type))
			}
		}
		return strings.Join(got, ", ")
	}
	bounds := func() string {
		t.Helper()
		first, last, err := c.LogBounds(t.Context())
		check(t, err)
		return fmt.Sprint(first, " ", last)
	}
	if got := bounds() + ": " + read(); got != "1 0: " {
		t.Errorf("the empty log is %s", got)
	}
	s.internal()
	s.created("orders", "a")
	foreign := nats.NewMsg("lapse.main.events.orders.DocumentCreated")
	foreign.Header.Set("Lapse-Time", "now")
	must(t)(s.js.PublishMsg(t.Context(), foreign))
	s.internal()
	const want = `2 DocumentCreated, 3 event 3: header Lapse-Id:`
	if got := bounds() + ": " + read(); !strings.HasPrefix(got, "1 4: 1 WriterStarted, "+want) || !strings.HasSuffix(got, ", 4 WriterStarted") {
		t.Errorf("the log is %s", got)
	}
	stream := s.stream()
	check(t, stream.Purge(t.Context(), jetstream.WithPurgeSequence(2)))
	if got := bounds() + ": " + read(); !strings.HasPrefix(got, "2 4: "+want) {
		t.Errorf("what is left of the log is %s", got)
	}
	check(t, stream.Purge(t.Context()))
	if got := bounds() + ": " + read(); got != "5 4: " {
		t.Errorf("nothing is left of the log but %s", got)
	}
}

// TestFollow: Follow has internal events, waits for those to come, and ends when its consumer
// is lost, where Changes goes on.
func TestFollow(t *testing.T) {
	t.Parallel()
	s := newStandin(t).log()
	c := s.client()
	s.internal()
	s.internal()
	s.created("orders", "a")
	var got []uint64
	var ended error
	for entry, err := range c.Follow(t.Context(), 2) {
		if err != nil {
			ended = err
			continue
		}
		if got = append(got, entry.Seq); len(got) == 2 {
			s.internal()
		} else if len(got) == 3 {
			log := s.stream()
			for name := range log.ConsumerNames(t.Context()).Name() {
				check(t, log.DeleteConsumer(t.Context(), name))
			}
		}
	}
	if fmt.Sprint(got) != "[2 3 4]" || ended == nil {
		t.Errorf("read %v, ended with %v", got, ended)
	}
	for _, err := range c.Follow(t.Context(), 6) {
		if !errors.Is(err, client.ErrBadRequest) {
			t.Errorf("beyond the end: %v", err)
		}
	}
	for of, want := range map[client.EventType]string{client.DocumentCreated: "map[orders:1]", client.DocumentExpired: "map[]"} {
		if counts, err := c.CountEvents(t.Context(), of); err != nil || fmt.Sprint(counts) != want {
			t.Errorf("%s: %v, %v", of, counts, err)
		}
	}
	state, err := c.LogState(t.Context())
	if err != nil || state.First != 1 || state.Last != 4 || state.Bytes == 0 || state.Created.IsZero() {
		t.Errorf("%+v, %v", state, err)
	}
}
