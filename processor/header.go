package processor

import (
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/schema"
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

// setHeaders gives a mutation what its message's headers say, each value as it
// would come back from the log: Go writes no headers with blanks around the
// value or line ends in it, other clients do.
func setHeaders(mutation *schema.Mutation, header nats.Header) {
	value := func(name string) string { return strings.Trim(lineEnds.Replace(header.Get(name)), " \t") }
	mutation.MsgID = value(schema.HeaderRequestID)
	mutation.IfMatch = value(schema.HeaderIfMatch)
	if len(header[schema.HeaderIfMatch]) > 0 && mutation.IfMatch == "" {
		mutation.IfMatch = `""` // an empty one asks for something, which no version is
	}
}
