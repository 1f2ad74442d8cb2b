package schema

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/lapsedb/lapse/schema/values"
)

// Member is a member that a JSON object of a request may have. Members describe a body as
// data:
//
//	ReadObject("the query", body, Text("where", &where), Whole("limit", &limit, 1000))
//
// reads {"where":"doc.a > 1","limit":10}. Their readers get valid JSON without white space
// around it.
type Member struct {
	Name string
	// Read reads the value. Without it the member is accepted and dropped.
	Read func(value []byte) *Error
	// Null passes null to Read. Otherwise null is as good as no member.
	Null bool
}

// ReadObject reads a JSON object of a request that nests at most MaxDepth deep; an empty
// one is an object without members. The members may come in any order, each once, and no
// others: a misspelt one would change the result without a word.
//
// what names the object in errors. An error is an ErrBadRequest or of a Member, the first
// in the order of the object. The other members are read nevertheless.
func ReadObject(what string, raw []byte, known ...Member) *Error {
	return readObjectTo(MaxDepth, what, raw, known)
}

// readObjectTo is ReadObject for a depth. It goes on after a fault, since a caller may
// need the other members, such as the op of a faulty operation.
func readObjectTo(depth int, what string, raw []byte, known []Member) *Error {
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil
	}
	var first *Error
	var seen uint64 // bits of known
	_, err := membersTo(depth, raw, func(member, value []byte) error {
		name := values.Unquote(member)
		at := slices.IndexFunc(known, func(m Member) bool { return m.Name == string(name) })
		var fault *Error
		switch {
		case at < 0 || seen&(1<<at) != 0:
			if first == nil { // a large body may have many
				fault = wrongMember(what, string(name), at >= 0, known)
			}
		case known[at].Read != nil && (known[at].Null || string(value) != "null"):
			fault = known[at].Read(value)
		}
		if at >= 0 {
			seen |= 1 << at
		}
		first = cmp.Or(first, fault)
		return nil
	})
	if err != nil {
		return ErrBadRequest.With("%s must be a JSON object of at most %d levels: %v", what, depth, err)
	}
	return first
}

// wrongMember is the error for a member that is unknown, or comes again.
func wrongMember(what, name string, again bool, known []Member) *Error {
	if again {
		return ErrBadRequest.With("the member %s of %s comes twice", name, what)
	}
	var names []string
	for _, m := range known {
		if m.Read != nil {
			names = append(names, m.Name)
		}
	}
	last := len(names) - 1
	switch {
	case last < 0:
		return ErrBadRequest.With("unknown member %.80q of %s: it has none, leave it empty", name, what)
	case last == 0:
		return ErrBadRequest.With("unknown member %.80q of %s: use %s", name, what, names[0])
	}
	return ErrBadRequest.With("unknown member %.80q of %s: use %s and %s", name, what, strings.Join(names[:last], ", "), names[last])
}

// WrongValue is the error for a member with a value that is not allowed; use says what is.
func WrongValue(name string, value []byte, use string) *Error {
	return ErrBadRequest.With("%s %s: use %s", name, Shown(value), use)
}

// Text is a Member with a string.
func Text(name string, into *string) Member {
	return Member{Name: name, Read: func(value []byte) *Error {
		text, err := decodeString(value)
		if err != nil {
			use := "a string"
			if value[0] == '"' {
				use = "a string without half a surrogate pair"
			}
			return WrongValue(name, value, use)
		}
		*into = text
		return nil
	}}
}

// Bool is a Member with true or false.
func Bool(name string, into *bool) Member {
	return Member{Name: name, Read: func(value []byte) *Error {
		if kind := values.Value(value).Kind(); kind != values.True && kind != values.False {
			return WrongValue(name, value, "true or false")
		}
		*into = value[0] == 't'
		return nil
	}}
}

// Whole is a Member with a whole number from 1 to most, however it is written: 100.0 is
// 100.
func Whole(name string, into *int, most int) Member {
	return Member{Name: name, Read: func(value []byte) *Error {
		n, err := strconv.ParseFloat(string(value), 64)
		if values.Value(value).Kind() != values.Number || err != nil || n < 1 || n > float64(most) || n != math.Trunc(n) {
			return WrongValue(name, value, "a whole number from 1 to "+strconv.Itoa(most))
		}
		*into = int(n)
		return nil
	}}
}

// seconds is a Member with a whole number of seconds from 1 to MaxTTL.
func seconds(name string, into *int32) Member {
	return Member{Name: name, Null: true, Read: func(value []byte) *Error {
		n, ok := parseSeconds(value)
		if !ok || n < 1 {
			return WrongValue(name, value, "a whole number of seconds from 1 to "+strconv.Itoa(MaxTTL))
		}
		*into = n
		return nil
	}}
}

// CheckNoBody refuses the body of an operation that has none, unless it is empty or {}.
func CheckNoBody(op string, body []byte) *Error {
	if len(body) > MaxForecastBytes {
		return ErrTooLarge.With("the body of %s has %d bytes: leave it empty", op, len(body))
	}
	return ReadObject("the body of "+op, body)
}
