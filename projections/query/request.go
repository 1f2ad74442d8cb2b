package query

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
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
	where     string // "" takes every document
	params    values.Value
	orderBy   []order
	sel       *selection
	limit     int
	cursor    string
	count     bool
	explain   bool
	held      bool // held documents only
	due       *due // documents with a deadline only, in that order
	deadlines bool // adds the member _deadline
}

// special reports whether the request has an order of its own, which needs no planner.
func (r *request) special() bool { return r.held || r.due != nil }

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
	query := values.Value(bytes.TrimSpace(body))
	if len(query) == 0 {
		return r, nil
	}
	if err := schema.CheckJSON(query); err != nil {
		return r, schema.ErrBadRequest.With("the query is not JSON of at most %d levels: %v", schema.MaxDepth, err)
	}
	if query.Kind() != values.Object {
		return r, schema.ErrBadRequest.With(`the query is not a JSON object: use one like {"where":"doc.total > 100","limit":10}`)
	}
	var seen []string
	query.Members(func(name []byte, value values.Value) bool {
		if slices.Contains(seen, string(name)) {
			fault = schema.ErrBadRequest.With("the query has the member %.80q twice", name)
			return false
		}
		seen = append(seen, string(name))
		if value.Kind() == values.Null {
			return true
		}
		err := r.parseMember(string(name), value)
		if errors.Is(err, errUnknownMember) {
			fault = schema.ErrBadRequest.With("unknown member %.80q of the query: use where, params, orderBy, select, limit, cursor, count, explain, deadlines, due and held", name)
		} else if err != nil {
			fault = schema.ErrBadRequest.With("%s %s: %v", name, schema.Shown(value), err)
		}
		return fault == nil
	})
	if fault == nil && r.count && r.cursor != "" {
		fault = schema.ErrBadRequest.With("count with a cursor: a count is of all pages, leave the cursor out")
	}
	if fault == nil && r.due != nil && len(r.orderBy) > 0 {
		fault = schema.ErrBadRequest.With("due with orderBy: what comes due is ordered by deadline and id, leave orderBy out")
	}
	r.deadlines = r.deadlines || r.due != nil
	return r, fault
}

var errUnknownMember = errors.New("unknown member")

// parseMember reads one member; the error names the allowed values.
func (r *request) parseMember(name string, value values.Value) (err error) {
	switch name {
	case "where":
		r.where, err = parseText(value)
		r.where = strings.TrimSpace(r.where)
	case "params":
		if r.params = value; value.Kind() != values.Object {
			return errors.New("use an object")
		}
		if len(value) > maxParams {
			return fmt.Errorf("at most %d bytes are allowed", maxParams)
		}
	case "orderBy":
		return r.parseOrderBy(value)
	case "select":
		return r.parseSelect(value)
	case "limit":
		n := value.Float() // 100.0 is 100
		if value.Kind() != values.Number || n < 1 || n > maxLimit || n != math.Trunc(n) {
			return fmt.Errorf("use a whole number from 1 to %d", maxLimit)
		}
		r.limit = int(n)
	case "cursor":
		r.cursor, err = parseText(value)
	case "count":
		r.count, err = parseBool(value)
	case "explain":
		r.explain, err = parseBool(value)
	case "due":
		r.due, err = parseDue(value)
	case "held":
		r.held, err = parseBool(value)
	case "deadlines":
		r.deadlines, err = parseBool(value)
	default:
		return errUnknownMember
	}
	return err
}

func parseText(value values.Value) (string, error) {
	if value.Kind() != values.String {
		return "", errors.New("use a string")
	}
	return string(value.Text()), nil
}

func parseBool(value values.Value) (bool, error) {
	if kind := value.Kind(); !isBool(kind) {
		return false, errors.New("use true or false")
	}
	return value.Kind() == values.True, nil
}

func (r *request) parseOrderBy(value values.Value) (err error) {
	form := errors.New(`use a list like [{"path":"/total","desc":true}]`)
	if value.Kind() != values.Array {
		return form
	}
	value.Elements(func(element values.Value) bool {
		var o order
		if element.Kind() != values.Object {
			err = form
		}
		element.Members(func(name []byte, v values.Value) bool {
			switch kind := v.Kind(); {
			case string(name) == "path" && kind == values.String:
				o.path, err = values.ParsePointer(string(v.Text()))
			case string(name) == "desc" && isBool(kind):
				o.desc = kind == values.True
			default:
				err = form
			}
			return err == nil
		})
		if err == nil && o.path == nil {
			err = form
		}
		if r.orderBy = append(r.orderBy, o); len(r.orderBy) > maxOrderBy {
			err = fmt.Errorf("at most %d paths are allowed", maxOrderBy)
		}
		return err == nil
	})
	return err
}

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
