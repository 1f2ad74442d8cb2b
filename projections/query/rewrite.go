package query

import (
	"errors"
	"fmt"
	"slices"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"

	"github.com/lapsedb/lapse/schema/values"
)

// The two variables of a condition.
const (
	varDocument = "doc"
	varParams   = "params"
)

// rewriter turns an expression into two-valued logic over paths of a document. It makes
// the part of a condition that CEL evaluates. The paths become calls that read a slot, the
// operators calls of functions that accept errors:
//
//	doc.items.exists(i, i.price > params.min)
//	    ─► @range(doc, @path(doc, 0)).exists(i, @gt(i.price, @param(doc, 0)))
//
// It only makes new expressions, each with an id of its own, and never changes the old
// ones.
type rewriter struct {
	ast.ExprFactory
	slots, params *slots // of paths below doc and params
	last          int64  // expression id
}

func (w *rewriter) id() int64 {
	w.last++
	return w.last
}

func (w *rewriter) call(function string, args ...ast.Expr) ast.Expr {
	return w.NewCall(w.id(), function, args...)
}

// isTrue rewrites an operand of a logical operator, so that anything but true is false.
func (w *rewriter) isTrue(e ast.Expr) ast.Expr { return w.call(fnTrue, e) }

// path returns a call that reads a path of the document by its slot.
func (w *rewriter) path(function string, path []string) ast.Expr {
	slot := w.NewLiteral(w.id(), types.Int(w.slots.of(path)))
	return w.call(function, w.NewIdent(w.id(), varDocument), slot)
}

// value rewrites an expression.
func (w *rewriter) value(e ast.Expr) ast.Expr {
	if path, ok := documentPath(e); ok {
		if len(path) == 0 {
			return w.call(fnDocument, w.NewIdent(w.id(), varDocument))
		}
		return w.path(fnPath, path)
	}
	if path, ok := pathBelow(varParams, e); ok {
		slot := w.NewLiteral(w.id(), types.Int(w.params.of(path)))
		return w.call(fnParam, w.NewIdent(w.id(), varDocument), slot)
	}
	switch e.Kind() {
	case ast.SelectKind:
		s := e.AsSelect()
		if !s.IsTestOnly() {
			return w.NewSelect(w.id(), w.value(s.Operand()), s.FieldName())
		}
		if path, ok := presencePath(e); ok {
			return w.path(fnPresent, path)
		}
		return w.isTrue(w.NewPresenceTest(w.id(), w.value(s.Operand()), s.FieldName()))
	case ast.CallKind:
		return w.function(e.AsCall())
	case ast.ListKind:
		return w.NewList(w.id(), w.all(e.AsList().Elements()), e.AsList().OptionalIndices())
	case ast.MapKind:
		var entries []ast.EntryExpr
		for _, entry := range e.AsMap().Entries() {
			m := entry.AsMapEntry()
			entries = append(entries, w.NewMapEntry(w.id(), w.value(m.Key()), w.value(m.Value()), m.IsOptional()))
		}
		return w.NewMap(w.id(), entries)
	case ast.ComprehensionKind:
		c := e.AsComprehension()
		return w.NewComprehension(w.id(), w.call(fnRange, w.NewIdent(w.id(), varDocument), w.value(c.IterRange())), c.IterVar(), c.AccuVar(),
			w.value(c.AccuInit()), w.value(c.LoopCondition()), w.value(c.LoopStep()), w.value(c.Result()))
	case ast.IdentKind:
		return w.NewIdent(w.id(), e.AsIdent())
	case ast.LiteralKind:
		return w.NewLiteral(w.id(), e.AsLiteral())
	}
	return w.CopyExpr(e)
}

func (w *rewriter) all(es []ast.Expr) (out []ast.Expr) {
	for _, e := range es {
		out = append(out, w.value(e))
	}
	return out
}

// function rewrites a call. What CEL returns as a boolean but may be an error, such as
// matches on a number, becomes false by isTrue.
func (w *rewriter) function(c ast.CallExpr) ast.Expr {
	args := w.all(c.Args())
	if c.IsMemberFunction() {
		call := w.NewMemberCall(w.id(), c.FunctionName(), w.value(c.Target()), args...)
		switch c.FunctionName() {
		case overloads.StartsWith, overloads.EndsWith, overloads.Contains, overloads.Matches,
			"isNaN", "isInf", "isFinite":
			return w.isTrue(call)
		}
		return call
	}
	name := c.FunctionName()
	if fn, ok := relationFunctions[name]; ok {
		return w.call(fn.name, args...)
	}
	if fn, ok := arithmeticFunctions[name]; ok {
		return w.call(fn.name, args...)
	}
	switch name {
	case operators.In, operators.OldIn:
		return w.call(fnMember, args...)
	case operators.LogicalAnd, operators.LogicalOr, operators.LogicalNot:
		for i := range args {
			args[i] = w.isTrue(args[i])
		}
	case operators.Conditional:
		args[0] = w.isTrue(args[0])
	case overloads.Matches:
		return w.isTrue(w.call(name, args...))
	case overloads.TypeConvertTimestamp:
		return w.call(fnTime, args...)
	}
	return w.call(name, args...)
}

// documentPath returns the path below doc of an expression like doc.a.b or
// doc['a'].b. It leaves a name that could be an array index to CEL, which knows the
// difference.
func documentPath(e ast.Expr) ([]string, bool) { return pathBelow(varDocument, e) }

// pathBelow returns the path below a variable. A name like '0' is left to CEL: in an array
// it is no index there, while in a JSON pointer it is.
func pathBelow(variable string, e ast.Expr) ([]string, bool) {
	var operand ast.Expr
	var name string
	switch e.Kind() {
	case ast.IdentKind:
		return nil, e.AsIdent() == variable
	case ast.SelectKind:
		if e.AsSelect().IsTestOnly() {
			return nil, false
		}
		operand, name = e.AsSelect().Operand(), e.AsSelect().FieldName()
	case ast.CallKind:
		c := e.AsCall()
		if c.FunctionName() != operators.Index || c.Args()[1].Kind() != ast.LiteralKind {
			return nil, false
		}
		text, ok := c.Args()[1].AsLiteral().(types.String)
		if !ok {
			return nil, false
		}
		operand, name = c.Args()[0], string(text)
	default:
		return nil, false
	}
	path, ok := pathBelow(variable, operand)
	if !ok || !(values.Pointer{name}).Plain() {
		return nil, false
	}
	return append(path, name), true
}

// presencePath returns the path in has(doc.a.b).
func presencePath(e ast.Expr) ([]string, bool) {
	if e.Kind() != ast.SelectKind || !e.AsSelect().IsTestOnly() {
		return nil, false
	}
	path, ok := documentPath(e.AsSelect().Operand())
	return append(path, e.AsSelect().FieldName()), ok
}

// unusable returns an error for a valid CEL expression that lapse refuses:
//
//   - a macro variable named doc or params: paths would ignore that it hides these
//   - a map with keys that are not literals: in {x: x}, {y: y} and so on each map doubles
//     the type, and with it the time to check it
//   - format: nothing bounds its result
func unusable(e ast.Expr) (err error) {
	ast.PreOrderVisit(e, ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.ComprehensionKind:
			for _, name := range []string{e.AsComprehension().IterVar(), e.AsComprehension().IterVar2()} {
				if name == varDocument || name == varParams {
					err = fmt.Errorf("%s is taken, name the variable of the macro otherwise", name)
				}
			}
		case ast.CallKind:
			if e.AsCall().FunctionName() == "format" {
				err = errors.New("format is not available: nothing bounds its result; use + and string()")
			}
		case ast.MapKind:
			for _, entry := range e.AsMap().Entries() {
				if entry.AsMapEntry().Key().Kind() != ast.LiteralKind {
					err = errors.New("the keys of a map have to be literals")
				}
			}
		}
	}))
	return err
}

// slots numbers the paths of a condition.
type slots struct {
	pointers []values.Pointer
	names    []string // of the pointers
}

// of returns the slot of a path, a new one if the condition has not named it yet.
func (s *slots) of(path []string) int {
	name := values.Pointer(path).String()
	if slot := slices.Index(s.names, name); slot >= 0 {
		return slot
	}
	s.pointers = append(s.pointers, slices.Clone(path))
	s.names = append(s.names, name)
	return len(s.names) - 1
}
