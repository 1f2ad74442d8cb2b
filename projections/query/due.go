package query

import (
	"encoding/binary"
	"errors"
	"math"
	"time"

	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/schema/values"
)

// due is the part of a request that asks for documents by their deadline. A deadline is a
// whole second. For {"from":"24h","until":"2015-05-17T10:05:03.5Z"} from is relative to
// now, and until is 10:05:04: rounding up excludes no deadline that is before it.
type due struct {
	from, until timeBound
	text        values.Value // as written, for the cursor
}

// timeBound is a unix second, or a duration from now.
type timeBound struct {
	given, relative bool
	seconds         int64
}

// resolve returns the second, or otherwise if the request leaves it out.
func (m timeBound) resolve(now, otherwise int64) int64 {
	switch {
	case !m.given:
		return otherwise
	case m.relative:
		return now + m.seconds
	}
	return m.seconds
}

// parseDue reads the member due.
func (r *request) parseDue(value values.Value) error {
	r.due = &due{text: value}
	fault := schema.ReadObject("the object", value,
		custom("from", r.due.from.parse), custom("until", r.due.until.parse))
	if fault != nil {
		return fault
	}
	return nil
}

// parse reads from or until; relative times stay relative, so that a page later in time
// asks for the same span from its own now.
func (m *timeBound) parse(v values.Value) error {
	switch v.Kind() {
	case values.Number:
		if n := v.Float(); n == math.Trunc(n) && math.Abs(n) <= 1<<53 {
			*m = timeBound{given: true, seconds: int64(n)}
			return nil
		}
	case values.String:
		if n, err := schema.ParseSpan(string(v.Text())); err == nil {
			*m = timeBound{given: true, relative: true, seconds: n}
			return nil
		}
		if t, err := schema.ParseTime(string(v.Text())); err == nil {
			*m = timeBound{given: true, seconds: t.Add(time.Second - 1).Unix()} // no deadline is within a second
			return nil
		}
	}
	return errors.New(`use unix seconds, a time like "2015-05-17T10:05:03Z", or a length of time from now like "90s", "24h" or "30d"`)
}

// eachDue is each for a request by deadline: it visits by deadline and id, and the key of
// a position is the deadline. Only the id of a position counts among documents due at the
// deadline of the key.
func (r *run) eachDue(after *position, visit func(*candidate) (bool, error)) (err error) {
	// Documents due by now are expired.
	from := max(r.request.due.from.resolve(r.now, 0), r.now+1)
	until := r.request.due.until.resolve(r.now, math.MaxInt64)
	var id schema.DocumentID
	if after != nil {
		if len(after.key) != 8 {
			return errCursor
		}
		if at := int64(binary.BigEndian.Uint64(after.key)); at >= from {
			from, id = at, schema.DocumentID(after.id)
		}
	}
	entries := r.view.Due(from, id, until)
	defer func() { err = errors.Join(err, entries.Close()) }()
	next := func() ([]byte, bool) {
		if !entries.Next() {
			return nil, false
		}
		return entries.ID(), true
	}
	read := r.view.Document
	if r.where == nil && r.request.count {
		read = nil
	}
	return r.eachID(next, read, func(c *candidate) (bool, error) {
		c.key = binary.BigEndian.AppendUint64(c.key[:0], uint64(entries.Deadline()))
		return visit(c)
	})
}
