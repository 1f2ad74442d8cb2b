package projections

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/schema/values"
	"github.com/lapsedb/lapse/test/stress"
	"pgregory.net/rapid"
)

// indexedPaths are the paths that random collections index: members of random documents
// and parts of these.
var indexedPaths = []string{"/n", "/s", "/tags", "/o", "/o/k", "/tags/0", "/_ts", "/_etag"}

func randomBody(t *rapid.T, id string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `{"id":%q`, id)
	some := func(name string, all ...string) {
		if v := rapid.SampledFrom(append(all, "")).Draw(t, name); v != "" {
			fmt.Fprintf(&b, `,%q:%s`, name, v)
		}
	}
	many := strings.TrimSuffix(strings.Repeat("1,", MaxMembers+1), ",")
	long := strings.Repeat("x", MaxValueKeyBytes)
	some("n", "1", "1.0", "2", "null", `"1"`)
	some("s", `""`, `"a"`, `"a\u0000"`, `"`+long[:MaxValueKeyBytes-3]+`"`, `"`+long+`"`, `"`+long+`y"`)
	some("tags", `[]`, `["a","b","a"]`, `["b",1,[2],{"a":1}]`, `["`+long+`","`+long+`y"]`, `[`+many+`]`, `[`+many[2:]+`]`)
	some("o", `{}`, `{"k":1}`, `{"k":[1,2],"l":2,"k":2}`, `{"`+long+`":0,"k":null}`)
	return b.String() + "}"
}

// randomLog returns a log of two collections with changes of documents and policies, as bare
// and as known facts. foreign is its own count of events that do not fit.
func randomLog(t *rapid.T, events int) (l *logbook, known []Fact, foreign uint64) {
	l = &logbook{now: 1000}
	incarnations := map[string]uint64{}
	documents := map[string]Meta{}
	bodies := map[string]string{}
	for range events {
		l.now += rapid.SampledFrom([]int64{0, 0, 0, 1, 3, 90}).Draw(t, "seconds")
		name := rapid.SampledFrom([]string{"carts", "orders", "orders", "orders"}).Draw(t, "collection")
		fact := Fact{Known: rapid.Bool().Draw(t, "known"), Incarnation: incarnations[name]}
		e := schema.Event{Collection: schema.CollectionName(name), MsgID: rapid.SampledFrom([]string{"", "", "m1", "m2"}).Draw(t, "msgID")}
		what := rapid.IntRange(0, 21).Draw(t, "what")
		switch {
		case what > 19:
			e.Type = rapid.SampledFrom([]schema.EventType{schema.NoEvent, schema.DocumentReplaced, schema.DocumentExpired}).Draw(t, "misfit")
			e.ID, e.Previous, e.Body = "a", 1000, []byte(`{"id":"a"}`)
			known = append(known, l.facts[l.write(e)-1])
			foreign++
			continue
		case incarnations[name] == 0:
			e.Type, incarnations[name] = schema.CollectionCreated, uint64(len(l.facts)+1)
		case what == 0:
			e.Type = schema.CollectionDeleted
			delete(incarnations, name)
		case what < 4:
			e.Type = schema.CollectionReplaced
		default:
			id := rapid.StringMatching(`[a-e]{1,2}`).Draw(t, "id")
			key := fmt.Sprint(incarnations[name], id)
			e.ID, fact.Prior = schema.DocumentID(id), documents[key]
			e.Type, e.Previous = schema.DocumentCreated, fact.Prior.Version
			if e.Previous != 0 {
				e.Type = rapid.SampledFrom([]schema.EventType{schema.DocumentReplaced, schema.DocumentReplaced, schema.DocumentDeleted, schema.DocumentExpired}).Draw(t, "type")
			}
			switch e.Type {
			case schema.DocumentDeleted, schema.DocumentExpired:
				delete(documents, key)
				if rapid.Bool().Draw(t, "previous image") {
					e.Body = []byte(bodies[key])
				}
			default:
				fact.TTL = rapid.SampledFrom([]schema.TTL{schema.Inherit, schema.Inherit, schema.Never, 1, 5, 100}).Draw(t, "ttl")
				if bodies[key] = randomBody(t, id); fact.TTL != schema.Inherit {
					bodies[key] = fmt.Sprintf(`%s,"ttl":%d}`, strings.TrimSuffix(bodies[key], "}"), fact.TTL)
				}
				e.Body = []byte(bodies[key])
				fact.Sum = SumOf(e.Body)
				documents[key] = Meta{Version: schema.Version(len(l.facts) + 1), TS: l.now, TTL: fact.TTL, Size: int64(len(e.Body)), Sum: SumOf(e.Body)}
			}
		}
		if e.Type == schema.CollectionCreated || e.Type == schema.CollectionReplaced {
			p := schema.DefaultProperties()
			p.IndexingMode = rapid.SampledFrom([]schema.IndexingMode{schema.Consistent, schema.Consistent, schema.Lazy, schema.Lazy, schema.None}).Draw(t, "mode")
			if p.IndexingMode != schema.None {
				p.DefaultTTL = rapid.SampledFrom([]schema.DefaultTTL{schema.Off, schema.NoDefault, 1, 10}).Draw(t, "defaultTtl")
			}
			p.IncludedPaths = rapid.SliceOfNDistinct(rapid.SampledFrom(indexedPaths), 0, 4, rapid.ID).Draw(t, "paths")
			e.Body = p.AppendJSON(nil)
		}
		fact.Event = l.facts[l.write(e)-1].Event
		known = append(known, fact)
	}
	return l, known, foreign
}

// naiveEntries returns the entries that a document should have in an index, as full keys
// and values.
func naiveEntries(incarnation uint64, x indexDefinition, id string, r Record) map[string]string {
	all := map[string]string{}
	add := func(space byte, key []byte) {
		whole := uint64(1)
		if len(key) > MaxValueKeyBytes {
			key, whole = key[:MaxValueKeyBytes], 0
		}
		k := binary.BigEndian.AppendUint64([]byte("V"), incarnation)
		k = append(binary.BigEndian.AppendUint32(k, x.Number), space)
		v := binary.AppendUvarint(nil, uint64(len(key))<<1|whole)
		v = binary.AppendUvarint(binary.AppendUvarint(v, uint64(r.Version)), uint64(r.TS))
		all[string(k)+string(key)+id] = string(binary.AppendVarint(v, int64(r.TTL)))
	}
	p, _ := values.ParsePointer(x.Path)
	var found values.Found
	values.NewPaths([]values.Pointer{p}).Find(r.Body, r.TS, uint64(r.Version), &found)
	value := found.Values[0]
	add(0, values.AppendKey(nil, value))
	var members [][]byte
	var elements []json.RawMessage
	var object map[string]json.RawMessage
	switch value.Kind() {
	case values.Array:
		_ = json.Unmarshal(value, &elements)
		for _, element := range elements {
			members = append(members, values.AppendKey(nil, values.Value(element)))
		}
	case values.Object:
		_ = json.Unmarshal(value, &object)
		for name := range object {
			members = append(members, values.AppendTextKey(nil, []byte(name)))
		}
	}
	if len(members) > MaxMembers {
		members = [][]byte{{0}}
	}
	for _, member := range members {
		add(1, member)
	}
	return all
}

// withFirst returns the contents whose key begins with a byte.
func withFirst(all map[string]string, first byte) map[string]string {
	some := map[string]string{}
	for key, value := range all {
		if key[0] == first {
			some[key] = value
		}
	}
	return some
}

// checkIndexes compares all index data with the documents: those entries that are
// consistent and complete at any time, and everything if settled.
func checkIndexes(t rapid.TB, s *Store, settled bool) {
	t.Helper()
	all := contents(t, s, "HXIJE")
	entries := withFirst(all, keyIndex)
	definitions, marks, lists := withFirst(all, keyDefinitions), withFirst(all, keyMark), withFirst(all, keyIndexed)
	work := false
	for _, c := range s.Collections() {
		key := string(definitionsKey(nil, c.Incarnation))
		set := noIndexes
		if value, ok := definitions[key]; ok {
			var err error
			if set, err = decodeIndexes([]byte(value)); err != nil {
				t.Fatal(err)
			}
			delete(definitions, key)
		}
		var paths, wanted []string
		for _, x := range set.Indexes {
			paths = append(paths, x.Path)
		}
		if c.IndexingMode != schema.None {
			wanted = slices.Sorted(slices.Values(c.IncludedPaths))
		}
		if slices.Sort(paths); !slices.Equal(paths, wanted) {
			t.Fatalf("%s has indexes %q of paths %q", c.Name, paths, wanted)
		}
		mine := string(binary.BigEndian.AppendUint64(nil, c.Incarnation))
		marked := map[string]bool{}
		for key, id := range marks {
			if key[1:9] == mine {
				marked[id] = true
				delete(marks, key)
			}
		}
		work = work || len(marked) > 0 || set.building()
		if len(marked) > 0 && !set.lazy() {
			t.Fatalf("%s has marks for no lazy index", c.Name)
		}
		documents := map[string]Record{}
		for key, value := range withFirst(all, keyDocument) {
			if key[1:9] == mine {
				r, err := decodeRecord([]byte(value))
				must(t, err)
				documents[key[9:]] = r
			}
		}
		for key := range lists {
			if id := key[9:]; key[1:9] == mine {
				if _, lives := documents[id]; !set.lazy() || !lives && !marked[id] {
					t.Fatalf("%s has a list of entries of %s", c.Name, id)
				}
				delete(lists, key)
			}
		}
		for _, x := range set.Indexes {
			prefix := string(indexNumberKey(nil, c.Incarnation, x.Number))
			got := map[string]string{}
			for key, value := range entries {
				if strings.HasPrefix(key, prefix) {
					got[key] = value
					delete(entries, key)
				}
			}
			checkEntries(t, c, x, got, documents, marked)
		}
	}
	if len(entries)+len(definitions)+len(marks)+len(lists) > 0 {
		t.Fatalf("left of what is gone: %q %q %q %q", entries, definitions, marks, lists)
	}
	if work && settled {
		t.Fatal("there is work left")
	}
	if work && len(s.IndexWork()) == 0 {
		t.Fatal("there is work, and it is not signalled")
	}
}

// checkEntries compares the entries of an index with those of the documents. Entries of marked
// documents, and those that are still to be built, may differ.
func checkEntries(t rapid.TB, c *schema.Collection, x indexDefinition, got map[string]string, documents map[string]Record, marked map[string]bool) {
	t.Helper()
	for id, r := range documents {
		sure := !marked[id] && (!x.Building || id <= x.At)
		for key, value := range naiveEntries(c.Incarnation, x, id, r) {
			if v, ok := got[key]; ok && v != value && !marked[id] || !ok && sure {
				t.Fatalf("%s index %+v: %q has %q (%t), want %q", c.Name, x, key, v, ok, value)
			}
			delete(got, key)
		}
	}
	for key, value := range got {
		e, err := decodeIndexEntry([]byte(key[indexSpaceBytes:]), []byte(value))
		if err != nil || !marked[string(e.ID)] {
			t.Fatalf("%s index %+v: %q is of no document (%v)", c.Name, x, key, err)
		}
	}
}

// drain does all index work, slice by slice.
func drain(t rapid.TB, s *Store, limit int) (slices int) {
	t.Helper()
	for more := true; more; slices++ {
		var err error
		if more, err = s.Index(limit); err != nil || more != (len(s.busy) > 0) {
			t.Fatalf("%d collections are busy, and Index reports more: %t (%v)", len(s.busy), more, err)
		}
	}
	return slices
}

// TestIndexesFollowDocuments: whatever is folded, and however slices of index work come
// in between, the entries are those that the documents should have.
func TestIndexesFollowDocuments(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, facts, _ := randomLog(t, rapid.IntRange(0, 60).Draw(t, "events"))
		s := openIn(t, vfs.NewMem())
		defer s.Close()
		if rapid.Bool().Draw(t, "no cache") {
			s.cache = newDocumentCache(1)
		}
		for len(facts) > 0 {
			if rapid.Bool().Draw(t, "slice") {
				if _, err := s.Index(rapid.IntRange(0, 4).Draw(t, "limit")); err != nil {
					t.Fatal(err)
				}
			} else {
				n := rapid.IntRange(1, min(12, len(facts))).Draw(t, "fold")
				must(t, s.Fold(facts[:n]))
				facts = facts[n:]
			}
			checkIndexes(t, s, false)
		}
		drain(t, s, rapid.IntRange(0, 5).Draw(t, "limit"))
		checkIndexes(t, s, true)
		if s.IndexWork(); len(s.busy) > 0 {
			t.Fatalf("busy with %v", s.busy)
		}
	})
}

// TestIndexCrash cuts the power after folds and slices, repeatedly. The remaining
// entries are correct as far as they go, the remaining work is known, and the result is
// that without crashes.
func TestIndexCrash(t *testing.T) {
	lost := 0
	rapid.Check(t, func(t *rapid.T) {
		l, _, _ := randomLog(t, rapid.IntRange(0, 60).Draw(t, "events"))
		fs := vfs.NewCrashableMem()
		s := openIn(t, fs)
		defer func() { s.Close() }()
		crashes := 0
		for s.Cursor().Seq < uint64(len(l.facts)) {
			rest := l.since(s.Cursor().Seq)
			switch rapid.IntRange(0, 3).Draw(t, "do") {
			case 0:
				must(t, s.Fold(rest[:rapid.IntRange(1, min(20, len(rest))).Draw(t, "fold")]))
			case 1:
				if _, err := s.Index(rapid.IntRange(1, 4).Draw(t, "limit")); err != nil {
					t.Fatal(err)
				}
			case 2:
				must(t, s.db.Flush())
			case 3:
				if crashes++; crashes > 5 {
					catchUp(t, s, l)
					break
				}
				before := s.Cursor().Seq
				crashed := fs.CrashClone(vfs.CrashCloneCfg{
					UnsyncedDataPercent: rapid.SampledFrom([]int{0, 50, 100}).Draw(t, "unsynced"),
					RNG:                 rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)),
				})
				must(t, s.Close())
				fs = crashed
				s = openIn(t, fs)
				lost += int(before - s.Cursor().Seq)
				checkIndexes(t, s, false)
			}
		}
		checkIndexes(t, s, false)
		drain(t, s, 3)
		checkIndexes(t, s, true)

		straight := openIn(t, vfs.NewMem())
		defer straight.Close()
		catchUp(t, straight, l)
		drain(t, straight, 1000)
		// The lists of lazy indexes may name entries that no longer exist.
		got, want := contents(t, s, "IJR"), contents(t, straight, "IJR")
		if !maps.Equal(got, want) {
			t.Fatalf("after crashes: %q\nwithout: %q", got, want)
		}
	})
	if lost == 0 {
		t.Error("no crash lost anything: this tests nothing")
	}
}

// TestLargeFold: a fold whose index entries are many times its size takes several
// steps, since Pebble limits the size of a batch.
func TestLargeFold(t *testing.T) {
	stress.OneGoroutine(t)
	var paths, members []string
	for i := range 64 {
		paths = append(paths, fmt.Sprintf(`{"path":"/a%d"}`, i))
		var elements []string
		for j := range MaxMembers {
			elements = append(elements, fmt.Sprint(1000+j))
		}
		members = append(members, fmt.Sprintf(`"a%d":[%s]`, i, strings.Join(elements, ",")))
	}
	l := &logbook{now: 1000}
	l.collection(schema.CollectionCreated, "c", `{"previousImages":false,"indexingPolicy":{"includedPaths":[`+strings.Join(paths, ",")+`]}}`)
	var ids []string
	for i := range 16 { // 76 MB of entries
		ids = append(ids, fmt.Sprintf("%d%s", i, strings.Repeat("x", 250)))
		l.created("c", ids[i], `{"id":"`+ids[i]+`",`+strings.Join(members, ",")+`}`)
	}
	s := open(t)
	catchUp(t, s, l)
	v := view(t, s, "c")
	if n := len(entryIDs(t, v)); n != 16*(MaxMembers+1) || v.Seq() != 17 {
		t.Errorf("%d entries at %d", n, v.Seq())
	}
	must(t, v.Close())
	for i, id := range ids {
		l.document(schema.DocumentExpired, "c", id, schema.Version(i+2), "")
	}
	catchUp(t, s, l)
	v = view(t, s, "c")
	defer v.Close()
	if n := len(entryIDs(t, v)); n != 0 || v.Len() != 0 || v.Seq() != 33 {
		t.Errorf("%d entries of %d documents at %d", n, v.Len(), v.Seq())
	}
}

// entryIDs returns the ids of all entries of a view's first index.
func entryIDs(t *testing.T, v *View) (ids []string) {
	t.Helper()
	for _, space := range []Space{ValueSpace, MemberSpace} {
		it := v.Entries(v.Indexes()[0], space, nil, nil)
		for it.Next() {
			e, err := it.Entry()
			must(t, err)
			ids = append(ids, string(e.ID))
		}
		must(t, it.Close())
	}
	return ids
}
