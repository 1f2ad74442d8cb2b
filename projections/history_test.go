package projections

import (
	"fmt"
	"math"
	"testing"

	"github.com/lapsedb/lapse/schema"
)

// TestLives: every end of an incarnation, over two incarnations of the collection, with and
// without the CollectionDeleted of those that had the document. Ids and names of the
// neighbours begin with those asked for.
func TestLives(t *testing.T) {
	s, l := open(t), &logbook{now: 1000}
	lives := func(id schema.DocumentID, limit int, want string) {
		t.Helper()
		catchUp(t, s, l)
		got, err := s.Lives("orders", id, limit)
		if fmt.Sprint(got) != want || err != nil {
			t.Errorf("the lives of %s ended at %v, want %s (%v)", id, got, want, err)
		}
	}
	whole := func(id schema.DocumentID, limit int, want string) {
		t.Helper()
		got, err := s.LivesAndDeletions("orders", id, math.MaxUint64, limit)
		if fmt.Sprint(got) != want || err != nil {
			t.Errorf("the history of %s begins at %v, want %s (%v)", id, got, want, err)
		}
	}
	lives("a", 10, "[]")
	l.collection(schema.CollectionCreated, "orders", `{"defaultTtl":10}`)
	l.collection(schema.CollectionCreated, "orders-of-old", `{}`)
	l.created("orders", "ab", `{"id":"ab"}`)
	l.created("orders-of-old", "a", `{"id":"a"}`)
	v := l.created("orders", "a", `{"id":"a"}`)
	lives("a", 10, "[5]")
	v = l.document(schema.DocumentReplaced, "orders", "a", v, `{"id":"a"}`)
	lives("a", 10, "[6]")
	l.document(schema.DocumentDeleted, "orders", "a", v, "")
	lives("a", 10, "[7]")
	v = l.created("orders", "a", `{"id":"a"}`)
	l.document(schema.DocumentExpired, "orders", "a", v, "")
	lives("a", 10, "[9 7]")
	l.created("orders", "a", `{"id":"a"}`)
	lives("a", 10, "[10 9 7]")
	whole("a", 10, "[10 9 7]")

	l.collection(schema.CollectionDeleted, "orders", `{}`)
	lives("a", 10, "[10 9 7]")
	whole("a", 10, "[11 10 9 7]")
	l.collection(schema.CollectionCreated, "orders", `{}`)
	lives("a", 10, "[10 9 7]")
	v = l.created("orders", "a", `{"id":"a"}`)
	lives("a", 10, "[13 10 9 7]")
	l.document(schema.DocumentDeleted, "orders", "a", v, "")
	lives("a", 10, "[14 10 9 7]")
	l.collection(schema.CollectionDeleted, "orders", `{}`)
	lives("a", 10, "[14 10 9 7]")
	lives("a", 3, "[14 10 9]")
	lives("a", 1, "[14]")
	lives("ab", 10, "[3]")
	lives("b", 10, "[]")
	whole("a", 10, "[14 11 10 9 7]") // the second deletion did not end it
	whole("a", 2, "[14 11]")
	whole("ab", 10, "[11 3]")
	whole("b", 10, "[]")
	for _, page := range []struct {
		last uint64
		want string
	}{{14, "[14 11]"}, {13, "[11 10]"}, {11, "[11 10]"}, {9, "[9 7]"}, {6, "[]"}} {
		if got, err := s.LivesAndDeletions("orders", "a", page.last, 2); fmt.Sprint(got) != page.want || err != nil {
			t.Errorf("the history of a up to %d begins at %v, want %s (%v)", page.last, got, page.want, err)
		}
	}
}

// TestPruneKeepsFirstSequence: Prune keeps the event at the given sequence, where the log
// begins.
func TestPruneKeepsFirstSequence(t *testing.T) {
	s, l := open(t), &logbook{now: 1000}
	l.collection(schema.CollectionCreated, "orders", `{}`)
	v := l.created("orders", "a", `{"id":"a"}`)
	l.document(schema.DocumentDeleted, "orders", "a", v, "")
	l.created("orders", "a", `{"id":"a"}`)
	l.collection(schema.CollectionDeleted, "orders", `{}`)
	catchUp(t, s, l)
	for _, step := range []struct {
		first       uint64
		want, whole string
	}{{3, "[4 3]", "[5 4 3]"}, {4, "[4]", "[5 4]"}, {5, "[4]", "[5 4]"}, {6, "[]", "[]"}} {
		if _, err := s.Prune(t.Context(), step.first); err != nil {
			t.Fatal(err)
		}
		if lives, err := s.Lives("orders", "a", 10); err != nil || fmt.Sprint(lives) != step.want {
			t.Errorf("with a log from %d the lives ended at %v, want %s (%v)", step.first, lives, step.want, err)
		}
		if whole, err := s.LivesAndDeletions("orders", "a", math.MaxUint64, 10); err != nil || fmt.Sprint(whole) != step.whole {
			t.Errorf("with a log from %d the history begins at %v, want %s (%v)", step.first, whole, step.whole, err)
		}
	}
}
