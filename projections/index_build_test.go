package projections

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/lapsedb/lapse/schema"
)

// policy returns collection properties with paths to index.
func policy(mode schema.IndexingMode, paths ...string) string {
	p := schema.DefaultProperties()
	p.IndexingMode, p.IncludedPaths = mode, paths
	return string(p.AppendJSON(nil))
}

// definitions returns the definitions of the indexes of a collection.
func definitions(t testing.TB, s *Store, name string) *indexSet {
	t.Helper()
	set := s.indexesOf(collection(t, s, name).Incarnation)
	if set == noIndexes {
		return set
	}
	value := contents(t, s, "")[string(definitionsKey(nil, collection(t, s, name).Incarnation))]
	if string(set.encode()) != value {
		t.Fatalf("the definitions are %s, in Pebble %s", set.encode(), value)
	}
	return set
}

// TestIndexSliceIsBoundedInBytes: large documents make slices shorter.
func TestIndexSliceIsBoundedInBytes(t *testing.T) {
	s, l := open(t), &logbook{now: 1000}
	l.collection(schema.CollectionCreated, "orders", `{}`)
	long := strings.Repeat("x", sliceBytes/4)
	for i := range 20 {
		l.created("orders", fmt.Sprintf("%02d", i), fmt.Sprintf(`{"id":"%02d","n":"%s"}`, i, long))
	}
	l.collection(schema.CollectionReplaced, "orders", policy(schema.Consistent, "/n"))
	catchUp(t, s, l)
	if slices := drain(t, s, 100); slices < 5 || slices > 6 {
		t.Errorf("5 MiB were indexed in %d slices", slices)
	}
	checkIndexes(t, s, true)
}

// TestPolicyChangeKeepsIndexes: a change of policy that keeps mode and paths of indexing
// leaves the indexes alone.
func TestPolicyChangeKeepsIndexes(t *testing.T) {
	s, l := open(t), &logbook{now: 1000}
	l.collection(schema.CollectionCreated, "orders", policy(schema.Consistent, "/n", "/m"))
	l.created("orders", "a", `{"id":"a","n":1}`)
	l.collection(schema.CollectionCreated, "plain", `{}`)
	l.created("plain", "a", `{"id":"a","n":1}`)
	catchUp(t, s, l)
	drain(t, s, 100)
	indexes := func() map[string]string {
		all := contents(t, s, "MCSDEHXIJ")
		return all
	}
	before := indexes()
	for _, properties := range []string{
		`{"defaultTtl":5,"indexingPolicy":{"includedPaths":[{"path":"/n"},{"path":"/m"}]}}`,
		`{"defaultTtl":-1,"previousImages":false,"indexingPolicy":{"includedPaths":[{"path":"/m"},{"path":"/n"}]}}`,
	} {
		l.collection(schema.CollectionReplaced, "orders", properties)
		l.collection(schema.CollectionReplaced, "plain", `{"defaultTtl":7}`)
		catchUp(t, s, l)
		if after := indexes(); !maps.Equal(before, after) {
			t.Errorf("%s made of %q %q", properties, before, after)
		}
		if len(s.IndexWork()) > 0 || len(s.busy) > 0 {
			t.Errorf("%s made work", properties)
		}
	}
	for key := range before {
		if key[0] == keyDefinitions && key != string(definitionsKey(nil, 1)) {
			t.Error("a collection without indexes has definitions")
		}
	}
}

// TestIndexWorkAfterOpen: Open announces unfinished index work, and collections share
// the slices.
func TestIndexWorkAfterOpen(t *testing.T) {
	fs := vfs.NewMem()
	s, l := openIn(t, fs), &logbook{now: 1000}
	for _, name := range []string{"built", "lazy", "other"} {
		l.collection(schema.CollectionCreated, name, `{}`)
		for _, id := range []string{"a", "b", "c"} {
			l.created(name, id, fmt.Sprintf(`{"id":%q,"n":1}`, id))
		}
	}
	l.collection(schema.CollectionReplaced, "built", policy(schema.Consistent, "/n"))
	l.collection(schema.CollectionCreated, "marked", policy(schema.Lazy, "/n"))
	l.created("marked", "a", `{"id":"a"}`)
	l.collection(schema.CollectionReplaced, "lazy", policy(schema.Lazy, "/n"))
	catchUp(t, s, l)
	reopen := func() {
		must(t, s.Close())
		s = openIn(t, fs)
	}
	var served []uint64
	for range 100 {
		reopen()
		if len(s.busy) == 0 {
			break
		}
		if len(s.IndexWork()) != 1 {
			t.Fatal("no work is signalled")
		}
		s.served = 0
		if len(served) > 0 {
			s.served = served[len(served)-1]
		}
		if _, err := s.Index(1); err != nil {
			t.Fatal(err)
		}
		served = append(served, s.served)
		checkIndexes(t, s, false)
	}
	defer s.Close()
	checkIndexes(t, s, true)
	if len(s.IndexWork()) != 0 {
		t.Error("work is signalled, and there is none")
	}
	if want := []uint64{1, 5, 14, 1, 5, 1, 5}; !slices.Equal(served, want) {
		t.Errorf("served were %v, want %v", served, want)
	}
}

// TestNoIndexes: a projection opened with NoIndexes keeps none, whatever the policy.
// Opened without it later, it gets them at the next change of the policy (not tested).
func TestNoIndexes(t *testing.T) {
	s, err := Open("projection", Options{FS: vfs.NewMem(), CacheBytes: 1 << 20, NoIndexes: true})
	must(t, err)
	defer s.Close()
	l := &logbook{now: 1000}
	l.collection(schema.CollectionCreated, "orders", policy(schema.Consistent, "/n"))
	l.collection(schema.CollectionCreated, "lazy", policy(schema.Lazy, "/n"))
	l.created("orders", "a", `{"id":"a","n":1}`)
	l.created("lazy", "a", `{"id":"a","n":1}`)
	l.collection(schema.CollectionDeleted, "orders", ``)
	catchUp(t, s, l)
	if got := contents(t, s, "MCSDEHXIJ"); len(got) > 0 {
		t.Errorf("there is %q", got)
	}
	v := view(t, s, "lazy")
	defer v.Close()
	if len(v.Indexes()) != 0 || v.Behind() != 0 {
		t.Errorf("the view has %+v", v.Indexes())
	}
}
