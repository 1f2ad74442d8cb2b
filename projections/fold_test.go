package projections

import (
	"context"
	"maps"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/lapsedb/lapse/schema"
	"pgregory.net/rapid"
)

// TestFoldCollectionCreatedAgain: a deleted collection leaves no readable documents,
// expiry entries or counts to a new one of its name.
func TestFoldCollectionCreatedAgain(t *testing.T) {
	for _, together := range []bool{true, false} {
		s, l := open(t), &logbook{now: 1000}
		step := func() {
			if !together {
				catchUp(t, s, l)
			}
		}
		l.collection(schema.CollectionCreated, "orders", `{"defaultTtl":10}`)
		l.created("orders", "a", `{"id":"a"}`)
		b := l.created("orders", "b", `{"id":"b","ttl":5}`)
		l.document(schema.DocumentHeld, "orders", "b", b, `{}`) // a writer would not delete the collection
		step()
		l.collection(schema.CollectionDeleted, "orders", `{}`)
		step()
		l.collection(schema.CollectionCreated, "orders", `{"defaultTtl":10}`)
		step()
		l.created("orders", "b", `{"id":"b"}`)
		catchUp(t, s, l)
		c := collection(t, s, "orders")
		if read(t, s, "orders", "a") != "" || c.Incarnation != 6 {
			t.Errorf("a is there again in incarnation %d", c.Incarnation)
		}
		if got, err := s.Count(c, 1000); got != (Counts{Documents: 1, Bytes: 10, Pending: 1}) || err != nil {
			t.Errorf("the new collection counts %+v (%v)", got, err)
		}
		queued := 0
		for key := range contents(t, s, "") {
			if key[0] == keyHold {
				t.Errorf("a hold is left: %q", key)
			}
			if key[0] == keyExpiry {
				queued++
			}
		}
		if queued != 1 {
			t.Errorf("%d countdowns, want that of the new b", queued)
		}
	}
}

// TestFoldMismatchedEvents: events that contradict earlier ones, and messages that are not
// events, are counted and change nothing but the cursor.
func TestFoldMismatchedEvents(t *testing.T) {
	base := func() *logbook {
		l := &logbook{now: 1000}
		l.collection(schema.CollectionCreated, "orders", `{"defaultTtl":10}`)
		v := l.created("orders", "a", `{"id":"a","n":1}`)
		l.document(schema.DocumentReplaced, "orders", "a", v, `{"id":"a","n":2}`)
		v = l.created("orders", "gone", `{"id":"gone"}`)
		l.now = 1010
		l.document(schema.DocumentExpired, "orders", "gone", v, `{"id":"gone"}`)
		return l
	}
	for name, invalid := range map[string]schema.Event{
		"created over existing":       {Type: schema.DocumentCreated, Collection: "orders", ID: "a", Body: []byte(`{"id":"a"}`)},
		"replaced an old version":     {Type: schema.DocumentReplaced, Collection: "orders", ID: "a", Previous: 2, Body: []byte(`{"id":"a"}`)},
		"replaced nothing":            {Type: schema.DocumentReplaced, Collection: "orders", ID: "b", Previous: 2, Body: []byte(`{"id":"b"}`)},
		"deleted an old version":      {Type: schema.DocumentDeleted, Collection: "orders", ID: "a", Previous: 2},
		"deleted nothing":             {Type: schema.DocumentDeleted, Collection: "orders", ID: "b", Previous: 2},
		"expired a replaced version":  {Type: schema.DocumentExpired, Collection: "orders", ID: "a", Previous: 2},
		"expired twice":               {Type: schema.DocumentExpired, Collection: "orders", ID: "gone", Previous: 4},
		"expired nothing":             {Type: schema.DocumentExpired, Collection: "orders", ID: "b", Previous: 9},
		"in no collection":            {Type: schema.DocumentCreated, Collection: "carts", ID: "a", Body: []byte(`{"id":"a"}`)},
		"not JSON":                    {Type: schema.DocumentCreated, Collection: "orders", ID: "b", Body: []byte(`{"id"}`)},
		"another's document":          {Type: schema.DocumentCreated, Collection: "orders", ID: "b", Body: []byte(`{"id":"c"}`)},
		"malformed replacement":       {Type: schema.DocumentReplaced, Collection: "orders", ID: "a", Previous: 3, Body: []byte(`[]`)},
		"collection created twice":    {Type: schema.CollectionCreated, Collection: "orders", Body: []byte(`{}`)},
		"no collection replaced":      {Type: schema.CollectionReplaced, Collection: "carts", Body: []byte(`{}`)},
		"no collection deleted":       {Type: schema.CollectionDeleted, Collection: "carts"},
		"illegal properties":          {Type: schema.CollectionReplaced, Collection: "orders", Body: []byte(`{"defaultTtl":0}`)},
		"illegal properties from new": {Type: schema.CollectionCreated, Collection: "carts", Body: []byte(`{"x":0}`)},
		"foreign message":             {Type: schema.NoEvent},
		"with a message id":           {Type: schema.DocumentCreated, Collection: "orders", ID: "a", MsgID: "m", Body: []byte(`{"id":"a"}`)},
	} {
		t.Run(name, func(t *testing.T) {
			s, l := open(t), base()
			catchUp(t, s, l)
			before, cursor := contents(t, s, "M"), s.Cursor()
			l.write(invalid)
			catchUp(t, s, l)
			if after := contents(t, s, "M"); !maps.Equal(before, after) {
				t.Errorf("%q became %q", before, after)
			}
			if now := s.Cursor(); now.Seq != cursor.Seq+1 || now.Foreign != cursor.Foreign+1 || now.Hash == cursor.Hash || now.Before != cursor.Hash {
				t.Errorf("the cursor was %+v and is %+v", cursor, now)
			}
			// Later events fold as if it did not exist.
			l.document(schema.DocumentReplaced, "orders", "a", 3, `{"id":"a","n":3}`)
			catchUp(t, s, l)
			if got := read(t, s, "orders", "a"); got != `{"id":"a","n":3}` {
				t.Errorf("then a is %s", got)
			}
		})
	}
}

// TestFoldRejections: events without a document move the cursor, including Mutations.
func TestFoldRejections(t *testing.T) {
	s, l := open(t), &logbook{now: 1000}
	l.write(schema.Event{Type: schema.MutationRejected, Collection: schema.InvalidCollection, Cause: 4, MsgID: "m", Body: []byte(`{}`)})
	l.write(schema.Event{Type: schema.MutationRepeated, Cause: 6})
	l.write(schema.Event{Type: schema.LogPadded, Body: []byte(`{"left":0,"padding":""}`)})
	l.write(schema.Event{Type: schema.LogPadded, Body: []byte(`{"left":1,"padding":""}`)})
	l.write(schema.Event{Type: schema.WriterStarted})
	catchUp(t, s, l)
	if c := s.Cursor(); c.Seq != 5 || c.Last != 1 || c.Padded != 3 || c.Mutations != 6 || c.Foreign != 0 || c.Time != 1000_000 {
		t.Errorf("the cursor is %+v", c)
	}
	// A digest does not count internal events, since exports lack them.
	if d := s.Digest(); d != (Digest{Seq: 1, Sum: open(t).Digest().Sum}) {
		t.Errorf("the digest is %v", d)
	}
	if _, ok, err := s.Repeated("m", 1000_000); ok || err != nil {
		t.Errorf("a refused mutation is remembered (%v)", err)
	}
}

func TestFoldRefusesFoldedEvents(t *testing.T) {
	s, l := open(t), &logbook{now: 1000}
	l.collection(schema.CollectionCreated, "orders", `{}`)
	l.collection(schema.CollectionCreated, "carts", `{}`)
	catchUp(t, s, l)
	before := contents(t, s, "")
	l.created("orders", "a", `{"id":"a"}`)
	if err := s.Fold([]Fact{l.facts[2], l.facts[1]}); err == nil {
		t.Error("an event that is folded was folded again")
	}
	if after := contents(t, s, ""); !maps.Equal(before, after) || s.Cursor().Seq != 2 {
		t.Errorf("a fold that failed left %q at %d", after, s.Cursor().Seq)
	}
}

// TestFoldIsDeterministic: a log folds to the same bytes however it is cut into
// folds, and with or without Known facts. Message ids are excluded, since when they are
// forgotten depends on the folds.
func TestFoldIsDeterministic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, known, foreign := randomLog(t, rapid.IntRange(0, 60).Draw(t, "events"))
		fold := func(facts []Fact, most int) (map[string]string, Cursor, Digest) {
			s := openIn(t, vfs.NewMem())
			defer s.Close()
			for len(facts) > 0 {
				n := rapid.IntRange(1, min(most, len(facts))).Draw(t, "fold")
				must(t, s.Fold(facts[:n]))
				facts = facts[n:]
			}
			if d, err := s.Verify(context.Background()); d != s.Digest() || err != nil {
				t.Fatalf("the documents add up to %v, the digest kept is %v (%v)", d, s.Digest(), err)
			}
			return contents(t, s, "IJ"), s.Cursor(), s.Digest()
		}
		want, cursor, digest := fold(l.facts, 1)
		if cursor.Foreign != foreign || cursor.Seq != uint64(len(l.facts)) {
			t.Fatalf("the cursor is %+v, %d of %d are foreign", cursor, foreign, len(l.facts))
		}
		for name, facts := range map[string][]Fact{"bare": l.facts, "known": known} {
			got, at, d := fold(facts, 100)
			if !maps.Equal(got, want) || at != cursor || d != digest {
				t.Fatalf("%s, in pieces: %q at %+v, %v\none by one: %q at %+v, %v", name, got, at, d, want, cursor, digest)
			}
		}
	})
}
