package writer

import (
	"testing"
	"time"

	"github.com/lapsedb/lapse/processor/clock"
	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/machine"
	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// TestPendingRepliesLimited: pending replies, including those without an event, are
// limited in number and bytes.
func TestPendingRepliesLimited(t *testing.T) {
	for _, term := range []*Term{
		{machine: idle(t), replyBytes: maxReplyBytes},
		{machine: idle(t), pendingReplies: make([]decided, maxReplies)},
	} {
		if !term.full() {
			t.Errorf("not full with %d pending replies of %d bytes", len(term.pendingReplies), term.replyBytes)
		}
	}
}

type noMeter struct{ Meter }

func (noMeter) Replied(*schema.Mutation, *schema.Batch, *schema.Error) {}

// idle returns a machine of an empty database.
func idle(t *testing.T) *machine.Machine {
	t.Helper()
	m, err := machine.NewMachine(projections.NewMemory())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestReplyBytesReleased: replyBytes no longer counts a pending reply after recovery or
// abandon.
func TestReplyBytesReleased(t *testing.T) {
	for name, end := range map[string]func(*Term){
		"recovered": func(term *Term) { term.settle(0) },
		"abandoned": func(term *Term) { term.abandon(unreachable) },
	} {
		o := machine.Outcome{Seq: 1, Body: make([]byte, 10)}
		term := &Term{replyBytes: len(o.Body), pendingReplies: []decided{{&Proposal{Done: func(machine.Outcome) {}}, 1, o, o.Seq}}}
		if end(term); term.replyBytes != 0 || len(term.pendingReplies) != 0 {
			t.Errorf("%s: %d pending replies of %d bytes are left", name, len(term.pendingReplies), term.replyBytes)
		}
	}
}

// TestPhases: a change of a collection with events in flight waits for them, and what is
// about that collection waits for the change; whatever comes after a new policy waits for
// the policy's expiries.
func TestPhases(t *testing.T) {
	events := observe.EventListener(nil).EnsureDefaults()
	w := New(Config{Meter: noMeter{}, Queue: 10, Synced: true, MaxDowntime: time.Hour, Events: events}, &eventlog.Log{}, nil,
		clock.New(clock.Config{Clock: clock.GoClock(), MaxStep: time.Minute, MaxDowntime: time.Hour, Events: events}, 0, true))
	term := w.newTerm()
	term.machine = idle(t)
	term.machine.Note(w.Clock.Millis(), schema.WriterStarted, nil)
	turn := func(want phase, tails ...string) {
		t.Helper()
		term.groups = []group{{}} // in flight: nothing is sent
		for _, tail := range tails {
			term.queue = append(term.queue, &Proposal{Mutation: schema.NewMutation(tail, []byte(`{"defaultTtl":1}`)), Done: func(machine.Outcome) {}})
		}
		if err := term.turn(); err != nil || term.phase != want {
			t.Fatalf("%v: phase %d, want %d (%v)", tails, term.phase, want, err)
		}
	}
	commit := func() {
		t.Helper()
		term.machine.Take()
		term.unsent, term.groups = nil, nil
		if err := term.machine.Commit(term.machine.Seq()); err != nil {
			t.Fatal(err)
		}
	}
	commit()
	turn(deciding, "collection.create.c")
	turn(deciding, "collection.replace.c")
	turn(deciding, "document.create.c.b", "document.create.d.b") // c changes when its creation is folded
	if len(term.queue) != 2 || !term.queue[0].changes() {
		t.Errorf("%d proposals are queued, want the change and what is about its collection", len(term.queue))
	}
	if ready, _ := term.look(); ready {
		t.Error("the change is ready while its collection is in flight")
	}
	commit()
	if ready, _ := term.look(); !ready {
		t.Error("the change waits for more than its collection")
	}
	turn(draining)
	turn(draining, "document.create.c.a")
	if len(term.queue) != 2 {
		t.Error("it decides while a new policy is in flight")
	}
	commit()
	turn(deciding)
}
