package query

import (
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
)

// builder turns an expression into predicates. It divides a condition into what runs here
// and what runs in CEL. For
//
//	doc.total > params.min && doc.name.matches('^A') && !doc.gone
//
// it makes
//
//	and{comparison{/total > min}, celPredicate{matches}, not{truth{/gone}}}
//
// A native predicate reads the bytes of the document; CEL first has to convert the values
// that it reads.
//
// Paths are numbered in slots, so that one pass over a document finds the values of all of
// them.
type builder struct {
	*compiler
	info      *ast.SourceInfo
	slots     *slots // of paths below doc
	params    *slots // of paths below params that CEL reads
	constants []constantSource
	lastID    int64
}

// predicate returns the predicate of an expression. What it does not know goes to CEL, a
// whole subtree at a time.
func (b *builder) predicate(e ast.Expr) (predicate, error) {
	if path, ok := documentPath(e); ok && len(path) > 0 {
		return truth{b.slots.of(path)}, nil
	}
	if path, ok := presencePath(e); ok {
		return present{b.slots.of(path)}, nil
	}
	if e.Kind() == ast.LiteralKind {
		return always(e.AsLiteral() == types.True), nil
	}
	if e.Kind() == ast.CallKind {
		if p, err := b.logical(e.AsCall()); p != nil || err != nil {
			return p, err
		}
		if p := b.native(e.AsCall()); p != nil {
			return p, nil
		}
	}
	return b.byCEL(e)
}

// logical returns the predicate of && || ! or ?:, nil for any other call.
func (b *builder) logical(c ast.CallExpr) (predicate, error) {
	name := c.FunctionName()
	switch name {
	case operators.LogicalAnd, operators.LogicalOr, operators.LogicalNot, operators.Conditional:
	default:
		return nil, nil
	}
	var parts []predicate
	for _, arg := range c.Args() {
		part, err := b.predicate(arg)
		if err != nil {
			return nil, err
		}
		// a && b && c comes as a tree.
		switch inner := part.(type) {
		case and:
			if name == operators.LogicalAnd {
				parts = append(parts, inner...)
				continue
			}
		case or:
			if name == operators.LogicalOr {
				parts = append(parts, inner...)
				continue
			}
		}
		parts = append(parts, part)
	}
	switch name {
	case operators.LogicalAnd:
		return and(parts), nil
	case operators.LogicalOr:
		return or(parts), nil
	case operators.LogicalNot:
		return not{parts[0]}, nil
	}
	return choice{parts[0], parts[1], parts[2]}, nil
}

// native returns the predicate for a call that needs no CEL, or nil. It compares a path
// with a constant, or two paths. Any other operand could be of a type that only CEL has.
func (b *builder) native(c ast.CallExpr) predicate {
	name, args := c.FunctionName(), c.Args()
	if c.IsMemberFunction() {
		args = append([]ast.Expr{c.Target()}, args...)
	}
	if len(args) != 2 {
		return nil
	}
	path, isPath := documentPath(args[0])
	isPath = isPath && len(path) > 0
	other, otherIsPath := documentPath(args[1])
	otherIsPath = otherIsPath && len(other) > 0
	if fn, ok := relationFunctions[name]; ok {
		switch {
		case isPath && otherIsPath:
			return pathComparison{b.slots.of(path), fn.relation, b.slots.of(other)}
		case isPath:
			if constant, ok := b.constant(args[1], false); ok {
				return comparison{b.slots.of(path), fn.relation, constant}
			}
		case otherIsPath:
			if constant, ok := b.constant(args[0], false); ok {
				return comparison{b.slots.of(other), fn.relation.flipped(), constant}
			}
		}
		return nil
	}
	switch name {
	case operators.In, operators.OldIn:
		if isPath && !otherIsPath {
			if constant, ok := b.constant(args[1], true); ok {
				return oneOf{b.slots.of(path), constant}
			}
		}
		if otherIsPath && !isPath {
			if constant, ok := b.constant(args[0], false); ok {
				return member{constant, b.slots.of(other)}
			}
		}
	case overloads.StartsWith, overloads.EndsWith, overloads.Contains:
		if isPath && !otherIsPath {
			function := map[string]textFunction{overloads.StartsWith: startsWith, overloads.EndsWith: endsWith, overloads.Contains: contains}[name]
			if constant, ok := b.constant(args[1], false); ok {
				return textTest{b.slots.of(path), function, constant}
			}
		}
	}
	return nil
}
