package cosmos

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/lapsedb/lapse/client"
)

// tailFor returns the tail of a log, which no reader fills.
func tailFor(t *testing.T, log client.LogState) *tail {
	tail := newTail(log, func() {})
	t.Cleanup(tail.end)
	return tail
}

// created is the next message of a log: the creation of a document in a collection.
func (t *tail) created(collection string, bytes int) bool {
	seq := t.last + 1
	return t.add(client.Entry{Seq: seq, Event: &client.Event{Seq: seq, Type: client.DocumentCreated, Collection: collection, ID: "a", Body: make(json.RawMessage, bytes)}})
}

// TestTailBegins: a tail begins as many events before the end of the log as are likely to fit.
func TestTailBegins(t *testing.T) {
	for _, c := range []struct {
		log  client.LogState
		from uint64
	}{
		{client.LogState{First: 1}, 1},
		{client.LogState{First: 5, Last: 4}, 5},
		{client.LogState{First: 1, Last: 300, Bytes: 300 << 10}, 1},
		{client.LogState{First: 100, Last: 300, Bytes: 300 << 10}, 100},
		{client.LogState{First: 1, Last: 30_000, Bytes: 30_000 << 10}, 20_001},
		{client.LogState{First: 1, Last: 30_000, Bytes: 30_000 << 20}, 30_001 - 64},
	} {
		if got := tailFor(t, c.log); got.from != c.from || got.last != c.from-1 {
			t.Errorf("%+v: from %d, %d read", c.log, got.from, got.last)
		}
	}
}

// TestTailKeeps: a tail has the last events, up to its number and its bytes, and says of which
// events it knows that there are none.
func TestTailKeeps(t *testing.T) {
	tail := tailFor(t, client.LogState{First: 1})
	for range maxTail + 5 {
		tail.created("orders", 10)
	}
	if len(tail.events) != maxTail || tail.from != 6 {
		t.Errorf("%d events from %d", len(tail.events), tail.from)
	}
	for range 40 {
		tail.created("orders", 2<<20)
	}
	if tail.bytes > maxTailBytes || len(tail.events) != 31 {
		t.Errorf("%d events of %d bytes", len(tail.events), tail.bytes)
	}
	tail.created("others", 1)
	last := tail.last
	for _, c := range []struct {
		collection string
		seq, end   uint64
		found      uint64
		ok         bool
	}{
		{"orders", tail.from - 1, last, 0, false},
		{"orders", tail.from, last, tail.from, true},
		{"others", tail.from, last, last, true},
		{"orders", last, last, 0, true},
		{"orders", last, last + 1, 0, false},
		{"none", tail.from, last, 0, true},
	} {
		found := uint64(0)
		e, ok := tail.next(c.collection, c.seq, c.end)
		if e != nil {
			found = e.Seq
		}
		if found != c.found || ok != c.ok {
			t.Errorf("%+v: %d, %t", c, found, ok)
		}
	}
	if !tail.add(client.Entry{Seq: last + 1, Fault: errors.New("no event")}) || tail.from != last+2 || len(tail.events) != 0 || tail.bytes != 0 {
		t.Errorf("after what is no event it has %d events from %d, %d bytes", len(tail.events), tail.from, tail.bytes)
	}
	if tail.add(client.Entry{Seq: 3, Event: &client.Event{Seq: 3}}) {
		t.Error("it reads on in another log")
	}
	tail.created("orders", 1)
	tail.end()
	if _, ok := tail.next("orders", last+2, last+2); ok || tail.created("orders", 1) {
		t.Error("it has events after its end")
	}
}
