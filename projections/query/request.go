package query

import (
	"errors"
	"fmt"
	"strings"

	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/schema/values"
)

// Bounds of a request.
const (
	defaultLimit = 100
	maxLimit     = 1000
	maxOrderBy   = 16
	maxSelect    = 64
	// maxParams bounds the params, which conditions read repeatedly.
	maxParams = 256 << 10
)

// request is a client's query.
type request struct {
	where     string // "" matches every document
	params    values.Value
	orderBy   []order
	sel       *selection
	limit     int
	cursor    string
	count     bool
	explain   bool
	idPrefix  string // "" takes every id
	held      bool   // held documents only
	due       *due   // documents with a deadline only, in that order
	deadlines bool   // adds the member _deadline
}

// special reports whether the request says itself what to read, which needs no planner.
func (r *request) special() bool { return r.held || r.due != nil || r.idPrefix != "" }

// order is one part of an orderBy.
type order struct {
	path values.Pointer
	desc bool
}

// parseRequest reads the body of a query; an empty one matches everything. An unknown
// member is an error, since a misspelt one would change the answer. The request
// shares the body's memory.
func parseRequest(body []byte) (r request, fault *schema.Error) {
	r.limit = defaultLimit
	fault = schema.ReadObject("the query", body,
		schema.Text("where", &r.where), custom("params", r.parseParams), custom("orderBy", r.parseOrderBy), custom("select", r.parseSelect),
		schema.Whole("limit", &r.limit, maxLimit), schema.Text("cursor", &r.cursor), schema.Bool("count", &r.count), schema.Bool("explain", &r.explain),
		schema.Bool("deadlines", &r.deadlines), custom("due", r.parseDue), schema.Bool("held", &r.held), custom("idPrefix", r.parseIDPrefix))
	r.where = strings.TrimSpace(r.where)
	if fault == nil && r.count && r.cursor != "" {
		fault = schema.ErrBadRequest.With("count with a cursor: a count is of all pages, leave the cursor out")
	}
	if fault == nil && r.due != nil && len(r.orderBy) > 0 {
		fault = schema.ErrBadRequest.With("due with orderBy: what comes due is ordered by deadline and id, leave orderBy out")
	}
	if fault == nil && r.due != nil && r.idPrefix != "" {
		fault = schema.ErrBadRequest.With("due with idPrefix: what comes due is found by deadline, not by id, leave idPrefix out")
	}
	r.deadlines = r.deadlines || r.due != nil
	return r, fault
}

// custom is a member whose parser says what is allowed. Errors begin with the name, by
// which the console finds the field that they are about.
func custom(name string, parse func(values.Value) error) schema.Member {
	return schema.Member{Name: name, Read: func(value []byte) *schema.Error {
		err := parse(value)
		var fault *schema.Error
		if err == nil {
			return nil
		}
		if errors.As(err, &fault) { // of a part
			return fault.With("%s: %s", name, fault.Message)
		}
		return schema.ErrBadRequest.With("%s %s: %v", name, schema.Shown(value), err)
	}}
}

// parseParams reads the member params. Its members are checked when the condition is
// known.
func (r *request) parseParams(value values.Value) error {
	if r.params = value; value.Kind() != values.Object {
		return errors.New("use an object")
	}
	if len(value) > maxParams {
		return fmt.Errorf("at most %d bytes are allowed", maxParams)
	}
	return nil
}

func (r *request) parseIDPrefix(value values.Value) error {
	if fault := schema.Text("idPrefix", &r.idPrefix).Read(value); fault != nil || r.idPrefix == "" || len(r.idPrefix) > schema.MaxIDBytes {
		return fmt.Errorf("use a string of 1 to %d bytes, the first ones of the ids", schema.MaxIDBytes)
	}
	return nil
}

func (r *request) parseOrderBy(value values.Value) (err error) {
	form := errors.New(`use a list like [{"path":"/total","desc":true}]`)
	if value.Kind() != values.Array {
		return form
	}
	value.Elements(func(element values.Value) bool {
		var o order
		var path string
		if fault := schema.ReadObject("an element", element, schema.Text("path", &path), schema.Bool("desc", &o.desc)); fault != nil {
			err = fault
			return false
		}
		o.path, err = values.ParsePointer(path)
		if r.orderBy = append(r.orderBy, o); len(r.orderBy) > maxOrderBy {
			err = fmt.Errorf("at most %d paths are allowed", maxOrderBy)
		}
		return err == nil
	})
	return err
}

// parseSelect reads the member select; an empty list selects everything, as if it were
// absent.
func (r *request) parseSelect(value values.Value) (err error) {
	form := errors.New(`use a list of paths like ["/id","/address/city"]`)
	if value.Kind() != values.Array {
		return form
	}
	var pointers []values.Pointer
	value.Elements(func(element values.Value) bool {
		if element.Kind() != values.String {
			err = form
			return false
		}
		var pointer values.Pointer
		if pointer, err = values.ParsePointer(string(element.Text())); err != nil {
			return false
		}
		if pointers = append(pointers, pointer); len(pointers) > maxSelect {
			err = fmt.Errorf("at most %d paths are allowed", maxSelect)
		}
		return err == nil
	})
	if err == nil && len(pointers) > 0 {
		r.sel = newSelection(pointers)
	}
	return err
}
