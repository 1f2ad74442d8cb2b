package sql

import (
	"slices"
	"strconv"
	"strings"

	"github.com/lapsedb/lapse/schema/values"
)

// maxNesting limits the depth of expressions, and the operators in a row but AND and OR.
const maxNesting = 100

// levels has the binary operators; those of the first bind loosest. IN and BETWEEN bind
// tighter than AND.
var levels = [][]string{{"OR"}, {"AND"}, {"=", "!=", "<>"}, {"<", "<=", ">", ">="}, {"+", "-"}, {"*", "/", "%"}}

// expr is an expression.
type expr struct {
	// eval returns the value for an item, or for an object of totals by number: JSON, Missing
	// if it is undefined. It is valid as long as the item's memory.
	eval    func(values.Value) values.Value
	literal values.Value // of a literal or parameter
	path    []any        // of a path, then not nil: names of members and positions
	counts  bool         // COUNT of a literal
	demands []Equality   // it is true only if they hold
}

func literalOf(v values.Value) *expr {
	return &expr{literal: v, eval: func(values.Value) values.Value { return v }}
}

func pathOf(steps []any) *expr {
	return &expr{path: steps, eval: func(v values.Value) values.Value {
		for _, step := range steps {
			if name, ok := step.(string); ok {
				v = v.At([]string{name})
			} else {
				v = element(v, step.(int))
			}
		}
		return v
	}}
}

// element returns the element at a position of an array.
func element(v values.Value, position int) (found values.Value) {
	v.Elements(func(e values.Value) bool {
		if position == 0 {
			found = e
		}
		position--
		return position >= 0
	})
	return found
}

// objectOf is an object without the members that are undefined.
func objectOf(names []string, members []*expr) *expr {
	prefixes := make([][]byte, len(names))
	for i, name := range names {
		prefixes[i] = append(encode(name), ':')
	}
	return &expr{eval: func(item values.Value) values.Value {
		out := []byte{'{'}
		for i, member := range members {
			v := member.eval(item)
			if len(v) > 0 && len(out) > 1 {
				out = append(out, ',')
			}
			if len(v) > 0 {
				out = append(append(out, prefixes[i]...), v...)
			}
		}
		return append(out, '}')
	}}
}

// apply is an operation on the values of args.
func apply(name string, args ...*expr) *expr {
	operate, final := operations[name], decisive[name]
	return &expr{demands: demandsOf(name, args), eval: func(item values.Value) values.Value {
		results := make([]values.Value, len(args))
		for i, arg := range args {
			results[i] = arg.eval(item)
			if final != "" && string(results[i]) == final {
				return results[i]
			}
		}
		return operate(results)
	}}
}

// demandsOf returns what an operation that is true demands of paths.
func demandsOf(name string, args []*expr) (all []Equality) {
	switch name {
	case "=":
		return append(demand(args[0], args[1]), demand(args[1], args[0])...)
	case "IN":
		return demand(args[0], args[1:]...)
	case "IS_NULL":
		return demand(args[0], literalOf(values.Value("null")))
	case "AND":
		for _, arg := range args {
			all = append(all, arg.demands...)
		}
		return all[:min(len(all), maxNesting)]
	case "OR":
		all = args[0].demands
		for _, arg := range args[1:] {
			all = either(all, arg.demands)
		}
	}
	return all
}

// demand says that a path of members equals one of list, if these are all literals.
func demand(path *expr, list ...*expr) []Equality {
	var e Equality
	for _, step := range path.path {
		name, ok := step.(string)
		if !ok {
			return nil
		}
		e.Path = append(e.Path, name)
	}
	for _, element := range list {
		if len(element.literal) == 0 || len(e.Path) == 0 {
			return nil
		}
		e.Values = append(e.Values, element.literal)
	}
	return []Equality{e}
}

// either returns the paths of which both lists demand something, with the values of both.
func either(a, b []Equality) (both []Equality) {
	for _, x := range a {
		i := slices.IndexFunc(b, func(y Equality) bool { return slices.Equal(x.Path, y.Path) })
		if i >= 0 {
			both = append(both, Equality{x.Path, append(x.Values, b[i].Values...)})
		}
	}
	return both
}

func (p *parser) expression() *expr { return p.deeper(func() *expr { return p.binary(0) }) }

// deeper reads a nested expression.
func (p *parser) deeper(read func() *expr) *expr {
	if p.nested++; p.nested > maxNesting {
		p.fail("the query nests expressions deeper than %d", maxNesting)
	}
	defer func() { p.nested-- }()
	return read()
}

// binary reads operands joined by the operators of a level or later ones.
func (p *parser) binary(level int) *expr {
	operand := func() *expr { return p.binary(level + 1) }
	switch level {
	case len(levels):
		return p.unary()
	case 1:
		operand = p.predicate
	}
	e := operand()
	for n := 1; p.is(levels[level]...); n++ {
		if n > maxNesting {
			p.fail("the query has more than %d operators in a row", maxNesting)
		}
		name := p.advance().key
		args := []*expr{e, operand()}
		for level < 2 && p.accept(name) {
			args = append(args, operand())
		}
		e = apply(name, args...)
	}
	return e
}

// predicate reads an operand, and IN or BETWEEN after it.
func (p *parser) predicate() *expr {
	e := p.binary(2)
	negated := p.accept("NOT")
	switch {
	case p.accept("IN"):
		p.expect("(")
		e = apply("IN", append([]*expr{e}, p.list()...)...)
	case p.accept("BETWEEN"):
		low := p.binary(2)
		p.expect("AND")
		e = apply("AND", apply(">=", e, low), apply("<=", e, p.binary(2)))
	case negated:
		p.unexpected("IN or BETWEEN")
	}
	if negated {
		return apply("NOT", e)
	}
	return e
}

func (p *parser) unary() *expr {
	switch {
	case p.accept("NOT"):
		e := apply("NOT", p.deeper(p.unary))
		// NOT a = b is (NOT a) = b in Microsoft's grammar, and NOT (a = b) for its readers.
		if p.is(slices.Concat(levels[2:]...)...) || p.is("IN", "NOT", "BETWEEN") {
			p.fail("NOT before byte %d is ambiguous: put what it negates in parentheses", p.token.at)
		}
		return e
	case p.is("+", "-"):
		sign := p.advance().key
		if p.token.kind == number {
			return literalOf(values.Value(strings.TrimPrefix(sign, "+") + p.advance().text))
		}
		return apply(sign, literalOf(values.Value("0")), p.deeper(p.unary))
	}
	return p.primary()
}

// primary reads a literal, a parameter, a function, a path, or an expression in
// parentheses.
func (p *parser) primary() *expr {
	switch t := p.token; {
	case t.kind == text:
		return literalOf(encode(p.advance().text))
	case t.kind == parameter:
		v, ok := p.params[p.advance().text]
		if !ok {
			p.fail("parameter %.40s has no value", t.text)
		}
		return literalOf(v)
	case t.kind == number, slices.Contains([]string{"true", "false", "null"}, t.text):
		return literalOf(values.Value(p.advance().text))
	case p.named():
		p.advance()
		switch {
		case t.text == "undefined":
			return literalOf(nil)
		case p.accept("("):
			return p.call(t.text)
		}
		return p.path(t)
	case p.accept("("):
		e := p.expression()
		p.expect(")")
		return e
	}
	p.unexpected("an expression")
	return literalOf(nil)
}

func (p *parser) path(root token) *expr {
	p.roots = append(p.roots, root)
	if p.selecting && !p.aggregating {
		p.loose = root.at
	}
	steps := []any{}
	for {
		switch {
		case p.accept("."):
			steps = append(steps, p.name())
		case p.accept("["):
			steps = append(steps, p.index())
			p.expect("]")
		default:
			return pathOf(steps)
		}
	}
}

// index reads the name of a member or the position of an element.
func (p *parser) index() any {
	at := p.token.at
	v := p.expression().literal
	if v.Kind() == values.String {
		return string(v.Text())
	}
	n, negative, ok := v.Integer()
	if !ok || negative || n > maxCount {
		p.fail("the index at byte %d is neither a name nor a position: use a string, a number or a parameter", at)
	}
	return int(n)
}

// call reads the arguments of a function.
func (p *parser) call(name string) *expr {
	upper := strings.ToUpper(name)
	if slices.Contains(aggregates, upper) {
		return p.aggregate(upper)
	}
	arity, ok := arities[upper]
	if !ok {
		p.fail("function %.60s is not served", name)
		return literalOf(nil)
	}
	args := p.list()
	if len(args) < arity[0] || len(args) > arity[1] {
		p.fail("function %s has %d arguments: use %d to %d", upper, len(args), arity[0], arity[1])
		return literalOf(nil)
	}
	return apply(upper, args...)
}

func (p *parser) aggregate(name string) *expr {
	if !p.selecting || p.aggregating {
		p.fail("%s is served only in SELECT, and not in another aggregate", name)
	}
	p.aggregating = true
	of := p.expression()
	p.aggregating = false
	p.expect(")")
	total := pathOf([]any{strconv.Itoa(len(p.q.aggregates))})
	a := aggregate{name: name, of: of}
	if name == "SUM" || name == "AVG" {
		a.total = values.Value("0")
	}
	p.q.aggregates = append(p.q.aggregates, a)
	return &expr{eval: total.eval, counts: name == "COUNT" && len(of.literal) > 0}
}

// list reads expressions, at least one, and the parenthesis after them.
func (p *parser) list() []*expr {
	all := []*expr{p.expression()}
	for p.accept(",") {
		all = append(all, p.expression())
	}
	p.expect(")")
	return all
}
