package eventlog

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"github.com/lapsedb/lapse/projections"
)

// ack is the log's word on what was appended up to a sequence.
type Ack struct {
	Seq   uint64
	Err   error // why it is not in the log, or not certainly
	Epoch int
}

// maxGroups is how many appends may be in flight.
const MaxGroups = 64

// maxAtomic is the size of the largest atomic batch that a server takes, unless
// it is configured otherwise.
const MaxAtomic = 1000

// listen starts a new epoch of acknowledgements: those of earlier ones are
// nobody's any more.
func (l *Log) Listen() error {
	if l.Sub != nil {
		_ = l.Sub.Unsubscribe()
	}
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
		acks <- Ack{Seq: seq, Err: err, Epoch: epoch}
	})
	l.Sub = sub
	return err
}

// seqDigits is the width of a sequence in an acknowledgement's subject.
const seqDigits = 20

func readAck(m *nats.Msg, seq uint64) error {
	if m.Header.Get("Status") == "503" {
		return fmt.Errorf("append %d: no stream listens", seq)
	}
	var reply struct {
		Seq   uint64              `json:"seq"`
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &reply); err != nil {
		return fmt.Errorf("append %d: acknowledgement %.80q: %w", seq, m.Data, err)
	}
	if reply.Error != nil {
		return fmt.Errorf("append %d: %w", seq, reply.Error)
	}
	if reply.Seq != seq {
		return fmt.Errorf("append %d: stored as %d", seq, reply.Seq)
	}
	return nil
}

// Append sends events to the log, each fenced by the one before it: all that
// precede it in the log are known to the writer or it is refused. atomic makes
// the log take all of them or none; there may be Options.AtomicBatch then.
//
// Only the last event asks for an acknowledgement, which arrives at acks with
// its sequence: since every event is fenced by the one before it, the last one
// is in the log only if all are.
//
// A sequence alone is no fence while others are on their way: of events 7 and
// 8, fenced by 6 and 7, a foreign message at 7 would keep out only the first.
// So an event has an id, made of its sequence and the epoch, and the next one
// asks for that. Atomic batches cannot ask for one: nothing may be on its way
// when a batch is appended. Where the log is alone, nothing may be on its way
// at all, and what is not one event is a batch.
func (l *Log) Append(facts []projections.Fact, atomic bool) error {
	m := l.message
	bytes := 0
	defer func() { l.Written.Add(uint64(bytes)) }()
	batch := ""
	if atomic {
		batch = nuid.Next()
	}
	for i := range facts {
		e := facts[i].Event
		last := i == len(facts)-1
		m.Reset(l.prefix + e.EventTokens())
		m.Data = e.Body
		bytes += len(e.Body)
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
