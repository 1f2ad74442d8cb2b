package query

import (
	"context"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types/ref"

	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/schema/values"
)

// evaluation tests a condition with its params on one document after the other. CEL
// reads its variables from it. It is a query's own and not safe for concurrent use. What
// it allocates is reused for the next document.
type evaluation struct {
	*condition
	constants []constant
	ctx       context.Context // ends when the query must end
	err       error           // why the last test failed

	body     []byte
	ts       int64
	version  schema.Version
	found    values.Found
	searched bool // found belongs to this document
	scratch  []byte
	params   values.Value

	// Values already converted for CEL, by slot: a macro may read them in every
	// iteration.
	results, args []ref.Val
	whole         ref.Val
	adapter       adapter
	remaining     int // see maxTakenApart
}

// evaluate binds a condition to params. For worked see run.worked.
func (c *condition) evaluate(ctx context.Context, params values.Value, worked func(bytes int)) (*evaluation, *schema.Error) {
	if params == nil {
		params = values.Value("{}")
	}
	constants, fault := c.bind(params)
	if fault != nil {
		return nil, fault
	}
	e := &evaluation{
		condition: c, constants: constants, ctx: ctx, params: params,
		results: make([]ref.Val, len(c.names)), args: make([]ref.Val, len(c.params)),
	}
	e.adapter = adapter{plain.Adapter, &e.remaining, worked}
	e.found.Passed = worked
	return e, nil
}

// matches reports whether the condition is true for a document. An error means that a
// limit was exceeded. Everything of the document before goes first: results, the found
// values, the budget of bytes.
func (e *evaluation) matches(r projections.Record) (bool, error) {
	e.body, e.ts, e.version, e.searched, e.whole = r.Body, r.TS, r.Version, false, nil
	clear(e.results)
	e.remaining = maxTakenApart
	ok := e.predicate.test(e)
	return ok, e.err
}

// over reports whether the evaluation must stop: after an error, or because the query
// must end. It looks after each part of a condition: one may be a regular expression on a
// long text.
func (e *evaluation) over() bool {
	if e.err == nil {
		e.err = e.ctx.Err()
	}
	return e.err != nil
}

// value returns the document's value at a path of the condition. It searches the document
// once, at the first path that a test needs. A condition like doc.a == 1 || doc.b == 2 so
// finds both in one pass, though b may not be needed.
func (e *evaluation) value(slot int) values.Value {
	if !e.searched {
		e.paths.Find(e.body, e.ts, uint64(e.version), &e.found)
		e.searched = true
	}
	return e.found.Values[slot]
}

// result is value, converted for CEL.
func (e *evaluation) result(slot int) ref.Val {
	if e.results[slot] == nil {
		e.results[slot] = e.adapter.value(e.value(slot))
	}
	return e.results[slot]
}

// param returns the value at a path below params.
func (e *evaluation) param(slot int) ref.Val {
	if e.args[slot] == nil {
		e.args[slot] = e.adapter.value(e.params.At(e.condition.params[slot]))
	}
	return e.args[slot]
}

// document returns the whole document as clients see it, converted for CEL.
func (e *evaluation) document() ref.Val {
	if e.whole == nil {
		e.whole = e.adapter.value(schema.AppendReply(nil, e.body, e.ts, e.version))
	}
	return e.whole
}

// ResolveName resolves the one variable of a rewritten condition, which gives our
// functions the document and params.
func (e *evaluation) ResolveName(name string) (any, bool) {
	return documentValue{e}, name == varDocument
}

// Parent is part of cel.Activation.
func (e *evaluation) Parent() cel.Activation { return nil }
