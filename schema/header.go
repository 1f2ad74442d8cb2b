package schema

import "strings"

// Bytes that a message needs besides the body of an event.
const (
	HeaderRoom = 4096 // for the headers of a reply or an event
	SystemRoom = 1024 // of a reply's body, for what it says around that of an event
)

// Header are those of a message's headers that mean something to lapse, named as
// we write them.
type Header map[string][]string

// Get returns the first value of a header, "" if there is none.
func (h Header) Get(name string) string {
	if values := h[name]; len(values) > 0 {
		return values[0]
	}
	return ""
}

var lineEnds = strings.NewReplacer("\r", " ", "\n", " ")

// OwnHeaders returns those of a message's headers that mean something to lapse,
// one value each and named as we write them, nil if there are none. Clients
// write the names in any case: an If-Match that nobody sees would be a
// precondition dropped.
func OwnHeaders[H ~map[string][]string](all H) (own Header, fault *Error) {
	for name, values := range all {
		name = ownHeader(name)
		if name == "" {
			continue
		}
		if own == nil {
			own = make(Header, 3)
		}
		for _, value := range values {
			if before, ok := own[name]; !ok {
				own[name] = []string{value}
			} else if before[0] != value {
				fault = ErrBadRequest.With("the header %s comes twice with different values: send it once", name)
			}
		}
	}
	return own, fault
}

// ownHeader returns how we write a header's name, "" if it is not for us.
func ownHeader(name string) string {
	name = strings.Trim(name, " \t")
	for _, own := range [...]string{HeaderMinSeq, HeaderIfMatch, HeaderRequestID} {
		if len(name) == len(own) && strings.EqualFold(name, own) {
			return own
		}
	}
	return ""
}

// SetHeaders gives a mutation what its message's own headers say, each value as
// it would come back from the log: Go writes no headers with blanks around the
// value or line ends in it, other clients do.
func (m *Mutation) SetHeaders(own Header) {
	value := func(name string) string { return strings.Trim(lineEnds.Replace(own.Get(name)), " \t") }
	m.MsgID = value(HeaderRequestID)
	m.IfMatch = value(HeaderIfMatch)
	if len(own[HeaderIfMatch]) > 0 && m.IfMatch == "" {
		m.IfMatch = `""` // an empty one asks for something, which no version is
	}
}

// PublishedMutation reads a mutation as one of those from JetStream, in which
// nobody waits for the outcome: tail is the end of its subject.
func PublishedMutation(seq uint64, tail string, header Header, body []byte) *Mutation {
	mutation := NewMutation(tail, body)
	mutation.Cause, mutation.Recorded = seq, true
	own, fault := OwnHeaders(header)
	mutation.SetHeaders(own)
	if mutation.Fault == nil {
		mutation.Fault = fault
	}
	return mutation
}
