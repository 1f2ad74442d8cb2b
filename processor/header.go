package processor

import (
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/schema"
)

// What a message needs besides the body of an event.
const (
	headerRoom = 4096 // for the headers of a reply or an event
	systemRoom = 1024 // of a reply's body, for what it says around that of an event
)

// reusedMessage is a NATS message that is written over and over: its headers, one
// value each, are set without allocating. Publishing copies what it sends.
type reusedMessage struct {
	nats.Msg
	slots map[string][]string
}

func newReusedMessage() *reusedMessage {
	return &reusedMessage{Msg: nats.Msg{Header: nats.Header{}}, slots: make(map[string][]string)}
}

// reset makes it an empty message to a subject.
func (m *reusedMessage) reset(subject string) {
	clear(m.Header)
	m.Subject, m.Reply, m.Data = subject, "", nil
}

func (m *reusedMessage) set(name, value string) {
	slot, ok := m.slots[name]
	if !ok {
		slot = make([]string, 1)
		m.slots[name] = slot
	}
	slot[0] = value
	m.Header[name] = slot
}

var lineEnds = strings.NewReplacer("\r", " ", "\n", " ")

// ownHeaders returns those of a message's headers that mean something to lapse,
// one value each and named as we write them, nil if there are none. Clients
// write the names in any case: an If-Match that nobody sees would be a
// precondition dropped.
func ownHeaders[H ~map[string][]string](all H) (own nats.Header, fault *schema.Error) {
	for name, values := range all {
		name = ownHeader(name)
		if name == "" {
			continue
		}
		if own == nil {
			own = make(nats.Header, 3)
		}
		for _, value := range values {
			if before, ok := own[name]; !ok {
				own[name] = []string{value}
			} else if before[0] != value {
				fault = schema.ErrBadRequest.With("the header %s comes twice with different values: send it once", name)
			}
		}
	}
	return own, fault
}

// ownHeader returns how we write a header's name, "" if it is not for us.
func ownHeader(name string) string {
	name = strings.Trim(name, " \t")
	for _, own := range [...]string{schema.HeaderMinSeq, schema.HeaderIfMatch, schema.HeaderRequestID} {
		if len(name) == len(own) && strings.EqualFold(name, own) {
			return own
		}
	}
	return ""
}

// setHeaders gives a mutation what its message's own headers say, each value as
// it would come back from the log: Go writes no headers with blanks around the
// value or line ends in it, other clients do.
func setHeaders(mutation *schema.Mutation, own nats.Header) {
	value := func(name string) string { return strings.Trim(lineEnds.Replace(own.Get(name)), " \t") }
	mutation.MsgID = value(schema.HeaderRequestID)
	mutation.IfMatch = value(schema.HeaderIfMatch)
	if len(own[schema.HeaderIfMatch]) > 0 && mutation.IfMatch == "" {
		mutation.IfMatch = `""` // an empty one asks for something, which no version is
	}
}

// publishedMutation reads a mutation as one of those from JetStream, in which
// nobody waits for the outcome: tail is the end of its subject.
func publishedMutation(seq uint64, tail string, header nats.Header, body []byte) *schema.Mutation {
	mutation := schema.NewMutation(tail, body)
	mutation.Cause, mutation.Recorded = seq, true
	own, fault := ownHeaders(header)
	setHeaders(mutation, own)
	if mutation.Fault == nil {
		mutation.Fault = fault
	}
	return mutation
}
