package projections

import (
	"fmt"
	"testing"

	"github.com/lapsedb/lapse/schema"
)

// found returns the ids of an index's entries for a value or member, given in JSON.
func found(t testing.TB, v *View, path string, space Space, value string) (ids string) {
	t.Helper()
	for _, x := range v.Indexes() {
		if x.Path != path {
			continue
		}
		key := valueKey(value)
		it := v.Entries(x, space, key, KeyAfter(key))
		for it.Next() {
			e, err := it.Entry()
			must(t, err)
			ids += string(e.ID) + " "
		}
		must(t, it.Close())
		return ids
	}
	t.Fatalf("no index of %s", path)
	return ""
}

// TestLazy: a lazy index stays as it was until a slice updates it, and Behind reports
// its lag.
func TestLazy(t *testing.T) {
	s, l := open(t), &logbook{now: 1000}
	l.collection(schema.CollectionCreated, "orders", policy(schema.Lazy, "/n", "/tags"))
	a := l.created("orders", "a", `{"id":"a","n":1,"tags":["x"]}`)
	b := l.created("orders", "b", `{"id":"b","n":1,"tags":["x","y"]}`)
	l.created("orders", "c", `{"id":"c","n":1}`)
	check := func(step string, behind uint64, ones, xs string) {
		t.Helper()
		catchUp(t, s, l)
		v := view(t, s, "orders")
		defer v.Close()
		if v.Behind() != behind {
			t.Errorf("%s: behind is %d, want %d", step, v.Behind(), behind)
		}
		if got := found(t, v, "/n", ValueSpace, "1"); got != ones {
			t.Errorf("%s: n is 1 in %q, want %q", step, got, ones)
		}
		if got := found(t, v, "/tags", MemberSpace, `"x"`); got != xs {
			t.Errorf("%s: x is in tags of %q, want %q", step, got, xs)
		}
		checkIndexes(t, s, behind == 0)
	}
	index := func(limit int) {
		t.Helper()
		if _, err := s.Index(limit); err != nil {
			t.Fatal(err)
		}
	}
	check("created", 3, "", "")
	index(1)
	check("one indexed", 2, "a ", "a ")
	index(5)
	check("all indexed", 0, "a b c ", "a b ")
	a = l.document(schema.DocumentReplaced, "orders", "a", a, `{"id":"a","n":2}`)
	l.document(schema.DocumentDeleted, "orders", "b", b, ``)
	a = l.document(schema.DocumentReplaced, "orders", "a", a, `{"id":"a","n":1,"tags":["z"]}`)
	check("changed", 3, "a b c ", "a b ")
	// The slice indexes the current version of a, not the marked one.
	index(1)
	check("first indexed", 2, "a b c ", "b ")
	index(1)
	check("second indexed", 1, "a c ", "")
	index(1)
	check("third indexed", 0, "a c ", "")
	l.document(schema.DocumentExpired, "orders", "a", a, ``)
	l.created("orders", "a", `{"id":"a","n":3}`)
	check("ended and created", 2, "a c ", "")
	index(9)
	check("indexed again", 0, "c ", "")
	l.collection(schema.CollectionReplaced, "orders", policy(schema.Lazy, "/n", "/other"))
	l.created("orders", "d", `{"id":"d","n":1}`)
	catchUp(t, s, l)
	checkIndexes(t, s, false)
	drain(t, s, 1)
	checkIndexes(t, s, true)
	l.collection(schema.CollectionDeleted, "orders", ``)
	catchUp(t, s, l)
	if entries := contents(t, s, "MCSDEHXIJ"); len(entries) > 0 {
		t.Errorf("the deleted collection left %q", entries)
	}
	if more, err := s.Index(1); more || err != nil {
		t.Errorf("there is more: %t (%v)", more, err)
	}
}

// TestLazyBuildingAndChanges: neither changes nor the build of an index starve the
// other.
func TestLazyBuildingAndChanges(t *testing.T) {
	s, l := open(t), &logbook{now: 1000}
	l.collection(schema.CollectionCreated, "orders", `{}`)
	version := l.created("orders", "hot", `{"id":"hot","n":0}`)
	for i := range 50 {
		l.created("orders", fmt.Sprint(i), fmt.Sprintf(`{"id":"%d","n":%d}`, i, i))
	}
	l.collection(schema.CollectionReplaced, "orders", policy(schema.Lazy, "/n"))
	for n := 0; ; n++ {
		for i := range 10 {
			version = l.document(schema.DocumentReplaced, "orders", "hot", version, fmt.Sprintf(`{"id":"hot","n":%d}`, n+i))
		}
		catchUp(t, s, l)
		if _, err := s.Index(4); err != nil {
			t.Fatal(err)
		}
		checkIndexes(t, s, false)
		if !definitions(t, s, "orders").building() {
			break
		}
		if n > 50 {
			t.Fatal("it is never complete")
		}
	}
	drain(t, s, 4)
	checkIndexes(t, s, true)
}
