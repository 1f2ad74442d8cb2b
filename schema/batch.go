package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// MaxOperations is how many operations one batch may have.
const MaxOperations = 1000

// Batch is a batch request.
type Batch struct {
	Collection CollectionName
	Atomic     bool
	Operations []Operation
}

// Operation is one operation of a batch: a get if Mutation is nil.
type Operation struct {
	Get      DocumentID
	Mutation *Mutation
	Fault    *Error // why it is not well formed, nil if it is
}

// OperationResult is what became of an operation.
type OperationResult struct {
	Code  int    // of the outcome; ignored if there is a Fault
	Fault *Error // why it was refused, else nil
	Body  []byte // the document, if any
}

// ParseBatch reads the body of a batch request. What is wrong with one
// operation is in its Fault; an error is about the envelope.
func ParseBatch(collection string, raw []byte) (*Batch, *Error) {
	name, err := ParseCollectionName(collection)
	if err != nil {
		return nil, AsError(err)
	}
	var envelope struct {
		Operations *[]json.RawMessage `json:"operations"`
		Atomic     *bool              `json:"atomic"`
	}
	if err := decodeStrictly(raw, &envelope); err != nil {
		return nil, ErrBadRequest.With(`the batch is not {"operations":[…],"atomic":true|false}: %v`, err)
	}
	if envelope.Operations == nil {
		return nil, ErrBadRequest.With("the batch has no operations: give a list of at most %d", MaxOperations)
	}
	if n := len(*envelope.Operations); n > MaxOperations {
		return nil, ErrBadRequest.With("the batch has %d operations: at most %d are allowed", n, MaxOperations)
	}
	b := &Batch{Collection: name, Atomic: envelope.Atomic != nil && *envelope.Atomic}
	for _, raw := range *envelope.Operations {
		b.Operations = append(b.Operations, parseOperation(collection, raw))
	}
	return b, nil
}

// decodeStrictly decodes one JSON value that has no members but those of into.
func decodeStrictly(raw []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			// What it says itself is Go.
			return fmt.Errorf("byte %d: the type %s does not belong there", wrong.Offset, wrong.Value)
		}
		return err
	}
	if _, err := decoder.Token(); err != io.EOF {
		return errors.New("more than one JSON value")
	}
	return nil
}

func parseOperation(collection string, raw []byte) Operation {
	var op struct {
		Op      string          `json:"op"`
		ID      *string         `json:"id"`
		Body    json.RawMessage `json:"body"`
		IfMatch string          `json:"ifMatch"`
	}
	if err := decodeStrictly(raw, &op); err != nil {
		return Operation{Fault: ErrBadRequest.With(`the operation is not {"op":…,"id":…,"body":…,"ifMatch":…}: %v`, err)}
	}
	switch op.Op {
	case "get", "create", "replace", "upsert", "patch", "delete":
	default:
		return Operation{Fault: ErrBadRequest.With("unknown operation %q: use get, create, replace, upsert, patch or delete", op.Op)}
	}
	if op.ID == nil {
		return Operation{Fault: ErrBadID.With("the operation has no id")}
	}
	if op.Op == "get" {
		id, err := ParseDocumentID(*op.ID)
		if err != nil {
			return Operation{Fault: AsError(err)}
		}
		return Operation{Get: id}
	}
	m := NewNamedMutation("document."+op.Op, collection, *op.ID, op.Body)
	m.IfMatch = op.IfMatch
	return Operation{Mutation: m, Fault: m.Fault}
}

// Mutates tells whether the batch can change anything.
func (b *Batch) Mutates() bool {
	for i := range b.Operations {
		if b.Operations[i].Mutation != nil && b.Operations[i].Fault == nil {
			return true
		}
	}
	return false
}

// AppendResults appends the reply {"results":[{"code":…,"body":…},…]}.
func AppendResults(dst []byte, results []OperationResult) []byte {
	dst = append(dst, `{"results":[`...)
	for i := range results {
		r := &results[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		code := r.Code
		if r.Fault != nil {
			code = r.Fault.Code
		}
		dst = strconv.AppendInt(append(dst, `{"code":`...), int64(code), 10)
		if r.Fault != nil {
			dst = r.Fault.AppendJSON(append(dst, `,"body":`...))
		} else if len(r.Body) > 0 {
			dst = append(append(dst, `,"body":`...), r.Body...)
		}
		dst = append(dst, '}')
	}
	return append(dst, ']', '}')
}
