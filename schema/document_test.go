package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
)

// order is a document of the usual size, 200 bytes, that is stored unchanged.
const order = `{"id":"SO05","customerId":"C1","total":105.25,"lines":[{"sku":"A-17","quantity":2,"price":40.5},{"sku":"B-02","quantity":1,"price":24.25}],"shipped":false,"note":"at the door","tags":["a"],"ttl":3600}`

func TestParseDocument(t *testing.T) {
	for _, test := range []struct {
		name, sent, stored string // the id is a
	}{
		{"nothing to change", `{"id":"a","total":5}`, `{"id":"a","total":5}`},
		{"id is added in front", `{"total":5}`, `{"id":"a","total":5}`},
		{"id is added to the empty object", `{}`, `{"id":"a"}`},
		{"id stays where it is", `{"total":5,"id":"a"}`, `{"total":5,"id":"a"}`},
		{"escaped id", `{"id":"\u0061"}`, `{"id":"\u0061"}`},
		{"escaped name of the id", `{"\u0069d":"a"}`, `{"\u0069d":"a"}`},
		{"Id is another member", `{"Id":"b"}`, `{"id":"a","Id":"b"}`},
		{"id further in is another member", `{"a":{"id":"b","_ts":1}}`, `{"id":"a","a":{"id":"b","_ts":1}}`},

		{"white space", " {\n\t\"id\" : \"a\" ,\r \"b\" : [ 1 , { } , \" x y \" ] } \n", `{"id":"a","b":[1,{}," x y "]}`},
		{"white space only after", "{\"id\":\"a\"}\n", `{"id":"a"}`},
		{"white space and no id", "{ }\n", `{"id":"a"}`},

		{"order and number literals", `{"z":1.50,"y":1e3,"x":-0,"w":12345678901234567890,"id":"a","v":1E+2}`, `{"z":1.50,"y":1e3,"x":-0,"w":12345678901234567890,"id":"a","v":1E+2}`},
		{"string literals", `{"id":"a","s":"\u0041\/<&>\ud800é"}`, `{"id":"a","s":"\u0041\/<&>\ud800é"}`},
		{"equal names", `{"id":"a","b":1,"b":2}`, `{"id":"a","b":1,"b":2}`},

		{"system properties are dropped", `{"_rid":"r","id":"a","_ts":1,"_self":{},"b":2,"_etag":"7","_attachments":[]}`, `{"id":"a","b":2}`},
		{"escaped system property", `{"id":"a","\u005fts":1,"_\u0065tag":"7"}`, `{"id":"a"}`},
		{"nothing but system properties", `{"_ts":1,"_etag":"7"}`, `{"id":"a"}`},
		{"other names with underscores stay", `{"id":"a","_TS":1,"_":2,"_tss":3}`, `{"id":"a","_TS":1,"_":2,"_tss":3}`},
		{"a reply sent back", `{"id":"a","b":2,"_ts":1,"_etag":"7"}`, `{"id":"a","b":2}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			sent := []byte(test.sent)
			d, fault := ParseDocument("a", sent)
			if fault != nil || string(d.Body) != test.stored {
				t.Fatalf("got  %s, %v\nwant %s", d.Body, fault, test.stored)
			}
			if string(sent) != test.sent {
				t.Fatalf("what the client sent was written to: %s", sent)
			}
		})
	}
}

func TestParseDocumentRefuses(t *testing.T) {
	deep := `{"b":` + strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth) + `}`
	for want, all := range map[*Error][]string{
		ErrBadID: {`{"id":"b"}`, `{"id":"A"}`, `{"id":""}`, `{"id":1}`, `{"id":null}`, `{"id":["a"]}`, `{"i\u0064":"b"}`},
		ErrBadRequest: {`{"id":"a","id":"a"}`, `{"id":"a","\u0069d":"a"}`, `{"ttl":1,"ttl":2}`, `{"ttl":1,"\u0074tl":2}`,
			``, " \n", `null`, `[]`, `"a"`, `{"b":`, `{}{}`, "\ufeff{}", "{\"b\":\"\xff\"}", "{\"_ts\":\"\xff\"}", deep},
	} {
		for _, sent := range all {
			d, fault := ParseDocument("a", []byte(sent))
			if !errors.Is(fault, want) || d.Body != nil || strings.ContainsAny(fault.Message, "\r\n") {
				t.Errorf("%.80q: got %q, %v, want %s", sent, d.Body, fault, want.Name)
			}
		}
	}
}

// ofSize returns a document without an id of exactly size bytes.
func ofSize(size int) []byte {
	return []byte(`{"b":"` + strings.Repeat("x", size-len(`{"b":""}`)) + `"}`)
}

func TestParseDocumentSize(t *testing.T) {
	for _, test := range []struct {
		size  int
		legal bool
	}{{MaxDocumentBytes - 1, true}, {MaxDocumentBytes, true}, {MaxDocumentBytes + 1, false}} {
		d, fault := ParseDocument("a", ofSize(test.size))
		if !test.legal {
			if !errors.Is(fault, ErrTooLarge) {
				t.Errorf("%d bytes: %v, want too_large", test.size, fault)
			}
			continue
		}
		// The limit applies to the document as sent; the added id may exceed it.
		if fault != nil || len(d.Body) != test.size+len(`"id":"a",`) {
			t.Fatalf("%d bytes: %d stored, %v", test.size, len(d.Body), fault)
		}
		// Folding must be able to read the stored document.
		back, fault := ReadDocument("a", d.Body)
		if fault != nil || !bytes.Equal(back.Body, d.Body) {
			t.Fatalf("%d bytes can't be read back: %v", test.size, fault)
		}
	}
	// The limit counts white space, even if it is about to be removed.
	if _, fault := ParseDocument("a", bytes.Repeat([]byte(" "), MaxDocumentBytes+1)); !errors.Is(fault, ErrTooLarge) {
		t.Errorf("white space: %v, want too_large", fault)
	}
}

func TestParseDocumentTTL(t *testing.T) {
	for _, test := range []struct {
		name, sent string
		ttl        TTL
		bad        string
	}{
		{"absent", `{}`, Inherit, ""},
		{"null", `{"ttl":null}`, Inherit, ""},
		{"never", `{"ttl":-1}`, Never, ""},
		{"seconds", `{"ttl":30}`, 30, ""},
		{"escaped name", `{"\u0074tl":30}`, 30, ""},
		{"escaped name, not legal", `{"\u0074t\u006c":"x"}`, Inherit, `"x"`},
		{"other case is another member", `{"TTL":30,"Ttl":0}`, Inherit, ""},
		{"further in is another member", `{"a":{"ttl":30}}`, Inherit, ""},
		{"not legal, with white space", `{ "ttl" : [ 1 ] }`, Inherit, `[ 1 ]`},
	} {
		t.Run(test.name, func(t *testing.T) {
			d, fault := ParseDocument("a", []byte(test.sent))
			if fault != nil || d.TTL != test.ttl || string(d.BadTTL) != test.bad {
				t.Fatalf("got %d, bad %q, %v", d.TTL, d.BadTTL, fault)
			}
			if err := d.TTLError(); (err != nil) != (test.bad != "") {
				t.Fatalf("the error is %v", err)
			}
		})
	}
}

// TestTTLErrorIsOneShortLine: the message fits a header and one line of standard error.
func TestTTLErrorIsOneShortLine(t *testing.T) {
	d, _ := ParseDocument("a", []byte("{\"ttl\":[\n"+strings.Repeat("1,\n", 1000)+"1]}"))
	err := d.TTLError()
	if !errors.Is(err, ErrBadTTL) || len(err.Message) > 200 || strings.Contains(err.Message, "\n") {
		t.Fatalf("got %v", err)
	}
}

func TestAppendReply(t *testing.T) {
	for body, want := range map[string]string{
		`{}`:                     `{"_ts":12,"_etag":"7"}`,
		`{"id":"a"}`:             `{"id":"a","_ts":12,"_etag":"7"}`,
		`{"id":"a","b":{"c":1}}`: `{"id":"a","b":{"c":1},"_ts":12,"_etag":"7"}`,
	} {
		stored := []byte(body)
		got := AppendReply([]byte("prefix "), stored, 12, 7)
		if string(got) != "prefix "+want {
			t.Errorf("%s: got %s", body, got)
		}
		if string(stored) != body {
			t.Errorf("%s became %s", body, stored)
		}
	}
	largest := AppendReply(nil, []byte(`{}`), 1<<62, 1<<64-1)
	if want := `{"_ts":4611686018427387904,"_etag":"18446744073709551615"}`; string(largest) != want {
		t.Errorf("got %s", largest)
	}
}

// decode reads a JSON object without loss.
func decode(t testing.TB, data []byte) map[string]any {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var object map[string]any
	if err := decoder.Decode(&object); err != nil {
		t.Fatalf("%q: %v", data, err)
	}
	return object
}

func isReserved(name string) bool { return reserved([]byte(name)) }

func checkStored(t *testing.T, id DocumentID, sent []byte, d Document) {
	t.Helper()
	if !json.Valid(d.Body) || !bytes.Equal(compact(d.Body), d.Body) {
		t.Fatalf("%q is stored as %q", sent, d.Body)
	}
	before, after := decode(t, sent), decode(t, d.Body)
	if after["id"] != string(id) {
		t.Fatalf("%q is stored as %q with the id %v", sent, d.Body, after["id"])
	}
	for name, value := range after {
		if isReserved(name) {
			t.Fatalf("%q is stored as %q with %s", sent, d.Body, name)
		}
		if _, ok := before[name]; !ok && name != "id" {
			t.Fatalf("%q is stored as %q with %s = %v", sent, d.Body, name, value)
		}
	}
	for name, value := range before {
		if !isReserved(name) && !reflect.DeepEqual(after[name], value) {
			t.Fatalf("%q is stored as %q: %s is %v", sent, d.Body, name, after[name])
		}
	}
	again, fault := ParseDocument(id, d.Body)
	if fault != nil || !bytes.Equal(again.Body, d.Body) || again.TTL != d.TTL || (again.BadTTL == nil) != (d.BadTTL == nil) {
		t.Fatalf("%q is stored as %+v and read back as %+v, %v", sent, d, again, fault)
	}
}

func FuzzParseDocument(f *testing.F) {
	for _, seed := range []string{
		order, `{}`, `{"id":"a"}`, `{"id":"b"}`, `{"\u0069d":"\u0061","_ts":1}`, ` {"_etag":"1", "b":[ ]} `,
		`{"ttl":5}`, `{"ttl":1.5,"x":1}`, `{"\u0074tl":null}`, `{"b":1,"b":2,"_self":3,"_self":4}`, `{"":{"":""}}`, `{"\ud800":1,"\udfff":2}`,
	} {
		f.Add("a", []byte(seed))
		f.Add(`"\é.`, []byte(seed))
	}
	for _, id := range []string{`"`, `\`, "</script>", "83.149.9.216", "😀", "\uFFFD", " "} {
		f.Add(id, []byte(`{"b":1}`))
	}
	f.Fuzz(func(t *testing.T, rawID string, sent []byte) {
		id, err := ParseDocumentID(rawID)
		if err != nil {
			return
		}
		d, fault := ParseDocument(id, sent)
		if fault == nil {
			checkStored(t, id, sent, d)
		} else if ValidJSON(sent) && sent[0] == '{' && !errors.Is(fault, ErrBadID) && !strings.Contains(fault.Message, "twice") {
			t.Fatalf("%q is refused: %v", sent, fault)
		}
	})
}

// TestParseDocumentDoesNotAllocate: parsing a document that needs no change allocates
// nothing. Every document passes here, and most need no change.
func TestParseDocumentDoesNotAllocate(t *testing.T) {
	sent := []byte(order)
	if got := testing.AllocsPerRun(100, func() { _, _ = ParseDocument("SO05", sent) }); got != 0 {
		t.Fatalf("%v allocations", got)
	}
}
