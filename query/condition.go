package query

import (
	"errors"
	"fmt"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"

	"github.com/lapsedb/lapse/values"
)

// condition is a compiled where. It may be used by several goroutines.
//
// Its skeleton of && || ! and the comparisons of a path with a constant are
// evaluated here, straight from a document's JSON; whatever else there is in
// it, by CEL.
type condition struct {
	predicate predicate
	names     []string // of its paths, as JSON pointers, by slot
	paths     *values.Paths
	constants []constantSource
}

// compiler makes conditions.
type compiler struct {
	language *cel.Env // what a condition may say
	machine  *cel.Env // what it is made into
	options  []cel.ProgramOption
}

// interruptEvery is how many iterations of a macro go between two looks at the
// clock.
const interruptEvery = 100

func newCompiler(l Limits) (*compiler, error) {
	language, err := cel.NewEnv(append(mixedArithmetic(),
		cel.Variable(varDocument, cel.MapType(cel.StringType, cel.DynType)),
		cel.Variable(varParams, cel.MapType(cel.StringType, cel.DynType)),
		cel.CustomTypeAdapter(json),
		cel.CrossTypeNumericComparisons(true),
		cel.ParserExpressionSizeLimit(l.ExpressionBytes),
		cel.ParserRecursionLimit(l.Nesting),
		cel.RegexProgramSizeLimit(maxRegexProgram),
	)...)
	if err != nil {
		return nil, err
	}
	machine, err := language.Extend(functions()...)
	if err != nil {
		return nil, err
	}
	return &compiler{language: language, machine: machine, options: []cel.ProgramOption{
		cel.EvalOptions(cel.OptOptimize), // compiles regular expressions once
		cel.CostTracking(callCost{}),
		cel.CostLimit(l.Cost),
	}}, nil
}

// maxRegexProgram bounds a regular expression, in instructions.
const maxRegexProgram = 2000

// compile reads a condition. The error says what is wrong with it, on one line.
func (c *compiler) compile(where string) (*condition, error) {
	checked, issues := c.language.Compile(where)
	if issues.Err() != nil {
		return nil, issue(issues)
	}
	native := checked.NativeRep()
	if t := checked.OutputType(); !t.IsExactType(cel.BoolType) && !t.IsExactType(cel.DynType) {
		return nil, fmt.Errorf("it is of type %s: a condition is true or false", t)
	} else if e := native.Expr(); e.Kind() == ast.CallKind && arithmeticFunctions[e.AsCall().FunctionName()].apply != nil {
		return nil, errors.New("it is a number or a string: a condition is true or false")
	}
	if err := hidden(native.Expr()); err != nil {
		return nil, err
	}
	b := &builder{
		compiler: c,
		info:     native.SourceInfo(),
		slots:    &slots{},
		lastID:   ast.MaxID(native),
	}
	p, err := b.predicate(native.Expr())
	if err != nil {
		return nil, err
	}
	return &condition{predicate: p, names: b.slots.names, paths: values.NewPaths(b.slots.pointers), constants: b.constants}, nil
}

// issue is the first thing that CEL has to say, without its picture.
func issue(issues *cel.Issues) error {
	first := issues.Errors()[0]
	message := strings.Join(strings.Fields(first.Message), " ")
	message, _, _ = strings.Cut(message, " expecting ") // all that the grammar would take
	if first.Location.Line() < 1 {
		return errors.New(message)
	}
	return fmt.Errorf("line %d, column %d: %s", first.Location.Line(), first.Location.Column()+1, message)
}
