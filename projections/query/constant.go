package query

import (
	"slices"

	"cel.dev/cel-go/common/ast"

	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/schema/values"
)

// constantSource is the origin of a constant: the expression, or params. For where doc.a
// in [1, params.b] there is one source, a list with two members: the literal 1 and the
// path ["b"] in params.
type constantSource struct {
	literal  operand
	members  []constantSource // of a list
	list     bool
	path     []string // below params
	inParams bool
}

// constant is a constant resolved for a query's params. Short lists are compared one by
// one, since that decodes only as much of a value as differs. Beyond fewMembers a value's
// key is looked up in keys.
type constant struct {
	operand
	members []operand       // of a list
	keys    map[string]bool // of the members, beyond fewMembers
	broken  bool            // a member of the list is missing, so the list contains nothing
}

// fewMembers is the longest list whose members are compared one by one.
const fewMembers = 8

// add adds a member to a list. Duplicates are dropped beyond fewMembers only: below they
// cost less than finding them.
func (c *constant) add(o operand) {
	if o.kind == values.Missing {
		c.broken = true
		return
	}
	if len(c.members) >= fewMembers && c.keys == nil {
		c.keys = make(map[string]bool)
		for i := range c.members {
			c.keys[string(c.members[i].appendKey(nil))] = true
		}
	}
	if c.keys != nil {
		key := o.appendKey(nil)
		if c.keys[string(key)] {
			return
		}
		c.keys[string(key)] = true
	}
	c.members = append(c.members, o)
}

// has reports whether a value is a member of a list. scratch is for its key.
func (c *constant) has(v values.Value, scratch *[]byte) bool {
	if c.broken {
		return false
	}
	if c.keys == nil {
		return slices.ContainsFunc(c.members, func(o operand) bool { return valueEquals(v, &o) })
	}
	*scratch = values.AppendKey((*scratch)[:0], v)
	return c.keys[string(*scratch)]
}

// constant registers a constant of the expression: a literal, a path below params, or
// a list of them if list is set.
func (b *builder) constant(e ast.Expr, list bool) (index int, ok bool) {
	source, ok := constantOf(e, list)
	if !ok {
		return 0, false
	}
	// Repeated constants are resolved once.
	if source.inParams {
		for i, known := range b.constants {
			if known.inParams && known.list == list && slices.Equal(known.path, source.path) {
				return i, true
			}
		}
	}
	b.constants = append(b.constants, source)
	return len(b.constants) - 1, true
}

// constantOf returns the source of a constant expression; ok is false for any other
// expression.
func constantOf(e ast.Expr, list bool) (constantSource, bool) {
	if path, ok := pathBelow(varParams, e); ok && len(path) > 0 {
		return constantSource{path: path, inParams: true, list: list}, true
	}
	switch {
	case e.Kind() == ast.LiteralKind && !list:
		o, ok := operandOfResult(e.AsLiteral())
		return constantSource{literal: o}, ok && o.kind != values.Missing
	case e.Kind() == ast.ListKind && list:
		source := constantSource{list: true}
		for _, element := range e.AsList().Elements() {
			member, ok := constantOf(element, false)
			if !ok {
				return source, false
			}
			source.members = append(source.members, member)
		}
		return source, len(e.AsList().OptionalIndices()) == 0
	}
	return constantSource{}, false
}

// bind resolves the constants for a query's params, an object or nil. A missing single
// constant stays Missing: each comparison with it is false, and its negation true.
func (c *condition) bind(params values.Value) ([]constant, *schema.Error) {
	bound := make([]constant, len(c.constants))
	room := maxParams
	for i, source := range c.constants {
		if !source.list {
			bound[i].operand = source.resolve(params, &room)
			continue
		}
		if source.inParams {
			v := params.At(source.path)
			v.Elements(func(element values.Value) bool {
				bound[i].add(operandOf(element))
				return true
			})
			v.Members(func(name []byte, _ values.Value) bool { // a map's members are its names
				bound[i].add(operand{kind: values.String, text: name})
				return true
			})
		}
		for _, member := range source.members {
			bound[i].add(member.resolve(params, &room))
		}
	}
	if room < 0 {
		return nil, schema.ErrBadQuery.With("where: the arrays and objects of params that it compares have more than %d bytes, counting those within others again: compare fewer that contain each other", maxParams)
	}
	return bound, nil
}

// resolve returns the operand. It subtracts the bytes of an array or object of params from
// room, and resolves none beyond it: each has a key of its own, even if another contains it.
func (s *constantSource) resolve(params values.Value, room *int) operand {
	if !s.inParams {
		return s.literal
	}
	v := params.At(s.path)
	if kind := v.Kind(); kind == values.Array || kind == values.Object {
		if *room -= len(v); *room < 0 {
			return operand{}
		}
	}
	return operandOf(v)
}
