package query_test

import (
	"math"
	"math/big"
	"slices"
	"strings"
	"unicode"

	"pgregory.net/rapid"
)

// naiveTextFunctions are the types of what functions on strings take: a string, an integer
// or a list of strings. The last argument of those in capitals may be left out.
var naiveTextFunctions = map[string]string{
	"charAt": "si", "indexOf": "ssI", "join": "lS", "lastIndexOf": "ssI", "lowerAscii": "s", "replace": "sssI", "reverse": "s",
	"split": "ssI", "substring": "siI", "trim": "s", "upperAscii": "s",
}

// naiveTextCall is x.fn(args…) with a function on strings.
func naiveTextCall(x naiveNode, fn string, args ...naiveNode) naiveNode {
	return naiveOp{naivePrimary, naiveIn(x, naivePrimary) + "." + fn + "(" + naiveJoin(args, ", ", naiveIfPrec) + ")", func(env naiveEnv) (any, bool) {
		var texts, list []string
		var numbers []int
		for i, arg := range append([]naiveNode{x}, args...) {
			v := naiveValue(arg, env)
			switch strings.ToLower(naiveTextFunctions[fn])[i] {
			case 's':
				s, ok := v.(string)
				if !ok {
					return nil, false
				}
				texts = append(texts, s)
			case 'i':
				n, ok := naiveNumberOf(v)
				if !ok || n.int == nil || !n.int.IsInt64() {
					return nil, false
				}
				numbers = append(numbers, int(n.int.Int64()))
			case 'l':
				elements, ok := v.([]any)
				if !ok {
					return nil, false
				}
				for _, element := range elements {
					s, ok := element.(string)
					if !ok {
						return nil, false
					}
					list = append(list, s)
				}
			}
		}
		if fn == "join" {
			return strings.Join(list, append(texts, "")[0]), true
		}
		return naiveTextValue(fn, texts, numbers)
	}}
}

func naiveTextValue(fn string, texts []string, numbers []int) (any, bool) {
	s := []rune(texts[0])
	isAt := func(i int) bool {
		part := []rune(texts[1])
		return i+len(part) <= len(s) && slices.Equal(s[i:i+len(part)], part)
	}
	for _, n := range numbers {
		if n < 0 && fn != "replace" && fn != "split" {
			return nil, false
		}
	}
	most := -1 // replacements, or parts
	if len(numbers) > 0 {
		most = numbers[0]
	}
	switch fn {
	case "charAt":
		if numbers[0] > len(s) {
			return nil, false
		}
		return string(s[numbers[0]:min(numbers[0]+1, len(s))]), true
	case "indexOf":
		if texts[1] == "" {
			return naiveInt(int64(min(max(most, 0), len(s)))), true
		}
		for i := max(most, 0); i < len(s); i++ {
			if isAt(i) {
				return naiveInt(int64(i)), true
			}
		}
		return naiveInt(-1), true
	case "lastIndexOf":
		if most < 0 {
			most = len(s)
		} else if most >= len(s) && texts[1] != "" {
			return naiveInt(-1), true
		}
		for i := min(most, len(s)); i >= 0; i-- {
			if isAt(i) {
				return naiveInt(int64(i)), true
			}
		}
		return naiveInt(-1), true
	case "lowerAscii", "upperAscii":
		for i, r := range s {
			if fn == "lowerAscii" && r >= 'A' && r <= 'Z' {
				s[i] += 'a' - 'A'
			} else if fn == "upperAscii" && r >= 'a' && r <= 'z' {
				s[i] -= 'a' - 'A'
			}
		}
		return string(s), true
	case "replace":
		return strings.Replace(texts[0], texts[1], texts[2], most), true
	case "reverse":
		slices.Reverse(s)
		return string(s), true
	case "split":
		list := []any{}
		for _, part := range strings.SplitN(texts[0], texts[1], most) {
			list = append(list, part)
		}
		return list, true
	case "substring":
		from, to := numbers[0], append(numbers, len(s))[1]
		if from > to || to > len(s) {
			return nil, false
		}
		return string(s[from:to]), true
	case "trim":
		return strings.TrimFunc(texts[0], unicode.IsSpace), true
	}
	panic(fn)
}

// naiveMath is math.fn(args…).
func naiveMath(fn string, args ...naiveNode) naiveNode {
	op := naiveOp{naivePrimary, "math." + fn + "(" + naiveJoin(args, ", ", naiveIfPrec) + ")", func(env naiveEnv) (any, bool) {
		var numbers []naiveNumber
		for _, arg := range args {
			v := naiveValue(arg, env)
			if list, ok := v.([]any); ok && len(args) == 1 && (fn == "greatest" || fn == "least") {
				for _, element := range list {
					n, ok := naiveNumberOf(element)
					if !ok {
						return nil, false
					}
					numbers = append(numbers, n)
				}
				continue
			}
			n, ok := naiveNumberOf(v)
			if !ok {
				return nil, false
			}
			numbers = append(numbers, n)
		}
		if len(numbers) == 0 {
			return nil, false
		}
		return naiveMathValue(fn, numbers)
	}}
	if strings.HasPrefix(fn, "is") {
		return naiveTest(naivePrimary, op.cel, func(env naiveEnv) bool { return naiveValue(op, env) == true })
	}
	return op
}

// naiveReal returns n as the nearest double.
func naiveReal(n naiveNumber) float64 {
	if n.int == nil {
		return n.float
	}
	f, _ := new(big.Float).SetInt(n.int).Float64()
	return f
}

func naiveMathValue(fn string, numbers []naiveNumber) (any, bool) {
	n := numbers[0]
	switch fn {
	case "greatest", "least":
		best := n
		for _, m := range numbers {
			if m.isNaN() {
				return nil, false
			}
			order := new(big.Float).SetFloat64(naiveReal(m)).Cmp(new(big.Float).SetFloat64(naiveReal(best)))
			if m.int != nil && best.int != nil {
				order = m.int.Cmp(best.int)
			}
			if fn == "greatest" && order > 0 || fn == "least" && order < 0 {
				best = m
			}
		}
		return best, true
	case "ceil", "floor", "round", "trunc":
		if n.int != nil {
			return n, true
		}
		return naiveFloat(map[string]func(float64) float64{"ceil": math.Ceil, "floor": math.Floor, "round": math.Round, "trunc": math.Trunc}[fn](n.float)), true
	case "abs":
		if n.int == nil {
			return naiveFloat(math.Abs(n.float)), true
		}
		x := new(big.Int).Abs(n.int)
		return naiveNumber{int: x}, n.int.Sign() >= 0 || x.IsInt64()
	case "sign":
		if n.int != nil {
			return naiveInt(int64(n.int.Sign())), true
		}
		if n.isNaN() {
			return n, true
		}
		return naiveInt(int64(n.compare(naiveInt(0)))), true
	case "sqrt":
		return naiveFloat(math.Sqrt(naiveReal(n))), true
	case "isNaN":
		return n.isNaN(), true
	case "isInf":
		return n.int == nil && math.IsInf(n.float, 0), true
	case "isFinite":
		return !n.isNaN() && !math.IsInf(naiveReal(n), 0), true
	}
	if slices.ContainsFunc(numbers, func(n naiveNumber) bool { return n.int == nil }) {
		return nil, false
	}
	if fn == "bitShiftLeft" || fn == "bitShiftRight" {
		if !numbers[1].int.IsInt64() || numbers[1].int.Sign() < 0 {
			return nil, false
		}
		by := uint64(numbers[1].int.Int64())
		bits := naiveBits(n.int)
		if fn == "bitShiftLeft" {
			return naiveOfBits(bits<<by, n.int.IsInt64()), true
		}
		return naiveOfBits(bits>>by, n.int.IsInt64()), true
	}
	signed, negative := true, false
	for _, n := range numbers {
		signed = signed && n.int.IsInt64()
		negative = negative || n.int.Sign() < 0
	}
	if !signed && negative {
		return nil, false
	}
	x := naiveBits(n.int)
	if fn == "bitNot" {
		return naiveOfBits(^x, signed), true
	}
	y := naiveBits(numbers[1].int)
	return naiveOfBits(map[string]uint64{"bitAnd": x & y, "bitOr": x | y, "bitXor": x ^ y}[fn], signed), true
}

// naiveBits returns the 64 bits of an integer, in two's complement.
func naiveBits(n *big.Int) uint64 {
	if n.Sign() < 0 {
		return uint64(n.Int64())
	}
	return n.Uint64()
}

func naiveOfBits(bits uint64, signed bool) naiveNumber {
	if signed {
		return naiveInt(int64(bits))
	}
	return naiveNumber{int: new(big.Int).SetUint64(bits)}
}

// text draws a condition on the result of a function on strings.
func (s naiveScope) text(t *rapid.T) naiveNode {
	var x naiveNode = s.path(t)
	switch {
	case naiveOneIn(t, 3):
		x = naiveLit(rapid.SampledFrom(naiveStrings).Draw(t, "receiver"))
	case len(s.vars) == 0 && naiveOneIn(t, 2):
		x = rapid.SampledFrom([]naivePath{naiveDocPath("a"), naiveDocPath("b"), naiveDocPath("items", 0, "sku"), naiveDocPath("id")}).Draw(t, "receiver")
	}
	text := func() naiveNode {
		switch {
		case naiveOneIn(t, 5):
			return rapid.SampledFrom([]naivePath{naiveParamPath("s"), naiveParamPath("p"), naiveDocPath("b"), naiveDocPath("a")}).Draw(t, "text")
		case naiveOneIn(t, 2):
			return naiveLit(rapid.SampledFrom([]string{`""`, `"x"`, `"y"`, `"o"`, `"1"`}).Draw(t, "text"))
		}
		return naiveLit(rapid.SampledFrom(naiveStrings).Draw(t, "text"))
	}
	number := func() naiveNode {
		if naiveOneIn(t, 4) {
			return rapid.SampledFrom([]naivePath{naiveDocPath("n"), naiveParamPath("i"), naiveDocPath("items", 0, "qty")}).Draw(t, "index")
		}
		return naiveLit(rapid.SampledFrom([]string{"0", "1", "1", "2", "3", "-1", "600"}).Draw(t, "index"))
	}
	more := func(args ...naiveNode) []naiveNode {
		if naiveOneIn(t, 2) {
			return append(args, number())
		}
		return args
	}
	op := rapid.SampledFrom(naiveOperators).Draw(t, "op")
	fn := rapid.SampledFrom([]string{"charAt", "indexOf", "join", "lastIndexOf", "lowerAscii", "replace", "reverse", "split", "substring", "trim", "upperAscii"}).Draw(t, "function")
	var call naiveNode
	switch fn {
	case "charAt":
		call = naiveTextCall(x, fn, number())
	case "indexOf", "lastIndexOf":
		return naiveEitherWay(t, naiveTextCall(x, fn, more(text())...), op, number())
	case "replace":
		call = naiveTextCall(x, fn, more(text(), text())...)
	case "split":
		call = naiveTextCall(x, fn, more(text())...)
		switch {
		case naiveOneIn(t, 3):
			return naiveEitherWay(t, naiveSize(call), op, number())
		case naiveOneIn(t, 3):
			return naiveIsIn(text(), call)
		case naiveOneIn(t, 2):
			return naiveMacro(call, "exists", "part", naiveCmp(naivePathOf("part"), op, text()))
		}
		call = naiveTextCall(call, "join", text())
	case "join":
		var list naiveNode = rapid.SampledFrom(naiveRanges).Draw(t, "list")
		if naiveOneIn(t, 2) {
			list = naiveList(x, s.path(t))
		}
		if naiveOneIn(t, 3) {
			call = naiveTextCall(list, fn)
		} else {
			call = naiveTextCall(list, fn, text())
		}
	case "substring":
		call = naiveTextCall(x, fn, more(number())...)
	default:
		call = naiveTextCall(x, fn)
	}
	for _, doc := range s.samples["doc"] {
		env := naiveEnv{"doc": doc, "params": s.params()}
		for _, name := range s.vars {
			env = env.with(name, "x")
		}
		if v, ok := call.value(env); ok && !naiveOneIn(t, 3) {
			return naiveEitherWay(t, call, op, naiveLit(naiveJSON(v)))
		}
	}
	return naiveEitherWay(t, call, op, text())
}

// math draws a condition on the result of a function of math.
func (s naiveScope) math(t *rapid.T) naiveNode {
	number := func(literals ...string) naiveNode {
		switch {
		case naiveOneIn(t, 3):
			return naiveLit(rapid.SampledFrom(literals).Draw(t, "number"))
		case naiveOneIn(t, 4):
			return s.path(t)
		}
		return rapid.SampledFrom(naiveTamePaths).Draw(t, "number")
	}
	integers := []string{"0", "1", "2", "3", "-1", "63", "64", "9223372036854775807", "9223372036854775808", "18446744073709551615"}
	numbers := append([]string{"0.5", "-1.5", "2.5", "1e300", "9007199254740992.0", "9007199254740993"}, integers...)
	op := rapid.SampledFrom(naiveOperators).Draw(t, "op")
	switch fn := rapid.SampledFrom([]string{"greatest", "greatest", "least", "bits", "one", "one"}).Draw(t, "math"); fn {
	case "greatest", "least":
		if naiveOneIn(t, 4) {
			return naiveEitherWay(t, naiveMath(fn, rapid.SampledFrom(naiveRanges).Draw(t, "list")), op, number(numbers...))
		}
		args := []naiveNode{number(numbers...)}
		for range rapid.IntRange(0, 3).Draw(t, "more") {
			args = append(args, number(numbers...))
		}
		return naiveEitherWay(t, naiveMath(fn, args...), op, number(numbers...))
	case "bits":
		fn = rapid.SampledFrom([]string{"bitAnd", "bitOr", "bitXor", "bitNot", "bitShiftLeft", "bitShiftRight"}).Draw(t, "function")
		args := []naiveNode{number(integers...), naiveLit(rapid.SampledFrom(integers[:8]).Draw(t, "number"))}
		if fn == "bitNot" {
			args = args[:1]
		}
		return naiveEitherWay(t, naiveMath(fn, args...), op, number(integers...))
	}
	fn := rapid.SampledFrom([]string{"abs", "ceil", "floor", "round", "trunc", "sign", "sqrt", "isNaN", "isInf", "isFinite"}).Draw(t, "function")
	call := naiveMath(fn, number(numbers...))
	if strings.HasPrefix(fn, "is") {
		return call
	}
	return naiveEitherWay(t, call, op, number(numbers...))
}
