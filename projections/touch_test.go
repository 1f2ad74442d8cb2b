package projections

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lapsedb/lapse/schema"
)

// TestTouches: whether content is in the cache or not, small or large, indexed or not, in
// memtables or compacted files, a document that is touched, held and released has its last
// content, and knows its version, with the version and _ts of its last touch. So do its
// entries in the expiry order and in indexes.
func TestTouches(t *testing.T) {
	fs := vfs.NewMem()
	s := openIn(t, fs)
	reopen := func() {
		t.Helper()
		must(t, s.Close())
		s = openIn(t, fs) // with an empty cache
	}
	l := &logbook{now: 1000}
	large := strings.Repeat("x", 3*headWhole)
	bodies := map[string]string{"small": `{"id":"small","n":1}`, "large": `{"id":"large","n":1,"x":"` + large + `"}`}
	last, content := map[string]schema.Version{}, map[string]schema.Version{}
	for name, properties := range map[string]string{"plain": `{"defaultTtl":100}`, "indexed": `{"defaultTtl":100,"indexingPolicy":{"includedPaths":[{"path":"/n"}]}}`} {
		l.collection(schema.CollectionCreated, name, properties)
		for id, body := range bodies {
			last[name+"/"+id] = l.created(name, id, body)
			content[name+"/"+id] = last[name+"/"+id]
		}
	}
	check := func(when string) {
		t.Helper()
		for path, version := range last {
			name, id, _ := strings.Cut(path, "/")
			r, ok, err := s.Document(collection(t, s, name), schema.DocumentID(id))
			if err != nil || !ok || r.Version != version || r.TS != l.facts[version-1].Time/1000 || string(r.Body) != bodies[id] || r.ContentVersion() != content[path] {
				t.Fatalf("%s: %s is %t %v %+v with %d bytes, want version %d of content %d", when, path, ok, err, r.Meta, len(r.Body), version, content[path])
			}
		}
		if d, err := s.Verify(context.Background()); err != nil || d != s.Digest() {
			t.Fatalf("%s: %v, the digest is %s and %s", when, err, d, s.Digest())
		}
	}
	for round := range 200 {
		l.now++
		for path := range last {
			name, id, _ := strings.Cut(path, "/")
			last[path] = l.document(schema.DocumentTouched, name, id, last[path], "")
			if kind := []schema.EventType{schema.DocumentHeld, schema.DocumentReleased}[round%2]; round%5 < 4 {
				l.document(kind, name, id, last[path], `{"reason":"x"}`)
			}
		}
		if round%3 == 0 || round == 50 || round == 160 {
			catchUp(t, s, l)
			check(fmt.Sprint("round ", round))
		}
		switch round {
		case 10, 150:
			reopen()
		case 50, 160:
			must(t, s.Compact(context.Background()))
			check("compacted")
		case 100:
			reopen()
			bodies["large"] = `{"id":"large","n":2}`
			for _, name := range []string{"plain", "indexed"} {
				last[name+"/large"] = l.document(schema.DocumentReplaced, name, "large", last[name+"/large"], bodies["large"])
				content[name+"/large"] = last[name+"/large"]
			}
		}
	}
	catchUp(t, s, l)
	reopen()
	check("at the end")
	held := 0
	must(t, s.EachHeld(func(schema.CollectionName, schema.DocumentID) { held++ }))
	if counted := s.stats[collection(t, s, "plain").Incarnation].held; held != len(last) || counted != 2 {
		t.Errorf("%d are held, want all %d; %d are counted of the two in one collection", held, len(last), counted)
	}
	for path, version := range last {
		name, id, _ := strings.Cut(path, "/")
		l.document(schema.DocumentDeleted, name, id, version, "")
	}
	catchUp(t, s, l)
	if n := s.stats[collection(t, s, "plain").Incarnation]; n.documents != 0 {
		t.Errorf("%d documents are left", n.documents)
	}
	must(t, s.Close())
}

// TestHeadCost: a change of the head of a large document writes a KiB on average, and of a
// small one an eighth of it, whatever the sequences.
func TestHeadCost(t *testing.T) {
	for _, size := range []int64{0, 1 << 10, 64 << 10, 2 << 20} {
		for _, step := range []uint64{1, 2, 8, 1000} {
			const changes = 1 << 16
			whole := int64(0)
			for n := range uint64(changes) {
				if writesWhole(1+n*step, size) {
					whole++
				}
			}
			if most := max(size/8, 1<<10) * changes * 2; whole == 0 || whole*size > most {
				t.Errorf("every %d-th event: %d of %d changes write %d bytes", step, whole, changes, size)
			}
		}
	}
}
