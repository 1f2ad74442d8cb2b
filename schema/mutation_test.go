package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestOpNames(t *testing.T) {
	for op := CollectionCreate; op < Op(Ops); op++ {
		if back := ParseOp(op.String()); back != op {
			t.Errorf("%s is read as %s", op, back)
		}
		if op.OnDocument() != strings.HasPrefix(op.String(), "document.") {
			t.Errorf("%s: on a document %v", op, op.OnDocument())
		}
	}
	for _, name := range []string{"", "document", "document.get", "Document.create", "document.create.", "batch"} {
		if op := ParseOp(name); op != NoOp {
			t.Errorf("%q is accepted as %s", name, op)
		}
	}
}

// TestMade: an event that does not name its operation is made by any that results in it.
func TestMade(t *testing.T) {
	makes := map[EventType][]Op{CollectionCreated: {CollectionCreate}, CollectionReplaced: {CollectionReplace}, CollectionDeleted: {CollectionDelete},
		DocumentCreated: {DocumentCreate, DocumentUpsert}, DocumentReplaced: {DocumentReplace, DocumentUpsert, DocumentPatch}, DocumentDeleted: {DocumentDelete}}
	for kind := NoEvent; kind < endOfTypes; kind++ {
		for op := CollectionCreate; op < Op(Ops); op++ {
			m, e := Mutation{Op: op, Collection: "c", ID: "a"}, Event{Type: kind, Collection: "c", ID: "a"}
			if got := m.Made(&e); got != slices.Contains(makes[kind], op) {
				t.Errorf("%s made %s: %t", op, kind, got)
			}
			if e.MsgOp = op; !m.Made(&e) {
				t.Errorf("%s did not make its own %s", op, kind)
			}
			if e.ID = "b"; m.Made(&e) {
				t.Errorf("%s made %s of another document", op, kind)
			}
		}
	}
}

func TestNewMutation(t *testing.T) {
	for _, test := range []struct {
		tail, body string
		op         Op
		id         DocumentID
	}{
		{"collection.create.orders", ``, CollectionCreate, ""},
		{"collection.create.orders", `{"defaultTtl":5}`, CollectionCreate, ""},
		{"collection.replace.orders", `{"defaultTtl":5}`, CollectionReplace, ""},
		{"collection.delete.orders", ``, CollectionDelete, ""},
		{"document.create.orders.SO05", `{"total":5}`, DocumentCreate, "SO05"},
		{"document.replace.orders.SO05", `{"total":5}`, DocumentReplace, "SO05"},
		{"document.upsert.orders.83%2E149%2e9", `{"ttl":5}`, DocumentUpsert, "83.149.9"},
		{"document.patch.orders.SO05", `{"total":null}`, DocumentPatch, "SO05"},
		{"document.delete.orders.SO05", ``, DocumentDelete, "SO05"},
		{"document.delete.orders.SO05", ` {} `, DocumentDelete, "SO05"},
		{"collection.delete.orders", `{}`, CollectionDelete, ""},
	} {
		t.Run(test.tail, func(t *testing.T) {
			for name, m := range map[string]*Mutation{
				"in a subject": NewMutation(test.tail, []byte(test.body)),
				"named":        NewNamedMutation(test.op.String(), "orders", string(test.id), []byte(test.body)),
			} {
				if m.Fault != nil || m.Op != test.op || m.Collection != "orders" || m.ID != test.id || string(m.Body) != test.body {
					t.Errorf("%s: %+v, %v", name, m, m.Fault)
				}
			}
		})
	}
}

func TestNewMutationReadsTheBody(t *testing.T) {
	if m := NewMutation("document.upsert.orders.a", []byte(` {"ttl": 5}`)); string(m.Document.Body) != `{"id":"a","ttl":5}` || m.Document.TTL != 5 {
		t.Errorf("document: %+v", m.Document)
	}
	if m := NewMutation("collection.create.orders", []byte(`{"defaultTtl":5}`)); m.Properties.DefaultTTL != 5 || m.Properties.IndexingMode != Consistent {
		t.Errorf("properties: %+v", m.Properties)
	}
	// A bad ttl is no Fault: it is checked last, and only if the collection's TTL is on.
	if m := NewMutation("document.upsert.orders.a", []byte(`{"ttl":"x"}`)); m.Fault != nil || !errors.Is(m.Document.TTLError(), ErrBadTTL) {
		t.Errorf("bad ttl: %v, %v", m.Fault, m.Document.TTLError())
	}
}

func TestNewMutationFaults(t *testing.T) {
	for _, test := range []struct {
		name, tail, body string
		want             *Error
		rejection        string // the mutation in the logged rejection
	}{
		{"nothing", "", ``, ErrBadRequest, `{"op":"","collection":""}`},
		{"one token", "document", ``, ErrBadRequest, `{"op":"document","collection":""}`},
		{"unknown op", "document.get.orders.a", ``, ErrBadRequest, `{"op":"document.get","collection":"orders","id":"a"}`},
		{"batch is none", "batch.orders", `{"operations":[]}`, ErrBadRequest, `{"op":"batch.orders","collection":"","body":{"operations":[]}}`},
		{"empty tokens", "..", ``, ErrBadRequest, `{"op":".","collection":""}`},
		{"no collection", "collection.create", ``, ErrBadRequest, `{"op":"collection.create","collection":""}`},
		{"empty collection", "collection.create.", ``, ErrBadRequest, `{"op":"collection.create","collection":""}`},
		{"no collection and no id", "document.delete", ``, ErrBadRequest, `{"op":"document.delete","collection":""}`},
		{"no id", "document.delete.orders", ``, ErrBadID, `{"op":"document.delete","collection":"orders"}`},
		{"empty id", "document.delete.orders.", ``, ErrBadID, `{"op":"document.delete","collection":"orders"}`},
		{"more after a collection", "collection.delete.orders.a", ``, ErrBadRequest, `{"op":"collection.delete","collection":"orders","id":"a"}`},
		{"more after an id", "document.delete.orders.a.b", ``, ErrBadID, `{"op":"document.delete","collection":"orders","id":"a.b"}`},
		{"a dot after an id", "document.delete.orders.a.", ``, ErrBadID, `{"op":"document.delete","collection":"orders","id":"a."}`},
		{"collection with a wildcard", "document.delete.*.a", ``, ErrBadRequest, `{"op":"document.delete","collection":"*","id":"a"}`},
		{"the collection of internal events", "document.delete._.a", ``, ErrBadRequest, `{"op":"document.delete","collection":"_","id":"a"}`},
		{"id with a wildcard", "document.delete.orders.>", ``, ErrBadID, `{"op":"document.delete","collection":"orders","id":">"}`},
		{"malformed escape", "document.delete.orders.%4", ``, ErrBadID, `{"op":"document.delete","collection":"orders","id":"%4"}`},
		{"not UTF-8 in the subject", "document.delete.orders.\xff", ``, ErrBadID, `{"op":"document.delete","collection":"orders","id":"` + "\uFFFD" + `"}`},
		{"no document", "document.create.orders.a%2Eb", ``, ErrBadRequest, `{"op":"document.create","collection":"orders","id":"a.b"}`},
		{"another id", "document.upsert.orders.a", `{"id": "b"}`, ErrBadID, `{"op":"document.upsert","collection":"orders","id":"a","body":{"id":"b"}}`},
		{"patch of the id", "document.patch.orders.a", `{"id":null}`, ErrBadID, `{"op":"document.patch","collection":"orders","id":"a","body":{"id":null}}`},
		{"bad properties", "collection.create.orders", `{"defaultTtl":0}`, ErrBadTTL, `{"op":"collection.create","collection":"orders","body":{"defaultTtl":0}}`},
		{"poison", "document.upsert.orders.a", "{\"\x00\xff", ErrBadRequest, `{"op":"document.upsert","collection":"orders","id":"a","body":"{\"\u0000` + "\uFFFD" + `"}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := NewMutation(test.tail, []byte(test.body))
			if !errors.Is(m.Fault, test.want) {
				t.Fatalf("got %v, want %s", m.Fault, test.want.Name)
			}
			var got struct {
				Code           int
				Error, Message string
				Mutation       json.RawMessage
			}
			if err := json.Unmarshal(m.AppendRejection(nil, m.Fault), &got); err != nil {
				t.Fatal(err)
			}
			if got.Code != 400 || got.Error != test.want.Name || got.Message == "" || string(got.Mutation) != test.rejection {
				t.Fatalf("got  %d %s %q %s\nwant %s", got.Code, got.Error, got.Message, got.Mutation, test.rejection)
			}
		})
	}
}

func TestNewNamedMutationFaults(t *testing.T) {
	for _, test := range []struct {
		name, op, collection, id string
		want                     *Error
	}{
		{"unknown op", "document.get", "orders", "a", ErrBadRequest},
		{"no op", "", "orders", "a", ErrBadRequest},
		{"no collection", "document.delete", "", "a", ErrBadRequest},
		{"illegal collection", "document.delete", "_invalid", "a", ErrBadRequest},
		{"no id", "document.delete", "orders", "", ErrBadID},
		{"illegal id", "document.delete", "orders", "a\n", ErrBadID},
		{"a collection with an id", "collection.delete", "orders", "a", ErrBadRequest},
	} {
		t.Run(test.name, func(t *testing.T) {
			if m := NewNamedMutation(test.op, test.collection, test.id, nil); !errors.Is(m.Fault, test.want) {
				t.Fatalf("got %v, want %s", m.Fault, test.want.Name)
			}
		})
	}
	// Names are not encoded here, so % begins no escape.
	if m := NewNamedMutation("document.delete", "orders", "100%2E.*", nil); m.Fault != nil || m.ID != "100%2E.*" {
		t.Errorf("got %q, %v", m.ID, m.Fault)
	}
}

// slack is the allowed size of the error and the names in a rejection.
const slack = 4 << 10

func TestAppendRejection(t *testing.T) {
	text := func(size int) []byte { return bytes.Repeat([]byte("x"), size) }
	for _, test := range []struct {
		name  string
		body  []byte
		shown string // the body's JSON in the rejection, "" for none
	}{
		{"nothing", nil, ""},
		{"an object", []byte(` {"a": 1} `), `{"a":1}`},
		{"other JSON", []byte(`[1, 2]`), `[1,2]`},
		{"text", []byte(`hello "you"`), `"hello \"you\""`},
		{"poison bytes", []byte("\x00\xff\"\\\n"), `"\u0000` + "\uFFFD" + `\"\\\n"`},
		{"too deep", []byte(strings.Repeat("[", 200) + strings.Repeat("]", 200)), `"` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `"`},
		{"the largest that is shown", ofSize(maxRejectedBody), string(ofSize(maxRejectedBody))},
		{"one byte more", ofSize(maxRejectedBody + 1), ""},
		{"the largest document", ofSize(MaxDocumentBytes), ""},
		{"3 MiB", text(3 << 20), ""},
		{"text that just fits", text(maxRejectedBody - 2), `"` + string(text(maxRejectedBody-2)) + `"`},
		{"text that with its quotes doesn't fit", text(maxRejectedBody - 1), ""},
		{"bytes that grow sixfold", make([]byte, 1<<10), ""},
		{"bytes that grow threefold", bytes.Repeat([]byte{0xff}, 2<<10), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := NewMutation("document.replace.orders.a", test.body)
			// The size limit must not count the prefix in the buffer.
			prefix := text(100)
			got := m.AppendRejection(prefix, ErrDocumentNotFound.With("no document"))[len(prefix):]
			if !json.Valid(got) || len(got) > maxRejectedBody+slack {
				t.Fatalf("%d bytes: %.100q…", len(got), got)
			}
			var rejection struct {
				Mutation struct {
					Body      json.RawMessage
					BodyBytes int
				}
			}
			if err := json.Unmarshal(got, &rejection); err != nil {
				t.Fatal(err)
			}
			if body := string(rejection.Mutation.Body); body != test.shown {
				t.Fatalf("the body is shown as %.100q, want %.100q", body, test.shown)
			}
			if n := rejection.Mutation.BodyBytes; test.shown == "" && n != len(test.body) || test.shown != "" && n != 0 {
				t.Fatalf("bodyBytes is %d of %d", n, len(test.body))
			}
		})
	}
	got := NewMutation("document.replace.orders.SO05", []byte(`{"a":1}`)).AppendRejection(nil, ErrDocumentNotFound.With("no document"))
	if want := `{"code":404,"error":"document_not_found","message":"no document","mutation":{"op":"document.replace","collection":"orders","id":"SO05","body":{"a":1}}}`; string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	long := strings.Repeat("ä", 1<<20)
	for _, m := range []*Mutation{NewNamedMutation(long, "orders", "a", nil), NewNamedMutation("document.delete", long, "a", nil), NewNamedMutation("document.delete", "orders", long, nil)} {
		if got := m.AppendRejection(nil, m.Fault); len(got) > maxRejectedName+slack || !bytes.Contains(got, []byte(`ä…"`)) || !utf8.Valid(got) {
			t.Errorf("names of 2 MiB are rejected with %d bytes: %.100s", len(got), got)
		}
	}
}

func FuzzMutation(f *testing.F) {
	for _, tail := range []string{"collection.create.c", "collection.replace.c", "collection.delete.c", "document.create.c.a",
		"document.replace.c.a%2E", "document.upsert.c.%c3%bf", "document.patch.c.a", "document.delete.c.a", "", ".", "document.upsert", "document.upsert..", "a.b.c.d.e"} {
		for _, body := range []string{``, `{}`, `{"id":"b"}`, "\x00\xff", ` [1 ] `, `{"defaultTtl":0}`} {
			f.Add(tail, []byte(body))
		}
	}
	f.Fuzz(func(t *testing.T, tail string, body []byte) {
		m := NewMutation(tail, body)
		if m.Fault == nil {
			token := m.Op.String() + "." + string(m.Collection)
			if m.Op.OnDocument() {
				token += "." + m.ID.Token()
			}
			again := NewMutation(token, body)
			if again.Fault != nil || again.Op != m.Op || again.Collection != m.Collection || again.ID != m.ID {
				t.Fatalf("%q means %q, that is %+v", tail, token, again)
			}
			named := NewNamedMutation(m.Op.String(), string(m.Collection), string(m.ID), body)
			if named.Fault != nil || named.Op != m.Op || named.Collection != m.Collection || named.ID != m.ID {
				t.Fatalf("%q named is %+v", tail, named)
			}
		}
		fault := m.Fault
		if fault == nil {
			fault = ErrDocumentNotFound.With("no document %q", tail)
		}
		if len(m.Raw.Op)+len(m.Raw.Collection)+len(m.Raw.ID) > len(tail) {
			t.Fatalf("%q has the names %+v", tail, m.Raw)
		}
		rejection := m.AppendRejection(nil, fault)
		if !json.Valid(rejection) {
			t.Fatalf("%q %q is rejected as %q", tail, body, rejection)
		}
		if len(rejection) > maxRejectedBody+slack+10*min(len(tail), 3*maxRejectedName) {
			t.Fatalf("%q: a rejection of %d bytes", tail, len(rejection))
		}
		if len(fault.Message) > slack && m.Fault != nil {
			t.Fatalf("%q: a message of %d bytes", tail, len(fault.Message))
		}
	})
}
