package projections

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/schema/values"
	"pgregory.net/rapid"
)

func valueKey(v string) []byte { return values.AppendKey(nil, values.Value(v)) }

// indexRow is an entry of an index, as its document's value is.
type indexRow struct {
	key   []byte
	id    string
	whole bool
}

// drawRows creates documents with a value at /n, between others, and returns the entries of an
// index of it, in order.
func drawRows(t *rapid.T, l *logbook, value *rapid.Generator[string]) (rows []indexRow) {
	for i, v := range rapid.SliceOfN(value, 0, 20).Draw(t, "values") {
		id := fmt.Sprint(i * 7 % 20)
		body := fmt.Sprintf(`{"id":%q,"before":1,"past":1}`, id)
		if v != "" {
			body = fmt.Sprintf(`{"id":%q,"n":%s,"past":1}`, id, v)
		}
		l.created("orders", id, body)
		key, whole := values.AppendKeyPrefix(nil, values.Value(v), MaxValueKeyBytes)
		rows = append(rows, indexRow{key, id, whole})
	}
	slices.SortFunc(rows, func(a, b indexRow) int { return cmp.Or(bytes.Compare(a.key, b.key), strings.Compare(a.id, b.id)) })
	return rows
}

// TestEntries: a range has the entries of the documents whose values are in it, in
// order, from either end and from any entry.
func TestEntries(t *testing.T) {
	long := strings.Repeat("x", MaxValueKeyBytes)
	all := []string{"", "null", "false", "true", "-1", "0", "2", "2.5", `""`, `"a"`, `"ab"`, `"b"`, `"` + long + `"`, `"` + long + `y"`,
		`"` + long[3:] + `"`, `[]`, `[1]`, `[1,"a"]`, `{}`, `{"a":1}`}
	value := rapid.SampledFrom(all)
	rapid.Check(t, func(t *rapid.T) {
		s, l := openIn(t, vfs.NewMem()), &logbook{now: 1000}
		defer s.Close()
		l.collection(schema.CollectionCreated, "orders", policy(schema.Consistent, "/before", "/n", "/past"))
		rows := drawRows(t, l, value)
		catchUp(t, s, l)
		v := view(t, s, "orders")
		defer v.Close()
		bound := func(name string) []byte {
			switch rapid.IntRange(0, 3).Draw(t, name+" kind") {
			case 0:
				return nil
			case 1:
				return []byte{byte(rapid.IntRange(0, 12).Draw(t, name))}
			}
			return valueKey(value.Draw(t, name))
		}
		lower, upper := bound("lower"), bound("upper")
		cut := func(key []byte) []byte { return key[:min(len(key), MaxValueKeyBytes)] }
		var in []indexRow
		for _, r := range rows {
			// A cut bound includes all keys that equal its cut.
			if bytes.Compare(r.key, cut(lower)) >= 0 && (upper == nil || bytes.Compare(r.key, upper) < 0) {
				in = append(in, r)
			}
		}
		it := v.Entries(v.Indexes()[1], ValueSpace, lower, upper)
		defer it.Close()
		at := func(ok bool, i int) {
			t.Helper()
			if should := i >= 0 && i < len(in); ok != should || it.Error() != nil {
				t.Fatalf("in [%x, %x) it is at one: %t, want %t (%v)", lower, upper, ok, should, it.Error())
			} else if !ok {
				return
			}
			e, err := it.Entry()
			if err != nil || !bytes.Equal(e.Key, in[i].key) || string(e.ID) != in[i].id || e.Whole != in[i].whole {
				t.Fatalf("it is at %x %s %t, want %+v (%v)", e.Key, e.ID, e.Whole, in[i], err)
			}
			r, ok, err := v.Document(e.ID)
			if r.Size, r.Sum = 0, 0; !ok || r.Meta != e.Meta || err != nil {
				t.Fatalf("%s has %+v in the index, %+v in its document (%v)", e.ID, e.Meta, r.Meta, err)
			}
		}
		for i, ok := 0, it.First(); i <= len(in); i, ok = i+1, ok && it.Next() {
			at(ok, i)
		}
		at(it.Last(), len(in)-1)
		if len(in) > 0 {
			i := rapid.IntRange(0, len(in)-1).Draw(t, "seek")
			at(it.SeekGE(in[i].key, []byte(in[i].id)), i)
			at(it.SeekGE(in[i].key, []byte(in[i].id+"\x00")), i+1)
			at(it.SeekLT(in[i].key, []byte(in[i].id)), i-1)
		}
	})
}

// TestMemberEntries: entries for `x in doc.path` are the elements of arrays and the names
// of members, and one entry for each document with too many.
func TestMemberEntries(t *testing.T) {
	s, l := open(t), &logbook{now: 1000}
	l.collection(schema.CollectionCreated, "orders", policy(schema.Consistent, "/tags"))
	for id, tags := range map[string]string{
		"array": `["x","y","x",1,null]`, "object": `{"x":"y"}`, "string": `"x"`, "nested": `[["x"],{"x":1}]`,
		"many": "[" + strings.Repeat(`"x",`, MaxMembers) + `"y"]`,
	} {
		l.created("orders", id, fmt.Sprintf(`{"id":%q,"tags":%s}`, id, tags))
	}
	catchUp(t, s, l)
	v := view(t, s, "orders")
	defer v.Close()
	for value, want := range map[string]string{`"x"`: "array object ", `"y"`: "array ", "1": "array ", "null": "array ", `["x"]`: "nested ", `{"x":1}`: "nested ", "2": ""} {
		if got := found(t, v, "/tags", MemberSpace, value); got != want {
			t.Errorf("%s is in %q, want %q", value, got, want)
		}
	}
	it := v.Entries(v.Indexes()[0], MemberSpace, nil, nil)
	if !it.First() {
		t.Fatal("no entries")
	}
	if e, err := it.Entry(); string(e.Key) != ManyMembers || string(e.ID) != "many" || err != nil {
		t.Errorf("the first entry is %+v (%v)", e, err)
	}
	n := 1
	for it.Next() {
		n++
	}
	if err := it.Close(); n != 1+4+1+2 || err != nil {
		t.Errorf("there are %d entries (%v)", n, err)
	}
	if it := v.Entries(v.Indexes()[0], ValueSpace, []byte{9}, []byte{3}); it.First() || it.Close() != nil {
		t.Error("something is in an empty range")
	}
}

// TestViewWhileFolding: documents, entries and counts of a view have one position while
// folds go on. Every fold gives both documents the same new content.
func TestViewWhileFolding(t *testing.T) {
	for _, mode := range []schema.IndexingMode{schema.Consistent, schema.Lazy} {
		s, l := open(t), &logbook{now: 1000}
		l.collection(schema.CollectionCreated, "orders", policy(mode, "/n"))
		a, b := l.created("orders", "a", `{"id":"a","n":0}`), l.created("orders", "b", `{"id":"b","n":0}`)
		catchUp(t, s, l)
		var group sync.WaitGroup
		var reading atomic.Int64
		read := func() {
			v, ok, err := s.View("orders")
			if err != nil || !ok {
				t.Errorf("no view (%v)", err)
				return
			}
			defer v.Close()
			seq := schema.Version(v.Seq())
			one, _, err1 := v.Document([]byte("a"))
			two, _, err2 := v.Document([]byte("b"))
			if one.Version != seq-1 || two.Version != seq || v.Len() != 2 || err1 != nil || err2 != nil {
				t.Errorf("at %d the documents are %+v and %+v (%v, %v)", seq, one.Meta, two.Meta, err1, err2)
			}
			n := ""
			docs := v.Documents("", "")
			for docs.Next() {
				r, err := docs.Record()
				_, content, _ := strings.Cut(string(r.Body), `"n":`)
				if n != "" && n != content || err != nil {
					t.Errorf("at %d one has %s, the other %s (%v)", seq, n, content, err)
				}
				n = content
			}
			if err := docs.Close(); err != nil {
				t.Error(err)
			}
			if v.Behind() > 0 {
				return
			}
			if got := found(t, v, "/n", ValueSpace, strings.TrimSuffix(n, "}")); got != "a b " {
				t.Errorf("at %d %s have %s", seq, got, n)
			}
		}
		for range 3 {
			reading.Add(1)
			group.Go(func() {
				defer reading.Add(-1)
				for range 200 {
					read()
				}
			})
		}
		group.Go(func() {
			for reading.Load() > 0 {
				if _, err := s.Index(1); err != nil {
					t.Error(err)
				}
			}
		})
		for i := 1; reading.Load() > 0; i++ {
			a = l.document(schema.DocumentReplaced, "orders", "a", a, fmt.Sprintf(`{"id":"a","n":%d}`, i))
			b = l.document(schema.DocumentReplaced, "orders", "b", b, fmt.Sprintf(`{"id":"b","n":%d}`, i))
			catchUp(t, s, l)
		}
		group.Wait()
		drain(t, s, 10)
		checkIndexes(t, s, true)
		read()
	}
}
