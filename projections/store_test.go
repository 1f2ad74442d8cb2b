package projections

import (
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/lapsedb/lapse/schema"
	"pgregory.net/rapid"
)

// TestCloseFlushes: Close flushes, since there is no write-ahead log.
func TestCloseFlushes(t *testing.T) {
	fs := vfs.NewMem()
	s, l := openIn(t, fs), &logbook{now: 1000}
	l.collection(schema.CollectionCreated, "orders", `{"defaultTtl":10}`)
	catchUp(t, s, l)
	for _, id := range []string{"a", "b", "c"} {
		l.created("orders", id, `{"id":"`+id+`"}`)
		catchUp(t, s, l)
		before, cursor := contents(t, s, ""), s.Cursor()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = openIn(t, fs)
		if after := contents(t, s, ""); !maps.Equal(before, after) || s.Cursor() != cursor {
			t.Fatalf("%q at %+v became %q at %+v", before, cursor, after, s.Cursor())
		}
		if got, err := s.Count(collection(t, s, "orders"), 1000); got.Documents != int64(len(l.facts)-1) || err != nil {
			t.Fatalf("%d documents were folded, there are %+v (%v)", len(l.facts)-1, got, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestCrash cuts the power at a random moment of a random log. What is left is the
// state of the log up to the cursor, wherever that is, and folding continues from
// there.
func TestCrash(t *testing.T) {
	lost := 0
	rapid.Check(t, func(t *rapid.T) {
		l, _, _ := randomLog(t)
		fs := vfs.NewCrashableMem()
		s := openIn(t, fs)
		for s.Cursor().Seq < uint64(len(l.facts)) && rapid.IntRange(0, 9).Draw(t, "crash") > 0 {
			rest := l.since(s.Cursor().Seq)
			if err := s.Fold(rest[:rapid.IntRange(1, min(20, len(rest))).Draw(t, "fold")]); err != nil {
				t.Fatal(err)
			}
			if rapid.IntRange(0, 2).Draw(t, "flush") == 0 {
				if err := s.db.Flush(); err != nil {
					t.Fatal(err)
				}
			}
		}
		folded := s.Cursor().Seq
		left := fs.CrashClone(vfs.CrashCloneCfg{
			UnsyncedDataPercent: rapid.SampledFrom([]int{0, 50, 100}).Draw(t, "unsynced"),
			RNG:                 rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)),
		})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = openIn(t, left)
		defer s.Close()
		cursor := s.Cursor()
		if cursor.Seq > folded {
			t.Fatalf("the cursor is at %d, folded was up to %d", cursor.Seq, folded)
		}
		lost += int(folded - cursor.Seq)

		prefix := openIn(t, vfs.NewMem())
		defer prefix.Close()
		same := func() {
			t.Helper()
			if got, want := contents(t, s, "IJ"), contents(t, prefix, "IJ"); !maps.Equal(got, want) || s.Cursor() != prefix.Cursor() {
				t.Fatalf("after the crash: %q\nfolded from the log: %q", got, want)
			}
			now := (l.now + 1) * 1000
			for _, id := range []string{"m1", "m2"} {
				got, ok, err := s.Repeated(id, now)
				want, should, _ := prefix.Repeated(id, now)
				if ok != should || ok && got != want || err != nil {
					t.Fatalf("%s repeats %v %t, should %v %t (%v)", id, got, ok, want, should, err)
				}
			}
		}
		if err := prefix.Fold(l.facts[:cursor.Seq]); err != nil {
			t.Fatal(err)
		}
		same()
		catchUp(t, s, l)
		catchUp(t, prefix, l)
		same()
	})
	if lost == 0 {
		t.Error("no crash lost anything: this tests nothing")
	}
}

// TestReadWhileFolding: readers see a fold as a whole or not at all, without a race.
// Each fold here creates two documents and ends two, one of each expiry order.
func TestReadWhileFolding(t *testing.T) {
	s, l := open(t), &logbook{now: 1000}
	l.collection(schema.CollectionCreated, "orders", `{"defaultTtl":10}`)
	a, b := l.created("orders", "a", `{"id":"a","ttl":5}`), l.created("orders", "b", `{"id":"b"}`)
	catchUp(t, s, l)
	orders := collection(t, s, "orders")
	var readers sync.WaitGroup
	var reading atomic.Int64
	for range 3 {
		reading.Add(1)
		readers.Go(func() {
			defer reading.Add(-1)
			last := uint64(0)
			for range 200 {
				seq := s.Cursor().Seq
				if seq < last || seq%2 != 1 {
					t.Errorf("the cursor is at %d after %d", seq, last)
				}
				last = seq
				if err := s.Wait(t.Context(), seq); err != nil {
					t.Error(err)
				}
				n, err := s.Count(orders, 1007)
				if err != nil || n.Documents+n.Overdue != 2 || n.Pending+n.Overdue != 2 {
					t.Errorf("counted %+v (%v)", n, err)
				}
				r, ok, err := s.Document(orders, "a")
				if err != nil || !ok || uint64(r.Version) < seq-2 {
					t.Errorf("at %d or later a is %+v %t (%v)", seq, r, ok, err)
				}
				if lives, err := s.Lives("orders", "a", 5); err != nil || len(lives) == 0 {
					t.Errorf("a has lived %v (%v)", lives, err)
				}
				if len(s.Collections()) != 1 {
					t.Error("there is not one collection")
				}
				if _, _, err := s.Scan(Queue{1, ByTimestamp}, Entry{}, 1<<40, func(e Entry) bool { return e.ID == "b" }); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := int64(0); reading.Load() > 0; i++ {
		l.now = 1000 + i%10
		l.document(schema.DocumentExpired, "orders", "a", a, "")
		a = l.created("orders", "a", `{"id":"a","ttl":5}`)
		l.document(schema.DocumentDeleted, "orders", "b", b, "")
		b = l.created("orders", "b", `{"id":"b"}`)
		catchUp(t, s, l)
	}
	readers.Wait()
	if s.Cursor().Seq == 3 {
		t.Error("nothing was folded meanwhile")
	}
}
