package projections

import (
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lapsedb/lapse/schema"
)

// TestWarned: however the log is cut into folds, a version keeps the deadlines that it
// was warned of, also while it is held and when it is released, until a write. A warning
// that contradicts that changes nothing.
func TestWarned(t *testing.T) {
	l := &logbook{now: 1000}
	expiring := func(version schema.Version, deadline int64) {
		l.document(schema.DocumentExpiring, "c", "a", version, "")
		l.facts[len(l.facts)-1].Deadline = schema.Deadline{At: deadline, TTL: 1, Rule: schema.RuleCollection}
	}
	var want [][]int64 // after each event; nil for none
	after := func(warned ...int64) {
		for len(want) < len(l.facts) {
			want = append(want, warned)
		}
	}
	l.collection(schema.CollectionCreated, "c", `{"defaultTtl":10,"warnBefore":5}`)
	a := l.created("c", "a", `{"id":"a"}`)
	after()
	expiring(a, 1010)
	after(1010)
	expiring(a, 1010) // twice
	expiring(a+7, 1012)
	after(1010)
	expiring(a, 1012)
	after(1010, 1012)
	l.document(schema.DocumentHeld, "c", "a", a, `{"reason":"x"}`)
	l.document(schema.DocumentHeld, "c", "a", a, `{}`)
	expiring(a, 1013) // while it is held
	after()
	l.document(schema.DocumentReleased, "c", "a", a, `{}`)
	after(1010, 1012)
	l.document(schema.DocumentHeld, "c", "a", a, `{"reason":"y"}`)
	a = l.document(schema.DocumentTouched, "c", "a", a, "")
	after()
	l.document(schema.DocumentReleased, "c", "a", a, `{"reason":"y"}`)
	after()
	expiring(a, 1010)
	after(1010)
	a = l.document(schema.DocumentReplaced, "c", "a", a, `{"id":"a","ttl":3}`)
	after()
	expiring(a, 1003)
	after(1003)
	a = l.document(schema.DocumentTouched, "c", "a", a, "") // in the same second
	after()
	l.document(schema.DocumentHeld, "c", "a", a, `{}`)
	l.document(schema.DocumentReleased, "c", "a", a, `{}`)
	after()
	for step := 1; step <= len(l.facts); step++ {
		fs := vfs.NewMem()
		s := openIn(t, fs)
		for from := 0; from < len(l.facts); {
			to := min(from+step, len(l.facts))
			must(t, s.Fold(l.facts[from:to]))
			from = to
			if step == 1 { // with an empty cache
				must(t, s.Close())
				s = openIn(t, fs)
			}
			var warned []int64
			c := collection(t, s, "c")
			for _, order := range []Order{ByDeadline, ByTimestamp} {
				for _, e := range scan(t, s, Queue{c.Incarnation, order}, Entry{}) {
					warned = e.Warned
				}
			}
			if !slices.Equal(warned, want[to-1]) {
				t.Fatalf("in steps of %d, after event %d it was warned of %v, want %v", step, to, warned, want[to-1])
			}
		}
		if n := s.Cursor().Foreign; n != 3 {
			t.Errorf("in steps of %d, %d events did not fit, want 3", step, n)
		}
		if reason, err := s.Reason(collection(t, s, "c"), "a"); reason != "" || err != nil {
			t.Errorf("it is held for %q, %v", reason, err)
		}
		must(t, s.Close())
	}
}
