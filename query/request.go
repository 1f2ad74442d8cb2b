package query

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/values"
)

// Bounds of a request.
const (
	defaultLimit = 100
	maxLimit     = 1000
	maxOrderBy   = 16
	maxSelect    = 64
)

// request is what a client asks.
type request struct {
	where   string // "" takes every document
	params  values.Value
	orderBy []order
	sel     *selection
	limit   int
	cursor  string
	count   bool
	explain bool
}

// order is one part of an orderBy.
type order struct {
	path values.Pointer
	desc bool
}

// parseRequest reads the body of a query; an empty one asks for everything. A
// member it does not know is an error: a misspelt one would change the answer.
func parseRequest(body []byte) (r request, fault *schema.Error) {
	r.limit = defaultLimit
	if len(bytes.TrimSpace(body)) == 0 {
		return r, nil
	}
	var members map[string]stdjson.RawMessage
	if !schema.ValidJSON(body) || stdjson.Unmarshal(body, &members) != nil || members == nil {
		return r, schema.ErrBadRequest.With(`the query is not a JSON object: use one like {"where":"doc.total > 100","limit":10}`)
	}
	for _, name := range slices.Sorted(maps.Keys(members)) { // so that of two faults the same one is always named
		value := members[name]
		if string(value) == "null" {
			continue
		}
		var err error
		switch name {
		case "where":
			err = stdjson.Unmarshal(value, &r.where)
			r.where = strings.TrimSpace(r.where)
		case "params":
			if r.params = values.Value(value); r.params.Kind() != values.Object {
				err = errors.New("use an object")
			}
		case "orderBy":
			err = r.parseOrderBy(value)
		case "select":
			err = r.parseSelect(value)
		case "limit":
			err = r.parseLimit(value)
		case "cursor":
			err = stdjson.Unmarshal(value, &r.cursor)
		case "count":
			err = stdjson.Unmarshal(value, &r.count)
		case "explain":
			err = stdjson.Unmarshal(value, &r.explain)
		default:
			return r, schema.ErrBadRequest.With("unknown member %.80q of the query: use where, params, orderBy, select, limit, cursor, count and explain", name)
		}
		if err != nil {
			return r, schema.ErrBadRequest.With("%s %s: %s", name, schema.Shown(value), wanted(name, err))
		}
	}
	if r.count && r.cursor != "" {
		return r, schema.ErrBadRequest.With("count with a cursor: a count is of all pages, leave the cursor out")
	}
	return r, nil
}

// wanted says what a member may be: what encoding/json has to say is about Go.
func wanted(name string, err error) string {
	switch name {
	case "where", "cursor":
		return "use a string"
	case "count", "explain":
		return "use true or false"
	}
	return err.Error()
}

func (r *request) parseOrderBy(value []byte) error {
	const form = `use a list like [{"path":"/total","desc":true}]`
	var entries []map[string]any
	if stdjson.Unmarshal(value, &entries) != nil {
		return errors.New(form)
	}
	if len(entries) > maxOrderBy {
		return fmt.Errorf("at most %d paths are allowed", maxOrderBy)
	}
	for _, entry := range entries {
		var o order
		for member, v := range entry {
			ok := false
			switch member {
			case "path":
				var text string
				if text, ok = v.(string); ok {
					var err error
					if o.path, err = values.ParsePointer(text); err != nil {
						return err
					}
				}
			case "desc":
				o.desc, ok = v.(bool)
			}
			if !ok {
				return errors.New(form)
			}
		}
		if o.path == nil {
			return errors.New(form)
		}
		r.orderBy = append(r.orderBy, o)
	}
	return nil
}

func (r *request) parseSelect(value []byte) error {
	var paths []string
	if stdjson.Unmarshal(value, &paths) != nil {
		return errors.New(`use a list of paths like ["/id","/address/city"]`)
	}
	if len(paths) > maxSelect {
		return fmt.Errorf("at most %d paths are allowed", maxSelect)
	}
	var pointers []values.Pointer
	for _, path := range paths {
		pointer, err := values.ParsePointer(path)
		if err != nil {
			return err
		}
		pointers = append(pointers, pointer)
	}
	if len(pointers) > 0 {
		r.sel = newSelection(pointers)
	}
	return nil
}

func (r *request) parseLimit(value []byte) error {
	var n float64 // 100.0 is 100
	if err := stdjson.Unmarshal(value, &n); err != nil || n < 1 || n > maxLimit || n != math.Trunc(n) {
		return fmt.Errorf("use a whole number from 1 to %d", maxLimit)
	}
	r.limit = int(n)
	return nil
}
