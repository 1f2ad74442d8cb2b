package projections

import (
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/lapsedb/lapse/schema"
)

// TestCursorCheck: a log that lost its tail reuses sequence numbers, so the cursor
// distinguishes the event it folded from any other at the same sequence.
func TestCursorCheck(t *testing.T) {
	folded := schema.Event{Type: schema.DocumentExpired, Collection: "orders", ID: "ab", Previous: 2, Cause: 7, MsgID: "c",
		Deadline: schema.Deadline{At: 1000, TTL: 5, Rule: schema.RuleDocument}, Body: []byte(`{"id":"ab","ttl":5}`)}
	s, l := open(t), &logbook{now: 995}
	l.collection(schema.CollectionCreated, "orders", `{"defaultTtl":-1}`)
	l.created("orders", "ab", `{"id":"ab","ttl":5}`)
	l.now = 1000
	l.write(folded)
	catchUp(t, s, l)
	cursor := s.Cursor()
	if same := *l.facts[2].Event; !cursor.Check(&same) {
		t.Error("the event that was folded is not known")
	}
	for name, change := range map[string]func(e *schema.Event){
		"sequence":            func(e *schema.Event) { e.Seq++ },
		"time":                func(e *schema.Event) { e.Time++ },
		"type":                func(e *schema.Event) { e.Type = schema.DocumentDeleted },
		"collection":          func(e *schema.Event) { e.Collection = "carts" },
		"id":                  func(e *schema.Event) { e.ID = "b" },
		"previous":            func(e *schema.Event) { e.Previous-- },
		"deadline":            func(e *schema.Event) { e.Deadline.At++ },
		"ttl":                 func(e *schema.Event) { e.Deadline.TTL++ },
		"rule":                func(e *schema.Event) { e.Deadline.Rule = schema.RuleCollection },
		"cause":               func(e *schema.Event) { e.Cause = 0 },
		"message id":          func(e *schema.Event) { e.MsgID = "" },
		"body":                func(e *schema.Event) { e.Body = []byte(`{"id":"ab","ttl":6}`) },
		"where the id begins": func(e *schema.Event) { e.ID, e.MsgID = "a", "bc" },
		"all of it":           func(e *schema.Event) { *e = schema.Event{Seq: e.Seq} },
	} {
		other := *l.facts[2].Event
		if change(&other); cursor.Check(&other) {
			t.Errorf("another %s is not noticed", name)
		}
	}
	// The same event after a different history does not match either.
	if other := (Cursor{Seq: 3, Hash: cursor.Hash, Before: cursor.Before + 1}); other.Check(l.facts[2].Event) {
		t.Error("another past is not noticed")
	}
}

// TestIdentifyIsStored: the name that Identify sets is stored from the first fold on.
func TestIdentifyIsStored(t *testing.T) {
	fs := vfs.NewMem()
	s, l := openIn(t, fs), &logbook{now: 1000}
	s.Identify("LAPSE_main, made at noon")
	l.collection(schema.CollectionCreated, "orders", `{}`)
	catchUp(t, s, l)
	must(t, s.Close())
	s = openIn(t, fs)
	defer s.Close()
	if c := s.Cursor(); c.Stream != "LAPSE_main, made at noon" || c.Seq != 1 {
		t.Errorf("the cursor is %+v", c)
	}
}

// TestOpenRefusesUnreadable: Open refuses another format and malformed values.
func TestOpenRefusesUnreadable(t *testing.T) {
	cursor := []byte{keyCursor}
	for name, spoilt := range map[string]struct {
		key   []byte
		value string
	}{
		"an earlier format":    {cursor, string(Cursor{Format: formatVersion - 1}.encode())},
		"a later format":       {cursor, string(Cursor{Format: formatVersion + 1}.encode())},
		"no cursor":            {cursor, `seven`},
		"no collection":        {collectionKey(nil, "orders"), `{`},
		"no counts":            {statsKey(nil, 1), "\x80"},
		"counts without a sum": {statsKey(nil, 1), "\x00\x00\x00\x00\x00"},
		"no index definitions": {definitionsKey(nil, 1), `[]`},
		"no path to index":     {definitionsKey(nil, 1), `{"next":1,"indexes":[{"path":"x"}]}`},
	} {
		fs := vfs.NewMem()
		s, l := openIn(t, fs), &logbook{now: 1000}
		l.collection(schema.CollectionCreated, "orders", `{}`)
		catchUp(t, s, l)
		must(t, s.db.Set(spoilt.key, []byte(spoilt.value), pebble.NoSync))
		must(t, s.Close())
		if s, err := Open("projection", Options{FS: fs, CacheBytes: 1 << 20}); err == nil {
			t.Errorf("%s: opened at %+v", name, s.Cursor())
			s.Close()
		} else if !strings.HasPrefix(err.Error(), "projection: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
