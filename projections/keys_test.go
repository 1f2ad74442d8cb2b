package projections

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"testing"

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

func legalName() *rapid.Generator[schema.CollectionName] {
	return rapid.Map(rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9_-]{0,3}`), func(s string) schema.CollectionName { return schema.CollectionName(s) })
}

// number draws small, large and adjacent numbers, for times and sequences.
func number() *rapid.Generator[int64] {
	return rapid.OneOf(rapid.Int64Range(0, 3), rapid.Int64Range(254, 258), rapid.Int64Range(0, 1<<62))
}

// TestKeyOrder: keys sort by bytes as what they encode.
func TestKeyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type place struct {
			incarnation uint64
			order       Order
			second      int64
			id          string
		}
		draw := func(name string) place {
			return place{uint64(number().Draw(t, name+" incarnation")), Order(rapid.IntRange(0, 1).Draw(t, name+" order")),
				number().Draw(t, name+" second"), legalID().Draw(t, name+" id")}
		}
		a, b := draw("a"), draw("b")
		if rapid.Bool().Draw(t, "same queue") {
			b.incarnation, b.order = a.incarnation, a.order
			if rapid.Bool().Draw(t, "same second") {
				b.second = a.second
			}
		}
		expiry := func(p place) []byte {
			return expiryKey(nil, Queue{p.incarnation, p.order}, p.second, schema.DocumentID(p.id))
		}
		want := cmp.Or(cmp.Compare(a.incarnation, b.incarnation), cmp.Compare(a.order, b.order), cmp.Compare(a.second, b.second), strings.Compare(a.id, b.id))
		if got := bytes.Compare(expiry(a), expiry(b)); got != want {
			t.Errorf("expiry keys of %+v and %+v compare %d, want %d", a, b, got, want)
		}
		document := func(p place) []byte { return documentKey(nil, p.incarnation, schema.DocumentID(p.id)) }
		want = cmp.Or(cmp.Compare(a.incarnation, b.incarnation), strings.Compare(a.id, b.id))
		if got := bytes.Compare(document(a), document(b)); got != want {
			t.Errorf("document keys of %+v and %+v compare %d, want %d", a, b, got, want)
		}
		message := func(p place) []byte { return messageTimeKey(nil, p.second, p.id) }
		want = cmp.Or(cmp.Compare(a.second, b.second), strings.Compare(a.id, b.id))
		if got := bytes.Compare(message(a), message(b)); got != want {
			t.Errorf("message times of %+v and %+v compare %d, want %d", a, b, got, want)
		}
		e := decodeEntry(a.order, expiry(a), appendEntryValue(nil, Meta{Size: 7, Version: 9, TTL: 3, Sum: 5}, []int64{300, a.second}))
		if e.Meta.Sum != 5 || !slices.Equal(e.Warned, []int64{300, a.second}) || e.Second != a.second || string(e.ID) != a.id || e.Meta.Size != 7 || e.Meta.Version != 9 || e.Meta.TTL != 3 {
			t.Errorf("%+v is read back as %+v", a, e)
		}
	})
}

// TestKeyPrefixes: a scan for one name and id includes no key of another.
func TestKeyPrefixes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name, other := legalName().Draw(t, "name"), legalName().Draw(t, "other name")
		id, otherID := legalID().Draw(t, "id"), legalID().Draw(t, "other id")
		if rapid.Bool().Draw(t, "longer") {
			other, otherID = name+"x", id+"x"
		}
		seq := uint64(number().Draw(t, "sequence"))
		within := func(key, prefix []byte) bool {
			return bytes.Compare(key, prefix) >= 0 && bytes.Compare(key, successor(prefix)) < 0
		}
		prefix := historyPrefix(nil, name, schema.DocumentID(id))
		if !within(historyKey(nil, name, schema.DocumentID(id), seq), prefix) {
			t.Errorf("%s/%s is not in its own history", name, id)
		}
		for _, key := range [][]byte{
			historyKey(nil, other, schema.DocumentID(id), seq),
			historyKey(nil, name, schema.DocumentID(otherID), seq),
		} {
			if (name != other && id != otherID) && within(key, prefix) {
				t.Errorf("%q is in the history of %s/%s", key, name, id)
			}
		}
		if name != other && within(append(buriedPrefix(nil, other), 0, 0, 0, 0, 0, 0, 0, 1), buriedPrefix(nil, name)) {
			t.Errorf("%s is buried with %s", other, name)
		}
		a := Queue{seq, ByDeadline}
		if b := (Queue{seq, ByTimestamp}); within(expiryKey(nil, b, 0, "a"), queueKey(nil, a)) {
			t.Errorf("%+v is in %+v", b, a)
		}
	})
}

// TestSuccessor: [prefix, successor(prefix)) holds exactly the keys with the prefix.
func TestSuccessor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		prefix := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 0xfe, 0xff}), 1, 4).Draw(t, "prefix")
		key := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 0xfe, 0xff}), 0, 6).Draw(t, "key")
		end := successor(prefix)
		before := end == nil || bytes.Compare(key, end) < 0
		if in := bytes.Compare(key, prefix) >= 0 && before; in != bytes.HasPrefix(key, prefix) {
			t.Errorf("%x in the range of %x: %t", key, prefix, in)
		}
	})
}
