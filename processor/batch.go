package processor

import (
	"errors"

	"github.com/lapsedb/lapse/schema"
)

// DecideBatch judges the operations of a batch in order, at now in ms. An
// atomic batch that comes out with code 200 has left all its events at the end
// of what is pending, from sequence first on, to be appended as one; one that
// failed has left none. room is how many bytes the reply may have: operations
// whose answers would not fit are refused before they change anything.
func (m *Machine) DecideBatch(now int64, b *schema.Batch, room int) (o Outcome, first uint64, err error) {
	results := make([]schema.OperationResult, len(b.Operations))
	first = m.seq + 1
	if !b.Atomic {
		if _, err := m.decideOperations(now, b, results, room, false); err != nil {
			return Outcome{}, 0, err
		}
	} else {
		// What is due among the targets expires first and for itself, so that
		// the batch's own events are no more than its operations.
		if err := m.expireTargets(now, b); err != nil {
			return Outcome{}, 0, err
		}
		first = m.seq + 1
		blamed := -1
		m.attempt(func() bool {
			blamed, err = m.decideOperations(now, b, results, room, true)
			return err == nil && blamed < 0
		})
		if err != nil {
			return Outcome{}, 0, err
		}
		if blamed >= 0 {
			if err := m.failAll(now, b, results, blamed); err != nil {
				return Outcome{}, 0, err
			}
		}
	}
	return Outcome{Code: 200, Body: schema.AppendResults(nil, results), Seq: m.seq}, first, nil
}

// bytesPerResult is more than a result has around its body.
const bytesPerResult = 32

// decideOperations fills in results. If stop, it ends at the first mutation
// that is refused and returns its index, else -1.
func (m *Machine) decideOperations(now int64, b *schema.Batch, results []schema.OperationResult, room int, stop bool) (blamed int, err error) {
	for i := range b.Operations {
		op, r := &b.Operations[i], &results[i]
		if err := m.decideOperation(now, b, op, r, room); err != nil {
			return 0, err
		}
		if r.Fault != nil {
			room -= len(r.Fault.Message) + 2*bytesPerResult
			if stop && (op.Mutation != nil || op.Fault != nil) {
				return i, nil
			}
		}
		room -= len(r.Body) + bytesPerResult
	}
	return -1, nil
}

func (m *Machine) decideOperation(now int64, b *schema.Batch, op *schema.Operation, r *schema.OperationResult, room int) error {
	var o Outcome
	var err error
	switch {
	case op.Fault != nil:
		r.Fault = op.Fault
		return nil
	case op.Mutation == nil:
		o, err = m.Read(now, b.Collection, op.Get)
	case len(op.Mutation.Body)+bytesPerResult > room:
		// A rough check before anything changes; what a patch makes of a large
		// document is checked below.
		r.Fault = tooLargeReply()
		return nil
	default:
		err = m.guard(func() error {
			m.stamp(now)
			if o, err = m.decide(op.Mutation); err != nil {
				return err
			}
			if len(o.Body)+bytesPerResult > room {
				return tooLargeReply()
			}
			return nil
		})
	}
	var fault *schema.Error
	switch {
	case errors.As(err, &fault):
		r.Fault = fault
		return nil
	case errors.Is(err, errPanic):
		r.Fault = schema.ErrUnavailable.With("the operation failed inside lapse; it changed nothing")
		return nil
	case err != nil:
		return err
	case o.Fault == nil && len(o.Body)+bytesPerResult > room:
		r.Fault = tooLargeReply()
		return nil
	}
	*r = schema.OperationResult{Code: o.Code, Fault: o.Fault, Body: o.Body}
	return nil
}

func tooLargeReply() *schema.Error {
	return schema.ErrTooLarge.With("the reply of the batch would be larger than a message may be: use smaller batches")
}

// expireTargets expires what is due among the documents that the batch is
// going to change.
func (m *Machine) expireTargets(now int64, b *schema.Batch) error {
	m.stamp(now)
	c := m.collection(b.Collection)
	if c == nil {
		return nil
	}
	for i := range b.Operations {
		mu := b.Operations[i].Mutation
		if mu == nil || b.Operations[i].Fault != nil {
			continue
		}
		r, err := m.document(c, mu.ID)
		if err != nil {
			return err
		}
		if r.Version != 0 && r.Deadline(c).Passed(m.now()) {
			m.expire(c, mu.ID, r)
		}
	}
	return nil
}

// failAll makes the results of an atomic batch that was taken back: the one to
// blame keeps its own, other mutations depend on it, gets read what is there.
func (m *Machine) failAll(now int64, b *schema.Batch, results []schema.OperationResult, blamed int) error {
	for i := range b.Operations {
		op := &b.Operations[i]
		switch {
		case i == blamed:
		case op.Mutation == nil && op.Fault == nil:
			o, err := m.Read(now, b.Collection, op.Get)
			if err != nil {
				return err
			}
			results[i] = schema.OperationResult{Code: o.Code, Fault: o.Fault, Body: o.Body}
		default:
			results[i] = schema.OperationResult{Fault: schema.ErrFailedDependency.With("operation %d of the atomic batch was refused, so nothing was done", blamed)}
		}
	}
	return nil
}
