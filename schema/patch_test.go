package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestPatch(t *testing.T) {
	for _, test := range []struct{ name, body, patch, want string }{
		{"nothing", `{"id":"a","b":1}`, `{}`, `{"id":"a","b":1}`},
		{"the same id", `{"id":"a","b":1}`, `{"id":"a","b":2}`, `{"id":"a","b":2}`},
		{"members keep their order, new ones come last", `{"z":1,"id":"a","y":2}`, `{"x":3,"y":4,"w":5}`, `{"z":1,"id":"a","y":4,"x":3,"w":5}`},
		{"number literals stay", `{"id":"a","b":1.50}`, `{"c":2e1}`, `{"id":"a","b":1.50,"c":2e1}`},
		{"white space goes", `{"id":"a","b":{"x":1}}`, " {\n \"b\" : { \"y\" : [ 1 , \" \" ] } }\n", `{"id":"a","b":{"x":1,"y":[1," "]}}`},
		{"null inside a list stays", `{"id":"a"}`, `{"b":[null,{"c":null}]}`, `{"id":"a","b":[null,{"c":null}]}`},
		{"escaped name in the patch", `{"id":"a","ab":1}`, `{"\u0061b":2}`, `{"id":"a","ab":2}`},
		{"escaped name in the document", `{"id":"a","\u0061b":1}`, `{"ab":null}`, `{"id":"a"}`},
		{"system properties are dropped", `{"id":"a"}`, `{"_ts":1,"_etag":"9","_rid":{},"_self":null,"b":1}`, `{"id":"a","b":1}`},
		{"of equal names in a patch the last counts", `{"id":"a","b":1}`, `{"b":2,"c":1,"b":{"x":1},"c":null}`, `{"id":"a","b":{"x":1}}`},
		{"equal names in a document are all changed", `{"id":"a","b":{"x":1},"b":{"y":2}}`, `{"b":{"x":3}}`, `{"id":"a","b":{"x":3},"b":{"y":2,"x":3}}`},
		{"equal names of which one is no object", `{"id":"a","b":{"x":1},"b":5}`, `{"b":{"x":3}}`, `{"id":"a","b":{"x":3},"b":{"x":3}}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			body, patch := []byte(test.body), []byte(test.patch)
			if _, fault := CheckPatch("a", patch); fault != nil {
				t.Fatal(fault)
			}
			d, fault := Patch("a", body, patch)
			if fault != nil || string(d.Body) != test.want {
				t.Fatalf("got  %s, %v\nwant %s", d.Body, fault, test.want)
			}
			if string(body) != test.body || string(patch) != test.patch {
				t.Fatal("the document or the patch was written to")
			}
		})
	}
}

func TestCheckPatchRefuses(t *testing.T) {
	deep := `{"b":` + strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth) + `}`
	for want, all := range map[*Error][]string{
		ErrBadID:      {`{"id":"b"}`, `{"\u0069d":"b"}`, `{"id":null}`, `{"id":{"a":1}}`},
		ErrBadRequest: {`{"id":"a","id":"a"}`, `{"ttl":1,"ttl":null}`, `[]`, `null`, ``, "{\"b\":\"\xff\"}", deep},
		ErrTooLarge:   {string(ofSize(MaxDocumentBytes + 1))},
	} {
		for _, patch := range all {
			if _, fault := CheckPatch("a", []byte(patch)); !errors.Is(fault, want) {
				t.Errorf("%.80q: got %v, want %s", patch, fault, want.Name)
			}
		}
	}
	if _, fault := CheckPatch("a", ofSize(MaxDocumentBytes)); fault != nil {
		t.Errorf("2 MiB: %v", fault)
	}
}

// TestPatchMalformed: a malformed patch or document is an error, though Patch
// expects a checked patch.
func TestPatchMalformed(t *testing.T) {
	for _, test := range []struct{ body, patch string }{
		{`{"id":"a"}`, ``}, {`{"id":"a"}`, `[]`}, {`{"id":"a"}`, `{"b":`}, {`{"id":"a"}`, `{}}`},
		{``, `{}`}, {`{"b"`, `{}`}, {`[]`, `{}`}, {`{"id":"a"}x`, `{}`}, {"{\"id\":\"a\",\"b\":\"\xff\"}", `{}`},
	} {
		if d, fault := Patch("a", []byte(test.body), []byte(test.patch)); !errors.Is(fault, ErrBadRequest) {
			t.Errorf("%q with %q: %s, %v", test.body, test.patch, d.Body, fault)
		}
	}
}

func TestPatchTTL(t *testing.T) {
	for _, test := range []struct {
		name, body, patch string
		ttl               TTL
		bad               bool
	}{
		{"set", `{"id":"a"}`, `{"ttl":30}`, 30, false},
		{"changed", `{"id":"a","ttl":30}`, `{"ttl":60}`, 60, false},
		{"set to never", `{"id":"a","ttl":30}`, `{"ttl":-1}`, Never, false},
		{"removed", `{"id":"a","ttl":30}`, `{"ttl":null}`, Inherit, false},
		{"removed though it was bad", `{"id":"a","ttl":"x"}`, `{"ttl":null}`, Inherit, false},
		{"removed under an escaped name", `{"id":"a","ttl":30}`, `{"\u0074tl":null}`, Inherit, false},
		{"kept", `{"id":"a","ttl":30}`, `{"b":1}`, 30, false},
		{"made bad", `{"id":"a","ttl":30}`, `{"ttl":0}`, Inherit, true},
		{"made an object", `{"id":"a","ttl":30}`, `{"ttl":{}}`, Inherit, true},
		{"made bad under an escaped name", `{"id":"a"}`, `{"\u0074tl":0}`, Inherit, true},
		// The ttl was stored while TTL was off; this patch does not name it.
		{"bad before and not named", `{"id":"a","ttl":"x"}`, `{"b":1}`, Inherit, false},
		{"bad before and named again", `{"id":"a","ttl":"x"}`, `{"ttl":"x"}`, Inherit, true},
		{"an object before, changed inside", `{"id":"a","ttl":{"x":1}}`, `{"ttl":{"x":2}}`, Inherit, true},
		{"named further in", `{"id":"a","ttl":"x"}`, `{"b":{"ttl":5}}`, Inherit, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			d, fault := Patch("a", []byte(test.body), []byte(test.patch))
			if fault != nil || d.TTL != test.ttl || (d.TTLError() != nil) != test.bad {
				t.Fatalf("got %s: %d, %v, %v", d.Body, d.TTL, d.TTLError(), fault)
			}
		})
	}
}

func TestPatchSize(t *testing.T) {
	body := func(size int) []byte { return append([]byte(`{"id":"a",`), ofSize(size - len(`"id":"a",`))[1:]...) }
	const growth = len(`,"c":1`)
	for _, test := range []struct {
		name  string
		size  int
		patch string
		legal bool
	}{
		{"grows to just under", MaxDocumentBytes - 1 - growth, `{"c":1}`, true},
		{"grows to the limit", MaxDocumentBytes - growth, `{"c":1}`, true},
		{"grows to just over", MaxDocumentBytes + 1 - growth, `{"c":1}`, false},
		{"grows by dropped members only", MaxDocumentBytes, `{"_ts":1}`, true},
		{"shrinks", MaxDocumentBytes, `{"b":"x"}`, true},
		// A document of 2 MiB sent without an id is stored with one, and larger.
		{"stays over", MaxDocumentBytes + 9, `{}`, true},
		{"shrinks and stays over", MaxDocumentBytes + 9, `{"id":"a","d":null}`, true},
		{"grows further over", MaxDocumentBytes + 9, `{"c":1}`, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			d, fault := Patch("a", body(test.size), []byte(test.patch))
			if test.legal && fault != nil || !test.legal && !errors.Is(fault, ErrTooLarge) {
				t.Fatalf("got %d bytes, %v", len(d.Body), fault)
			}
		})
	}
}

// TestDeepPatchIsLinear: a patch nested to the limit is not scanned once
// per level, since the writer waits for it.
func TestDeepPatchIsLinear(t *testing.T) {
	patch := func(levels int) time.Duration {
		text := []byte(`{"id":"a","b":` + strings.Repeat(`{"b":`, levels) + `"` + strings.Repeat("x", 1<<20) + `"` + strings.Repeat("}", levels+1))
		start := time.Now()
		if _, fault := Patch("a", text, text); fault != nil {
			t.Fatal(fault)
		}
		return time.Since(start)
	}
	// Scanning once per level takes over 20 times as long, however often it is tried. Other work
	// on the machine disturbs single tries, of both.
	flat, deep := time.Hour, time.Hour
	for range 50 {
		flat, deep = min(flat, patch(1)), min(deep, patch(126))
		if deep < 8*flat {
			return
		}
	}
	t.Errorf("1 MiB in 1 level takes %v, in 126 levels %v", flat, deep)
}

// TestPatchOfEqualNamesIsLinear: a document that has one name many times takes the changes of an
// object each time. Those that remove members which it does not have cost nothing.
func TestPatchOfEqualNamesIsLinear(t *testing.T) {
	patch := func(names, removed int) time.Duration {
		body := `{"id":"x","a":{}` + strings.Repeat(`,"a":{}`, names) + `}`
		text := []byte(`{"a":{"b":null`)
		for i := range removed {
			text = fmt.Appendf(text, `,"%d":null`, i)
		}
		text = append(text, "}}"...)
		start := time.Now()
		if _, fault := Patch("x", []byte(body), text); fault != nil {
			t.Fatal(fault)
		}
		return time.Since(start)
	}
	const many = 10_000
	apart, together := time.Hour, time.Hour
	for range 10 { // a product takes over 20 times as long as a sum, however often it is tried
		apart, together = min(apart, patch(many, 1)+patch(1, many)), min(together, patch(many, many))
		if together < 8*apart {
			return
		}
	}
	t.Errorf("%v apart, %v together", apart, together)
}

// mergePatch is the pseudocode of RFC 7396 section 2.
func mergePatch(target, patch any) any {
	changes, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	object, ok := target.(map[string]any)
	if !ok {
		object = map[string]any{}
	}
	for name, value := range changes {
		if value == nil {
			delete(object, name)
		} else {
			object[name] = mergePatch(object[name], value)
		}
	}
	return object
}

// FuzzPatch: patches do what the RFC's pseudocode does, and first the vectors of its appendix A,
// inside the member v where they are no objects.
func FuzzPatch(f *testing.F) {
	for _, seed := range []struct{ body, patch string }{
		{`{"a":"b"}`, `{"a":"c"}`}, {`{"a":"b"}`, `{"b":"c"}`}, {`{"a":"b"}`, `{"a":null}`}, {`{"a":"b","b":"c"}`, `{"a":null}`}, {`{"a":["b"]}`, `{"a":"c"}`},
		{`{"a":"c"}`, `{"a":["b"]}`}, {`{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`}, {`{"a":[{"b":"c"}]}`, `{"a":[1]}`}, {`{"v":["a","b"]}`, `{"v":["c","d"]}`},
		{`{"v":{"a":"b"}}`, `{"v":["c"]}`}, {`{"v":{"a":"foo"}}`, `{"v":"bar"}`}, {`{"e":null}`, `{"a":1}`}, {`{"v":[1,2]}`, `{"v":{"a":"b","c":null}}`}, {`{}`, `{"a":{"bb":{"ccc":null}}}`},
		{`{"b":1}`, `{"b":null}`}, {`{"b":{"c":[1]}}`, `{"b":{"c":null,"d":{"e":null}}}`}, {`{}`, `{"ttl":5,"_ts":1}`},
		{`{"b":{"x":1},"b":{"y":2},"b":3}`, `{"b":{"x":null,"y":4},"b":{"z":null}}`}, {`{"\u0062":{}}`, ` { "b" : { "" : { } } } `},
		{order, `{"lines":null,"total":0,"note":{"a":{"b":"c"}}}`}, {`{"ttl":"x"}`, `{"id":"SO05"}`}, {`{"\ud800":1}`, `{"\udfff":null}`},
	} {
		f.Add([]byte(seed.body), []byte(seed.patch))
	}
	f.Fuzz(func(t *testing.T, sent, patch []byte) {
		const id = "SO05"
		stored, fault := ParseDocument(id, sent)
		if _, bad := CheckPatch(id, patch); fault != nil || bad != nil {
			_, _ = Patch(id, sent, patch) // must not panic
			return
		}
		patched, fault := Patch(id, stored.Body, patch)
		if fault != nil {
			t.Fatalf("%q with %q: %v", stored.Body, patch, fault)
		}
		want := mergePatch(decode(t, stored.Body), decode(t, patch)).(map[string]any)
		for name := range want {
			if isReserved(name) {
				delete(want, name)
			}
		}
		if got := decode(t, patched.Body); !reflect.DeepEqual(got, want) {
			t.Fatalf("%q with %q is %q, want %v", stored.Body, patch, patched.Body, want)
		}
		if !json.Valid(patched.Body) || !bytes.Equal(compact(patched.Body), patched.Body) {
			t.Fatalf("%q with %q is %q", stored.Body, patch, patched.Body)
		}
		read, fault := ReadDocument(id, patched.Body)
		if fault != nil || !bytes.Equal(read.Body, patched.Body) || read.TTL != patched.TTL {
			t.Fatalf("%q with %q is %+v, stored as %+v, %v", stored.Body, patch, patched, read, fault)
		}
		twice, fault := Patch(id, patched.Body, patch)
		if fault != nil || !reflect.DeepEqual(decode(t, twice.Body), want) {
			t.Fatalf("%q again with %q is %q, %v", patched.Body, patch, twice.Body, fault)
		}
	})
}
