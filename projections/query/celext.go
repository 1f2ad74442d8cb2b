package query

import (
	"strings"
	"unicode/utf8"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/ext"
)

// extensions returns CEL's extensions for strings and math, bounded, and for all numbers
// of JSON. Their later versions only add costs, which callCost has. CEL's string functions
// cost up to the product of their arguments, and nothing bounds a result: s.replace('a',
// s) squares the length of s. Those below refuse before they allocate.
func extensions() []cel.EnvOption {
	options := []cel.EnvOption{ext.Strings(ext.StringsVersion(4)), ext.Math(ext.MathVersion(2))}
	// The time or the result of CEL's own is up to the product of their arguments.
	bounded := func(name, id string, f func(...ref.Val) ref.Val, result *cel.Type, args ...*cel.Type) {
		last := len(args) - 1 // may be left out
		options = append(options, cel.Function(name,
			cel.MemberOverload(id, args[:last], result, cel.FunctionBinding(f)),
			cel.MemberOverload(id+"_"+args[last].String(), args, result, cel.FunctionBinding(f))))
	}
	text, whole, texts := cel.StringType, cel.IntType, cel.ListType(cel.StringType)
	bounded("indexOf", "string_index_of_string", func(args ...ref.Val) ref.Val { return find(args, false) }, whole, text, text, whole)
	bounded("lastIndexOf", "string_last_index_of_string", func(args ...ref.Val) ref.Val { return find(args, true) }, whole, text, text, whole)
	bounded("replace", "string_replace_string_string", replace, text, text, text, text, whole)
	bounded("split", "string_split_string", split, texts, text, text, whole)
	bounded("join", "list_join", join, text, texts, text)

	// CEL has these for doubles only.
	for _, t := range []*cel.Type{cel.IntType, cel.UintType} {
		integer := func(name string, result *cel.Type, f func(ref.Val) ref.Val) {
			options = append(options, cel.Function(name, cel.Overload(name+"_"+t.String(), []*cel.Type{t}, result, cel.UnaryBinding(f))))
		}
		for _, name := range []string{"math.ceil", "math.floor", "math.round", "math.trunc"} {
			integer(name, t, func(v ref.Val) ref.Val { return v })
		}
		integer("math.isNaN", cel.BoolType, func(ref.Val) ref.Val { return types.False })
		integer("math.isInf", cel.BoolType, func(ref.Val) ref.Val { return types.False })
		integer("math.isFinite", cel.BoolType, func(ref.Val) ref.Val { return types.True })
	}
	// CEL has these for integers of one type only; one beyond int64 is of the other.
	for name, apply := range map[string]func(a, b types.Uint) types.Uint{
		"math.bitAnd": func(a, b types.Uint) types.Uint { return a & b },
		"math.bitOr":  func(a, b types.Uint) types.Uint { return a | b },
		"math.bitXor": func(a, b types.Uint) types.Uint { return a ^ b },
	} {
		mixed := cel.BinaryBinding(func(a, b ref.Val) ref.Val {
			x, ok := a.ConvertToType(types.UintType).(types.Uint)
			y, also := b.ConvertToType(types.UintType).(types.Uint)
			if !ok || !also {
				return types.NewErr("%s of a negative number", name)
			}
			return apply(x, y)
		})
		options = append(options, cel.Function(name,
			cel.Overload(name+"_int_uint", []*cel.Type{cel.IntType, cel.UintType}, cel.UintType, mixed),
			cel.Overload(name+"_uint_int", []*cel.Type{cel.UintType, cel.IntType}, cel.UintType, mixed)))
	}
	return options
}

// textAt returns an argument that CEL has checked to be a string.
func textAt(args []ref.Val, i int) string { return string(args[i].(types.String)) }

// find is indexOf, or lastIndexOf if last is set. Positions count runes, as CEL's do. So a
// position given is first turned into bytes, and the result back.
func find(args []ref.Val, last bool) ref.Val {
	s, part := textAt(args, 0), textAt(args, 1)
	from := 0
	if last {
		from = len(s)
	}
	if len(args) > 2 {
		remaining := args[2].(types.Int)
		if remaining < 0 {
			return types.NewErr("index out of range: %d", remaining)
		}
		for from = 0; from < len(s) && remaining > 0; remaining-- {
			_, size := utf8.DecodeRuneInString(s[from:])
			from += size
		}
		if from == len(s) && part != "" {
			return types.IntNegOne
		}
	}
	at := strings.LastIndex(s[:min(from+len(part), len(s))], part)
	if !last {
		if at = strings.Index(s[from:], part); at >= 0 {
			at += from
		}
	}
	if at < 0 {
		return types.IntNegOne
	}
	return types.Int(utf8.RuneCountInString(s[:at]))
}

// atMost returns n, or the argument i if that is given, less and not negative.
func atMost(n int, args []ref.Val, i int) int {
	if len(args) > i && args[i].(types.Int) >= 0 {
		n = int(min(types.Int(n), args[i].(types.Int)))
	}
	return n
}

// replace is CEL's, with a result of at most maxTextBytes.
func replace(args ...ref.Val) ref.Val {
	s, old, with := textAt(args, 0), textAt(args, 1), textAt(args, 2)
	n := atMost(strings.Count(s, old), args, 3)
	if len(s)+n*(len(with)-len(old)) > maxTextBytes {
		return refuse()
	}
	return types.String(strings.Replace(s, old, with, n))
}

// split is CEL's, with at most maxElements parts.
func split(args ...ref.Val) ref.Val {
	s, by := textAt(args, 0), textAt(args, 1)
	n := atMost(strings.Count(s, by)+1, args, 2)
	if n > maxElements {
		return refuse()
	}
	return plain.NativeToValue(strings.SplitN(s, by, n))
}

// join is CEL's, with a result of at most maxTextBytes.
func join(args ...ref.Val) ref.Val {
	var by, between string
	if len(args) > 1 {
		by = textAt(args, 1)
	}
	var joined strings.Builder
	for i := args[0].(traits.Lister).Iterator(); i.HasNext() == types.True; between = by {
		part, ok := i.Next().(types.String)
		if !ok {
			return types.NewErr("join: not a string")
		}
		if joined.Len()+len(between)+len(part) > maxTextBytes {
			return refuse()
		}
		joined.WriteString(between)
		joined.WriteString(string(part))
	}
	return types.String(joined.String())
}
