package schema

import (
	"math"
	"strconv"

	"github.com/lapsedb/lapse/schema/values"
)

// End is the end that a write gives its document in place of a ttl, which is computed at
// log time: no client's clock matters. An application that knows when a session ends sends
// that second. The machine makes a ttl of it: At minus the _ts of the write, or with Keep
// the deadline of the live document minus that _ts.
type End struct {
	Given bool
	At    int64 // unix seconds, if Given; math.MaxInt64 for any that are more
	Keep  bool  // keep the deadline that the live document has
}

// given is an End as written, by the names under which it was. A header is
// "Lapse-Expire-At", a member of a batch "expireAt"; an error names what the client wrote.
type given struct{ atName, at, keepName, keep string }

// setEnd sets the End of a checked mutation. A value that is empty was not given. The
// order of the cases is that of the contract's checks: a Fault from before stays, then the
// operation must allow an End, then its value must be legal, then nothing may contradict
// it.
func (m *Mutation) setEnd(g given) {
	if g.at == "" && g.keep == "" {
		return
	}
	fault := g.read(&m.End)
	name := g.first()
	switch ends := m.Op == DocumentCreate || m.Op == DocumentReplace || m.Op == DocumentUpsert || m.Op == DocumentPatch; {
	case m.Fault != nil:
		return
	case !ends || m.Op == DocumentCreate && g.keep != "":
		if ends {
			name = g.keepName
		}
		fault = notForOperation(name, m.Op.String())
	case fault != nil:
	case g.at != "" && g.keep != "":
		fault = ErrBadRequest.With("%s and %s contradict each other: give one of them", g.atName, g.keepName)
	case m.Document.HasTTL:
		fault = ErrBadRequest.With("%s and the member ttl contradict each other: give one of them", name)
	}
	m.Fault = fault
}

// first returns the name of a value that was given.
func (g *given) first() string {
	if g.at == "" {
		return g.keepName
	}
	return g.atName
}

// read sets end from the values; digits alone are legal, so that no sign, blank or
// exponent is.
func (g *given) read(end *End) *Error {
	if g.at != "" {
		for _, c := range []byte(g.at) {
			if c < '0' || c > '9' {
				return ErrBadRequest.With("%s is %.40q: use unix seconds in decimal digits", g.atName, g.at)
			}
		}
		end.Given = true
		var err error
		if end.At, err = strconv.ParseInt(g.at, 10, 64); err != nil {
			end.At = math.MaxInt64 // too far away, which is another error
		}
	}
	if g.keep != "" && g.keep != "true" {
		return ErrBadRequest.With("%s is %.40q: use true, or leave it out", g.keepName, g.keep)
	}
	end.Keep = g.keep != ""
	return nil
}

// notForOperation is the error for an End on an operation that writes no content.
func notForOperation(name, op string) *Error {
	if name == HeaderKeepDeadline || name == memberKeepDeadline {
		return ErrBadRequest.With("%s is for replace, upsert and patch of a document, not for %s", name, op)
	}
	return ErrBadRequest.With("%s is for create, replace, upsert and patch of a document, not for %s", name, op)
}

// CheckNoEnd refuses the headers of an End on an operation that is no single mutation.
func (own Header) CheckNoEnd(op string) *Error {
	for _, name := range [...]string{HeaderExpireAt, HeaderKeepDeadline} {
		if len(own[name]) > 0 {
			return notForOperation(name, op)
		}
	}
	return nil
}

// Members of an operation in a batch or a line for simulate.
const (
	memberExpireAt     = "expireAt"
	memberKeepDeadline = "keepDeadline"
)

// setValue sets a member to its JSON value.
func (g *given) setValue(name string, value []byte) {
	if name == memberExpireAt {
		g.atName, g.at = name, string(value)
		// 1.7e9 is 1700000000.
		if n, err := strconv.ParseFloat(g.at, 64); err == nil && values.Value(value).Kind() == values.Number && n == math.Trunc(n) && n >= 0 && n < 1<<53 {
			g.at = strconv.FormatInt(int64(n), 10)
		}
		return
	}
	g.keepName, g.keep = name, string(value)
}

// members are the members that set g.
func (g *given) members() [2]Member {
	g.atName, g.keepName = memberExpireAt, memberKeepDeadline
	member := func(name string) Member {
		return Member{Name: name, Null: true, Read: func(value []byte) *Error { g.setValue(name, value); return nil }}
	}
	return [...]Member{member(memberExpireAt), member(memberKeepDeadline)}
}

// append appends the members of e to an object.
func (e End) append(dst []byte) []byte {
	if e.Given {
		dst = strconv.AppendInt(append(dst, `,"`+memberExpireAt+`":`...), e.At, 10)
	}
	if e.Keep {
		dst = append(dst, `,"`+memberKeepDeadline+`":true`...)
	}
	return dst
}
