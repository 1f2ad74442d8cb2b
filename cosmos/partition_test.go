package cosmos

import (
	"strings"
	"testing"

	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/schema/values"
)

// definitionOf returns a definition with a partition key.
func definitionOf(t testing.TB, paths string) *definition {
	t.Helper()
	d := &definition{members: values.Value(`{"partitionKey":{"paths":` + paths + `}}`)}
	if err := d.readPaths(); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestDocumentIDs: an item's partition key and id make the document's id as the contract says.
func TestDocumentIDs(t *testing.T) {
	long := strings.Repeat("ä", 40)
	for _, c := range []struct{ key, id, document string }{
		{`["CO18009186470"]`, "SO05", "CO18009186470:SO05"},
		{`["a:b%~"]`, "=x=:", "a%3Ab%25%7E:%3Dx=%3A"},
		{`["=a"]`, "\n\u0085", "%3Da:%0A%C2%85"},
		{`[1.50]`, "a", "=1.5:a"}, {`[1e21]`, "a", "=1e+21:a"}, {`[-0.0]`, "a", "=0:a"}, {`[0.0000001]`, "a", "=1e-7:a"},
		{`[123456789012345680000]`, "a", "=123456789012345680000:a"},
		{`[true]`, "a", "=true:a"}, {`[false]`, "a", "=false:a"}, {`[null]`, "a", "=null:a"}, {`[{}]`, "a", "=none:a"}, {`[""]`, "a", ":a"},
		{`["t","u",3]`, "a", "t:u:=3:a"},
		{`["` + long + `"]`, "a", strings.Repeat("ä", 20) + "~Q3vingXj8LM7cAzLXhsZbT:a"},
	} {
		key, err := parseKey(c.key)
		if err != nil {
			t.Fatal(c.key, err)
		}
		document, isCut := key.documentID(c.id)
		if document != c.document || isCut {
			t.Errorf("%s %q: %q, want %q (cut: %t)", c.key, c.id, document, c.document, isCut)
		}
	}
	for _, wrong := range []string{`"a"`, `[[]]`, `[{"a":1}]`, `[1e400]`, `[-1e400]`, `[`, ``, `{}`} {
		if key, err := parseKey(wrong); err == nil {
			t.Errorf("%s is the key %q", wrong, key)
		}
	}
}

// TestCutParts: a part that is too long ends with a digest of the whole, between characters.
func TestCutParts(t *testing.T) {
	if got, want := cut(strings.Repeat("x", 65), maxPart), strings.Repeat("x", 41)+"~lTfF_fEgSC99WNJentWD9S"; got != want {
		t.Errorf("%q", got)
	}
	if got := cut(strings.Repeat("x", 64), maxPart); got != strings.Repeat("x", 64) {
		t.Errorf("%q", got)
	}
	if got := cut(strings.Repeat("x", 40)+strings.Repeat("%3A", 20), maxPart); got[:41] != strings.Repeat("x", 40)+"~" {
		t.Errorf("a percent code is cut: %q", got)
	}
	key := partitionKey{values.Value(`"p"`)}
	id := strings.Repeat("i", 254)
	document, isCut := key.documentID(id)
	if len(document) != schema.MaxIDBytes || !isCut || document[:232] != "p:"+strings.Repeat("i", 230) || document[232] != '~' {
		t.Errorf("%q, %t", document, isCut)
	}
	if document, isCut = key.documentID(id[:253]); document != "p:"+id[:253] || isCut {
		t.Errorf("%q, %t", document, isCut)
	}
}

// TestItems: a document is an item if its id is the one that its members make.
func TestItems(t *testing.T) {
	long := strings.Repeat("i", 300)
	cutID, _ := partitionKey{values.Value(`"C1"`)}.documentID(long)
	for _, c := range []struct {
		paths, id, members, item string // item is empty for none
	}{
		{`["/id"]`, "x:y", `{}`, "x:y"},
		{`["/c"]`, "C1:a", `{"c":"C1"}`, "a"},
		{`["/c"]`, "C1:%3Aa", `{"c":"C1"}`, ":a"},
		{`["/c"]`, "C1:%3aa", `{"c":"C1"}`, ""},
		{`["/c"]`, "C2:a", `{"c":"C1"}`, ""},
		{`["/c"]`, "C1", `{"c":"C1"}`, ""},
		{`["/c"]`, "C1:a:b", `{"c":"C1"}`, ""},
		{`["/c"]`, "=1:a", `{"c":1.0}`, "a"},
		{`["/c"]`, "=none:a", `{}`, "a"},
		{`["/c"]`, "x:a", `{"c":["x"]}`, ""},
		{`["/c"]`, "=Infinity:a", `{"c":1e400}`, ""},
		{`["/c"]`, cutID, `{"c":"C1"}`, ""},
		{`["/c"]`, cutID, `{"c":"C1","_itemId":"` + long + `"}`, long},
		{`["/c"]`, "C1:a", `{"c":"C1","_itemId":7}`, ""},
		{`["/a/b","/id"]`, "v:x:x", `{"a":{"b":"v"}}`, "x"},
		{`["/a/b","/id"]`, "v:y:x", `{"a":{"b":"v"}}`, ""},
	} {
		id, ok := definitionOf(t, c.paths).itemOf(c.id, values.Value(c.members))
		if ok != (c.item != "") || ok && id != c.item {
			t.Errorf("%s %q %s: item %q, %t", c.paths, c.id, c.members, id, ok)
		}
	}
}

// TestIdentify: an event without content is about an item if the document's id is one that an
// item can have.
func TestIdentify(t *testing.T) {
	long := strings.Repeat("i", 300)
	cutID, _ := partitionKey{values.Value(`"C1"`)}.documentID(long)
	for _, c := range []struct {
		document, item, key string // item is empty for none
	}{
		{"C1:a", "a", `"C1"`},
		{"C1:%3Aa", ":a", `"C1"`},
		{"=1.5:a", "a", "1.5"},
		{"=none:a", "a", ""},
		{"=null:a", "a", "null"},
		{"%3D1:a", "a", `"=1"`},
		{cutID, strings.TrimPrefix(cutID, "C1:"), `"C1"`}, // as far as the id tells
		{"C1", "", ""},
		{"C1:a:b", "", ""},
		{"C1:%3aa", "", ""},
		{"C1:=a", "", ""},
		{"C1:%41", "", ""},
		{"%43:a", "", ""},
		{"=1.50:a", "", ""},
		{"= 1:a", "", ""},
		{"=[]:a", "", ""},
		{"=x:a", "", ""},
	} {
		container := &container{definition: definitionOf(t, `["/c"]`)}
		id, key, ok := container.identify(c.document, nil)
		if ok != (c.item != "") || ok && (id != c.item || len(key) != 1 || string(key[0]) != c.key) {
			t.Errorf("%q: item %q of %s, %t", c.document, id, key, ok)
		}
	}
}

// FuzzDocumentID: different items have different documents, whose ids are legal, and each is
// found again.
func FuzzDocumentID(f *testing.F) {
	f.Add("a", "b", "c", "d")
	f.Add("a:b", "c", "a", "b:c")
	f.Add("=1", "a", "%3D1", "a")
	f.Add(strings.Repeat("x", 70), strings.Repeat("y", 300), strings.Repeat("x", 71), "~")
	d := definitionOf(f, `["/k"]`)
	f.Fuzz(func(t *testing.T, key1, id1, key2, id2 string) {
		key1, id1, key2, id2 = valid(key1), valid(id1), valid(key2), valid(id2)
		one, two := documentOf(t, d, key1, id1), documentOf(t, d, key2, id2)
		if (one == two) != (key1 == key2 && id1 == id2) {
			t.Errorf("%q %q and %q %q are the documents %q and %q", key1, id1, key2, id2, one, two)
		}
	})
}

// valid returns a string as JSON can have it.
func valid(s string) string { return string(values.Value(schema.AppendString(nil, s)).Text()) }

// documentOf returns the id of an item's document, and checks that it leads back to the item.
func documentOf(t *testing.T, d *definition, key, id string) string {
	value := values.Value(schema.AppendString(nil, key))
	document, isCut := partitionKey{value}.documentID(id)
	if _, err := schema.ParseDocumentID(document); err != nil {
		t.Fatalf("%q %q: %q: %v", key, id, document, err)
	}
	content := setMember(values.Value(`{}`), "k", value)
	if isCut {
		content = setMember(content, itemID, schema.AppendString(nil, id))
	}
	if found, ok := d.itemOf(document, content); !ok || found != id {
		t.Fatalf("%q %q: %q is the item %q, %t", key, id, document, found, ok)
	}
	return document
}

// TestEffectivePartitionKeys: the hashes are those that SDKs compute.
func TestEffectivePartitionKeys(t *testing.T) {
	if got := (partitionKey{values.Value(`"x"`)}).effective(false); got != "11E3F358618BE9AA5BAFF4C7C74F0716" {
		t.Error(got)
	}
	two := partitionKey{values.Value(`"t"`), values.Value(`"u"`)}
	if got := two.effective(true); got != "3B310042FC8EA24E4CB78FD8BFEDBAA729E7D08B5A25B26B4FB56A0F9A7E5DFD" {
		t.Error(got)
	}
}

// TestResourceIDs: they have the forms that SDKs take apart, and no name of lapse is one.
func TestResourceIDs(t *testing.T) {
	db, container := databaseRID("main"), containerRID("main", "orders", []string{"/c"})
	raw, ok := decodeRID(container)
	if !ok || len(raw) != 8 || raw[4]&0x80 == 0 || !isRID(db, 4) || !isRID(container, 8) || isRID("main", 4) {
		t.Errorf("%s, %s", db, container)
	}
	item, ok := decodeRID(itemRID(container, "a:b"))
	if !ok || len(item) != 16 || item[15]&0xF0 != 0 || string(item[:8]) != string(raw) {
		t.Errorf("% x", item)
	}
	if container == containerRID("main", "orders", []string{"/d"}) {
		t.Error("a container with another partition key has the same resource id")
	}
}
