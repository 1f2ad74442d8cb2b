package query_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// naiveEnv are the variables of a condition: doc, params and those of macros.
type naiveEnv map[string]any

func (env naiveEnv) with(name string, v any) naiveEnv {
	env = maps.Clone(env)
	env[name] = v
	return env
}

// naiveNode is a part of a condition. It has a value or fails: a field is missing, a sum
// overflows.
type naiveNode interface {
	CEL() string // without parentheses around it
	prec() int
	value(env naiveEnv) (v any, ok bool)
}

// naiveValue returns the value of a node, naiveMissing if it fails.
func naiveValue(n naiveNode, env naiveEnv) any {
	if v, ok := n.value(env); ok {
		return v
	}
	return naiveMissing{}
}

// naiveHolds reports whether a node is true.
func naiveHolds(n naiveNode, env naiveEnv) bool { return naiveValue(n, env) == true }

// Precedence of CEL's operators, ascending.
const (
	naiveIfPrec = iota
	naiveOrPrec
	naiveAndPrec
	naiveRelationPrec
	naiveSumPrec
	naiveProductPrec
	naiveNotPrec
	naivePrimary
)

// naiveIn renders a node, in parentheses if its precedence is below prec.
func naiveIn(n naiveNode, prec int) string {
	if n.prec() < prec {
		return "(" + n.CEL() + ")"
	}
	return n.CEL()
}

// naiveOp is a node that is made of others.
type naiveOp struct {
	precedence int
	cel        string
	eval       func(env naiveEnv) (any, bool)
}

func (o naiveOp) prec() int                      { return o.precedence }
func (o naiveOp) CEL() string                    { return o.cel }
func (o naiveOp) value(env naiveEnv) (any, bool) { return o.eval(env) }

// naiveTest is a naiveOp that is true or false.
func naiveTest(prec int, cel string, holds func(env naiveEnv) bool) naiveNode {
	return naiveOp{prec, cel, func(env naiveEnv) (any, bool) { return holds(env), true }}
}

// naiveStep goes from a value to one inside it: to the member Name, to the element
// Index, or to the member or element that the parameter Name holds, by Kind.
type naiveStep struct {
	Kind   naiveStepKind
	Name   string // of the member, or of the parameter
	Index  int
	Quoted bool // write ['name'] even if .name is possible
}

type naiveStepKind int

const (
	naiveToMember naiveStepKind = iota
	naiveToElement
	naiveToParam
)

// naivePath is doc.a[0]['b'], params.x, or a path below a macro's element.
type naivePath struct {
	Root  string
	Steps []naiveStep
}

// naivePathOf returns a path; a string is a member, an int an element.
func naivePathOf(root string, steps ...any) naivePath {
	p := naivePath{Root: root}
	for _, step := range steps {
		switch step := step.(type) {
		case string:
			p.Steps = append(p.Steps, naiveStep{Name: step})
		case int:
			p.Steps = append(p.Steps, naiveStep{Kind: naiveToElement, Index: step})
		case naiveStep:
			p.Steps = append(p.Steps, step)
		}
	}
	return p
}

func naiveDocPath(steps ...any) naivePath   { return naivePathOf("doc", steps...) }
func naiveParamPath(steps ...any) naivePath { return naivePathOf("params", steps...) }

var (
	naiveIdentifier = regexp.MustCompile(`^[_a-zA-Z][_a-zA-Z0-9]*$`)
	naiveReserved   = []string{
		"true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function",
		"if", "import", "let", "loop", "package", "namespace", "return", "var", "void", "while",
	}
)

// plain reports whether the step can be written with a dot.
func (s naiveStep) plain() bool {
	return s.Kind == naiveToMember && naiveIdentifier.MatchString(s.Name) && !slices.Contains(naiveReserved, s.Name)
}

func (p naivePath) prec() int { return naivePrimary }

func (p naivePath) CEL() string {
	var b strings.Builder
	b.WriteString(p.Root)
	for _, step := range p.Steps {
		switch {
		case step.Kind == naiveToElement:
			fmt.Fprintf(&b, "[%d]", step.Index)
		case step.Kind == naiveToParam:
			fmt.Fprintf(&b, "[params.%s]", step.Name)
		case step.plain() && !step.Quoted:
			b.WriteString("." + step.Name)
		default:
			b.WriteString("[" + naiveQuote(step.Name) + "]")
		}
	}
	return b.String()
}

func (p naivePath) value(env naiveEnv) (any, bool) {
	v, ok := env[p.Root]
	for _, step := range p.Steps {
		if !ok {
			return nil, false
		}
		if step.Kind == naiveToParam {
			key, _ := naiveParamPath(step.Name).value(env)
			step = naiveStep{Kind: naiveToElement, Index: -1}
			if name, isName := key.(string); isName {
				step = naiveStep{Name: name}
			} else if n, isNumber := naiveNumberOf(key); isNumber {
				if n.int == nil || !n.int.IsInt64() {
					panic("the rules don't say what such an index is")
				}
				step.Index = int(n.int.Int64())
			}
		}
		switch parent := v.(type) {
		case map[string]any:
			v, ok = parent[step.Name]
			ok = ok && step.Kind == naiveToMember
		case []any:
			ok = step.Kind == naiveToElement && step.Index >= 0 && step.Index < len(parent)
			if ok {
				v = parent[step.Index]
			}
		default:
			ok = false
		}
	}
	return v, ok
}

// naiveQuote writes a string literal.
func naiveQuote(s string) string {
	var b strings.Builder
	b.WriteByte('\'')
	for _, r := range s {
		switch {
		case r == '\'' || r == '\\':
			b.WriteString(`\` + string(r))
		case r == '\n':
			b.WriteString(`\n`)
		case r < ' ' || r == 0x7f:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('\'')
	return b.String()
}

// naiveLit is a constant, written as JSON. A number must be finite.
type naiveLit string

func (l naiveLit) prec() int { return naivePrimary }

func (l naiveLit) CEL() string { return naiveLiteral(naiveDecode([]byte(l))) }

func (l naiveLit) value(naiveEnv) (any, bool) { return naiveDecode([]byte(l)), true }

// naiveLiteral writes a decoded value in CEL.
func naiveLiteral(v any) string {
	var parts []string
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(v)
	case string:
		return naiveQuote(v)
	case json.Number:
		n, _ := naiveNumberOf(v)
		switch {
		case n.int == nil && math.IsInf(n.float, 0):
			panic("CEL has no literal for " + v.String())
		case n.int == nil && !strings.ContainsAny(v.String(), ".eE"):
			return v.String() + ".0" // an integer beyond those of CEL
		case n.int != nil && !n.int.IsInt64():
			return v.String() + "u"
		}
		return v.String()
	case []any:
		for _, element := range v {
			parts = append(parts, naiveLiteral(element))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case map[string]any:
		for _, m := range naiveMembers(v) {
			parts = append(parts, naiveQuote(m.name)+": "+naiveLiteral(m.value))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	panic(fmt.Sprintf("a value of type %T", v))
}

func naiveJoin(nodes []naiveNode, by string, prec int) string {
	var parts []string
	for _, n := range nodes {
		parts = append(parts, naiveIn(n, prec))
	}
	return strings.Join(parts, by)
}

// naiveList is a list of expressions. It fails if one of them fails.
func naiveList(elements ...naiveNode) naiveNode {
	return naiveOp{naivePrimary, "[" + naiveJoin(elements, ", ", naiveIfPrec) + "]", func(env naiveEnv) (any, bool) {
		list := []any{}
		for _, element := range elements {
			v, ok := element.value(env)
			if !ok {
				return nil, false
			}
			list = append(list, v)
		}
		return list, true
	}}
}

// naiveArith is l op r with + - * / %. CEL's checker requires one type for all literals in
// a tree and in the expression that it is compared with.
func naiveArith(l naiveNode, op string, r naiveNode) naiveNode {
	prec := naiveProductPrec
	if op == "+" || op == "-" {
		prec = naiveSumPrec
	}
	return naiveOp{prec, naiveIn(l, prec) + " " + op + " " + naiveIn(r, prec+1), func(env naiveEnv) (any, bool) {
		x, xok := l.value(env)
		y, yok := r.value(env)
		if !xok || !yok {
			return nil, false
		}
		if s, ok := x.(string); ok && op == "+" {
			t, ok := y.(string)
			return s + t, ok
		}
		if list, ok := x.([]any); ok && op == "+" {
			other, ok := y.([]any)
			return slices.Concat(list, other), ok
		}
		n, nok := naiveNumberOf(x)
		m, mok := naiveNumberOf(y)
		if !nok || !mok {
			return nil, false
		}
		return naiveCompute(op, n, m)
	}}
}

func naiveCompute(op string, n, m naiveNumber) (any, bool) {
	if n.int == nil || m.int == nil {
		x, y := n.toFloat(), m.toFloat()
		return naiveFloat(map[string]float64{"+": x + y, "-": x - y, "*": x * y, "/": x / y, "%": math.Mod(x, y)}[op]), true
	}
	if !n.int.IsInt64() || !m.int.IsInt64() {
		panic("the rules leave integers beyond int64 out of arithmetic")
	}
	x := new(big.Int)
	switch op {
	case "+":
		x.Add(n.int, m.int)
	case "-":
		x.Sub(n.int, m.int)
	case "*":
		x.Mul(n.int, m.int)
	default:
		if m.int.Sign() == 0 {
			return nil, false
		}
		rest := new(big.Int)
		if x.QuoRem(n.int, m.int, rest); op == "%" {
			x = rest
		}
	}
	return naiveNumber{int: x}, x.IsInt64()
}

func (n naiveNumber) toFloat() float64 {
	if n.int == nil {
		return n.float
	}
	return float64(n.int.Int64())
}

// naiveSize is size(x).
func naiveSize(x naiveNode) naiveNode {
	return naiveOp{naivePrimary, "size(" + x.CEL() + ")", func(env naiveEnv) (any, bool) {
		switch v := naiveValue(x, env).(type) {
		case string:
			return naiveInt(int64(utf8.RuneCountInString(v))), true
		case []any:
			return naiveInt(int64(len(v))), true
		case map[string]any:
			return naiveInt(int64(len(v))), true
		}
		return nil, false
	}}
}

// naiveIf is cond ? then : otherwise, of conditions or values.
func naiveIf(cond, then, otherwise naiveNode) naiveNode {
	cel := naiveIn(cond, naiveOrPrec) + " ? " + naiveIn(then, naiveOrPrec) + " : " + naiveIn(otherwise, naiveIfPrec)
	return naiveOp{naiveIfPrec, cel, func(env naiveEnv) (any, bool) {
		if naiveHolds(cond, env) {
			return then.value(env)
		}
		return otherwise.value(env)
	}}
}

// naiveRange returns what a macro iterates over: elements, or sorted keys.
func naiveRange(x naiveNode, env naiveEnv) (elements []any, ok bool) {
	switch v := naiveValue(x, env).(type) {
	case []any:
		return v, true
	case map[string]any:
		for _, m := range naiveMembers(v) {
			elements = append(elements, m.name)
		}
		return elements, true
	}
	return nil, false
}

// naiveMacro is over.fn(name, pred) with exists, all, exists_one or filter, which keeps
// keys of a map, in no order to rely on.
func naiveMacro(over naiveNode, fn, name string, pred naiveNode) naiveNode {
	cel := naiveIn(over, naivePrimary) + "." + fn + "(" + name + ", " + pred.CEL() + ")"
	return naiveOp{naivePrimary, cel, func(env naiveEnv) (any, bool) {
		elements, ok := naiveRange(over, env)
		kept := []any{}
		for _, element := range elements {
			if naiveHolds(pred, env.with(name, element)) {
				kept = append(kept, element)
			}
		}
		if fn == "filter" {
			return kept, ok
		}
		return ok && map[string]bool{"exists": len(kept) > 0, "all": len(kept) == len(elements), "exists_one": len(kept) == 1}[fn], true
	}}
}

// naiveCmp is l op r with == != < <= > >=. It is false if a side fails.
func naiveCmp(l naiveNode, op string, r naiveNode) naiveNode {
	return naiveTest(naiveRelationPrec, naiveIn(l, naiveSumPrec)+" "+op+" "+naiveIn(r, naiveSumPrec), func(env naiveEnv) bool {
		x, xok := l.value(env)
		y, yok := r.value(env)
		if !xok || !yok {
			return false
		}
		switch op {
		case "==":
			return naiveEqual(x, y)
		case "!=":
			return !naiveEqual(x, y)
		}
		order, ok := naiveOrderOf(x, y)
		return ok && map[string]bool{"<": order < 0, "<=": order <= 0, ">": order > 0, ">=": order >= 0}[op]
	})
}

// naiveOrderOf compares two numbers, two strings or two booleans; ok is false for others.
func naiveOrderOf(x, y any) (order int, ok bool) {
	if n, isNumber := naiveNumberOf(x); isNumber {
		m, ok := naiveNumberOf(y)
		if !ok || n.isNaN() || m.isNaN() {
			return 0, false
		}
		return n.compare(m), true
	}
	switch x := x.(type) {
	case string:
		s, ok := y.(string)
		return strings.Compare(x, s), ok // of UTF-8: by code point
	case bool:
		b, ok := y.(bool)
		return naiveRank(x) - naiveRank(b), ok
	}
	return 0, false
}

// naiveIsIn is x in y.
func naiveIsIn(x, y naiveNode) naiveNode {
	return naiveTest(naiveRelationPrec, naiveIn(x, naiveSumPrec)+" in "+naiveIn(y, naiveSumPrec), func(env naiveEnv) bool {
		found, ok := x.value(env)
		switch in := naiveValue(y, env).(type) {
		case []any:
			return ok && slices.ContainsFunc(in, func(element any) bool { return naiveEqual(found, element) })
		case map[string]any:
			name, isName := found.(string)
			_, there := in[name]
			return ok && isName && there
		}
		return false
	})
}

// naiveHas is has(path). The last step must be one that is written with a dot.
func naiveHas(path naivePath) naiveNode {
	if n := len(path.Steps); n == 0 || !path.Steps[n-1].plain() || path.Steps[n-1].Quoted {
		panic("has() of what is not a field: " + path.CEL())
	}
	return naiveTest(naivePrimary, "has("+path.CEL()+")", func(env naiveEnv) bool { _, ok := path.value(env); return ok })
}

// naiveCall is x.fn(arg) with startsWith, endsWith, contains or matches.
func naiveCall(x naiveNode, fn string, arg naiveNode) naiveNode {
	return naiveTest(naivePrimary, naiveIn(x, naivePrimary)+"."+fn+"("+arg.CEL()+")", func(env naiveEnv) bool {
		s, ok := naiveValue(x, env).(string)
		t, also := naiveValue(arg, env).(string)
		if !ok || !also {
			return false
		}
		if fn == "matches" {
			re, err := regexp.Compile(t)
			return err == nil && re.MatchString(s)
		}
		return map[string]func(string, string) bool{"startsWith": strings.HasPrefix, "endsWith": strings.HasSuffix, "contains": strings.Contains}[fn](s, t)
	})
}

// naiveAnd is true if all of its conditions are.
func naiveAnd(all ...naiveNode) naiveNode {
	return naiveTest(naiveAndPrec, naiveJoin(all, " && ", naiveAndPrec), func(env naiveEnv) bool {
		return !slices.ContainsFunc(all, func(n naiveNode) bool { return !naiveHolds(n, env) })
	})
}

// naiveOr is true if one of its conditions is.
func naiveOr(all ...naiveNode) naiveNode {
	return naiveTest(naiveOrPrec, naiveJoin(all, " || ", naiveOrPrec), func(env naiveEnv) bool {
		return slices.ContainsFunc(all, func(n naiveNode) bool { return naiveHolds(n, env) })
	})
}

// naiveNot is !n.
func naiveNot(n naiveNode) naiveNode {
	return naiveTest(naiveNotPrec, "!"+naiveIn(n, naiveNotPrec), func(env naiveEnv) bool { return !naiveHolds(n, env) })
}

// naiveParen is (n), even where no parentheses are needed.
func naiveParen(n naiveNode) naiveNode { return naiveOp{naivePrimary, "(" + n.CEL() + ")", n.value} }
