package processor

import "github.com/nats-io/nats.go"

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
