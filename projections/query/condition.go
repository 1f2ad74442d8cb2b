package query

import (
	"errors"
	"fmt"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"

	"github.com/lapsedb/lapse/schema/values"
)

// condition is a compiled where. It holds no document and no params, so several goroutines
// and a cache may share it. An evaluation binds it to both.
//
// && || ! and comparisons of a path with a constant are evaluated here, directly on the
// document's JSON; CEL evaluates the rest. A condition goes through these steps:
//
//	text ─► parse ─► unusable, parameters, footprint ─► copy ─► check (loosened) ─► predicates
//	         CEL                lapse                            CEL        builder, rewriter
//
// CEL checks one copy for unknown names and wrong calls; the predicates are made of the
// other, which loosen has not changed.
type condition struct {
	predicate  predicate
	names      []string // of its paths, as JSON pointers, by slot
	paths      *values.Paths
	params     []values.Pointer // that CEL reads, by slot
	parameters []string         // that params must have
	constants  []constantSource
	footprint  int // bytes, estimated
}

// compiler compiles conditions. There are two languages. Clients write in language;
// machine adds the functions with @ that the rewriter puts in. So a client cannot call
// those.
type compiler struct {
	nesting int // of conditions, at most

	language *cel.Env // of conditions
	machine  *cel.Env // of rewritten conditions
	options  []cel.ProgramOption
}

// interruptEvery is the number of macro iterations between two checks of the context.
const interruptEvery = 1

func newCompiler(l Limits) (*compiler, error) {
	language, err := cel.NewEnv(append(extensions(),
		cel.Variable(varDocument, cel.MapType(cel.StringType, cel.DynType)),
		cel.Variable(varParams, cel.MapType(cel.StringType, cel.DynType)),
		cel.CustomTypeAdapter(plain),
		cel.ParserExpressionSizeLimit(l.ExpressionBytes),
		cel.ParserRecursionLimit(l.Nesting),
		cel.ExpressionNodeLimit(maxNodes),
		cel.RegexProgramSizeLimit(maxRegexProgram),
	)...)
	if err != nil {
		return nil, err
	}
	machine, err := language.Extend(functions()...)
	if err != nil {
		return nil, err
	}
	return &compiler{nesting: l.Nesting, language: language, machine: machine, options: []cel.ProgramOption{
		cel.EvalOptions(cel.OptOptimize), // compiles regular expressions once
		cel.CostTracking(callCost{}),
		cel.CostLimit(l.Cost),
	}}, nil
}

// maxRegexProgram bounds a regular expression, in instructions.
const maxRegexProgram = 250

// maxNodes bounds an expression after macro expansion.
const maxNodes = 20_000

// compile compiles a condition. The error names the fault on one line. The order of the
// checks matters: all that bounds the work of the next step comes before it.
func (c *compiler) compile(where string) (*condition, error) {
	parsed, issues := c.language.Parse(where)
	if issues.Err() != nil {
		return nil, c.issue(issues, nil)
	}
	native := parsed.NativeRep()
	if err := unusable(native.Expr()); err != nil {
		return nil, err
	}
	needed, err := parameters(native.Expr())
	if err != nil {
		return nil, err
	}
	bytes, err := footprint(native.Expr())
	if err != nil {
		return nil, err
	}
	expression := ast.NewExprFactory().CopyExpr(native.Expr())
	loosen(native)
	checked, issues := c.language.Check(parsed)
	if issues.Err() != nil {
		return nil, c.issue(issues, native)
	}
	if t := checked.OutputType(); !t.IsExactType(cel.BoolType) && !t.IsExactType(cel.DynType) {
		return nil, fmt.Errorf("it is of type %s: a condition is true or false", t)
	} else if expression.Kind() == ast.CallKind && arithmeticFunctions[expression.AsCall().FunctionName()].apply != nil {
		return nil, errors.New("it is a number or a string: a condition is true or false")
	}
	b := &builder{
		compiler: c,
		info:     native.SourceInfo(),
		slots:    &slots{},
		params:   &slots{},
		lastID:   ast.MaxID(native),
	}
	p, err := b.predicate(expression)
	if err != nil {
		return nil, err
	}
	return &condition{predicate: p, names: b.slots.names, params: b.params.pointers, parameters: needed, paths: values.NewPaths(b.slots.pointers), constants: b.constants, footprint: bytes}, nil
}

// loosen makes CEL check names and functions but not operand types, which depend on
// the document. It wraps each operand of an operator in dyn(). Without it CEL would refuse
// size(doc.a) == 1.5: its == needs two operands of one type, where JSON has only one type
// of number.
func loosen(native *ast.AST) {
	factory, last := ast.NewExprFactory(), ast.MaxID(native)
	ast.PostOrderVisit(native.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.CallKind || e.AsCall().IsMemberFunction() {
			return
		}
		name := e.AsCall().FunctionName()
		if _, ok := relationFunctions[name]; !ok && arithmeticFunctions[name].apply == nil && name != operators.In {
			return
		}
		var args []ast.Expr
		for _, arg := range e.AsCall().Args() {
			last++
			args = append(args, factory.NewCall(last, overloads.TypeConvertDyn, factory.CopyExpr(arg)))
		}
		e.SetKindCase(factory.NewCall(e.ID(), name, args...))
	}))
}

// issue returns CEL's first error message, without the source excerpt, and with a hint for
// an unknown name in the expression, if that could be parsed.
func (c *compiler) issue(issues *cel.Issues, parsed *ast.AST) error {
	first := issues.Errors()[0]
	message := strings.Join(strings.Fields(first.Message), " ")
	message, _, _ = strings.Cut(message, " expecting ") // a list of all tokens of the grammar
	message = strings.TrimSuffix(message, " (in container '')")
	message = strings.NewReplacer("math.@min", "math.least", "math.@max", "math.greatest").Replace(message) // what the macros call
	name, function := identifier(parsed, first.ExprID)
	if function != "" && (name == "math" || name == "strings") {
		message = fmt.Sprintf("undeclared reference to '%s.%s'", name, function)
	} else if name != "" && strings.HasPrefix(message, "undeclared reference") {
		message += fmt.Sprintf(": write doc.%s for a member of the document, params.%s for a parameter, '%s' for a text", name, name, name)
	}
	if strings.Contains(message, "recursion") {
		message = fmt.Sprintf("it nests too deep, or chains too many operators: at most %d are allowed", c.nesting)
	}
	if first.Location.Line() < 1 {
		return errors.New(message)
	}
	return fmt.Errorf("line %d, column %d: %s", first.Location.Line(), first.Location.Column()+1, message)
}

// identifier returns the name if the expression is an identifier, else "", and the function
// that is called on it.
func identifier(in *ast.AST, id int64) (name, function string) {
	if in != nil {
		ast.PostOrderVisit(in.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
			if e.ID() == id && e.Kind() == ast.IdentKind {
				name = e.AsIdent()
			} else if e.Kind() == ast.CallKind && e.AsCall().IsMemberFunction() && e.AsCall().Target().ID() == id {
				function = e.AsCall().FunctionName()
			}
		}))
	}
	return name, function
}
