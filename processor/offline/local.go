// Package offline is a database without NATS. Local is a whole one in memory, with a
// clock that its caller moves (lapsetest, lapse simulate). Replay folds a recorded log
// (lapse replay).
//
// It imports machine, answer and projections. Start reading at Local.Request.
package offline

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/processor/answer"
	"github.com/lapsedb/lapse/processor/machine"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/projections/query"
	"github.com/lapsedb/lapse/schema"
)

// Local is a database in memory that answers requests as the service does. It decides,
// folds and expires with the same code, without NATS and with a clock that only its caller
// moves. It has no goroutines and is not safe for concurrent use. An error of its methods
// is internal; the error of a request is in its Outcome.
//
// What differs from a server: it is never late, since everything due is settled before a
// request is answered, unless the end of the log was adopted; what is decided is folded at
// once, so nothing is in flight; and there are no snapshots. The whole log is in memory.
type Local struct {
	simulation *machine.Simulation
	reader     answer.Reader   // of the folded state
	now        int64           // ms
	log        []*schema.Event // internal events included
	submitted  uint64          // last sequence of the mutations stream
	// adopted: the last events came from another log. Documents overdue at their end
	// expire only at the next mutation or move of the clock.
	adopted bool
}

// localReply is the maximum reply in bytes, that of the embedded NATS server.
const localReply = 4<<20 - schema.HeaderRoom

// NewLocal returns an empty database at a time, in ms. Close it when done.
func NewLocal(now int64) (*Local, error) {
	l := &Local{now: now}
	store, err := projections.Open("projection", projections.Options{FS: vfs.NewMem(), CacheBytes: 8 << 20, MemTableBytes: 4 << 20, DocumentBytes: 64 << 20})
	if err != nil {
		return nil, err
	}
	// The limits of serve, except the time limit, which depends on the machine's speed.
	l.reader = answer.Reader{Store: store, Limits: query.Limits{Bytes: localReply, Time: replayLimits.Time}}
	l.simulation, err = machine.NewSimulationOver(store, func(e *schema.Event) error {
		copied := *e
		copied.Body = bytes.Clone(e.Body)
		l.log = append(l.log, &copied)
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	l.simulation.Machine.History = machine.AtHand{Log: localHistory{l}}
	return l, nil
}

// localHistory implements machine.Log.
type localHistory struct{ *Local }

func (h localHistory) Last(name schema.CollectionName, id schema.DocumentID) (uint64, error) {
	return h.reader.Store.LastOf(name, id)
}

func (h localHistory) Event(seq uint64) (*schema.Event, error) { return h.event(seq), nil }

// unused reports whether nothing has happened yet. The first mutation or adopted event
// may then set the clock back.
func (l *Local) unused() bool { return l.simulation.Time() == 0 }

// Close frees the memory.
func (l *Local) Close() error { return l.reader.Store.Close() }

// Now returns the time in ms.
func (l *Local) Now() int64 { return l.now }

// Log returns all events, internal ones included. They are shared and must not be
// changed.
func (l *Local) Log() []*schema.Event { return l.log }

// event returns the event of a sequence, nil for none.
func (l *Local) event(seq uint64) *schema.Event {
	i, ok := slices.BinarySearchFunc(l.log, seq, func(e *schema.Event, seq uint64) int {
		return int(int64(e.Seq) - int64(seq))
	})
	if !ok {
		return nil
	}
	return l.log[i]
}

// Advance moves the clock to a time, in ms, and expires everything due on the way. A time
// before Now is an error.
func (l *Local) Advance(to int64) error {
	if to < l.now {
		return fmt.Errorf("the time goes back by %d ms", l.now-to)
	}
	if err := l.simulation.Advance(to); err != nil {
		return err
	}
	l.now, l.adopted = to, false
	return l.settle()
}

// settle expires due documents and adds all pending events to the log.
func (l *Local) settle() error {
	if err := l.simulation.Advance(l.now); err != nil {
		return err
	}
	return l.simulation.Flush()
}

// Finish advances the clock until nothing is pending.
func (l *Local) Finish() error {
	if err := l.Advance(l.now); err != nil {
		return err
	}
	if err := l.simulation.Finish(); err != nil {
		return err
	}
	l.now = max(l.now, l.simulation.Time())
	return nil
}

// Adopt appends events of another log, which must follow the last one of this log. It
// moves the clock to now, in ms, or to the last event if that is later; an unused
// database may move it back. Documents that are due by then, without an event for it,
// expire with the next mutation or move of the clock. mismatches is the number of events
// that did not match the state.
func (l *Local) Adopt(now int64, events []*schema.Event) (mismatches int, err error) {
	if l.unused() {
		l.now = 0
	} else if err := l.settle(); err != nil {
		return 0, err
	}
	before := l.reader.Mismatches()
	if err := l.simulation.Adopt(events); err != nil {
		return 0, err
	}
	l.log = append(l.log, events...)
	l.now = max(l.now, now, l.simulation.Time())
	l.adopted = true
	l.submitted = max(l.submitted, l.reader.Store.Cursor().Mutations)
	return int(l.reader.Mismatches() - before), nil
}

// Submit judges a mutation as if it came from the mutations stream: tail is the subject
// after lapse.<db>.mutations. It returns the sequence that is the Cause of the resulting
// event.
func (l *Local) Submit(tail string, header nats.Header, body []byte) (seq uint64, err error) {
	l.submitted++
	_, err = l.mutate(schema.PublishedMutation(l.submitted, tail, schema.Header(header), bytes.Clone(body)))
	return l.submitted, err
}

// Apply moves the clock to a time, in ms, and judges a mutation there; an unused database
// may move it back. The Local owns the mutation from then on.
func (l *Local) Apply(at int64, mutation *schema.Mutation) (machine.Outcome, error) {
	if at < l.now && !l.unused() {
		return machine.Outcome{}, fmt.Errorf("the time goes back by %d ms", l.now-at)
	}
	if at > schema.MaxTime {
		return machine.Outcome{}, l.simulation.Advance(at) // fails and says why
	}
	l.now = at
	return l.mutate(mutation)
}

// mutate judges a mutation at the present time, and settles what it makes due.
func (l *Local) mutate(mutation *schema.Mutation) (machine.Outcome, error) {
	l.adopted = false
	o, err := l.simulation.Mutate(l.now, mutation)
	if err == nil {
		err = l.settle()
	}
	return o, err
}

// Request answers a request: tail is the subject after lapse.<db>.api. The Seq of the
// outcome is that of the answering state.
func (l *Local) Request(tail string, header nats.Header, body []byte) (o machine.Outcome, err error) {
	if !l.adopted {
		if err := l.settle(); err != nil {
			return machine.Outcome{}, err
		}
	}
	o, err = l.answer(tail, header, body)
	var fault *schema.Error
	if errors.As(err, &fault) {
		o, err = machine.Outcome{Fault: fault}, nil
	}
	if err == nil && o.Fault == nil && len(o.Body) > localReply {
		o = machine.Outcome{Fault: answer.TooLargeBody(len(o.Body), localReply)}
	}
	if o.Fault != nil {
		o.Code, o.Body = o.Fault.Code, nil
	}
	if o.Seq == 0 {
		o.Seq = l.reader.Seq()
	}
	return o, err
}

// answer is Request, except that the error may be a *schema.Error.
func (l *Local) answer(tail string, all nats.Header, body []byte) (machine.Outcome, error) {
	header, fault := schema.OwnHeaders(all)
	if fault != nil {
		return machine.Outcome{}, fault
	}
	if values := header[schema.HeaderMinSeq]; len(values) > 0 {
		seq, fault := answer.ParseMinSeq(values[0])
		if fault != nil {
			return machine.Outcome{}, fault
		}
		if l.reader.Seq() < seq {
			return machine.Outcome{}, answer.MinSeqLate(seq)
		}
	}
	op, rest := schema.SplitOperation(tail)
	if schema.ParseOp(op) != schema.NoOp {
		mutation := schema.NewMutation(tail, bytes.Clone(body))
		mutation.SetHeaders(header)
		o, err := l.mutate(mutation)
		if err == nil && o.Repeat != 0 {
			e := l.event(o.Repeat)
			if o.Code, o.Body, err = answer.RepeatOf(e); err == nil {
				o.Lifetime, err = answer.LifetimeOf(l.reader.Store, e)
			}
			if mutation.Content {
				o.Version, o.TS = schema.Version(e.Seq), e.Time/1000
			}
		}
		if err == nil && o.Version != 0 {
			o.Body, err = answer.ContentReply(l.reader.Store, localHistory{l}, mutation.Collection, mutation.ID, o.Version, o.TS)
		}
		return o, err
	}
	if op == "batch" {
		return l.batch(rest, header, body)
	}
	o := machine.Outcome{Code: 200}
	var err error
	o.Body, err = l.read(op, rest, header, body, &o.Lifetime)
	return o, err
}

// batch answers a batch: through the machine if it mutates, else from the projection.
func (l *Local) batch(tail string, header schema.Header, body []byte) (machine.Outcome, error) {
	b, fault := answer.ParseBatch(tail, header, bytes.Clone(body))
	if fault != nil {
		return machine.Outcome{}, fault
	}
	if b.Mutates() {
		l.adopted = false
		o, err := l.simulation.MutateBatch(l.now, b, localReply)
		if err == nil {
			err = l.settle()
		}
		return o, err
	}
	results, _, err := answer.ReadBatch(context.Background(), l.reader.Store, b, func() int64 { return l.now / 1000 }, localReply, answer.NoRenewals)
	return machine.Outcome{Code: 200, Body: schema.AppendResults(nil, results)}, err
}

// read answers a request that changes nothing. It sets the lifetime of the document that
// the reply is about.
func (l *Local) read(op, tail string, header schema.Header, body []byte, lifetime *schema.Lifetime) (reply []byte, err error) {
	if fault := answer.Check(schema.OperationOf(op), tail, header, body); fault != nil {
		return nil, fault
	}
	if err := l.simulation.Flush(); err != nil {
		return nil, err
	}
	reader := &l.reader
	switch op {
	case "collection.list":
		return reader.Collections(body)
	case "status":
		status, err := reader.Status(l.now)
		if err != nil {
			return nil, err
		}
		return json.Marshal(status)
	case "document.get":
		name, id, fault := answer.DocumentName(tail)
		if fault != nil {
			return nil, fault
		}
		reply, *lifetime, err = reader.Document(l.now, name, id)
		return reply, err
	case "history":
		return reader.History(tail, body, localHistory{l}.Event)
	case "collection.get", "query", "forecast":
		name, err := schema.ParseCollectionName(tail)
		if err != nil {
			return nil, err
		}
		if op == "collection.get" {
			return reader.Collection(l.now, name)
		}
		if op == "forecast" {
			return reader.Forecast(context.Background(), l.now, name, body)
		}
		// serve builds indexes in the background; here they are completed at once.
		for more := true; more; {
			if more, err = l.reader.Store.Index(math.MaxInt32); err != nil {
				return nil, err
			}
		}
		return reader.Query(context.Background(), l.now, name, body)
	}
	if strings.HasPrefix(op, "snapshot.") {
		return nil, schema.ErrBadRequest.With("%s: a database in memory keeps no snapshots", op)
	}
	return nil, answer.UnknownOperation(op)
}
