package eventlog

import "github.com/nats-io/nats.go"

// ReusedMessage is a NATS message that is published repeatedly: setting headers, one
// value each, does not allocate. Publishing copies it.
type ReusedMessage struct {
	nats.Msg
	slots map[string][]string
}

// NewReusedMessage returns an empty message.
func NewReusedMessage() *ReusedMessage {
	return &ReusedMessage{Msg: nats.Msg{Header: nats.Header{}}, slots: make(map[string][]string)}
}

// Reset empties the message and sets its subject.
func (m *ReusedMessage) Reset(subject string) {
	clear(m.Header)
	m.Subject, m.Reply, m.Data = subject, "", nil
}

// Set sets a header to one value.
func (m *ReusedMessage) Set(name, value string) {
	slot, ok := m.slots[name]
	if !ok {
		slot = make([]string, 1)
		m.slots[name] = slot
	}
	slot[0] = value
	m.Header[name] = slot
}
