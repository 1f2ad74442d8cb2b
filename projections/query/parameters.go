package query

import (
	"errors"
	"slices"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"

	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/schema/values"
)

// parameters returns the members that params must have: those that the expression names, as
// params.a or params['a'], and does not ask for by has(params.a). A name that has() asks
// for anywhere is optional everywhere, since the expression may test it before it uses it.
func parameters(e ast.Expr) (names []string, err error) {
	optional := map[string]bool{}
	ast.PreOrderVisit(e, ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.SelectKind:
			switch s := e.AsSelect(); {
			case !isParams(s.Operand()):
			case s.IsTestOnly():
				optional[s.FieldName()] = true
			default:
				names = append(names, s.FieldName())
			}
		case ast.CallKind:
			c := e.AsCall()
			if c.FunctionName() != operators.Index || !isParams(c.Args()[0]) {
				return
			}
			if c.Args()[1].Kind() != ast.LiteralKind {
				err = errors.New("an index into params has to be a literal, like params['a']: put an object below a parameter to look up in it")
			} else if name, ok := c.Args()[1].AsLiteral().(types.String); ok {
				names = append(names, string(name))
			}
		}
	}))
	return slices.DeleteFunc(names, func(name string) bool { return optional[name] }), err
}

func isParams(e ast.Expr) bool { return e.Kind() == ast.IdentKind && e.AsIdent() == varParams }

// given returns an error for a parameter that the condition needs and params, an object or
// nil, lacks: a comparison with it would be false, and its negation true of every document.
func (c *condition) given(params values.Value) *schema.Error {
	for _, name := range c.parameters {
		if params == nil || params.At([]string{name}).Kind() == values.Missing {
			return schema.ErrBadQuery.With("where: it names the parameter %.40q, which params lacks: give params this member, or test it by has()", name)
		}
	}
	return nil
}
