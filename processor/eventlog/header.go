package eventlog

import "github.com/nats-io/nats.go"

// reusedMessage is a NATS message that is written over and over: its headers, one
// value each, are set without allocating. Publishing copies what it sends.
type ReusedMessage struct {
	nats.Msg
	slots map[string][]string
}

func NewReusedMessage() *ReusedMessage {
	return &ReusedMessage{Msg: nats.Msg{Header: nats.Header{}}, slots: make(map[string][]string)}
}

// reset makes it an empty message to a subject.
func (m *ReusedMessage) Reset(subject string) {
	clear(m.Header)
	m.Subject, m.Reply, m.Data = subject, "", nil
}

func (m *ReusedMessage) Set(name, value string) {
	slot, ok := m.slots[name]
	if !ok {
		slot = make([]string, 1)
		m.slots[name] = slot
	}
	slot[0] = value
	m.Header[name] = slot
}
