package schema

import (
	"math"
	"strconv"

	"github.com/lapsedb/lapse/schema/values"
)

// ClockMove is a request to move the clock of a database: exactly one of By, To and Due. A
// pointer is nil for a member that is absent: {"by":0} moves by nothing, and {} is an
// error.
type ClockMove struct {
	By  *int64 // seconds
	To  *int64 // Unix ms
	Due bool   // to the next second at which something is due
}

// ParseClockMove reads the body of a request to move a clock. Of {"by":"30m"},
// {"by":1800}, {"to":"2015-05-17T10:05:03Z"}, {"to":1431857103} and {"to":"due"} each is
// legal, and any two together are not.
func ParseClockMove(raw []byte) (m ClockMove, fault *Error) {
	fault = ReadObject("the move", raw,
		Member{Name: "by", Null: true, Read: func(value []byte) *Error {
			n, err := strconv.ParseFloat(string(value), 64)
			if text, quoted := decodeString(value); quoted == nil && span.MatchString(text) {
				seconds, bad := ParseSpan(text)
				n, err = float64(seconds), bad
			}
			if err != nil || n < 0 || n > MaxTime/1000 || n != math.Trunc(n) {
				return WrongValue("by", value, `whole seconds of 0 or more, or a duration like "90s", "1h30m" or "30d"`)
			}
			m.By = new(int64(n))
			return nil
		}},
		Member{Name: "to", Null: true, Read: func(value []byte) (fault *Error) {
			if m.Due = isString(value, "due"); m.Due {
				return nil
			}
			m.To, fault = parseMoment("to", value, `, or "due"`)
			return fault
		}})
	if fault == nil && (m.By != nil) == (m.To != nil || m.Due) {
		fault = ErrBadRequest.With("a move has either by or to: use one of them")
	}
	return m, fault
}

// ParseClockStart reads the body of a request to open a database; at is the time in Unix ms at
// which its clock begins, nil for none.
func ParseClockStart(raw []byte) (at *int64, fault *Error) {
	fault = ReadObject("the database to open", raw, Member{Name: "at", Read: func(value []byte) (fault *Error) {
		at, fault = parseMoment("at", value, "")
		return fault
	}})
	return at, fault
}

// parseMoment reads a time as RFC 3339 or Unix seconds, from 1970 to 9999, and returns Unix ms.
// or is what an error names besides.
func parseMoment(name string, value []byte, or string) (*int64, *Error) {
	ms := int64(-1)
	if values.Value(value).Kind() == values.Number {
		if n, err := strconv.ParseFloat(string(value), 64); err == nil && n >= 0 && n <= MaxTime/1000 && n == math.Trunc(n) {
			ms = int64(n) * 1000
		}
	} else if text, err := decodeString(value); err == nil {
		if t, err := ParseTime(text); err == nil {
			ms = t.UnixMilli()
		}
	}
	if ms < 0 || ms > MaxTime {
		return nil, WrongValue(name, value, "a time like 2015-05-17T10:05:03Z or Unix seconds, from 1970 to 9999"+or)
	}
	return &ms, nil
}
