package sql

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/lapsedb/lapse/schema/values"
)

// maxNesting limits the depth of expressions, and the operators in a row but AND and OR.
const maxNesting = 100

// levels has the binary operators; those of the first bind loosest. IN, LIKE and BETWEEN bind
// tighter than AND. By level, from loose to tight:
//
//	a OR b AND c = d < e + f * g      is      a OR (b AND (c = (d < (e + (f * g)))))
//
// The operands of OR, AND and || are the arguments of one expression, however many there
// are.
var levels = [][]string{{"OR"}, {"AND"}, {"||"}, {"=", "!=", "<>"}, {"<", "<=", ">", ">="}, {"+", "-"}, {"*", "/", "%"}}

// comparisons are the operators that are ambiguous beside ||.
var comparisons = slices.Concat(levels[3], levels[4])

// env is what expressions are evaluated for. One env serves a whole run: a row allocates
// none of its own.
type env struct {
	vars   []values.Value // items and elements, by the slot of their name
	totals []values.Value // of a group's aggregates, for its row
	kept   []values.Value // of the group's paths outside aggregates; nil but for its row
	nested int            // arrays whose elements are visited
	work   int            // bytes read for them
	err    error          // that of the first limit exceeded
}

// maxWork limits the bytes that a run reads for the elements of arrays, those of an item again
// for each: about two seconds. elementCost is what an element costs besides.
const (
	maxWork     = 1 << 30
	elementCost = 100
)

var errWork = fmt.Errorf("%w: JOIN and EXISTS combine too many elements: narrow it by its partition key, or combine less", ErrTooLarge)

// spend counts bytes that are read for an element. Outside of arrays nothing is counted:
// there each byte is read a fixed number of times, by the text of the query.
func (e *env) spend(bytes int) {
	if e.nested == 0 {
		return
	}
	if e.work += bytes; e.work > maxWork {
		e.fail(errWork)
	}
}

// fail records the first limit that was exceeded; the run ends after the item.
func (e *env) fail(err error) {
	if e.err == nil {
		e.err = err
	}
}

// expr is an expression. The parser makes closures, not a tree to walk: eval is the whole
// of a compiled expression. The other fields say what the planner and the parser need to
// know of it.
//
// Whatever is wrong in a value is undefined, the empty value, never an error: 1 < "2", a
// member that is missing, a date that is none. Only limits are errors, in env.err.
type expr struct {
	// eval returns the value in an env: JSON, Missing if it is undefined. It is valid as long
	// as the memory of the item and totals.
	eval    func(*env) values.Value
	literal values.Value // of a literal or parameter
	path    []any        // of a path, then not nil: names of members and positions
	root    *reference   // of a path
	op      string       // operator or function
	args    []*expr      // of op
	bare    string       // operator, empty in parentheses
	counts  bool         // COUNT of a literal
	demands []Equality   // it is true only if they hold
}

// reference is a name that a path begins with. Its slot is known once FROM is read.
type reference struct {
	token
	slot int
}

const unknown = -1 // slot

// source is a name of FROM or JOIN. In FROM c JOIN t IN c.tags JOIN x IN t.parts there are
// three: c with slot 0, t and x with slots 1 and 2; x depends on t.
type source struct {
	name string
	slot int
	of   *expr // nil for the item
	each bool  // it is the elements of an array, by IN
}

// each visits the combinations of the sources from one on that satisfy the condition, until
// visit returns false. It is a loop for each source, nested: for every element of the
// first all of the second, and so on. Without sources that are arrays it visits once.
func (q *Query) each(e *env, from int, visit func() bool) (more bool) {
	if from == len(q.sources) {
		return q.where.eval(e).Kind() != values.True || visit()
	}
	s := &q.sources[from]
	if s.of == nil {
		return q.each(e, from+1, visit)
	}
	v := s.of.eval(e)
	if e.vars[s.slot] = v; !s.each {
		return len(v) == 0 || q.each(e, from+1, visit)
	}
	more = true
	e.nested++
	v.Elements(func(element values.Value) bool {
		e.vars[s.slot] = element
		e.spend(elementCost + len(element))
		more = e.err == nil && q.each(e, from+1, visit)
		return more
	})
	e.nested--
	return more
}

// exists reads the subquery of EXISTS. The subquery has a scope of its own. Names that it
// does not know remain for the query around it, so a subquery may use the item.
//
// EXISTS is true if the subquery has a row. An undefined row is none.
func (p *parser) exists() *expr {
	if p.selecting && !p.aggregating {
		p.loose = append(p.loose, -p.token.at)
	}
	p.expect("(")
	outer := p.scope
	p.scope = scope{q: Query{where: literalOf(boolean(true)), end: math.MaxInt}, sub: true}
	p.query()
	inner := p.scope
	p.scope = outer
	p.names = append(p.names, inner.names...)
	p.expect(")")
	q := &inner.q
	if q.NeedsPlan() {
		p.fail("EXISTS is served for a subquery of SELECT, FROM, JOIN and WHERE alone")
	}
	return &expr{eval: func(e *env) values.Value {
		found := false
		q.each(e, 0, func() bool {
			found = len(q.row.eval(e)) > 0
			return !found
		})
		return boolean(found)
	}}
}

// literalOf is an expression with a constant value, or without one if v is empty.
func literalOf(v values.Value) *expr {
	return &expr{literal: v, eval: func(*env) values.Value { return v }}
}

// pathOf is the value below a name. Each step passes the members before the one that it
// looks for; an item is not indexed.
func pathOf(root *reference, steps []any) *expr {
	return &expr{path: steps, root: root, eval: func(e *env) values.Value {
		v := e.vars[root.slot]
		e.spend(len(v))
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

// maxValueBytes limits a value that is made of others.
const maxValueBytes = 16 << 20

// errValue ends the run: a value beyond it could be doubled by each expression around it.
var errValue = fmt.Errorf("%w: it makes a value of more than %d bytes", ErrTooLarge, maxValueBytes)

// objectOf is an object without the members that are undefined.
func objectOf(names []string, members []*expr) *expr {
	prefixes := make([][]byte, len(names))
	for i, name := range names {
		prefixes[i] = append(encode(name), ':')
	}
	return &expr{eval: func(e *env) values.Value {
		out := []byte{'{'}
		for i, member := range members {
			v := member.eval(e)
			if len(v) > 0 && len(out) > 1 {
				out = append(out, ',')
			}
			if len(v) > 0 {
				out = append(append(out, prefixes[i]...), v...)
			}
			if len(out) > maxValueBytes {
				e.fail(errValue)
				return nil
			}
		}
		return append(out, '}')
	}}
}

// apply is an operator or a function of the values of args. AND and OR stop at the first
// decisive term. Any other operator evaluates all operands.
func apply(name string, args ...*expr) *expr {
	operate, final := operations[name], decisive[name]
	if operate == nil {
		operate = functions[name].of
	}
	return &expr{op: name, args: args, demands: demandsOf(name, args), eval: func(e *env) values.Value {
		results := make([]values.Value, len(args))
		size := 0
		for i, arg := range args {
			results[i] = arg.eval(e)
			if final != "" && string(results[i]) == final {
				return results[i]
			}
			size += len(results[i])
		}
		if size > maxValueBytes {
			e.fail(errValue)
			return nil
		}
		v := operate(results)
		if string(v) == string(tooLong) {
			e.fail(errValue)
			return nil
		}
		return v
	}}
}

// demandsOf returns what an operation that is true demands of paths. A demand is what
// lapse can be asked for. It holds for every item that satisfies the whole condition, so
// it may narrow what is read; whether an item does is still decided here.
//
//	c.a = 1 AND c.b > 2          a: 1
//	c.a = 1 OR c.a = 2           a: 1, 2
//	c.a = 1 OR c.b = 2           none
//	NOT c.a = 1                  none
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

// demand says that a path of members equals one of list, if these are all literals. A path
// with a position, or a literal that is undefined, demands nothing that lapse could be
// asked.
func demand(path *expr, list ...*expr) []Equality {
	e := Equality{root: path.root}
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
		i := slices.IndexFunc(b, func(y Equality) bool { return x.root.text == y.root.text && slices.Equal(x.Path, y.Path) })
		if i >= 0 {
			both = append(both, Equality{x.Path, append(x.Values, b[i].Values...), x.root})
		}
	}
	return both
}

// expression reads an expression of any operator.
func (p *parser) expression() *expr {
	from := p.token.at
	e := p.deeper(p.choice)
	p.mark(from)
	return e
}

// mark notes the span of an expression in SELECT outside aggregates, for GROUP BY. GROUP
// BY is compared with these by their text, see grouping.
func (p *parser) mark(from int) {
	if p.selecting && !p.aggregating {
		p.spans = append(p.spans, span{from, p.token.at})
	}
}

// choice reads operands of ?? and of ?:, which nest to the right. Without parentheses a mix of
// the two means one thing in Microsoft's grammar, and another in languages that have both.
func (p *parser) choice() *expr {
	e := p.binary(0)
	name, other := p.token.key, ""
	switch {
	case p.accept("??"):
		last := p.deeper(p.choice)
		e, other = coalesce(e, last), last.bare
	case p.accept("?"):
		then := p.expression()
		p.expect(":")
		last := p.deeper(p.choice)
		e, other = conditional(e, then, last), last.bare
	default:
		return e
	}
	if other != name && (other == "?" || other == "??") {
		p.fail("?? and ? before byte %d are ambiguous: put one of them in parentheses", p.token.at)
	}
	e.bare = name
	return e
}

// deeper reads a nested expression. It bounds the stack of the parser, and with it that of
// eval.
func (p *parser) deeper(read func() *expr) *expr {
	if p.nested++; p.nested > maxNesting {
		p.fail("the query nests expressions deeper than %d", maxNesting)
	}
	defer func() { p.nested-- }()
	return read()
}

// binary reads operands joined by the operators of a level or later ones. Operators of a
// level associate to the left; those of the first levels, up to ||, are collected.
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
		for level < 3 && p.accept(name) {
			args = append(args, operand())
		}
		for _, arg := range args {
			if name == "||" && slices.Contains(comparisons, arg.bare) {
				p.fail("|| before byte %d is ambiguous beside %s: put one of them in parentheses", p.token.at, arg.bare)
			}
		}
		e = apply(name, args...)
		e.bare = name
	}
	return e
}

// predicate reads an operand, and IN, LIKE or BETWEEN after it. NOT IN and the like are
// the negation of IN, also where that is undefined.
func (p *parser) predicate() *expr {
	e := p.binary(2)
	negated := p.accept("NOT")
	switch {
	case p.accept("IN"):
		p.expect("(")
		e = apply("IN", append([]*expr{e}, p.list(")", false)...)...)
	case p.accept("LIKE"):
		e = p.like(e)
	case p.accept("BETWEEN"):
		low := p.binary(2)
		p.expect("AND")
		e = apply("AND", apply(">=", e, low), apply("<=", e, p.binary(2)))
	case negated:
		p.unexpected("IN, LIKE or BETWEEN")
	}
	if negated {
		return apply("NOT", e)
	}
	return e
}

// unary reads NOT or a sign, or a primary expression. A sign before a number is part of
// the literal, so that -1 stays an integer.
func (p *parser) unary() *expr {
	switch {
	case p.accept("NOT"):
		e := apply("NOT", p.deeper(p.unary))
		// NOT a = b is (NOT a) = b in Microsoft's grammar, and NOT (a = b) for its readers.
		if p.is(slices.Concat(levels[2:]...)...) || p.is("IN", "NOT", "LIKE", "BETWEEN") {
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
			e := p.call(t.text)
			p.mark(t.at)
			return e
		}
		return p.path(t)
	case p.accept("("):
		e := *p.expression()
		p.expect(")")
		e.bare = ""
		return &e
	case p.accept("EXISTS"):
		return p.deeper(p.exists)
	case p.accept("["):
		return array(p.list("]", true))
	case p.accept("{"):
		return p.object()
	}
	p.unexpected("an expression")
	return literalOf(nil)
}

// path reads the steps after a name: c.address["city"], c.lines[0].sku.
func (p *parser) path(name token) *expr {
	root := &reference{name, unknown}
	p.names = append(p.names, root)
	steps := []any{}
	for {
		switch {
		case p.accept("."):
			steps = append(steps, p.name())
		case p.accept("["):
			steps = append(steps, p.index())
			p.expect("]")
		default:
			return p.keepInGroup(pathOf(root, steps))
		}
	}
}

// keepInGroup has a group keep the value of a path in SELECT outside aggregates. A group has one
// row for many items, so a path outside aggregates has the value of the group's first
// item. The expression around it is in GROUP BY, and so gives the same for all.
func (p *parser) keepInGroup(path *expr) *expr {
	if !p.selecting || p.aggregating {
		return path
	}
	n, read := len(p.q.kept), path.eval
	path.eval = func(e *env) values.Value {
		if e.kept != nil {
			return e.kept[n]
		}
		return read(e)
	}
	p.loose = append(p.loose, path.root.at)
	p.q.kept = append(p.q.kept, path)
	p.mark(path.root.at)
	return path
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

// call reads the arguments of a function. Functions of two kinds are not in the table:
// those that need more than values, such as a pattern or the time, and aggregates, which
// see many items.
func (p *parser) call(name string) *expr {
	upper := strings.ToUpper(name)
	if slices.Contains(aggregates, upper) {
		return p.aggregate(upper)
	}
	f, ok := functions[upper]
	if !ok {
		p.fail("function %.60s is not served", name)
		return literalOf(nil)
	}
	args := p.list(")", f.least == 0)
	if len(args) < f.least || len(args) > f.most {
		p.fail("function %s has %d arguments: use %s", upper, len(args), arity(f.least, f.most))
		return literalOf(nil)
	}
	switch upper {
	case "IIF":
		return conditional(args[0], args[1], args[2])
	case "REGEXMATCH":
		return p.match(args[0], args[1], append(args, literalOf(encode("")))[2], regexOf)
	case "GETCURRENTDATETIME", "GETCURRENTDATETIMESTATIC":
		return p.current(func(ms int64) values.Value { return dateOf(int(ms) * (second / 1000)) })
	case "GETCURRENTTIMESTAMP", "GETCURRENTTIMESTAMPSTATIC":
		return p.current(func(ms int64) values.Value { return encode(ms) })
	case "GETCURRENTTICKS", "GETCURRENTTICKSSTATIC":
		return p.current(func(ms int64) values.Value { return encode(ms * (second / 1000)) })
	}
	return apply(upper, args...)
}

// current is a function of the time of the run. All calls in a run have the same time, and
// the caller decides which.
func (p *parser) current(f func(ms int64) values.Value) *expr {
	if p.now == nil {
		p.now = new(int64)
	}
	now := p.now
	return &expr{eval: func(*env) values.Value { return f(*now) }}
}

func arity(least, most int) string {
	if most == many {
		return fmt.Sprintf("%d or more", least)
	}
	return fmt.Sprintf("%d to %d", least, most)
}

// aggregate reads the argument of an aggregate. The expression it returns has its value
// only at the end, from the totals of the group.
func (p *parser) aggregate(name string) *expr {
	if !p.selecting || p.aggregating {
		p.fail("%s is served only in SELECT, and not in another aggregate", name)
	}
	p.aggregating = true
	of := p.expression()
	p.aggregating = false
	p.expect(")")
	n := len(p.q.aggregates)
	a := aggregate{name: name, of: of}
	if name == "SUM" || name == "AVG" {
		a.total = values.Value("0")
	}
	p.q.aggregates = append(p.q.aggregates, a)
	return &expr{eval: func(e *env) values.Value { return e.totals[n] }, counts: name == "COUNT" && len(of.literal) > 0}
}

// list reads expressions and what ends them; unless it may be empty there is at least one.
func (p *parser) list(end string, empty bool) (all []*expr) {
	if empty && p.accept(end) {
		return nil
	}
	for first := true; first || p.accept(","); first = false {
		all = append(all, p.expression())
	}
	p.expect(end)
	return all
}

// object reads the members of an object, after its brace. Names of members are literals,
// as in JSON, but quotes may be left out.
func (p *parser) object() *expr {
	var names []string
	var members []*expr
	for first := true; first && !p.is("}") || p.accept(","); first = false {
		name := p.token.text
		if p.token.kind != text && p.token.kind != word {
			p.unexpected("a name or string")
		}
		if slices.Contains(names, name) {
			p.fail("two members are named %.40q", name)
		}
		p.advance()
		p.expect(":")
		names, members = append(names, name), append(members, p.expression())
	}
	p.expect("}")
	return objectOf(names, members)
}

// array is an array of the values of elements.
func array(list []*expr) *expr {
	return &expr{eval: func(e *env) values.Value {
		all := make([]values.Value, len(list))
		size := 0
		for i, x := range list {
			all[i] = x.eval(e)
			size += len(all[i])
		}
		if size > maxValueBytes {
			e.fail(errValue)
			return nil
		}
		return arrayOf(all)
	}}
}

// matchCost is what a byte costs that is matched with a pattern. Go's regular expressions
// take time in proportion to the text, unlike those that backtrack.
const matchCost = 20

// match is a function of a string, by a pattern and its modifiers. A pattern that is no
// literal is compiled for each item, and undefined if it is wrong.
func (p *parser) match(of, pattern, modifiers *expr, compile func(pattern, modifiers string) (*regexp.Regexp, error)) *expr {
	compiled := func(pattern, modifiers values.Value) (*regexp.Regexp, error) {
		if pattern.Kind() != values.String || modifiers.Kind() != values.String || len(pattern.Text()) > maxPattern {
			return nil, fmt.Errorf("use a string of at most %d bytes", maxPattern)
		}
		return compile(string(pattern.Text()), string(modifiers.Text()))
	}
	var fixed *regexp.Regexp
	if len(pattern.literal) > 0 && len(modifiers.literal) > 0 {
		var err error
		if fixed, err = compiled(pattern.literal, modifiers.literal); err != nil {
			p.fail("pattern %.60s: %.200s", pattern.literal, err)
		}
	}
	return &expr{eval: func(e *env) values.Value {
		s, r := of.eval(e), fixed
		if r == nil {
			r, _ = compiled(pattern.eval(e), modifiers.eval(e))
		}
		if s.Kind() != values.String || r == nil {
			return nil
		}
		e.spend(matchCost * len(s))
		return boolean(r.Match(s.Text()))
	}}
}

// wildcards matches a wildcard of LIKE, in brackets one that may be in a set, or another
// character.
var wildcards = regexp.MustCompile(`(?s)\[(\^?)([^\]]*)\]|.`)

// likeOf compiles a pattern of LIKE; escape is the character before one that is no
// wildcard. For "SO0_[1-5]%" it is (?s)^SO0.[1-5].*$.
func likeOf(pattern, escape string) (*regexp.Regexp, error) {
	var out strings.Builder
	for out.WriteString(`(?s)^`); pattern != ""; {
		if rest, ok := strings.CutPrefix(pattern, escape); ok && escape != "" && rest != "" {
			_, n := utf8.DecodeRuneInString(rest)
			out.WriteString(regexp.QuoteMeta(rest[:n]))
			pattern = rest[n:]
			continue
		}
		groups := wildcards.FindStringSubmatch(pattern)
		pattern = pattern[len(groups[0]):]
		switch {
		case groups[0] == "%":
			out.WriteString(`.*`)
		case groups[0] == "_":
			out.WriteString(`.`)
		case groups[2] != "":
			set := strings.NewReplacer(`\`, `\\`, `[`, `\[`).Replace(groups[2])
			out.WriteString(`[` + groups[1] + set + `]`)
		default:
			out.WriteString(regexp.QuoteMeta(groups[0]))
		}
	}
	return regexp.Compile(out.String() + `$`)
}

// like reads the pattern of LIKE, and ESCAPE after it.
func (p *parser) like(e *expr) *expr {
	pattern, escape := p.binary(2), literalOf(encode(""))
	if p.accept("ESCAPE") {
		if escape = p.primary(); utf8.RuneCount(escape.literal.Text()) != 1 {
			p.fail("ESCAPE is not a string of one character")
		}
	}
	return p.match(e, pattern, escape, likeOf)
}

// conditional is the second or, unless the first is true, the third.
func conditional(condition, then, otherwise *expr) *expr {
	return &expr{eval: func(e *env) values.Value {
		if condition.eval(e).Kind() == values.True {
			return then.eval(e)
		}
		return otherwise.eval(e)
	}}
}

// coalesce is the first that is defined.
func coalesce(a, b *expr) *expr {
	return &expr{eval: func(e *env) values.Value {
		if v := a.eval(e); len(v) > 0 {
			return v
		}
		return b.eval(e)
	}}
}
