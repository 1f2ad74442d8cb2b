package projections

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/lapsedb/lapse/schema"
)

// TestTally: the counts of parts are those of a scan at the view's position, in memory
// and on disk, wherever the parts end and whichever part is not read.
func TestTally(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &logbook{now: 1000}
		s := openIn(t, vfs.NewMem())
		defer s.Close()
		l.collection(schema.CollectionCreated, "orders", `{}`)
		l.collection(schema.CollectionCreated, "zebras", `{}`)
		seconds := map[Order][]int64{}
		for i := range rapid.IntRange(0, 40).Draw(t, "documents") {
			l.now += rapid.Int64Range(0, 3).Draw(t, "later")
			id, body := fmt.Sprint(i), `{}`
			switch ttl := rapid.Int64Range(-1, 30).Draw(t, "ttl"); ttl {
			case 0:
				seconds[ByTimestamp] = append(seconds[ByTimestamp], l.now)
			case -1:
				body = `{"ttl":-1}`
			default:
				seconds[ByDeadline] = append(seconds[ByDeadline], l.now+ttl)
				body = fmt.Sprintf(`{"ttl":%d}`, ttl)
			}
			l.created("orders", id, body)
			l.created("zebras", id, body)
			if rapid.IntRange(0, 9).Draw(t, "flush") == 0 {
				catchUp(t, s, l)
				must(t, s.db.Flush())
			}
		}
		catchUp(t, s, l)
		v := view(t, s, "orders")
		defer v.Close()
		if rapid.Bool().Draw(t, "goes on") {
			l.created("orders", "more", `{"ttl":5}`)
			l.document(schema.DocumentExpired, "orders", "0", 3, "")
			catchUp(t, s, l)
		}
		ends := rapid.SliceOfN(rapid.OneOf(rapid.Int64Range(-5, 1000), rapid.Int64Range(1000, l.now+35)), 0, 8).Draw(t, "ends")
		slices.Sort(ends)
		for _, order := range []Order{ByDeadline, ByTimestamp} {
			want := make([]int64, len(ends)+1)
			for _, second := range seconds[order] {
				part, _ := slices.BinarySearch(ends, second+1)
				want[part]++
			}
			scanned := 0
			got, err := v.Tally(order, ends, func(n int) error { scanned += n; return nil })
			if err != nil || !slices.Equal(got, want) {
				t.Fatalf("order %d, %v at %v: %v, want %v (%v)", order, seconds[order], ends, got, want, err)
			}
			if scanned > len(seconds[order]) {
				t.Fatalf("%d of %d entries were scanned", scanned, len(seconds[order]))
			}
		}
	})
}

// TestTallySkipsTheLargest: Tally does not read the part with the most documents,
// whichever it is.
func TestTallySkipsTheLargest(t *testing.T) {
	s, l := open(t), &logbook{now: 1000}
	l.collection(schema.CollectionCreated, "orders", `{}`)
	for i := range 4000 {
		l.now = 1000 + int64(i/10) // ten a second
		l.created("orders", fmt.Sprint(i), `{}`)
	}
	catchUp(t, s, l)
	must(t, s.db.Flush())
	v := view(t, s, "orders")
	defer v.Close()
	for _, ends := range [][]int64{{1350, 1380}, {1020, 1350, 1380}, {1010, 1020, 1030, 1040}, {1010, 1350}, {0, 0, 5000, 5000}} {
		scanned := 0
		counts, err := v.Tally(ByTimestamp, ends, func(n int) error { scanned += n; return nil })
		must(t, err)
		sum := int64(0)
		for _, n := range counts {
			sum += n
		}
		if most := slices.Max(counts); int64(scanned) != 4000-most || sum != 4000 {
			t.Errorf("%v: %d were scanned for %v", ends, scanned, counts)
		}
	}
	stop := errors.New("enough")
	if _, err := v.Tally(ByTimestamp, []int64{1200}, func(int) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("it goes on: %v", err)
	}
}
