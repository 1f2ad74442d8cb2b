package schema

import (
	"errors"
	"strings"
	"testing"
)

func TestParseBatch(t *testing.T) {
	b, fault := ParseBatch("orders", []byte(` {"atomic":true, "operations":[
		{"op":"upsert","id":"a\u002fb","body":{"n": 1},"ifMatch":"7"}, {"op":"get","id":"b"},
		{"op":"replace","id":"c","body":{},"expireAt":9}, {"op":"get","id":"d","keepDeadline":true}] } `))
	if fault != nil {
		t.Fatal(fault)
	}
	if !b.Atomic || b.Collection != "orders" || len(b.Operations) != 4 || !b.Mutates() {
		t.Fatalf("got %+v", b)
	}
	m := b.Operations[0].Mutation
	if m == nil || m.Fault != nil || m.Op != DocumentUpsert || m.ID != "a/b" || m.IfMatch != "7" || string(m.Document.Body) != `{"id":"a/b","n":1}` {
		t.Errorf("got %+v", m)
	}
	if op := b.Operations[1]; op.Mutation != nil || op.Fault != nil || op.Get != "b" {
		t.Errorf("got %+v", op)
	}
	if m := b.Operations[2].Mutation; m == nil || m.Fault != nil || m.End.At != 9 {
		t.Errorf("got %+v", m)
	}
	if op := b.Operations[3]; !errors.Is(op.Fault, ErrBadRequest) {
		t.Errorf("got %+v", op)
	}
	if b, fault := ParseBatch("orders", []byte(`{"operations":[]}`)); fault != nil || b.Atomic || b.Mutates() {
		t.Errorf("got %+v, %v", b, fault)
	}
}

// TestParseBatchFaults: a malformed envelope refuses the batch, a malformed operation
// only itself: the next one is accepted.
func TestParseBatchFaults(t *testing.T) {
	many := `{"operations":[` + strings.Repeat(`{"op":"get","id":"a"},`, MaxOperations) + `{"op":"get","id":"a"}]}`
	for _, envelope := range []string{``, `[]`, `{}`, `{"operations":null}`, `{"operations":{}}`, `{"Operations":[]}`,
		`{"operations":[],"operations":[]}`, `{"operations":[],"atomic":1}`,
		`{"operations":[]}}`, `{"operations":[]} {}`, `{"operations":[],"more":1}`, "{\"operations\":[\"\xff\"]}", many} {
		if _, fault := ParseBatch("orders", []byte(envelope)); !errors.Is(fault, ErrBadRequest) {
			t.Errorf("%.80s: got %v", envelope, fault)
		}
	}
	for operation, want := range map[string]*Error{
		`7`:                                   ErrBadRequest,
		`{"id":"a"}`:                          ErrBadRequest,
		`{"op":"put","id":"a"}`:               ErrBadRequest,
		`{"OP":"get","ID":"a"}`:               ErrBadRequest,
		`{"op":"get","op":"delete","id":"a"}`: ErrBadRequest,
		`{"op":"delete","id":"a","body":1,"body":2}`: ErrBadRequest,
		`{"op":"get","id":7}`:                        ErrBadRequest,
		`{"op":"get"}`:                               ErrBadID,
		`{"op":"get","id":""}`:                       ErrBadID,
		`{"op":"delete","id":"\ud800"}`:              ErrBadRequest,
		`{"op":"upsert","id":"a"}`:                   ErrBadRequest,
		`{"op":"upsert","id":"a","body":` + strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth) + `}`: ErrBadRequest,
		`{"op":"upsert","id":"a","body":{"id":"\ud83d"}}`:                                                       ErrBadID,
	} {
		b, fault := ParseBatch("orders", []byte(`{"operations":[`+operation+`,{"op":"upsert","id":"a","body":{"x":"\ud83d\ude00"}}]}`))
		if fault != nil {
			t.Errorf("%.80s: got %v for all", operation, fault)
			continue
		}
		if got := b.Operations[0].Fault; !errors.Is(got, want) {
			t.Errorf("%.80s: got %v, want %s", operation, got, want.Name)
		}
		if got := b.Operations[1].Fault; got != nil {
			t.Errorf("%.80s: the next one has %v", operation, got)
		}
	}
}

func FuzzParseBatch(f *testing.F) {
	f.Add([]byte(`{"operations":[{"op":"upsert","id":"a","body":{"n":1},"ifMatch":"7"},{"op":"get","id":"b"}],"atomic":true}`))
	f.Add([]byte(`{"operations":[{"op":"delete","id":"\ud83d\ude00"}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		b, fault := ParseBatch("orders", raw)
		if fault != nil {
			return
		}
		for _, op := range b.Operations {
			id := op.Get
			if op.Mutation != nil {
				id = op.Mutation.ID
			}
			if op.Fault == nil {
				if _, err := ParseDocumentID(string(id)); err != nil {
					t.Errorf("an operation has the id %q: %v", id, err)
				}
			}
		}
	})
}
