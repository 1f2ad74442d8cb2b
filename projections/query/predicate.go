package query

import (
	"bytes"

	"github.com/lapsedb/lapse/schema/values"
)

// predicate is a condition in two-valued logic: an error, or a missing value, is
// false, and its negation true. So the tests below return a boolean and no error. Where a
// limit is exceeded they set e.err and return anything: whoever called test looks at
// e.err.
type predicate interface {
	test(e *evaluation) bool
}

// These join predicates as && || ! and ?: do. CEL's own && and || may be true or false
// although one side is an error; that is the same here, since an error is false.
type (
	always bool
	not    struct{ of predicate }
	and    []predicate
	or     []predicate
	choice struct{ condition, then, otherwise predicate }
)

func (p always) test(*evaluation) bool { return bool(p) }
func (p not) test(e *evaluation) bool  { return !p.of.test(e) }

// test stops at the first part that is false, and looks at the context after each.
func (p and) test(e *evaluation) bool {
	for _, part := range p {
		if !part.test(e) || e.over() {
			return false
		}
	}
	return true
}

func (p or) test(e *evaluation) bool {
	for _, part := range p {
		if part.test(e) {
			return true
		}
		if e.over() {
			return false
		}
	}
	return false
}

func (p choice) test(e *evaluation) bool {
	if p.condition.test(e) {
		return p.then.test(e)
	}
	return p.otherwise.test(e)
}

// comparison compares doc.path with a constant.
type comparison struct {
	slot     int
	relation relation
	constant int
}

func (p comparison) test(e *evaluation) bool {
	return p.relation.holds(e.value(p.slot), &e.constants[p.constant].operand)
}

// pathComparison compares two paths of the document.
type pathComparison struct {
	left     int
	relation relation
	right    int
}

func (p pathComparison) test(e *evaluation) bool {
	right := operandOf(e.value(p.right))
	return p.relation.holds(e.value(p.left), &right)
}

// oneOf is doc.path in a constant list.
type oneOf struct{ slot, constant int }

func (p oneOf) test(e *evaluation) bool {
	return e.constants[p.constant].has(e.value(p.slot), &e.scratch)
}

// member is a constant in doc.path: an element of the array there, or the name
// of a member of the object.
type member struct{ constant, slot int }

// An object's members count by name, as in CEL's maps.
func (p member) test(e *evaluation) (found bool) {
	v, o := e.value(p.slot), &e.constants[p.constant].operand
	v.Elements(func(element values.Value) bool {
		found = valueEquals(element, o)
		return !found
	})
	if o.kind == values.String {
		v.Members(func(name []byte, _ values.Value) bool {
			found = bytes.Equal(name, o.text)
			return !found
		})
	}
	return found
}

// present is has(doc.path).
type present struct{ slot int }

func (p present) test(e *evaluation) bool { return len(e.value(p.slot)) > 0 }

// truth is doc.path itself as a condition.
type truth struct{ slot int }

func (p truth) test(e *evaluation) bool { return e.value(p.slot).Kind() == values.True }

// textTest is doc.path.startsWith(constant), endsWith or the like.
type textTest struct {
	slot     int
	function textFunction
	constant int
}

type textFunction byte

const (
	startsWith textFunction = iota
	endsWith
	contains
)

func (p textTest) test(e *evaluation) bool {
	v, o := e.value(p.slot), &e.constants[p.constant].operand
	if v.Kind() != values.String || o.kind != values.String {
		return false
	}
	switch text := v.Text(); p.function {
	case startsWith:
		return bytes.HasPrefix(text, o.text)
	case endsWith:
		return bytes.HasSuffix(text, o.text)
	default:
		return bytes.Contains(text, o.text)
	}
}
