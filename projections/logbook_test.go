package projections

import (
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/lapsedb/lapse/schema"
	"pgregory.net/rapid"
)

// logbook writes a log for tests, event by event. Its clock moves only if a test sets
// it.
type logbook struct {
	now   int64 // seconds since 1970
	facts []Fact
}

func (l *logbook) write(e schema.Event) schema.Version {
	e.Seq, e.Time = uint64(len(l.facts))+1, l.now*1000
	l.facts = append(l.facts, Fact{Event: &e})
	return schema.Version(e.Seq)
}

func (l *logbook) collection(t schema.EventType, name, properties string) schema.Version {
	return l.write(schema.Event{Type: t, Collection: schema.CollectionName(name), Body: []byte(properties)})
}

func (l *logbook) created(collection, id, body string) schema.Version {
	return l.document(schema.DocumentCreated, collection, id, 0, body)
}

func (l *logbook) document(t schema.EventType, collection, id string, previous schema.Version, body string) schema.Version {
	return l.write(schema.Event{Type: t, Collection: schema.CollectionName(collection), ID: schema.DocumentID(id), Previous: previous, Body: []byte(body)})
}

// since returns the facts after sequence seq.
func (l *logbook) since(seq uint64) []Fact { return l.facts[seq:] }

// openIn opens a small projection in fs; the caller closes it.
func openIn(t rapid.TB, fs vfs.FS) *Store {
	t.Helper()
	s, err := Open("projection", Options{FS: fs, CacheBytes: 1 << 20, MemTableBytes: 256 << 10})
	must(t, err)
	return s
}

// open opens a projection in memory and closes it at the end of the test.
func open(t testing.TB) *Store {
	t.Helper()
	s := openIn(t, vfs.NewMem())
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// catchUp folds the events of the log that s lacks, in one call.
func catchUp(t rapid.TB, s *Store, l *logbook) {
	t.Helper()
	must(t, s.Fold(l.since(s.Cursor().Seq)))
}

func collection(t rapid.TB, s *Store, name string) *schema.Collection {
	t.Helper()
	c, ok := s.Collection(schema.CollectionName(name))
	if !ok {
		t.Fatalf("there is no collection %s", name)
	}
	return c
}

// read returns a document's JSON, "" if there is none.
func read(t rapid.TB, s *Store, name, id string) string {
	t.Helper()
	r, _, err := s.Document(collection(t, s, name), schema.DocumentID(id))
	must(t, err)
	return string(r.Body)
}

// contents returns every key and value, except those whose first byte is in without.
func contents(t rapid.TB, s *Store, without string) map[string]string {
	t.Helper()
	all := make(map[string]string)
	must(t, s.scan(nil, func(key, value []byte) error {
		if strings.IndexByte(without, key[0]) < 0 {
			all[string(key)] = string(value)
		}
		return nil
	}))
	return all
}

// must ends the test on an error.
func must(t rapid.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
