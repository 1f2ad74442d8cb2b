package query

import (
	"errors"
	"math"
	"reflect"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"

	"github.com/lapsedb/lapse/schema/values"
)

// errMissing is the value of a path that the document does not have.
var errMissing = types.WrapErr(errors.New("no such field"))

// adapter converts JSON for CEL lazily: elements and members stay values.Value until
// CEL reads them.
type adapter struct {
	types.Adapter
	remaining *int            // bytes of arrays and objects that may still be converted, nil for any
	worked    func(bytes int) // see run.worked, may be nil
}

// valueBytes is the number of bytes that can be skipped in the time that CEL takes to
// convert a value and test a condition on it.
const valueBytes = 1 << 10

// plain is the adapter over CEL's own.
var plain = adapter{Adapter: types.DefaultTypeAdapter}

// maxTakenApart bounds the bytes of arrays and objects converted for one document: a
// macro could convert the same value repeatedly and keep the results.
const maxTakenApart = 32 << 20

// NativeToValue implements types.Adapter. Elements and members of a list or map come
// through here when CEL reads them.
func (a adapter) NativeToValue(value any) ref.Val {
	if v, ok := value.(values.Value); ok {
		return a.value(v)
	}
	return a.Adapter.NativeToValue(value)
}

// value converts one value; an array or object is taken apart into its parts, which stay
// JSON. It reports work as it goes, so that other queries run during a long conversion.
func (a adapter) value(v values.Value) ref.Val {
	if a.worked == nil {
		a.worked = func(int) {}
	}
	a.worked(valueBytes)
	switch v.Kind() {
	case values.Missing:
		return errMissing
	case values.Null:
		return types.NullValue
	case values.False:
		return types.False
	case values.True:
		return types.True
	case values.Number:
		return number(v)
	case values.String:
		return types.String(v.Text())
	}
	if a.remaining != nil {
		if *a.remaining -= len(v); *a.remaining < 0 {
			refuse()
		}
	}
	if v.Kind() == values.Array {
		var elements []values.Value
		v.Elements(func(element values.Value) bool {
			elements = append(elements, element)
			a.worked(valueBytes/16 + len(element))
			return true
		})
		return types.NewList(a, elements)
	}
	members := make(map[string]values.Value)
	v.Members(func(name []byte, value values.Value) bool {
		members[string(name)] = value
		a.worked(valueBytes/16 + len(value))
		return true
	})
	return types.NewDynamicMap(a, members)
}

// number returns a number for CEL: an integer of 64 bits if it is written as one, else a
// double.
func number(v values.Value) ref.Val {
	magnitude, negative, ok := v.Integer()
	switch {
	case !ok:
		return types.Double(v.Float())
	case negative:
		return types.Int(-magnitude)
	case magnitude <= math.MaxInt64:
		return types.Int(magnitude)
	}
	return types.Uint(magnitude)
}

// operandOfResult returns a result of CEL as an operand, if it is a number, a string, a
// boolean or null. An error has the kind Missing: it equals nothing. ok is false for what
// JSON lacks, such as NaN and timestamps, and for lists and maps, which have no operand
// here.
func operandOfResult(v ref.Val) (o operand, ok bool) {
	switch v := v.(type) {
	case types.Int:
		magnitude := uint64(v)
		if v < 0 {
			magnitude = -magnitude
		}
		return operand{kind: values.Number, real: values.RealOfInteger(magnitude, v < 0)}, true
	case types.Uint:
		return operand{kind: values.Number, real: values.RealOfInteger(uint64(v), false)}, true
	case types.Double:
		if math.IsNaN(float64(v)) {
			return operand{}, false
		}
		return operand{kind: values.Number, real: values.RealOf(float64(v))}, true
	case types.String:
		return operand{kind: values.String, text: []byte(v)}, true
	case types.Bool:
		if v {
			return operand{kind: values.True}, true
		}
		return operand{kind: values.False}, true
	case types.Null:
		return operand{kind: values.Null}, true
	}
	return operand{kind: values.Missing}, types.IsUnknownOrError(v)
}

// maxElements bounds the elements of lists and maps that one comparison reads: a list
// that contains one list many times may have more elements than fit into memory.
const maxElements = 1 << 20

// refuse ends the evaluation, which costs too much.
func refuse() ref.Val {
	panic(interpreter.EvalCancelledError{Cause: interpreter.CostLimitExceeded})
}

// resultsEqual is == on results of CEL. It compares numbers of all types, also in lists
// and maps, and cancels the evaluation only beyond maxElements.
func resultsEqual(a, b ref.Val) bool {
	remaining := maxElements
	return equalWithin(a, b, &remaining)
}

// equalWithin subtracts each comparison from remaining, nested ones included.
func equalWithin(a, b ref.Val, remaining *int) bool {
	if *remaining--; *remaining < 0 {
		refuse()
	}
	o, ok := operandOfResult(a)
	p, also := operandOfResult(b)
	if ok && also {
		return o.equal(&p)
	}
	if ok != also {
		return false
	}
	switch a := a.(type) {
	case traits.Lister:
		b, ok := b.(traits.Lister)
		if !ok || a.Size() != b.Size() {
			return false
		}
		for i, j := a.Iterator(), b.Iterator(); i.HasNext() == types.True && j.HasNext() == types.True; {
			if !equalWithin(i.Next(), j.Next(), remaining) {
				return false
			}
		}
		return true
	case traits.Mapper:
		b, ok := b.(traits.Mapper)
		if !ok || a.Size() != b.Size() {
			return false
		}
		for i := a.Iterator(); i.HasNext() == types.True; {
			name := i.Next()
			value, found := b.Find(name)
			if !found || !equalWithin(a.Get(name), value, remaining) {
				return false
			}
		}
		return true
	}
	return a.Equal(b) == types.True
}

// weigh subtracts the elements of a value, nested ones included, from remaining, and stops
// at 0.
func weigh(v ref.Val, remaining *int) {
	*remaining--
	switch v := v.(type) {
	case types.String:
		*remaining -= len(v) / 10 // as CEL counts them
	case types.Bytes:
		*remaining -= len(v) / 10
	case traits.Lister:
		for i := v.Iterator(); *remaining > 0 && i.HasNext() == types.True; {
			weigh(i.Next(), remaining)
		}
	case traits.Mapper:
		for i := v.Iterator(); *remaining > 0 && i.HasNext() == types.True; {
			name := i.Next()
			weigh(v.Get(name), remaining)
		}
	}
}

// documentValue is the value of doc: the document of an evaluation, an opaque type to
// CEL that only our functions read.
type documentValue struct{ *evaluation }

var documentType = types.NewOpaqueType("lapse.document")

func (d documentValue) Type() ref.Type { return documentType }
func (d documentValue) Value() any     { return d.evaluation }
func (d documentValue) Equal(ref.Val) ref.Val {
	return types.False
}
func (d documentValue) ConvertToType(ref.Type) ref.Val {
	return types.NewErr("a document is of no other type")
}
func (d documentValue) ConvertToNative(reflect.Type) (any, error) {
	return nil, errors.New("a document is of no other type")
}
