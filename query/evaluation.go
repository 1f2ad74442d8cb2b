package query

import (
	"context"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types/ref"

	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/values"
)

// evaluation is a condition with its params, put to one document after the
// other. It is what CEL takes its variables from.
type evaluation struct {
	*condition
	constants []constant
	ctx       context.Context // ends when the query has to
	err       error           // why the last test came to nothing

	body    []byte
	ts      int64
	version schema.Version
	found   values.Found
	looked  bool // found is of this document
	scratch []byte
	rawArgs values.Value
	args    ref.Val // params, when CEL first asks for them
}

func (c *condition) evaluate(ctx context.Context, params values.Value) *evaluation {
	if params == nil {
		params = values.Value("{}")
	}
	return &evaluation{condition: c, constants: c.bind(params), ctx: ctx, rawArgs: params}
}

// matches tells whether the condition is true for a document. An error says
// that it could not be told within the limits.
func (e *evaluation) matches(r projections.Record) (bool, error) {
	e.body, e.ts, e.version, e.looked = r.Body, r.TS, r.Version, false
	ok := e.predicate.test(e)
	return ok, e.err
}

// value returns the document's value at a path of the condition.
func (e *evaluation) value(slot int) values.Value {
	if !e.looked {
		e.paths.Find(e.body, e.ts, uint64(e.version), &e.found)
		e.looked = true
	}
	return e.found.Values[slot]
}

// whole returns all of the document, as clients see it.
func (e *evaluation) whole() values.Value {
	return schema.AppendReply(nil, e.body, e.ts, e.version)
}

// ResolveName gives CEL its variables.
func (e *evaluation) ResolveName(name string) (any, bool) {
	switch name {
	case varDocument:
		return documentValue{e}, true
	case varParams:
		if e.args == nil {
			e.args = json.value(e.rawArgs)
		}
		return e.args, true
	}
	return nil, false
}

// Parent is part of cel.Activation.
func (e *evaluation) Parent() cel.Activation { return nil }
