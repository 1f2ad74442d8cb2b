package query

import (
	"math"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"github.com/lapsedb/lapse/schema"
)

// Functions that replace the operators of a condition, or read the document. They begin
// with @, so that no expression can name them.
//
// CEL stops at the first error; in a condition an error is false. So the functions that
// return a boolean accept errors as arguments: CEL calls those "non-strict". For a
// document without a,
//
//	doc.a > 1            @gt(@path(doc, 0), 1)     false, not an error
//	!(doc.a > 1)         !@true(@gt(…))            true
//	doc.a + 1 > 1        @gt(@add(…), 1)           false: @add is strict and returns the error
const (
	fnPath     = "@path"     // (doc, slot): the value at a path
	fnParam    = "@param"    // (doc, slot): the value at a path below params
	fnPresent  = "@present"  // (doc, slot): whether there is a value
	fnDocument = "@document" // (doc): all of the document
	fnTrue     = "@true"     // whether it is the boolean true
	fnMember   = "@member"   // in
	fnTime     = "@time"     // timestamp
	fnRange    = "@range"    // (doc, v): the list or map that a macro iterates over
)

// relationFunctions maps comparison operators to the functions that replace them.
var relationFunctions = map[string]struct {
	name     string
	relation relation
}{
	operators.Equals:        {"@eq", equal},
	operators.NotEquals:     {"@ne", unequal},
	operators.Less:          {"@lt", less},
	operators.LessEquals:    {"@le", lessOrEqual},
	operators.Greater:       {"@gt", greater},
	operators.GreaterEquals: {"@ge", greaterOrEqual},
}

// arithmeticFunctions accept numbers of different types: JSON has only one.
var arithmeticFunctions = map[string]struct {
	name  string
	apply func(a, b ref.Val) ref.Val
}{
	operators.Add:      {"@add", via(traits.Adder.Add)},
	operators.Subtract: {"@sub", via(traits.Subtractor.Subtract)},
	operators.Multiply: {"@mul", via(traits.Multiplier.Multiply)},
	operators.Divide:   {"@div", via(traits.Divider.Divide)},
	operators.Modulo:   {"@mod", modulo},
}

// via returns apply as an operator that fails if the left operand's type is not a T.
func via[T any](apply func(T, ref.Val) ref.Val) func(a, b ref.Val) ref.Val {
	return func(a, b ref.Val) ref.Val {
		if x, ok := a.(T); ok {
			return apply(x, b)
		}
		return types.MaybeNoSuchOverloadErr(a)
	}
}

// modulo is % for integers and also for doubles, for which CEL has none.
func modulo(a, b ref.Val) ref.Val {
	x, ok := a.(types.Double)
	y, also := b.(types.Double)
	if ok && also {
		return types.Double(math.Mod(float64(x), float64(y)))
	}
	return via(traits.Modder.Modulo)(a, b)
}

// maxTextBytes bounds the result of + on strings and bytes: an expression could double
// one repeatedly.
const maxTextBytes = 4 << 20

// functions returns the declarations of all these functions for CEL. Each has one overload
// for any types, since the types depend on the document.
func functions() (options []cel.EnvOption) {
	binary := func(name string, nonStrict bool, f func(a, b ref.Val) ref.Val) {
		overload := []cel.OverloadOpt{cel.BinaryBinding(f)}
		if nonStrict {
			overload = append(overload, cel.OverloadIsNonStrict())
		}
		options = append(options, cel.Function(name,
			cel.Overload(name+"_any", []*cel.Type{cel.DynType, cel.DynType}, cel.DynType, overload...)))
	}
	unary := func(name string, f func(ref.Val) ref.Val) {
		options = append(options, cel.Function(name,
			cel.Overload(name+"_any", []*cel.Type{cel.DynType}, cel.DynType, cel.UnaryBinding(f), cel.OverloadIsNonStrict())))
	}
	for _, fn := range relationFunctions {
		binary(fn.name, true, func(a, b ref.Val) ref.Val { return types.Bool(related(fn.relation, a, b)) })
	}
	for _, fn := range arithmeticFunctions {
		binary(fn.name, false, func(a, b ref.Val) ref.Val { return arithmetic(fn.apply, a, b) })
	}
	binary(fnMember, true, func(a, b ref.Val) ref.Val { return types.Bool(isMember(a, b)) })
	binary(fnPath, false, func(doc, slot ref.Val) ref.Val {
		return doc.(documentValue).result(int(slot.(types.Int)))
	})
	binary(fnParam, false, func(doc, slot ref.Val) ref.Val {
		return doc.(documentValue).param(int(slot.(types.Int)))
	})
	binary(fnPresent, false, func(doc, slot ref.Val) ref.Val {
		return types.Bool(len(doc.(documentValue).value(int(slot.(types.Int)))) > 0)
	})
	unary(fnDocument, func(doc ref.Val) ref.Val { return doc.(documentValue).document() })
	unary(fnTime, timestamp)
	unary(fnTrue, func(v ref.Val) ref.Val { return types.Bool(v == types.True) })
	binary(fnRange, true, func(doc, v ref.Val) ref.Val {
		switch v := v.(type) {
		case traits.Lister:
			return countedList{v, doc.(documentValue).adapter.worked}
		case traits.Mapper, *types.Err:
			return v
		}
		return types.NewErr("neither a list nor a map")
	})
	return options
}

// timestamp converts to a timestamp as CEL does, but a string as schema.ParseTime does.
func timestamp(v ref.Val) ref.Val {
	text, ok := v.(types.String)
	if !ok {
		return v.ConvertToType(types.TimestampType)
	}
	at, err := schema.ParseTime(string(text))
	if err != nil {
		return types.WrapErr(err)
	}
	return types.String(at.Format(time.RFC3339Nano)).ConvertToType(types.TimestampType) // checks the range
}

// countedList is a list that reports each step of a macro over its elements as work.
type countedList struct {
	traits.Lister
	worked func(bytes int)
}

// Get is part of traits.Lister.
func (l countedList) Get(index ref.Val) ref.Val {
	l.worked(valueBytes)
	return l.Lister.Get(index)
}

// related reports whether "a r b" is true. related follows operand.compare and equal
// wherever both sides are JSON, so that a condition means the same whether CEL or a native
// predicate tests it.
func related(r relation, a, b ref.Val) bool {
	if types.IsUnknownOrError(a) || types.IsUnknownOrError(b) {
		return false
	}
	switch r {
	case equal:
		return resultsEqual(a, b)
	case unequal:
		return !resultsEqual(a, b)
	}
	o, ok := operandOfResult(a)
	p, also := operandOfResult(b)
	if ok && also {
		c, ok := o.compare(&p)
		return ok && r.ordered(c)
	}
	if a, comparable := a.(traits.Comparer); comparable && !ok && !also {
		// Timestamps and durations, which JSON does not have.
		c, ok := a.Compare(b).(types.Int)
		return ok && r.ordered(int(c))
	}
	return false
}

// arithmetic applies an operator. It converts two numbers of different types to doubles
// first, and leaves all other operands to CEL.
func arithmetic(apply func(a, b ref.Val) ref.Val, a, b ref.Val) ref.Val {
	if a.Type() != b.Type() && isNumber(a) && isNumber(b) {
		a, b = a.ConvertToType(types.DoubleType), b.ConvertToType(types.DoubleType)
	}
	if textBytes(a)+textBytes(b) > maxTextBytes {
		return types.NewErr("more than %d bytes", maxTextBytes)
	}
	return apply(a, b)
}

// textBytes returns the length of a string or of bytes, 0 for any other value.
func textBytes(v ref.Val) int {
	switch v := v.(type) {
	case types.String:
		return len(v)
	case types.Bytes:
		return len(v)
	}
	return 0
}

// isNumber reports whether a value has one of the types in which CEL has the numbers of
// JSON.
func isNumber(v ref.Val) bool {
	switch v.(type) {
	case types.Int, types.Uint, types.Double:
		return true
	}
	return false
}

// isMember reports whether a is an element of the list b, or a name in the map b.
func isMember(a, b ref.Val) bool {
	if types.IsUnknownOrError(a) {
		return false
	}
	switch b := b.(type) {
	case traits.Lister:
		for i := b.Iterator(); i.HasNext() == types.True; {
			if resultsEqual(a, i.Next()) {
				return true
			}
		}
	case traits.Mapper:
		if _, ok := a.(types.String); ok {
			_, found := b.Find(a)
			return found
		}
	}
	return false
}

// callCost makes the cost of a call proportional to the bytes it reads and makes, so that the
// limit on cost limits time. The cost of one call is at least 1 and at most about
// maxElements. Its unit is that of CEL: an element, or 10 bytes of text.
type callCost struct{}

func (callCost) CallCost(function, _ string, args []ref.Val, result ref.Val) *uint64 {
	remaining := maxElements
	switch function {
	case overloads.Matches:
		// In the worst case each step of the regular expression is tried at each byte.
		weight := textBytes(args[0]) * textBytes(args[1]) / 100
		remaining -= min(weight, maxElements)
	case fnPath, fnParam, fnPresent, fnTrue, fnRange, overloads.Size, operators.Index:
		// Their results exist already, or are made once per document.
	case "charAt", "join", "lowerAscii", "replace", "reverse", "split", "strings.quote", "substring", "trim", "upperAscii":
		weigh(result, &remaining)
		fallthrough
	default:
		for _, arg := range args {
			weigh(arg, &remaining)
		}
	}
	cost := uint64(1 + maxElements - max(remaining, 0))
	return &cost
}
