package projections

import (
	"fmt"
	"testing"

	"github.com/lapsedb/lapse/schema"
	"pgregory.net/rapid"
)

func view(t rapid.TB, s *Store, name schema.CollectionName) *View {
	t.Helper()
	v, ok, err := s.View(name)
	if !ok || err != nil {
		t.Fatalf("no view of %s: %v", name, err)
	}
	return v
}

// TestViewKeepsPosition: a view keeps its position whatever is folded: changes of documents, of
// the policy, and the collection's deletion.
func TestViewKeepsPosition(t *testing.T) {
	s, l := open(t), &logbook{now: 1000}
	l.collection(schema.CollectionCreated, "orders", `{"defaultTtl":10}`)
	l.collection(schema.CollectionCreated, "other", `{}`)
	a := l.created("orders", "a", `{"id":"a","n":1}`)
	b := l.created("orders", "b", `{"id":"b","n":1}`)
	l.created("other", "aa", `{"id":"aa"}`)
	catchUp(t, s, l)
	v := view(t, s, "orders")
	defer v.Close()
	l.now++
	l.document(schema.DocumentReplaced, "orders", "a", a, `{"id":"a","n":2}`)
	l.document(schema.DocumentDeleted, "orders", "b", b, "")
	l.created("orders", "c", `{"id":"c"}`)
	l.collection(schema.CollectionReplaced, "orders", `{}`)
	for range 2 {
		if v.Seq() != 5 || v.Time() != 1000_000 || v.Len() != 2 || v.Collection().DefaultTTL != 10 || v.Behind() != 0 {
			t.Errorf("the view is at %d with %d documents of %+v", v.Seq(), v.Len(), v.Collection())
		}
		for id, want := range map[string]string{"a": `{"id":"a","n":1}`, "b": `{"id":"b","n":1}`, "c": "", "aa": ""} {
			r, ok, err := v.Document([]byte(id))
			if ok != (want != "") || string(r.Body) != want || err != nil {
				t.Errorf("%s is %+v %t (%v)", id, r, ok, err)
			}
		}
		catchUp(t, s, l)
	}
	l.collection(schema.CollectionDeleted, "orders", `{}`)
	catchUp(t, s, l)
	if got := ids(t, v.Documents("", "")); got != "a b " {
		t.Errorf("the documents are %s", got)
	}
	if _, ok, err := s.View("orders"); ok || err != nil {
		t.Errorf("there is a view of a deleted collection (%v)", err)
	}
}

// ids returns the ids of an iterator's documents, and closes it.
func ids(t testing.TB, d *Documents) (all string) {
	t.Helper()
	for ok := d.First(); ok; ok = d.Next() {
		r, err := d.Record()
		if err != nil || string(r.Body) != fmt.Sprintf(`{"id":%q,"n":1}`, d.ID()) {
			t.Errorf("%s is %s (%v)", d.ID(), r.Body, err)
		}
		all += string(d.ID()) + " "
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	return all
}

func TestDocuments(t *testing.T) {
	s, l := open(t), &logbook{now: 1000}
	for _, name := range []string{"before", "orders", "past"} {
		l.collection(schema.CollectionCreated, name, `{}`)
		for _, id := range []string{"a", "b", "bb", "c"} {
			l.created(name, id, fmt.Sprintf(`{"id":%q,"n":1}`, id))
		}
	}
	catchUp(t, s, l)
	v := view(t, s, "orders")
	defer v.Close()
	for after, want := range map[schema.DocumentID]string{"": "a b bb c ", "a": "b bb c ", "b": "bb c ", "ba": "bb c ", "c": "", "d": ""} {
		if got := ids(t, v.Documents("", after)); got != want {
			t.Errorf("after %q are %s", after, got)
		}
	}
	for prefix, want := range map[string]string{"a": "a ", "b": "b bb ", "bb": "bb ", "bbb": "", "d": ""} {
		if got := ids(t, v.Documents(prefix, "")); got != want {
			t.Errorf("with prefix %q are %s", prefix, got)
		}
	}
	if got := ids(t, v.Documents("b", "b")); got != "bb " {
		t.Errorf("with prefix b after b are %s", got)
	}
	d := v.Documents("", "a")
	for _, step := range []struct {
		move func() bool
		want string
	}{
		{d.Last, "c"}, {d.Next, ""}, {d.First, "b"}, {d.Next, "bb"}, {d.Next, "c"},
	} {
		got := ""
		if step.move() {
			got = string(d.ID())
		}
		if got != step.want || d.Error() != nil {
			t.Errorf("the iterator is at %q, want %q (%v)", got, step.want, d.Error())
		}
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if d.First() || d.Error() == nil {
		t.Error("a closed iterator goes on")
	}
}
