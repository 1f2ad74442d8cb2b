package eventlog

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"github.com/lapsedb/lapse/projections"
)

// The fence: the log accepts an event only if it follows the event that its writer knows as
// the last one. JetStream checks that for each message, at the leader of the stream, against
// what it has stored; the lease only keeps two processes from trying.
//
// An epoch lasts from Listen to the next Listen. In it appends are in flight, in the order of
// their sequences; the last event of each asks for an acknowledgement at an inbox of the epoch,
// so that a late acknowledgement of an earlier epoch is never taken for one of this.
//
// Whoever begins an epoch, a new term or one that recovers, reads the log to its end and
// appends one event there (writer/recover.go). From then on, whatever was sent in earlier
// epochs and has not arrived expects an event that is no longer the last: it is refused. So the
// log holds a prefix of each epoch's appends, and the reader of its end knows which.

// Ack is the acknowledgement of the append that ends with Seq. Whoever receives it compares
// Epoch: one of an earlier epoch may still be in the channel.
type Ack struct {
	Seq   uint64
	Err   error // the append failed, or may have failed
	Epoch int   // of the append
}

// MaxGroups is the maximum number of appends in flight.
const MaxGroups = 64

// As is the way in which events are appended.
type As int

const (
	// Single appends one message after the other. The log may have some of them and lack
	// the later ones.
	Single As = iota
	// Group is Single with one sync for all of them: at most Options.AtomicBatch.
	Group
	// Atomic is all or none, at most Options.AtomicBatch, also after a power cut.
	Atomic
)

// Staged reports whether a group costs the log little besides its sync.
func (l *Log) Staged() bool { return l.stage != nil }

// batch returns the id of the atomic batch in which to append events, "" for none.
func (l *Log) batch(as As, bytes int) (id string) {
	if as == Group && l.Staged() {
		id = l.stage(bytes)
	}
	if id == "" && as != Single {
		id = rand.Text()
	}
	return id
}

// MaxAtomic is the NATS server's default limit of an atomic batch, in messages.
const MaxAtomic = 1000

// Listen starts a new epoch: acknowledgements of earlier ones are dropped. Each epoch has
// an inbox of its own, and the sequence stands at the end of the subject, so that an
// acknowledgement needs no table of what was sent:
//
//	_PROCESSOR.Xb3….00000000000000000042
func (l *Log) Listen() error {
	_ = l.unlisten()
	l.Epoch++
	epoch := l.Epoch
	l.chain, l.appended = rand.Text()[:12]+".", 0
	l.inbox = l.NC.NewInbox() + "."
	acks := make(chan Ack, 4*MaxGroups)
	l.Acks = acks
	sub, err := l.NC.Subscribe(l.inbox+"*", func(m *nats.Msg) {
		seq, err := strconv.ParseUint(m.Subject[len(m.Subject)-seqDigits:], 10, 64)
		if err == nil {
			err = readAck(m, seq)
		}
		if full := errors.Is(err, ErrFull); full || err == nil {
			l.Full.Store(full)
		}
		acks <- Ack{Seq: seq, Err: err, Epoch: epoch}
	})
	l.ackSub = sub
	return err
}

// unlisten drops acknowledgements until the next Listen.
func (l *Log) unlisten() error {
	if l.ackSub == nil {
		return nil
	}
	return l.ackSub.Unsubscribe()
}

// seqDigits is the width of a sequence in an acknowledgement's subject, that of the largest
// uint64: a fixed width is cut off without a search.
const seqDigits = 20

// readAck returns nil if JetStream has stored the append as seq. Without a stream that
// listens NATS itself answers with status 503.
func readAck(m *nats.Msg, seq uint64) error {
	if m.Header.Get("Status") == "503" {
		return fmt.Errorf("append %d: %w", seq, errLeaderless)
	}
	var reply struct {
		Seq   uint64              `json:"seq"`
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &reply); err != nil {
		return fmt.Errorf("append %d: acknowledgement %.80q: %w", seq, m.Data, err)
	}
	if reply.Error != nil {
		return refused(seq, reply.Error)
	}
	if reply.Seq != seq {
		return fmt.Errorf("append %d: stored as %d", seq, reply.Seq)
	}
	return nil
}

// Append sends events to the log without waiting. Each is fenced by the one before
// it: the log rejects it unless the writer knows all that precede it.
//
// Only the last event asks for an acknowledgement, which arrives at Acks with its
// sequence. Since each event is fenced by the one before it, the last one is in the
// log only if all are.
//
// A sequence alone does not fence events in flight: of 7 and 8, which expect 6 and 7,
// a foreign message at 7 would keep out only 7. So each event has an id of epoch and
// sequence, and the next one expects that id. An atomic batch cannot expect an id:
// nothing may be in flight when one is appended. If Alone, nothing may be in flight
// at any append, and several events are always a batch.
func (l *Log) Append(facts []projections.Fact, as As) error {
	m := l.message
	bytes := 0
	for i := range facts {
		bytes += len(facts[i].Event.Body)
	}
	defer l.Written.Add(uint64(bytes))
	batch := l.batch(as, bytes)
	atomic := batch != ""
	for i := range facts {
		e := facts[i].Event
		last := i == len(facts)-1
		m.Reset(l.prefix + e.EventTokens())
		m.Data = e.Body
		e.Headers(m.Set)
		id := l.chain + strconv.FormatUint(e.Seq, 10)
		m.Set(jetstream.MsgIDHeader, id)
		switch {
		case atomic && i > 0:
		case !atomic && !l.Alone && l.appended != 0 && l.appended == e.Seq-1:
			m.Set(jetstream.ExpectedLastMsgIDHeader, l.lastID)
		default:
			m.Set(jetstream.ExpectedLastSeqHeader, strconv.FormatUint(e.Seq-1, 10))
		}
		l.appended, l.lastID = e.Seq, id
		if atomic {
			m.Set(jetstreamext.BatchIDHeader, batch)
			m.Set(jetstreamext.BatchSeqHeader, strconv.Itoa(i+1))
			if last {
				m.Set(jetstreamext.BatchCommitHeader, "1")
			}
		}
		if last {
			m.Reply = fmt.Sprintf("%s%0*d", l.inbox, seqDigits, e.Seq)
		}
		if err := l.NC.PublishMsg(&m.Msg); err != nil {
			return fmt.Errorf("append %d: %w", e.Seq, err)
		}
	}
	return nil
}

// ReusedMessage is a NATS message that is published repeatedly: setting headers, one value
// each, does not allocate. Publishing copies it. It is not safe for concurrent use.
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
