package projections

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/lapsedb/lapse/schema"
	"pgregory.net/rapid"
)

func legalID() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.SampledFrom([]string{"a", "ab", "b", "ü", "ÿ", "\U0010ffff", " ", "a/b"}),
		rapid.StringN(1, 20, schema.MaxIDBytes),
	).Filter(func(s string) bool {
		_, err := schema.ParseDocumentID(s)
		return err == nil
	})
}

func scan(t rapid.TB, s *Store, q Queue, after Entry) (entries []Entry) {
	t.Helper()
	if _, _, err := s.Scan(q, after, math.MaxInt64, func(e Entry) bool {
		entries = append(entries, e)
		return true
	}); err != nil {
		t.Fatal(err)
	}
	return entries
}

// TestScan: Scan visits a queue in order of second and, within a second, of the bytes of
// the id. From any entry, or from a position between entries, it visits each entry
// after it exactly once.
func TestScan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &logbook{now: 1000}
		s := openIn(t, vfs.NewMem())
		defer s.Close()
		l.collection(schema.CollectionCreated, "orders", `{"defaultTtl":10}`)
		l.collection(schema.CollectionCreated, "zebras", `{"defaultTtl":10}`)
		l.created("zebras", "a", `{"id":"a"}`)
		want := map[Queue][]Entry{}
		ids := rapid.SliceOfNDistinct(legalID(), 0, 12, rapid.ID[string]).Draw(t, "ids")
		for _, id := range ids {
			l.now += rapid.Int64Range(0, 2).Draw(t, "seconds")
			ttl := rapid.SampledFrom([]schema.TTL{schema.Inherit, schema.Never, 1, 2, 300}).Draw(t, "ttl")
			body := fmt.Sprintf(`{"id":%s,"ttl":%d}`, schema.AppendString(nil, id), ttl)
			if ttl == schema.Inherit {
				body = strings.Replace(body, "0}", "null}", 1)
			}
			v := l.created("orders", id, body)
			m := Meta{Version: v, TS: l.now, TTL: ttl, Size: int64(len(body)), Sum: SumOf([]byte(body))}
			switch {
			case ttl > 0:
				q := Queue{1, ByDeadline}
				want[q] = append(want[q], Entry{l.now + int64(ttl), schema.DocumentID(id), m, nil})
			case ttl == schema.Inherit:
				q := Queue{1, ByTimestamp}
				want[q] = append(want[q], Entry{l.now, schema.DocumentID(id), m, nil})
			}
		}
		catchUp(t, s, l)
		for _, q := range []Queue{{1, ByDeadline}, {1, ByTimestamp}} {
			all := want[q]
			slices.SortFunc(all, func(a, b Entry) int {
				if a.Before(b) {
					return -1
				}
				return 1
			})
			places := append([]Entry{{}, {Second: 1001, ID: "m"}, {Second: 1300}}, all...)
			for _, place := range places {
				rest := slices.DeleteFunc(slices.Clone(all), func(e Entry) bool { return !place.Before(e) })
				if got := scan(t, s, q, place); !slices.EqualFunc(got, rest, func(a, b Entry) bool { return reflect.DeepEqual(a, b) }) {
					t.Fatalf("after %+v of %+v come\n%+v\nwant\n%+v", place, q, got, rest)
				}
			}
		}
	})
}

// TestDueAt: one entry under three policies.
func TestDueAt(t *testing.T) {
	for _, test := range []struct {
		policy     schema.DefaultTTL
		own, inher string
	}{
		{schema.Off, "never", "never"},
		{schema.NoDefault, "1000", "never"},
		{10, "1000", "1010"},
	} {
		c := &schema.Collection{Properties: schema.Properties{DefaultTTL: test.policy}}
		shown := func(o Order) string {
			if at, ok := DueAt(c, o, 1000); ok {
				return fmt.Sprint(at)
			}
			return "never"
		}
		if own, inher := shown(ByDeadline), shown(ByTimestamp); own != test.own || inher != test.inher {
			t.Errorf("with defaultTtl %d: due at %s and %s, want %s and %s", test.policy, own, inher, test.own, test.inher)
		}
	}
}

func TestCount(t *testing.T) {
	s, l := open(t), &logbook{now: 1000}
	l.collection(schema.CollectionCreated, "orders", `{}`)
	l.created("orders", "inherits", `{"id":"inherits"}`)       // 17 bytes
	l.created("orders", "never", `{"id":"never","ttl":-1}`)    // 23
	l.created("orders", "five", `{"id":"five","ttl":5}`)       // 21
	l.created("orders", "twenty", `{"id":"twenty","ttl":20}`)  // 24
	l.created("orders", "illegal", `{"id":"illegal","ttl":0}`) // 24
	for _, test := range []struct {
		policy string
		now    int64
		want   Counts
	}{
		{`{}`, 1000, Counts{Documents: 5, Bytes: 109}},
		{`{}`, 1 << 40, Counts{Documents: 5, Bytes: 109}},
		{`{"defaultTtl":-1}`, 1004, Counts{Documents: 5, Bytes: 109, Pending: 2}},
		{`{"defaultTtl":-1}`, 1005, Counts{Documents: 4, Bytes: 88, Pending: 1, Overdue: 1, Oldest: 1005}},
		{`{"defaultTtl":-1}`, 9000, Counts{Documents: 3, Bytes: 64, Overdue: 2, Oldest: 1005}},
		{`{"defaultTtl":10}`, 1004, Counts{Documents: 5, Bytes: 109, Pending: 4}},
		{`{"defaultTtl":10}`, 1009, Counts{Documents: 4, Bytes: 88, Pending: 3, Overdue: 1, Oldest: 1005}},
		{`{"defaultTtl":10}`, 1010, Counts{Documents: 2, Bytes: 47, Pending: 1, Overdue: 3, Oldest: 1005}},
		{`{"defaultTtl":10}`, 1020, Counts{Documents: 1, Bytes: 23, Overdue: 4, Oldest: 1005}},
		{`{"defaultTtl":2147483647}`, 1020, Counts{Documents: 3, Bytes: 64, Pending: 2, Overdue: 2, Oldest: 1005}},
	} {
		l.collection(schema.CollectionReplaced, "orders", test.policy)
		catchUp(t, s, l)
		got, err := s.Count(collection(t, s, "orders"), test.now)
		if err != nil || got != test.want {
			t.Errorf("%s at %d: %+v, want %+v (%v)", test.policy, test.now, got, test.want, err)
		}
	}
	if got, err := s.Count(&schema.Collection{Incarnation: 77}, 1000); got != (Counts{}) || err != nil {
		t.Errorf("a collection that is not there counts %+v (%v)", got, err)
	}
}
