package sql

import (
	"fmt"
	"math"
	"strings"

	"github.com/lapsedb/lapse/schema/values"
)

// Counts reports whether the query is SELECT VALUE COUNT(1): its only row is the number of items
// that satisfy its condition. Anything that changes the number of rows, such as a JOIN or
// TOP, excludes it.
func (q *Query) Counts() bool {
	return q.value && q.row.counts && len(q.sources) == 1 && q.sources[0].of == nil && q.groupBy == nil && q.skip == 0 && q.end == math.MaxInt
}

// CountsAll reports whether the query counts without a condition.
func (q *Query) CountsAll() bool { return q.Counts() && string(q.where.literal) == "true" }

// Condition returns the condition in lapse's language, over documents and an object of params,
// where it means the same. same says of which paths documents have what items have. For
// SELECT VALUE COUNT(1) FROM c WHERE c.total > 5 AND c.status IN ("new", "paid") it is
//
//	where   (doc["total"] > params.p0 && (doc["status"] == params.p1 || doc["status"] == params.p2))
//	params  {"p0":5,"p1":"new","p2":"paid"}
//
// The caller counts by it without looking at the items again, so ok is false wherever the
// two languages might differ.
func (q *Query) Condition(same func(values.Pointer) bool) (where string, params []byte, ok bool) {
	c := condition{same: same}
	if ok = c.add(q.where); !ok {
		return "", nil, false
	}
	return c.text.String(), append(append([]byte{'{'}, c.params...), '}'), true
}

// condition is one in the making.
type condition struct {
	same   func(values.Pointer) bool
	text   strings.Builder
	params []byte // members
	n      int    // of them
}

// PathOf writes a path in lapse's language. A name in brackets cannot be a keyword or an
// operator of CEL.
func PathOf(path values.Pointer) string {
	var b strings.Builder
	b.WriteString("doc")
	for _, name := range path {
		b.WriteString("[" + string(encode(name)) + "]")
	}
	return b.String()
}

// add appends an expression, unless it may mean something else: a comparison of a missing member
// is false in lapse and its negation true, so that NOT and != are not handed down.
func (c *condition) add(x *expr) bool {
	switch x.op {
	case "":
		c.text.WriteString("true")
		return string(x.literal) == "true"
	case "AND", "OR":
		return c.join(map[string]string{"AND": " && ", "OR": " || "}[x.op], len(x.args), func(i int) bool { return c.add(x.args[i]) })
	case "IN":
		return c.join(" || ", len(x.args)-1, func(i int) bool { return c.compare(x.args[0], "==", x.args[i+1].literal) })
	case "=":
		return c.compare(x.args[0], "==", x.args[1].literal)
	case "<", "<=", ">", ">=":
		v := x.args[1].literal
		return (v.Kind() == values.Number || v.Kind() == values.String) && c.compare(x.args[0], x.op, v)
	}
	return false
}

func (c *condition) join(operator string, n int, add func(i int) bool) bool {
	for i := range n {
		c.text.WriteString(map[bool]string{true: "(", false: operator}[i == 0])
		if !add(i) {
			return false
		}
	}
	c.text.WriteByte(')')
	return true
}

// compare appends the comparison of a path with a scalar. A value of a document is never
// part of the text: a parameter needs no quoting.
func (c *condition) compare(x *expr, operator string, v values.Value) bool {
	demanded := demand(x, literalOf(v))
	if v.Kind() >= values.Array || demanded == nil || demanded[0].root.slot != 0 || !demanded[0].Path.Plain() || !c.same(demanded[0].Path) {
		return false
	}
	fmt.Fprintf(&c.text, "%s %s params.p%d", PathOf(demanded[0].Path), operator, c.n)
	c.params = fmt.Appendf(c.params, `%s"p%d":%s`, map[bool]string{true: "", false: ","}[c.n == 0], c.n, v)
	c.n++
	return true
}
