package schema

import (
	"strconv"

	"github.com/lapsedb/lapse/schema/values"
)

// MaxOperations limits the operations of a batch.
const MaxOperations = 1000

// Batch is a batch request. Its operations are decided in their order. Without Atomic each
// stands for itself; with it either all mutations happen or none.
type Batch struct {
	Collection CollectionName
	Atomic     bool
	Operations []Operation
}

// Operation is one operation of a batch. A Fault is its result, whatever the state. Reads
// tells a faulty get from a faulty mutation: when an atomic batch fails, a get keeps its
// own result.
type Operation struct {
	Reads    bool       // the operation is a get
	Get      DocumentID // the document to get
	Mutation *Mutation  // nil for a get
	Fault    *Error     // why it is malformed, or nil
}

// OperationResult is the outcome of an operation.
type OperationResult struct {
	Code  int    // status of the outcome; ignored if there is a Fault
	Fault *Error // why it was refused, or nil
	Body  []byte // the document, if any

	// Lifetime is that of the live document that the result is about, if any.
	Lifetime Lifetime
}

// Size returns the bytes of the result in a reply, but for the names of its body and code.
// The machine counts results against the size of a reply while it decides them.
func (r *OperationResult) Size() int {
	if r.Fault != nil {
		return len(r.Fault.AppendJSON(nil))
	}
	return len(r.Body) + len(r.Lifetime.appendResult(nil))
}

// ParseBatch reads the body of a batch request. The fault of one operation is in its
// Fault; an error is about the envelope.
func ParseBatch(collection string, raw []byte) (*Batch, *Error) {
	name, err := ParseCollectionName(collection)
	if err != nil {
		return nil, AsError(err)
	}
	b := &Batch{Collection: name}
	var operations [][]byte
	given := false
	if fault := readObjectTo(envelopeDepth, "the batch", raw, []Member{
		{Name: "operations", Read: func(value []byte) *Error {
			if value[0] != '[' {
				return WrongValue("operations", value, "a list of at most "+strconv.Itoa(MaxOperations))
			}
			given = true
			// Counted first: a body of a megabyte can have half a million.
			if n := values.Value(value).Len(); n > MaxOperations {
				return ErrBadRequest.With("the batch has %d operations: at most %d are allowed", n, MaxOperations)
			}
			values.Value(value).Elements(func(operation values.Value) bool {
				operations = append(operations, operation)
				return true
			})
			return nil
		}},
		Bool("atomic", &b.Atomic),
	}); fault != nil {
		return nil, fault
	}
	if !given {
		return nil, ErrBadRequest.With("the batch has no operations: give a list of at most %d", MaxOperations)
	}
	for _, raw := range operations {
		b.Operations = append(b.Operations, parseOperation(collection, raw))
	}
	return b, nil
}

// envelopeDepth limits the nesting of a message that holds documents. It exceeds the
// depth of a legal document and its envelope, so a document nested too deep faults only
// its operation.
const envelopeDepth = 8 * MaxDepth

// parseOperation reads one operation. Its fault does not end the batch.
func parseOperation(collection string, raw []byte) Operation {
	var op, id, ifMatch string
	var body []byte
	var end given
	ends := end.members()
	fault := readObjectTo(envelopeDepth, "the operation", raw, []Member{Text("op", &op), Text("id", &id),
		{Name: "body", Null: true, Read: func(value []byte) *Error { body = value; return nil }}, Text("ifMatch", &ifMatch),
		ends[0], ends[1]})
	if fault != nil {
		return Operation{Reads: op == "get", Fault: fault}
	}
	switch op {
	case "get", "create", "replace", "upsert", "patch", "delete", "touch", "restore", "hold", "release":
	default:
		return Operation{Fault: ErrBadRequest.With("unknown operation %.40q: use get, create, replace, upsert, patch, delete, touch, restore, hold or release", op)}
	}
	if op == "get" {
		id, err := ParseDocumentID(id)
		fault := CheckNoBody("document.get", body)
		if err != nil {
			fault = AsError(err)
		}
		if fault == nil && (end.at != "" || end.keep != "") {
			fault = notForOperation(end.first(), op)
		}
		return Operation{Reads: true, Get: id, Fault: fault}
	}
	m := NewNamedMutation("document."+op, collection, id, body)
	m.IfMatch = ifMatch
	m.setEnd(end)
	return Operation{Mutation: m, Fault: m.Fault}
}

// SetTrace sets the trace context of all mutations.
func (b *Batch) SetTrace(t Trace) {
	for i := range b.Operations {
		if mu := b.Operations[i].Mutation; mu != nil {
			mu.Trace = t
		}
	}
}

// Mutates reports whether the batch has a mutation.
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
			dst = r.Lifetime.appendResult(append(append(dst, `,"body":`...), r.Body...))
		}
		dst = append(dst, '}')
	}
	return append(dst, ']', '}')
}
