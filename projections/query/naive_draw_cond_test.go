package query_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"pgregory.net/rapid"
)

// naiveScope has the variables where a part of a condition is drawn, with samples of
// their values.
type naiveScope struct {
	samples map[string][]any
	vars    []string // of the enclosing macros, the innermost last
}

func newNaiveScope(docs []naiveDoc) naiveScope {
	s := naiveScope{samples: map[string][]any{}}
	for _, d := range docs {
		s.samples["doc"] = append(s.samples["doc"], d.content())
	}
	return s
}

// within returns the scope inside a macro over x, and the macro's variable.
func (s naiveScope) within(x naivePath) (naiveScope, string) {
	name := fmt.Sprint("e", len(s.vars))
	inner := naiveScope{samples: maps.Clone(s.samples), vars: append(slices.Clone(s.vars), name)}
	for _, root := range s.samples[x.Root] {
		elements, _ := naiveRange(x, naiveEnv{x.Root: root, "params": s.params()})
		inner.samples[name] = append(inner.samples[name], elements...)
	}
	return inner, name
}

func (s naiveScope) params() any {
	for _, params := range s.samples["params"] {
		return params
	}
	return nil
}

// sample returns the value of x in some document, and whether any has one.
func (s naiveScope) sample(t *rapid.T, x naivePath) (any, bool) {
	var there []any
	for _, root := range s.samples[x.Root] {
		if v, ok := x.value(naiveEnv{x.Root: root, "params": s.params()}); ok {
			there = append(there, v)
		}
	}
	if len(there) == 0 {
		return nil, false
	}
	// Prefer values of one document, so that conjunctions match.
	if rapid.Bool().Draw(t, "first") {
		return there[0], true
	}
	return there[rapid.IntRange(0, len(there)-1).Draw(t, "sample")], true
}

// Paths into documents, most frequent matches first.
var (
	naivePaths = []naivePath{
		naiveDocPath("a"), naiveDocPath("b"), naiveDocPath("c"), naiveDocPath("n"), naiveDocPath("nested", "x"), naiveDocPath("flag"),
		naiveDocPath("tags", 0), naiveDocPath("items", 0, "qty"), naiveDocPath("items", 0, "sku"), naiveDocPath("nested", "y"),
		naiveDocPath("a-b"), naiveDocPath("_ts"), naiveDocPath("_etag"), naiveDocPath("id"), naiveDocPath("ttl"), naiveDocPath("tags"),
		naiveDocPath(naiveStep{Name: "a", Quoted: true}), naiveDocPath("nested", naiveStep{Name: "x", Quoted: true}),
		naiveDocPath("tags", 1), naiveDocPath("items", 1, "qty"), naiveDocPath("a.b"), naiveDocPath(""), naiveDocPath("a/b~c"), naiveDocPath("nested"),
		naiveDocPath("items"), naiveDocPath("items", 0), naiveDocPath("a", 0), naiveDocPath("a", "x"), naiveDocPath("nested", "x", 0),
		naiveDocPath("nested", "x", "y"), naiveDocPath("tags", -1), naiveDocPath("zzz"), naiveDocPath("zzz", "x"), naiveDocPath("nested", "0"), naiveDocPath("tags", "x"),
		naiveDocPath(naiveStep{Kind: naiveToParam, Name: "k"}), naiveDocPath("tags", naiveStep{Kind: naiveToParam, Name: "i"}), naiveDocPath("nested", naiveStep{Kind: naiveToParam, Name: "k"}),
	}
	naiveElementPaths = [][]any{{}, {}, {}, {"sku"}, {"qty"}, {"qty"}, {"x"}, {0}, {"zzz"}, {"a-b"}}
	naiveRanges       = []naivePath{
		naiveDocPath("tags"), naiveDocPath("items"), naiveDocPath("nested"), naiveDocPath("a"), naiveDocPath("nested", "x"), naiveDocPath("b"),
		naiveParamPath("list"), naiveParamPath("obj"), naiveDocPath("zzz"), naiveDocPath("tags", 0),
	}
	naiveTamePaths  = []naivePath{naiveDocPath("n"), naiveDocPath("nested", "x"), naiveDocPath("items", 0, "qty"), naiveDocPath("nested", "y"), naiveDocPath("_ts"), naiveParamPath("n"), naiveParamPath("i")}
	naiveAnyParams  = []naivePath{naiveParamPath("p"), naiveParamPath("q"), naiveParamPath("n"), naiveParamPath("s"), naiveParamPath("obj", "x"), naiveParamPath("list", 0), naiveParamPath("k"), naiveParamPath("zzz")}
	naiveEqualities = []string{"==", "==", "==", "!="}
	naiveOperators  = []string{"==", "==", "<", ">", "<=", ">=", "!="}
)

// path draws a path that is dynamic to CEL's checker, mostly below an element if there
// are enclosing macros.
func (s naiveScope) path(t *rapid.T) naivePath {
	if len(s.vars) > 0 && !naiveOneIn(t, 5) {
		root := rapid.SampledFrom(s.vars).Draw(t, "var")
		return naivePathOf(root, rapid.SampledFrom(naiveElementPaths).Draw(t, "below")...)
	}
	return rapid.SampledFrom(naivePaths).Draw(t, "path")
}

// constant draws a constant of any type, mostly the value of x in some document.
func (s naiveScope) constant(t *rapid.T, x naivePath) naiveLit {
	if !naiveOneIn(t, 4) {
		if v, ok := s.sample(t, x); ok && naiveFinite(v) {
			return naiveLit(naiveJSON(v))
		}
	}
	return naiveLit(rapid.Custom(func(t *rapid.T) string { return drawNaiveValue(t, 2, false) }).
		Filter(func(v string) bool { return naiveFinite(naiveDecode([]byte(v))) }).Draw(t, "constant"))
}

// naiveFinite reports whether CEL has a literal for the value.
func naiveFinite(v any) bool {
	return !bytes.Contains(naiveJSON(v), []byte("1e999"))
}

// drawNaiveCond draws a condition that about a third of the documents match.
func drawNaiveCond(t *rapid.T, docs []naiveDoc, params []byte) naiveNode {
	s := newNaiveScope(docs)
	s.samples["params"] = []any{naiveDecode(params)}
	return s.cond(t, 3)
}

func (s naiveScope) cond(t *rapid.T, depth int) naiveNode {
	kinds := []string{"leaf", "leaf", "leaf", "leaf", "and", "or", "or", "not", "if", "paren", "and", "not"}
	if depth == 0 {
		kinds = kinds[:1]
	}
	switch rapid.SampledFrom(kinds).Draw(t, "condition") {
	case "and":
		return naiveAnd(s.likely(t, depth-1), s.likely(t, depth-1))
	case "or":
		conds := []naiveNode{s.cond(t, depth-1), s.cond(t, depth-1)}
		if naiveOneIn(t, 4) {
			conds = append(conds, s.cond(t, depth-1))
		}
		return naiveOr(conds...)
	case "not":
		return naiveNot(s.cond(t, depth-1))
	case "if":
		return naiveIf(s.cond(t, depth-1), s.cond(t, depth-1), s.cond(t, depth-1))
	case "paren":
		return naiveParen(s.cond(t, depth-1))
	}
	return s.leaf(t, depth)
}

// likely draws a condition that probably holds for the first document, for a condition
// that is true only if all of its parts are.
func (s naiveScope) likely(t *rapid.T, depth int) naiveNode {
	c := s.cond(t, depth)
	for range 4 {
		if len(s.vars) > 0 || len(s.samples["doc"]) == 0 || naiveHolds(c, naiveEnv{"doc": s.samples["doc"][0], "params": s.params()}) {
			break
		}
		c = s.cond(t, depth)
	}
	return c
}

func (s naiveScope) leaf(t *rapid.T, depth int) naiveNode {
	kinds := []string{
		"constant", "constant", "constant", "constant", "range", "param", "in", "in", "call", "has", "sum", "size", "path",
		"bare", "macro", "macro", "macro", "choice", "literal",
	}
	kind := rapid.SampledFrom(kinds).Draw(t, "leaf")
	if kind == "macro" && depth > 0 && len(s.vars) < 2 {
		return s.macro(t, depth-1)
	}
	switch kind {
	case "param":
		x := rapid.SampledFrom(naiveAnyParams).Draw(t, "param")
		return naiveEitherWay(t, s.path(t), rapid.SampledFrom(naiveOperators).Draw(t, "op"), x)
	case "range": // between two values of one path
		x := s.path(t)
		if low, high := s.constant(t, x), s.constant(t, x); naiveOrders(low) && naiveOrders(high) {
			above := naiveEitherWay(t, x, rapid.SampledFrom([]string{">=", ">"}).Draw(t, "above"), low)
			below := naiveEitherWay(t, x, rapid.SampledFrom([]string{"<=", "<"}).Draw(t, "below"), high)
			return naiveAnd(above, below)
		}
	case "path":
		return naiveCmp(s.path(t), rapid.SampledFrom(naiveOperators).Draw(t, "op"), s.path(t))
	case "in":
		return s.in(t)
	case "call":
		return s.call(t)
	case "has":
		return s.has(t)
	case "sum":
		return s.sum(t)
	case "size":
		return s.size(t, depth)
	case "bare":
		if naiveOneIn(t, 2) {
			return naiveDocPath("flag")
		}
		return s.path(t)
	case "choice":
		choice := naiveIf(s.cond(t, 0), s.path(t), s.path(t))
		return naiveEitherWay(t, choice, rapid.SampledFrom(naiveOperators).Draw(t, "op"), rapid.SampledFrom(naiveAnyParams).Draw(t, "param"))
	case "literal":
		if naiveOneIn(t, 3) {
			return naiveLit(rapid.SampledFrom([]string{"true", "false"}).Draw(t, "literal"))
		}
	}
	x := s.path(t)
	c := s.constant(t, x)
	op := rapid.SampledFrom(naiveOperators).Draw(t, "op")
	if !naiveOrders(c) {
		op = rapid.SampledFrom(naiveEqualities).Draw(t, "op")
	}
	return naiveEitherWay(t, x, op, c)
}

// naiveOrders reports whether CEL's checker accepts a constant for < and the like.
func naiveOrders(c naiveLit) bool { return !strings.ContainsAny(string(c[:1]), "n[{") }

// naiveEitherWay returns a comparison with its sides in either order.
func naiveEitherWay(t *rapid.T, x naiveNode, op string, y naiveNode) naiveNode {
	if naiveOneIn(t, 3) {
		return naiveCmp(y, strings.NewReplacer("<", ">", ">", "<").Replace(op), x)
	}
	return naiveCmp(x, op, y)
}

func (s naiveScope) in(t *rapid.T) naiveNode {
	x := s.path(t)
	switch rapid.SampledFrom([]string{"list", "list", "params", "range", "path", "list of paths", "key"}).Draw(t, "in") {
	case "params":
		return naiveIsIn(x, naiveParamPath("list"))
	case "range":
		y := rapid.SampledFrom(naiveRanges[:6]).Draw(t, "range")
		inner, element := s.within(y)
		return naiveIsIn(inner.constant(t, naivePathOf(element)), y)
	case "path":
		return naiveIsIn(x, rapid.SampledFrom(append([]naivePath{naiveDocPath()}, naiveRanges...)).Draw(t, "range"))
	case "list of paths":
		return naiveIsIn(x, naiveList(s.path(t), s.constant(t, x), rapid.SampledFrom(naiveAnyParams).Draw(t, "param")))
	case "key":
		name := naiveLit(rapid.SampledFrom([]string{`"a"`, `"x"`, `"id"`, `"_ts"`, `"a-b"`, `""`, `"y"`, `"sku"`}).Draw(t, "name"))
		y := rapid.SampledFrom([]naivePath{naiveDocPath(), naiveDocPath("nested"), naiveDocPath("a"), naiveDocPath("items", 0), naiveParamPath("obj")}).Draw(t, "map")
		return naiveIsIn(name, y)
	}
	var list []naiveNode
	for range rapid.IntRange(0, 4).Draw(t, "constants") {
		list = append(list, s.constant(t, x))
	}
	return naiveIsIn(x, naiveList(list...))
}

func (s naiveScope) call(t *rapid.T) naiveNode {
	fn := rapid.SampledFrom([]string{"startsWith", "endsWith", "contains", "matches"}).Draw(t, "function")
	x := s.path(t)
	if naiveOneIn(t, 3) {
		x = naiveDocPath("items", 0, "sku")
	}
	if fn == "matches" {
		re := naiveLit(rapid.SampledFrom([]string{`"^x"`, `"x"`, `"y$"`, `"^[xy]*$"`, `"^(x|y|[0-9]+)$"`, `"\\x00|é"`, `"^.$"`, `""`}).Draw(t, "re"))
		if naiveOneIn(t, 4) {
			return naiveCall(x, fn, naiveParamPath("re"))
		}
		return naiveCall(x, fn, re)
	}
	if naiveOneIn(t, 6) {
		return naiveCall(naiveLit(rapid.SampledFrom(naiveStrings).Draw(t, "receiver")), fn, x)
	}
	if naiveOneIn(t, 4) {
		return naiveCall(x, fn, rapid.SampledFrom([]naivePath{naiveParamPath("s"), naiveParamPath("p"), naiveDocPath("b"), naiveDocPath("id")}).Draw(t, "argument"))
	}
	whole := rapid.SampledFrom(naiveStrings).Draw(t, "argument")
	if v, ok := s.sample(t, x); ok {
		if str, ok := v.(string); ok {
			whole = string(naiveJSON(str))
		}
	}
	part := []rune(naiveDecode([]byte(whole)).(string))
	from := rapid.IntRange(0, len(part)).Draw(t, "from")
	to := rapid.IntRange(from, len(part)).Draw(t, "to")
	switch fn {
	case "startsWith":
		from = 0
	case "endsWith":
		to = len(part)
	}
	return naiveCall(x, fn, naiveLit(naiveJSON(string(part[from:to]))))
}

func (s naiveScope) has(t *rapid.T) naiveNode {
	if len(s.vars) > 0 && !naiveOneIn(t, 5) {
		return naiveHas(naivePathOf(rapid.SampledFrom(s.vars).Draw(t, "var"), rapid.SampledFrom([]string{"sku", "qty", "x"}).Draw(t, "field")))
	}
	return naiveHas(rapid.SampledFrom([]naivePath{
		naiveDocPath("a"), naiveDocPath("b"), naiveDocPath("flag"), naiveDocPath("nested", "x"), naiveDocPath("items", 0, "sku"), naiveDocPath("items", 1, "qty"),
		naiveDocPath("ttl"), naiveDocPath("_ts"), naiveDocPath("_etag"), naiveDocPath("id"), naiveDocPath("zzz"), naiveDocPath("zzz", "x"), naiveDocPath("tags", "x"),
		naiveDocPath("a", "x"), naiveDocPath("nested", "x", "y"), naiveParamPath("p"), naiveParamPath("zzz"), naiveDocPath("a-b", "x"), naiveDocPath("tags", 0, "x"),
	}).Draw(t, "has"))
}

// sum draws a comparison with arithmetic. All its literals are of one type.
func (s naiveScope) sum(t *rapid.T) naiveNode {
	kind := rapid.SampledFrom([]string{"int", "int", "float", "string"}).Draw(t, "of")
	literal := func() naiveNode {
		switch kind {
		case "int":
			return naiveLit(rapid.SampledFrom([]string{"1", "2", "3", "0", "-1", "10", "-7", "9007199254740992", "9223372036854775807", "-9223372036854775807", "4611686018427387904"}).Draw(t, "int"))
		case "float":
			return naiveLit(rapid.SampledFrom([]string{"1.0", "2.0", "0.5", "1.5", "-1.0", "-0.0", "9007199254740992.0", "1e300", "1E+2", "0.1"}).Draw(t, "float"))
		}
		return naiveLit(rapid.SampledFrom(naiveStrings[:8]).Draw(t, "string"))
	}
	var tree func(depth int) naiveNode
	tree = func(depth int) naiveNode {
		if kind == "string" {
			x := rapid.SampledFrom([]naivePath{naiveDocPath("a"), naiveDocPath("b"), naiveDocPath("items", 0, "sku"), naiveDocPath("id"), naiveDocPath("_etag")}).Draw(t, "term")
			if naiveOneIn(t, 2) {
				return naiveArith(literal(), "+", x)
			}
			return naiveArith(x, "+", literal())
		}
		// CEL's checker has no % of two floats.
		ops := []string{"+", "-", "*", "/", "%"}
		if kind == "float" {
			ops = ops[:4]
		}
		terms := []func() naiveNode{
			func() naiveNode { return rapid.SampledFrom(naiveTamePaths).Draw(t, "term") },
			literal,
			func() naiveNode { return rapid.SampledFrom(naiveTamePaths).Draw(t, "term") },
		}
		if depth > 0 {
			terms = append(terms, func() naiveNode { return tree(depth - 1) })
		}
		draw := rapid.SampledFrom(terms)
		left, op, right := draw.Draw(t, "left")(), rapid.SampledFrom(ops).Draw(t, "op"), draw.Draw(t, "right")()
		if cel := left.CEL() + right.CEL(); !strings.Contains(cel, "doc.") && !strings.Contains(cel, "params.") { // literals only: the checker would compute it, if at all
			left = naiveDocPath("n")
		}
		return naiveArith(left, op, right)
	}
	x, op := tree(1), rapid.SampledFrom(naiveOperators).Draw(t, "op")
	switch rapid.SampledFrom([]string{"value", "value", "literal", "param", "path"}).Draw(t, "with") {
	case "value": // the value of x in some document
		var there []naiveNode
		for _, doc := range s.samples["doc"] {
			v, ok := x.value(naiveEnv{"doc": doc, "params": s.params()})
			if n, isNumber := naiveNumberOf(v); ok && isNumber && kind == "int" && n.int != nil {
				there = append(there, naiveLit(n.int.String()))
			} else if str, isString := v.(string); ok && isString && kind == "string" {
				there = append(there, naiveLit(naiveJSON(str)))
			}
		}
		if len(there) > 0 {
			return naiveEitherWay(t, x, op, rapid.SampledFrom(there).Draw(t, "value"))
		}
	case "param":
		return naiveEitherWay(t, x, op, rapid.SampledFrom(naiveAnyParams).Draw(t, "param"))
	case "path":
		return naiveEitherWay(t, x, op, rapid.SampledFrom(naivePaths).Draw(t, "path"))
	}
	return naiveEitherWay(t, x, op, literal())
}

func (s naiveScope) size(t *rapid.T, depth int) naiveNode {
	var x naiveNode = s.path(t)
	switch {
	case depth > 0 && len(s.vars) < 2 && naiveOneIn(t, 3):
		over := s.over(t)
		inner, name := s.within(over)
		x = naiveMacro(over, "filter", name, inner.cond(t, depth-1))
	case len(s.vars) == 0 && !naiveOneIn(t, 3):
		x = rapid.SampledFrom(naiveRanges[:6]).Draw(t, "range")
	}
	op := rapid.SampledFrom(naiveOperators).Draw(t, "op")
	if naiveOneIn(t, 6) {
		return naiveEitherWay(t, naiveSize(x), op, naiveDocPath("n"))
	}
	return naiveEitherWay(t, naiveSize(x), op, naiveLit(rapid.SampledFrom([]string{"1", "2", "0", "3", "600", "-1"}).Draw(t, "size")))
}

// over draws the range of a macro.
func (s naiveScope) over(t *rapid.T) naivePath {
	if len(s.vars) > 0 && !naiveOneIn(t, 3) {
		return naivePathOf(s.vars[len(s.vars)-1])
	}
	return rapid.SampledFrom(naiveRanges).Draw(t, "over")
}

func (s naiveScope) macro(t *rapid.T, depth int) naiveNode {
	over := s.over(t)
	inner, name := s.within(over)
	fn := rapid.SampledFrom([]string{"exists", "exists", "all", "exists_one"}).Draw(t, "macro")
	return naiveMacro(over, fn, name, inner.cond(t, depth))
}
