package machine

import (
	"errors"

	"github.com/lapsedb/lapse/schema"
)

// DecideBatch judges the operations of a batch in order, at now in ms. An
// atomic batch that comes out with code 200 has left all its events at the end
// of what is pending, from sequence first on, to be appended as one; one that
// failed has left none. size is how many bytes the reply may have: operations
// whose answers would not fit, or whose events would make more than
// maxBatchBytes, are refused and change nothing.
//
// As with Decide, the outcome may be to decide the batch Again.
func (m *Machine) DecideBatch(now int64, b *schema.Batch, size int) (o Outcome, first uint64, err error) {
	results := make([]schema.OperationResult, len(b.Operations))
	room := NewRoom(size, len(results))
	room.until, room.read = m.bytes+MaxBatchBytes, m.read+MaxBatchBytes
	first = m.seq + 1
	if !b.Atomic {
		if _, err := m.decideOperations(now, b, results, room, false); err != nil {
			return Outcome{}, 0, err
		}
	} else {
		// What is due among the targets expires first and for itself, so that
		// the batch's own events are no more than its operations.
		more, err := m.expireTargets(now, b)
		if err != nil {
			return Outcome{}, 0, err
		}
		first = m.seq + 1
		if more {
			return Outcome{Again: true}, first, nil
		}
		room.until = m.bytes + MaxBatchBytes
		blamed := -1
		m.attempt(func() bool {
			blamed, err = m.decideOperations(now, b, results, room, true)
			return err == nil && blamed < 0
		})
		if err != nil {
			return Outcome{}, 0, err
		}
		if blamed >= 0 {
			if err := m.failAll(now, b, results, room, blamed); err != nil {
				return Outcome{}, 0, err
			}
		}
	}
	return Outcome{Code: 200, Body: schema.AppendResults(nil, results), Seq: m.seq}, first, nil
}

// MaxBatchBytes bounds the bodies of the events that one batch makes, and the
// documents that it reads. A few small deletes can make very large events, and
// an atomic batch has to pass whole through what a stream queues, which is 128
// MiB; a few small patches can keep the writer busy for seconds.
const MaxBatchBytes = 64 << 20

// room is what the reply of a batch still has, besides smallResult bytes for
// each result: there is always a place to say that there is no more.
type room struct {
	left  int
	until int // what the bodies of pending events may come to
	read  int // what Machine.read may come to
}

// NewRoom returns the room in a reply of some bytes for some results.
func NewRoom(bytes, results int) room { return room{left: bytes - (results+1)*smallResult} }

const (
	smallResult    = 160 // a result without content, or with a fault of the batch's own
	bytesPerResult = 32  // more than a result has around its body
)

// after returns what is left after a result, negative if it does not fit.
func (r room) after(result *schema.OperationResult) int {
	bytes := len(result.Body)
	if result.Fault != nil {
		bytes = len(result.Fault.AppendJSON(nil))
	}
	return r.left - max(0, bytes+bytesPerResult-smallResult)
}

// Put makes result one of the batch's, if it fits.
func (r *room) Put(to *schema.OperationResult, result schema.OperationResult) {
	if left := r.after(&result); left >= 0 {
		*to, r.left = result, left
	} else {
		*to = schema.OperationResult{Fault: tooLargeReply()}
	}
}

func TooMuchRead() *schema.Error {
	return schema.ErrTooLarge.With("the documents of the batch have more than %d bytes: use smaller batches", MaxBatchBytes)
}

func tooLargeReply() *schema.Error {
	return schema.ErrTooLarge.With("the reply of the batch would be too large: use smaller batches")
}

// decideOperations fills in results. If stop, it ends at the first mutation
// that is refused and returns its index, else -1.
func (m *Machine) decideOperations(now int64, b *schema.Batch, results []schema.OperationResult, room room, stop bool) (blamed int, err error) {
	for i := range b.Operations {
		op, r := &b.Operations[i], &results[i]
		result, err := m.decideOperation(now, b, op, room)
		if err != nil {
			return 0, err
		}
		room.Put(r, result)
		if stop && r.Fault != nil && (op.Mutation != nil || op.Fault != nil) {
			return i, nil
		}
	}
	return -1, nil
}

// decideOperation judges one operation; if its result or its events do not fit
// in room, it changes nothing.
func (m *Machine) decideOperation(now int64, b *schema.Batch, op *schema.Operation, room room) (r schema.OperationResult, err error) {
	if op.Fault != nil {
		return schema.OperationResult{Fault: op.Fault}, nil
	}
	if m.read > room.read {
		return schema.OperationResult{Fault: TooMuchRead()}, nil
	}
	var o Outcome
	if op.Mutation == nil {
		o, err = m.Read(now, b.Collection, op.Get)
		return schema.OperationResult{Code: o.Code, Fault: o.Fault, Body: o.Body}, err
	}
	err = m.guard(func() error {
		m.stamp(now)
		o, err := m.decide(op.Mutation)
		if r = (schema.OperationResult{Code: o.Code, Fault: o.Fault, Body: o.Body}); err == nil && room.after(&r) < 0 {
			return tooLargeReply()
		}
		if m.bytes > room.until {
			return schema.ErrTooLarge.With("the events of the batch would have more than %d bytes: use smaller batches", MaxBatchBytes)
		}
		return err
	})
	var fault *schema.Error
	switch {
	case errors.As(err, &fault):
		return schema.OperationResult{Fault: fault}, nil
	case errors.Is(err, ErrPanic):
		return schema.OperationResult{Fault: schema.ErrUnavailable.With("the operation failed inside lapse; it changed nothing")}, nil
	}
	return r, err
}

// expireTargets expires what is due among the documents that the batch is
// going to change. more says that there are others, and that what is pending
// is to be folded before they expire, too.
func (m *Machine) expireTargets(now int64, b *schema.Batch) (more bool, err error) {
	m.stamp(now)
	c := m.Collection(b.Collection)
	if c == nil {
		return false, nil
	}
	until := m.bytes + MaxBatchBytes
	for i := range b.Operations {
		if m.bytes > until {
			return true, nil
		}
		mu := b.Operations[i].Mutation
		if mu == nil || b.Operations[i].Fault != nil {
			continue
		}
		meta, err := m.meta(c, mu.ID)
		if err != nil {
			return false, err
		}
		if meta.Version == 0 || !meta.Deadline(c).Passed(m.now()) {
			continue
		}
		r, err := m.document(c, mu.ID)
		if err != nil {
			return false, err
		}
		m.expire(c, mu.ID, r)
	}
	return false, nil
}

// failAll makes the results of an atomic batch that was taken back: the one to
// blame keeps its own, other mutations depend on it, gets read what is there.
func (m *Machine) failAll(now int64, b *schema.Batch, results []schema.OperationResult, room room, blamed int) error {
	room.Put(&results[blamed], results[blamed])
	for i := range b.Operations {
		op := &b.Operations[i]
		switch {
		case i == blamed:
		case !op.Reads:
			results[i] = DependsOn(blamed)
		case op.Fault != nil:
			room.Put(&results[i], schema.OperationResult{Fault: op.Fault})
		case m.read > room.read:
			results[i] = schema.OperationResult{Fault: TooMuchRead()}
		default:
			o, err := m.Read(now, b.Collection, op.Get)
			if err != nil {
				return err
			}
			room.Put(&results[i], schema.OperationResult{Code: o.Code, Fault: o.Fault, Body: o.Body})
		}
	}
	return nil
}

// DependsOn is the result of a mutation in an atomic batch that failed by another.
func DependsOn(blamed int) schema.OperationResult {
	return schema.OperationResult{Fault: schema.ErrFailedDependency.With("operation %d of the atomic batch was refused, so nothing was done", blamed)}
}
