package sql

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/lapsedb/lapse/schema/values"
)

// tokenKind is the kind of a token; tokens has a group for each, in this order.
type tokenKind int

const (
	end tokenKind = iota
	word
	number
	text
	parameter
	symbol
)

// For c.a >= .5 the tokens are c, ., a, >= and 0.5.
type token struct {
	kind tokenKind
	text string // as written, but a number as JSON and a text decoded
	key  string // a word in upper case, or a symbol
	at   int    // its first byte, from 1
}

// parser reads a query by recursive descent. After the first error, which fail records,
// the rest of the query reads as its end. Names are resolved late: in SELECT c.id FROM
// orders c the name c is read before FROM says what it is. So a path keeps a reference,
// whose slot checkNames sets.
type parser struct {
	text   string
	err    error
	token  token // the next one
	after  int   // the byte of text after it
	params map[string]values.Value
	now    *int64 // of GetCurrentDateTime, nil if it is not called
	nested int    // depth of expressions
	slots  int    // of items and elements
	scope
}

// scope is what the parser knows of a query or subquery. A subquery begins with an empty
// one, and the names that it leaves over go to the one around it.
type scope struct {
	q     Query
	sub   bool         // it is a subquery
	names []*reference // that paths begin with, and no source is known for yet
	outer []*reference // of FROM and JOIN, that only a query around it may know
	star  *reference   // of SELECT *

	selecting, aggregating bool   // in SELECT, in an aggregate's argument
	loose                  []int  // where SELECT has paths outside aggregates, negative for EXISTS
	spans                  []span // of expressions in SELECT outside aggregates
}

// reserved words are names only after a dot or AS.
var reserved = strings.Fields("SELECT DISTINCT TOP VALUE AS FROM IN JOIN WHERE AND OR NOT BETWEEN LIKE ESCAPE EXISTS ARRAY UDF GROUP ORDER BY RANK ASC DESC OFFSET LIMIT")

// maxCount limits TOP, OFFSET, LIMIT and the positions in arrays.
const maxCount = 1<<31 - 1

// fail records the error and moves to the end, where no rule accepts anything: so every
// loop of the parser ends, and no rule has to look at err.
func (p *parser) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf(format, args...)
	}
	p.token, p.after = token{}, len(p.text)
}

// tokens has a group for each kind of token, in their order. An escape in a string is one
// of JSON, or of a single quote.
var tokens = regexp.MustCompile(`^(?:([\pL_][\pL\p{Nd}_]*)|((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)` +
	`|("(?:[^"\\]|\\["'\\/bfnrt]|\\u[0-9a-fA-F]{4})*"|'(?:[^'\\]|\\["'\\/bfnrt]|\\u[0-9a-fA-F]{4})*')` +
	`|(@[\pL\p{Nd}_]+)|([<>!]=|<>|\|\||\?\?|.))`)

// window is the text that a token is sought in at first: tokens is fast in a short one.
const window = 256

// advance goes to the next token and returns the one before.
func (p *parser) advance() (passed token) {
	passed = p.token
	rest := skip(p.text[p.after:])
	p.token = token{at: len(p.text) - len(rest) + 1}
	if rest == "" {
		return passed
	}
	groups := tokens.FindStringSubmatchIndex(rest[:min(window, len(rest))])
	if groups[1] > window-utf8.UTFMax || groups[1] == 1 && strings.Contains(`"'`, rest[:1]) {
		groups = tokens.FindStringSubmatchIndex(rest)
	}
	for p.token.kind++; groups[2*p.token.kind] < 0; p.token.kind++ {
	}
	p.token.text, p.after = rest[:groups[1]], p.token.at-1+groups[1]
	switch p.token.kind {
	case word, symbol:
		p.token.key = strings.ToUpper(p.token.text)
	case number:
		p.number()
	case text:
		p.token.text = string(values.Unquote([]byte(p.token.text[1 : groups[1]-1])))
	}
	return passed
}

// skip returns text from its first token on: without white space and comments before it.
func skip(text string) string {
	for {
		text = strings.TrimLeft(text, " \t\r\n")
		after, found := "", strings.HasPrefix(text, "--")
		if found {
			_, after, _ = strings.Cut(text, "\n")
		} else if strings.HasPrefix(text, "/*") {
			_, after, found = strings.Cut(text[2:], "*/")
		}
		if !found {
			return text
		}
		text = after
	}
}

// number makes a number JSON, which has digits around a dot and no leading zeros.
func (p *parser) number() {
	f, err := strconv.ParseFloat(p.token.text, 64)
	if err != nil {
		p.fail("number %.40s at byte %d is out of range", p.token.text, p.token.at)
	} else if !json.Valid([]byte(p.token.text)) {
		p.token.text = string(encode(f))
	}
}

// is reports whether the next token is one of some keywords, in any case, or symbols.
func (p *parser) is(any ...string) bool { return slices.Contains(any, p.token.key) }

// accept passes the next token if it is the keyword.
func (p *parser) accept(keyword string) bool {
	found := p.is(keyword)
	if found {
		p.advance()
	}
	return found
}

// expect passes the keyword; anything else is an error.
func (p *parser) expect(keyword string) {
	if !p.accept(keyword) {
		p.unexpected(keyword)
	}
}

// unexpected is the error for the next token, where something else is wanted.
func (p *parser) unexpected(wanted string) {
	if p.token.kind == end {
		p.fail("the query ends where %s is expected", wanted)
	}
	if p.token.key == "'" || p.token.key == `"` {
		p.fail("the string at byte %d has no end, or an escape that JSON lacks", p.token.at)
	}
	p.fail("%.40q at byte %d is not served or wrong: %s is expected", p.token.text, p.token.at, wanted)
}

// named reports whether the next token is a word that is not reserved.
func (p *parser) named() bool { return p.token.kind == word && !p.is(reserved...) }

// name reads a word, even a reserved one.
func (p *parser) name() string {
	if p.token.kind != word {
		p.unexpected("a name")
	}
	return p.advance().text
}

// alias reads a name with or without AS, empty if there is none.
func (p *parser) alias() string {
	if p.accept("AS") || p.named() {
		return p.name()
	}
	return ""
}

// query reads a query or subquery. Clauses come in a fixed order, each at most once.
func (p *parser) query() {
	p.expect("SELECT")
	p.selection()
	if p.accept("FROM") {
		p.from()
	}
	if p.accept("WHERE") {
		p.q.where = p.expression()
	}
	p.grouping()
	if p.accept("ORDER") {
		p.expect("BY")
		p.ordering()
	}
	if p.accept("OFFSET") {
		p.q.skip = p.count("OFFSET")
		p.expect("LIMIT")
		p.q.end = min(p.q.end, p.q.skip+p.count("LIMIT")) // TOP comes first
	}
	p.checkNames()
}

// maxJoins limits the sources of a query after the first, as Cosmos DB does.
const maxJoins = 10

// from reads the sources after FROM, joined by JOIN. The first name of a query, not of a
// subquery, is the container's. Three forms of a source:
//
//	FROM c                 the item, named c
//	JOIN t IN c.tags       each element of an array, named t
//	FROM c.address a       a value of the item, named a
func (p *parser) from() {
	for first := true; first || p.accept("JOIN"); first = false {
		name := p.source()
		s := source{name: name.text}
		switch {
		case p.accept("IN"):
			s.of, s.each = p.path(p.source()), true
		case first && !p.sub && !p.is(".", "["):
			s.name = cmp.Or(p.alias(), s.name)
		default:
			s.of = p.path(name)
			last, _ := append([]any{s.name}, s.of.path...)[len(s.of.path)].(string)
			s.name = cmp.Or(p.alias(), last)
		}
		p.bind(s, first)
	}
}

// source reads the name of a source.
func (p *parser) source() token {
	if !p.named() {
		p.unexpected("a name")
	}
	return p.advance()
}

// bind adds a source, whose path begins with one before it.
func (p *parser) bind(s source, first bool) {
	switch {
	case s.of == nil:
	case first && !p.sub:
		s.of.root.slot = 0
	default:
		p.resolve()
		if s.of.root.slot == unknown {
			p.outer = append(p.outer, s.of.root)
		}
	}
	if s.of != nil {
		p.names = slices.DeleteFunc(p.names, func(r *reference) bool { return r == s.of.root })
		p.slots++
		s.slot = p.slots
	}
	if slices.ContainsFunc(p.q.sources, func(other source) bool { return other.name == s.name }) {
		p.fail("two names of FROM and JOIN are %.40q", s.name)
	}
	if p.q.sources = append(p.q.sources, s); len(p.q.sources) > maxJoins+1 {
		p.fail("the query has more than %d JOINs", maxJoins)
	}
}

// resolve finds the sources of names. Names without a source stay in the list.
func (p *parser) resolve() {
	p.names = slices.DeleteFunc(p.names, func(r *reference) bool {
		for _, s := range p.q.sources {
			if s.name == r.text {
				r.slot = s.slot
				return true
			}
		}
		return false
	})
}

// selection reads SELECT: how many rows, and what a row is.
func (p *parser) selection() {
	p.selecting = true
	p.q.distinct = p.accept("DISTINCT")
	if p.accept("TOP") {
		p.q.end = p.count("TOP")
	}
	switch p.q.value = p.accept("VALUE"); {
	case p.q.value:
		p.q.row = p.expression()
	case p.accept("*"):
		p.star = &reference{}
		p.q.row = pathOf(p.star, []any{})
	default:
		p.q.row = p.columns()
	}
	p.selecting = false
}

// span is where an expression is in the text, from byte from on.
type span struct{ from, to int }

// spell returns the text of a span with single blanks.
func (p *parser) spell(s span) string {
	if p.err != nil {
		return ""
	}
	return strings.Join(strings.Fields(p.text[s.from-1:s.to-1]), " ")
}

// grouping reads GROUP BY. Outside aggregates SELECT has only what GROUP BY has, spelled
// alike. Expressions are closures and cannot be compared, so their text decides which of
// SELECT is one of GROUP BY. covered marks the bytes of those that are. Each path outside
// aggregates must be within.
func (p *parser) grouping() {
	grouped := make(map[string]bool)
	if p.accept("GROUP") {
		p.expect("BY")
		for first := true; first || p.accept(","); first = false {
			at := p.token.at
			p.q.groupBy = append(p.q.groupBy, p.expression())
			grouped[p.spell(span{at, p.token.at})] = true
		}
		if p.star != nil || p.q.distinct || p.is("ORDER") {
			p.fail("GROUP BY is not served with SELECT *, DISTINCT and ORDER BY")
		}
	}
	if p.q.aggregates == nil && p.q.groupBy == nil || p.err != nil {
		return
	}
	covered := make([]bool, len(p.text)+2)
	for _, s := range p.spans {
		if grouped[p.spell(s)] {
			for at := s.from; at < s.to; at++ {
				covered[at] = true
			}
		}
	}
	for _, at := range p.loose {
		if at < 0 || !covered[at] {
			p.fail("the expression at byte %d is neither in an aggregate nor in GROUP BY: spell it as there", max(at, -at))
		}
	}
}

// columns reads the columns of SELECT. One without alias has the name of its last member
// or is numbered.
func (p *parser) columns() *expr {
	var names []string
	var columns []*expr
	taken := make(map[string]bool)
	unnamed := 0
	for first := true; first || p.accept(","); first = false {
		root := p.token.text
		e := p.expression()
		name := p.alias()
		if name == "" && e.path != nil {
			name, _ = append([]any{root}, e.path...)[len(e.path)].(string)
		}
		if name == "" {
			unnamed++
			name = fmt.Sprintf("$%d", unnamed)
		}
		if taken[name] {
			p.fail("two columns are named %.40q: give one of them another name by AS", name)
		}
		taken[name] = true
		names, columns = append(names, name), append(columns, e)
	}
	return objectOf(names, columns)
}

// ordering reads ORDER BY. An order by an expression is not served.
func (p *parser) ordering() {
	for first := true; first || p.accept(","); first = false {
		at := p.token.at
		path := p.expression()
		if path.path == nil {
			p.fail("ORDER BY at byte %d is not a path of the item: use one, such as c.a.b", at)
		}
		descending := p.accept("DESC")
		_ = descending || p.accept("ASC")
		p.q.orderBy = append(p.q.orderBy, order{path, descending})
	}
}

// count reads a number of rows.
func (p *parser) count(clause string) int {
	n, negative, ok := p.primary().literal.Integer()
	if !ok || negative || n > maxCount {
		p.fail("%s is not a number of rows: use 0 to %d", clause, maxCount)
	}
	return int(n)
}

// checkNames finds the sources of all names; what a subquery lacks may be known around it.
func (p *parser) checkNames() {
	switch {
	case p.star != nil && len(p.q.sources) > 1:
		p.fail("SELECT * of several names is not served: select them by name")
	case p.star != nil && len(p.q.sources) == 1:
		p.star.slot = p.q.sources[0].slot
	case len(p.q.sources) == 0 && p.q.row.path != nil && !p.sub, p.star != nil:
		p.fail("the query has no FROM")
	}
	p.resolve()
	p.names = append(p.names, p.outer...)
	if len(p.names) > 0 && !p.sub {
		p.fail("unknown name %.40q at byte %d: paths begin with a name of FROM or JOIN before them", p.names[0].text, p.names[0].at)
	}
}
