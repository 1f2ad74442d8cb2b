package schema

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/lapsedb/lapse/schema/values"
)

// MaxOperations limits the operations of a batch.
const MaxOperations = 1000

// Batch is a batch request.
type Batch struct {
	Collection CollectionName
	Atomic     bool
	Operations []Operation
}

// Operation is one operation of a batch.
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
	seen := make(map[string]bool)
	if _, err := membersTo(envelopeDepth, raw, func(name, value []byte) error {
		member := string(values.Unquote(name))
		if seen[member] {
			return fmt.Errorf("the member %.40s comes twice", member)
		}
		seen[member] = true
		switch {
		case member == "operations" && value[0] == '[':
			values.Value(value).Elements(func(operation values.Value) bool {
				operations = append(operations, operation)
				return true
			})
		case member == "atomic" && (string(value) == "true" || string(value) == "false"):
			b.Atomic = string(value) == "true"
		default:
			return fmt.Errorf("%.40s: %.40s does not belong there", member, value)
		}
		return nil
	}); err != nil {
		return nil, ErrBadRequest.With(`the batch is not {"operations":[…],"atomic":true|false}: %v`, err)
	}
	if !seen["operations"] {
		return nil, ErrBadRequest.With("the batch has no operations: give a list of at most %d", MaxOperations)
	}
	if n := len(operations); n > MaxOperations {
		return nil, ErrBadRequest.With("the batch has %d operations: at most %d are allowed", n, MaxOperations)
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

func parseOperation(collection string, raw []byte) Operation {
	texts := map[string]*string{"op": nil, "id": nil, "ifMatch": nil}
	var body []byte
	var wrong error // the first one; reading continues, since op may follow and say get
	_, err := membersTo(envelopeDepth, raw, func(name, value []byte) error {
		member := string(values.Unquote(name))
		into, known := texts[member]
		var err error
		switch {
		case member == "body" && body == nil:
			body = value
		case !known && member != "body":
			err = fmt.Errorf("unknown member %.40q", member)
		case into != nil || member == "body":
			err = fmt.Errorf("the member %s comes twice", member)
		default:
			var text string
			if text, err = decodeString(value); err == nil {
				texts[member] = &text
			} else {
				err = fmt.Errorf("%s: %w", member, err)
			}
		}
		wrong = cmp.Or(wrong, err)
		return nil
	})
	op, id, ifMatch := texts["op"], texts["id"], texts["ifMatch"]
	if err = cmp.Or(err, wrong); err != nil {
		return Operation{Reads: op != nil && *op == "get", Fault: ErrBadRequest.With(`the operation is not {"op":…,"id":…,"body":…,"ifMatch":…}: %v`, err)}
	}
	if op == nil {
		op = new(string)
	}
	switch *op {
	case "get", "create", "replace", "upsert", "patch", "delete", "touch", "restore", "hold", "release":
	default:
		return Operation{Fault: ErrBadRequest.With("unknown operation %.40q: use get, create, replace, upsert, patch, delete, touch, restore, hold or release", *op)}
	}
	if id == nil {
		return Operation{Reads: *op == "get", Fault: ErrBadID.With("the operation has no id")}
	}
	if *op == "get" {
		id, err := ParseDocumentID(*id)
		if err != nil {
			return Operation{Reads: true, Fault: AsError(err)}
		}
		return Operation{Reads: true, Get: id}
	}
	m := NewNamedMutation("document."+*op, collection, *id, body)
	if ifMatch != nil {
		m.IfMatch = *ifMatch
	}
	return Operation{Mutation: m, Fault: m.Fault}
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
			dst = append(append(dst, `,"body":`...), r.Body...)
		}
		dst = append(dst, '}')
	}
	return append(dst, ']', '}')
}
