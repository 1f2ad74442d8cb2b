package schema

import (
	"cmp"
	"strings"
)

// Bytes of a message reserved besides the body of an event.
const (
	HeaderRoom = 4096 // for the headers of a reply or an event
	SystemRoom = 1024 // of a reply's body, for system properties and envelope
)

// Header holds the headers of a message that lapse reads, by canonical name. Canonical
// names are those of the constants, whatever the case in which a client wrote them.
type Header map[string][]string

// Get returns the first value of a header, "" if there is none.
func (h Header) Get(name string) string {
	if values := h[name]; len(values) > 0 {
		return values[0]
	}
	return ""
}

var lineEnds = strings.NewReplacer("\r", " ", "\n", " ")

// value returns a header as the log would return it: clients other than Go's may send
// blanks around a value or line ends in it.
func (h Header) value(name string) string {
	return strings.Trim(lineEnds.Replace(h.Get(name)), " \t")
}

// OwnHeaders returns the headers of a message that lapse reads, under canonical names, nil
// if there are none. Names match in any case: a missed If-Match would drop a precondition.
// A header has one value, but those of a Trace have all.
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
			if before, ok := own[name]; !ok || name == HeaderTraceParent || name == HeaderTraceState {
				own[name] = append(before, value)
			} else if before[0] != value {
				fault = ErrBadRequest.With("the header %s comes twice with different values: send it once", name)
			}
		}
	}
	return own, fault
}

// ownHeader returns a header's canonical name, "" if lapse does not read it.
func ownHeader(name string) string {
	name = strings.Trim(name, " \t")
	for _, own := range [...]string{HeaderMinSeq, HeaderIfMatch, HeaderRequestID, HeaderExpireAt, HeaderKeepDeadline, HeaderTraceParent, HeaderTraceState} {
		if len(name) == len(own) && strings.EqualFold(name, own) {
			return own
		}
	}
	return ""
}

// SetHeaders sets MsgID, IfMatch, End and Trace from the message's headers. It may set the
// Fault.
func (m *Mutation) SetHeaders(own Header) {
	m.Trace = own.Trace()
	m.MsgID = own.value(HeaderRequestID)
	m.IfMatch = own.value(HeaderIfMatch)
	if len(own[HeaderIfMatch]) > 0 && m.IfMatch == "" {
		m.IfMatch = `""` // an empty precondition matches no version
	}
	end := given{atName: HeaderExpireAt, keepName: HeaderKeepDeadline}
	if len(own[HeaderExpireAt]) > 0 {
		end.at = cmp.Or(own.value(HeaderExpireAt), `""`) // it must not be empty
	}
	if len(own[HeaderKeepDeadline]) > 0 {
		end.keep = cmp.Or(own.value(HeaderKeepDeadline), `""`)
	}
	m.setEnd(end)
}

// PublishedMutation reads a mutation of the mutations stream, which has no reply: tail
// is the end of its subject.
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
