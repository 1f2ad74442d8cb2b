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

// naiveNode is a part of a condition.
type naiveNode interface {
	CEL() string // without parentheses around it
	prec() int
}

// naiveCond is a node that is true or false.
type naiveCond interface {
	naiveNode
	holds(env naiveEnv) bool
}

// naiveExpr is a node that has a value or fails: a field is missing, a sum overflows.
type naiveExpr interface {
	naiveNode
	value(env naiveEnv) (v any, ok bool)
}

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

// naiveList is a list of expressions. It fails if one of them fails.
type naiveList []naiveExpr

func (l naiveList) prec() int { return naivePrimary }

func (l naiveList) CEL() string {
	var parts []string
	for _, element := range l {
		parts = append(parts, element.CEL())
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

func (l naiveList) value(env naiveEnv) (any, bool) {
	list := []any{}
	for _, element := range l {
		v, ok := element.value(env)
		if !ok {
			return nil, false
		}
		list = append(list, v)
	}
	return list, true
}

// naiveArith is L Op R with + - * / %. CEL's checker requires one type for all literals
// in a tree and in the expression that it is compared with.
type naiveArith struct {
	L  naiveExpr
	Op string
	R  naiveExpr
}

func (a naiveArith) prec() int {
	if a.Op == "+" || a.Op == "-" {
		return naiveSumPrec
	}
	return naiveProductPrec
}

func (a naiveArith) CEL() string {
	return naiveIn(a.L, a.prec()) + " " + a.Op + " " + naiveIn(a.R, a.prec()+1)
}

func (a naiveArith) value(env naiveEnv) (any, bool) {
	l, lok := a.L.value(env)
	r, rok := a.R.value(env)
	if !lok || !rok {
		return nil, false
	}
	if s, ok := l.(string); ok && a.Op == "+" {
		t, ok := r.(string)
		return s + t, ok
	}
	if list, ok := l.([]any); ok && a.Op == "+" {
		other, ok := r.([]any)
		return slices.Concat(list, other), ok
	}
	n, nok := naiveNumberOf(l)
	m, mok := naiveNumberOf(r)
	if !nok || !mok {
		return nil, false
	}
	if n.int == nil || m.int == nil {
		return naiveFloat(naiveCompute(a.Op, n.toFloat(), m.toFloat())), true
	}
	for _, i := range []*big.Int{n.int, m.int} {
		if !i.IsInt64() {
			panic("the rules leave integers beyond int64 out of arithmetic")
		}
	}
	x := new(big.Int)
	switch a.Op {
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
		if quotient, rest := new(big.Int).QuoRem(n.int, m.int, new(big.Int)); a.Op == "/" {
			x = quotient
		} else {
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

func naiveCompute(op string, x, y float64) float64 {
	switch op {
	case "+":
		return x + y
	case "-":
		return x - y
	case "*":
		return x * y
	case "/":
		return x / y
	}
	return math.Mod(x, y)
}

// naiveSize is size(X).
type naiveSize struct{ X naiveExpr }

func (s naiveSize) prec() int   { return naivePrimary }
func (s naiveSize) CEL() string { return "size(" + s.X.CEL() + ")" }

func (s naiveSize) value(env naiveEnv) (any, bool) {
	v, ok := s.X.value(env)
	if !ok {
		return nil, false
	}
	switch v := v.(type) {
	case string:
		return naiveInt(int64(utf8.RuneCountInString(v))), true
	case []any:
		return naiveInt(int64(len(v))), true
	case map[string]any:
		return naiveInt(int64(len(v))), true
	}
	return nil, false
}

// naiveChoice is If ? Then : Else of values.
type naiveChoice struct {
	If         naiveCond
	Then, Else naiveExpr
}

func (c naiveChoice) prec() int { return naiveIfPrec }

func (c naiveChoice) CEL() string { return naiveTernary(c.If, c.Then, c.Else) }

func naiveTernary(cond, then, otherwise naiveNode) string {
	return naiveIn(cond, naiveOrPrec) + " ? " + naiveIn(then, naiveOrPrec) + " : " + naiveIn(otherwise, naiveIfPrec)
}

func (c naiveChoice) value(env naiveEnv) (any, bool) {
	if c.If.holds(env) {
		return c.Then.value(env)
	}
	return c.Else.value(env)
}

// naiveRange returns what a macro iterates over: elements, or sorted keys.
func naiveRange(x naiveExpr, env naiveEnv) (elements []any, ok bool) {
	v, ok := x.value(env)
	if !ok {
		return nil, false
	}
	switch v := v.(type) {
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

// naiveFilter is Range.filter(Var, Pred). Of a map it keeps keys, in no order to rely on.
type naiveFilter struct {
	Range naiveExpr
	Var   string
	Pred  naiveCond
}

func (f naiveFilter) prec() int { return naivePrimary }

func (f naiveFilter) CEL() string {
	return naiveIn(f.Range, naivePrimary) + ".filter(" + f.Var + ", " + f.Pred.CEL() + ")"
}

func (f naiveFilter) value(env naiveEnv) (any, bool) {
	elements, ok := naiveRange(f.Range, env)
	kept := []any{}
	for _, element := range elements {
		if f.Pred.holds(env.with(f.Var, element)) {
			kept = append(kept, element)
		}
	}
	return kept, ok
}

// naiveCmp is L Op R with == != < <= > >=.
type naiveCmp struct {
	L  naiveExpr
	Op string
	R  naiveExpr
}

func (c naiveCmp) prec() int { return naiveRelationPrec }

func (c naiveCmp) CEL() string {
	return naiveIn(c.L, naiveSumPrec) + " " + c.Op + " " + naiveIn(c.R, naiveSumPrec)
}

func (c naiveCmp) holds(env naiveEnv) bool {
	l, lok := c.L.value(env)
	r, rok := c.R.value(env)
	if !lok || !rok {
		return false
	}
	switch c.Op {
	case "==":
		return naiveEqual(l, r)
	case "!=":
		return !naiveEqual(l, r)
	}
	var order int
	if n, ok := naiveNumberOf(l); ok {
		m, ok := naiveNumberOf(r)
		if !ok || n.isNaN() || m.isNaN() {
			return false
		}
		order = n.compare(m)
	} else if s, ok := l.(string); ok {
		t, ok := r.(string)
		if !ok {
			return false
		}
		order = strings.Compare(s, t) // of UTF-8: by code point
	} else if p, ok := l.(bool); ok {
		q, ok := r.(bool)
		if !ok {
			return false
		}
		order = naiveRank(p) - naiveRank(q)
	} else {
		return false
	}
	switch c.Op {
	case "<":
		return order < 0
	case "<=":
		return order <= 0
	case ">":
		return order > 0
	case ">=":
		return order >= 0
	}
	panic("operator " + c.Op)
}

// naiveIsIn is X in Y.
type naiveIsIn struct{ X, Y naiveExpr }

func (c naiveIsIn) prec() int { return naiveRelationPrec }

func (c naiveIsIn) CEL() string {
	return naiveIn(c.X, naiveSumPrec) + " in " + naiveIn(c.Y, naiveSumPrec)
}

func (c naiveIsIn) holds(env naiveEnv) bool {
	x, xok := c.X.value(env)
	y, yok := c.Y.value(env)
	if !xok || !yok {
		return false
	}
	switch y := y.(type) {
	case []any:
		return slices.ContainsFunc(y, func(element any) bool { return naiveEqual(x, element) })
	case map[string]any:
		name, ok := x.(string)
		_, there := y[name]
		return ok && there
	}
	return false
}

// naiveHas is has(Path). The last step must be one that is written with a dot.
type naiveHas struct{ Path naivePath }

func (h naiveHas) prec() int { return naivePrimary }

func (h naiveHas) CEL() string {
	if n := len(h.Path.Steps); n == 0 || !h.Path.Steps[n-1].plain() || h.Path.Steps[n-1].Quoted {
		panic("has() of what is not a field: " + h.Path.CEL())
	}
	return "has(" + h.Path.CEL() + ")"
}

func (h naiveHas) holds(env naiveEnv) bool {
	_, ok := h.Path.value(env)
	return ok
}

// naiveCall is X.Fn(Arg) with startsWith, endsWith, contains or matches.
type naiveCall struct {
	X   naiveExpr
	Fn  string
	Arg naiveExpr
}

func (c naiveCall) prec() int { return naivePrimary }

func (c naiveCall) CEL() string {
	return naiveIn(c.X, naivePrimary) + "." + c.Fn + "(" + c.Arg.CEL() + ")"
}

func (c naiveCall) holds(env naiveEnv) bool {
	x, xok := c.X.value(env)
	arg, argok := c.Arg.value(env)
	s, isString := x.(string)
	t, argIsString := arg.(string)
	if !xok || !argok || !isString || !argIsString {
		return false
	}
	switch c.Fn {
	case "startsWith":
		return strings.HasPrefix(s, t)
	case "endsWith":
		return strings.HasSuffix(s, t)
	case "contains":
		return strings.Contains(s, t)
	case "matches":
		re, err := regexp.Compile(t)
		return err == nil && re.MatchString(s)
	}
	panic("function " + c.Fn)
}

// naiveMacro is Range.Fn(Var, Pred) with exists, all or exists_one.
type naiveMacro struct {
	Range naiveExpr
	Fn    string
	Var   string
	Pred  naiveCond
}

func (m naiveMacro) prec() int { return naivePrimary }

func (m naiveMacro) CEL() string {
	return naiveIn(m.Range, naivePrimary) + "." + m.Fn + "(" + m.Var + ", " + m.Pred.CEL() + ")"
}

func (m naiveMacro) holds(env naiveEnv) bool {
	elements, ok := naiveRange(m.Range, env)
	if !ok {
		return false
	}
	count := 0
	for _, element := range elements {
		if m.Pred.holds(env.with(m.Var, element)) {
			count++
		}
	}
	switch m.Fn {
	case "exists":
		return count > 0
	case "all":
		return count == len(elements)
	case "exists_one":
		return count == 1
	}
	panic("macro " + m.Fn)
}

// naiveBare is a value as a condition: a path, true or false.
type naiveBare struct{ X naiveExpr }

func (b naiveBare) prec() int   { return b.X.prec() }
func (b naiveBare) CEL() string { return b.X.CEL() }

func (b naiveBare) holds(env naiveEnv) bool {
	v, ok := b.X.value(env)
	return ok && v == true
}

// naiveAnd is true if all of its conditions are.
type naiveAnd []naiveCond

func (a naiveAnd) prec() int   { return naiveAndPrec }
func (a naiveAnd) CEL() string { return naiveJoin(a, " && ", naiveAndPrec) }

func (a naiveAnd) holds(env naiveEnv) bool {
	return !slices.ContainsFunc(a, func(c naiveCond) bool { return !c.holds(env) })
}

// naiveOr is true if one of its conditions is.
type naiveOr []naiveCond

func (o naiveOr) prec() int   { return naiveOrPrec }
func (o naiveOr) CEL() string { return naiveJoin(o, " || ", naiveOrPrec) }

func (o naiveOr) holds(env naiveEnv) bool {
	return slices.ContainsFunc(o, func(c naiveCond) bool { return c.holds(env) })
}

func naiveJoin(conds []naiveCond, op string, prec int) string {
	var parts []string
	for _, c := range conds {
		parts = append(parts, naiveIn(c, prec))
	}
	return strings.Join(parts, op)
}

// naiveNot is !C.
type naiveNot struct{ C naiveCond }

func (n naiveNot) prec() int               { return naiveNotPrec }
func (n naiveNot) CEL() string             { return "!" + naiveIn(n.C, naiveNotPrec) }
func (n naiveNot) holds(env naiveEnv) bool { return !n.C.holds(env) }

// naiveIf is If ? Then : Else of conditions.
type naiveIf struct{ If, Then, Else naiveCond }

func (i naiveIf) prec() int   { return naiveIfPrec }
func (i naiveIf) CEL() string { return naiveTernary(i.If, i.Then, i.Else) }

func (i naiveIf) holds(env naiveEnv) bool {
	if i.If.holds(env) {
		return i.Then.holds(env)
	}
	return i.Else.holds(env)
}

// naiveParen is (C), even where no parentheses are needed.
type naiveParen struct{ C naiveCond }

func (p naiveParen) prec() int               { return naivePrimary }
func (p naiveParen) CEL() string             { return "(" + p.C.CEL() + ")" }
func (p naiveParen) holds(env naiveEnv) bool { return p.C.holds(env) }
