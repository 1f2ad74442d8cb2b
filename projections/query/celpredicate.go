package query

import (
	"context"
	"errors"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"
)

// celPredicate is a part of a condition that CEL evaluates. It is a subtree of the
// condition as a CEL program. A program without macros takes a time that its cost bounds,
// so only those with macros check the context while they run.
type celPredicate struct {
	program cel.Program
	loops   bool // has macros, which may take long
}

// byCEL compiles an expression that no native predicate covers. Expression ids go on from
// b.lastID, so that they are unique in the condition.
func (b *builder) byCEL(e ast.Expr) (predicate, error) {
	w := &rewriter{ExprFactory: ast.NewExprFactory(), slots: b.slots, params: b.params, last: b.lastID}
	rewritten := w.value(e)
	b.lastID = w.last
	options := b.options
	p := celPredicate{}
	ast.PostOrderVisit(rewritten, ast.NewExprVisitor(func(e ast.Expr) {
		p.loops = p.loops || e.Kind() == ast.ComprehensionKind
	}))
	if p.loops {
		options = append([]cel.ProgramOption{cel.InterruptCheckFrequency(interruptEvery)}, options...)
	}
	program, err := b.machine.PlanProgram(ast.NewAST(rewritten, b.info), options...)
	if err != nil {
		return nil, errors.New(strings.Join(strings.Fields(err.Error()), " "))
	}
	p.program = program
	return p, nil
}

// test is false for any error of CEL. An exceeded limit is not one of the condition but of
// the query: it goes to e.err and ends the query.
func (p celPredicate) test(e *evaluation) bool {
	if e.err != nil {
		return false
	}
	if e.err = e.ctx.Err(); e.err != nil {
		return false
	}
	var result ref.Val
	var err error
	if p.loops {
		result, _, err = p.program.ContextEval(e.ctx, e)
	} else {
		result, _, err = p.program.Eval(e)
	}
	if err == nil {
		return result == types.True
	}
	var cancelled interpreter.EvalCancelledError
	switch {
	case errors.As(err, &cancelled) && cancelled.Cause == interpreter.CostLimitExceeded:
		e.err = errCost
	case errors.Is(err, interpreter.InterruptError{}) || e.ctx.Err() != nil:
		e.err = context.Cause(e.ctx)
	}
	return false
}

// errCost means that a condition exceeded Limits.Cost on one document.
var errCost = errors.New("the condition costs too much")
