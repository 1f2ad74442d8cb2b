package query

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"

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

// constantSource says where a constant comes from: the expression, or params.
type constantSource struct {
	literal  operand
	members  []constantSource // of a list
	list     bool
	path     []string // below params
	inParams bool
}

// constant is one for a query's params.
type constant struct {
	operand
	members []operand       // of a list, each once
	keys    map[string]bool // of the members, where they are many
}

// fewMembers is up to how many members of a list are compared one by one.
const fewMembers = 8

// add adds a member to a list.
func (c *constant) add(o operand) {
	if o.kind == values.Missing {
		return // equal to nothing
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

// has tells whether a value is a member of a list. scratch is for its key.
func (c *constant) has(v values.Value, scratch *[]byte) bool {
	if c.keys == nil {
		return slices.ContainsFunc(c.members, func(o operand) bool { return valueEquals(v, &o) })
	}
	*scratch = values.AppendKey((*scratch)[:0], v)
	return c.keys[string(*scratch)]
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

// builder makes predicates of an expression.
type builder struct {
	*compiler
	info      *ast.SourceInfo
	slots     *slots
	constants []constantSource
	lastID    int64
}

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

// logical returns the predicate that && || ! or ?: make, nil for another call.
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
	return or{and{parts[0], parts[1]}, and{not{parts[0]}, parts[2]}}, nil
}

// native returns the predicate for a call that needs no CEL, or nil.
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

// constant notes a constant of the expression: a literal or a path below
// params, or a list of them if it is to be one.
func (b *builder) constant(e ast.Expr, list bool) (index int, ok bool) {
	source, ok := constantOf(e, list)
	if !ok {
		return 0, false
	}
	// What is named again and again is resolved once.
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
			one, ok := constantOf(element, false)
			if !ok {
				return source, false
			}
			source.members = append(source.members, one)
		}
		return source, len(e.AsList().OptionalIndices()) == 0
	}
	return constantSource{}, false
}

// bind resolves the constants for a query's params, an object or nil.
func (c *condition) bind(params values.Value) []constant {
	bound := make([]constant, len(c.constants))
	for i, source := range c.constants {
		if !source.list {
			bound[i].operand = source.resolve(params)
			continue
		}
		if source.inParams {
			v := find(params, source.path)
			v.Elements(func(element values.Value) bool {
				bound[i].add(operandOf(element))
				return true
			})
			v.Members(func(name []byte, _ values.Value) bool { // in a map are its names
				bound[i].add(operand{kind: values.String, text: name})
				return true
			})
		}
		for _, one := range source.members {
			bound[i].add(one.resolve(params))
		}
	}
	return bound
}

func (s *constantSource) resolve(params values.Value) operand {
	if !s.inParams {
		return s.literal
	}
	return operandOf(find(params, s.path))
}

// find returns what is at a path below v, an object.
func find(v values.Value, path []string) values.Value {
	for _, step := range path {
		parent := v
		v = nil
		parent.Members(func(name []byte, value values.Value) bool {
			if string(name) == step {
				v = value // the last one of a name counts
			}
			return true
		})
	}
	return v
}

// celPredicate is a part of a condition that CEL evaluates.
type celPredicate struct {
	program cel.Program
	loops   bool // has macros, which may take long
}

func (b *builder) byCEL(e ast.Expr) (predicate, error) {
	w := &rewriter{ExprFactory: ast.NewExprFactory(), slots: b.slots, last: b.lastID}
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

// errCost says that a condition cost more on one document than is allowed.
var errCost = errors.New("the condition costs too much")
