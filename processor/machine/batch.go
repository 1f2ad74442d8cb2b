package machine

import (
	"errors"
	"math"

	"github.com/lapsedb/lapse/schema"
)

// DecideBatch judges the operations of a batch in order, at now in ms. The events of an
// atomic batch that succeeds are the last pending ones, from sequence first on, to be
// appended as one; an atomic batch that fails leaves none. size is the maximum reply in
// bytes: operations whose results would exceed it, or whose events would exceed
// MaxBatchBytes, are refused and change nothing.
//
// As with Decide, the outcome may be to decide the batch Again.
func (m *Machine) DecideBatch(now int64, b *schema.Batch, size int) (o Outcome, first uint64, err error) {
	results := make([]schema.OperationResult, len(b.Operations))
	budget := NewBudget(size, len(results))
	budget.until, budget.read, budget.last = m.bytes+MaxBatchBytes, m.read+MaxBatchBytes, math.MaxUint64
	first = m.seq + 1
	if !b.Atomic {
		if _, err := m.decideOperations(now, b, results, budget, false); err != nil {
			return Outcome{}, 0, err
		}
	} else {
		// Due targets expire first and apart from the batch. What it releases may be
		// due, and expires within it.
		more, err := m.expireTargets(now, b)
		if err != nil {
			return Outcome{}, 0, err
		}
		first = m.seq + 1
		if more {
			return Outcome{Again: true}, first, nil
		}
		budget.until, budget.last = m.bytes+MaxBatchBytes, m.seq+schema.MaxOperations
		blamed := -1
		m.attempt(func() bool {
			blamed, err = m.decideOperations(now, b, results, budget, true)
			return err == nil && blamed < 0
		})
		if err != nil {
			return Outcome{}, 0, err
		}
		if blamed >= 0 {
			if err := m.failAll(now, b, results, budget, blamed); err != nil {
				return Outcome{}, 0, err
			}
		}
	}
	return Outcome{Code: 200, Body: schema.AppendResults(nil, results), Seq: m.seq}, first, nil
}

// MaxBatchBytes limits the bodies of the events of one batch, and the documents that it
// reads. Small deletes can make large events, and an atomic batch has to fit into the
// queue of a stream, 128 MiB; small patches of large documents occupy the writer.
const MaxBatchBytes = 64 << 20

// budget holds the remaining limits of a batch. The reply reserves smallResult bytes for
// each result, so that an error always fits.
type budget struct {
	left  int    // bytes of the reply
	until int    // limit of Machine.bytes
	read  int    // limit of Machine.read
	last  uint64 // sequence that no event may exceed
}

// NewBudget returns the budget of a reply with a limit in bytes and a number of results.
func NewBudget(bytes, results int) budget { return budget{left: bytes - (results+1)*smallResult} }

const (
	smallResult    = 160 // a result without content, or with an error of the batch
	bytesPerResult = 32  // upper bound of the bytes around a result's body
)

// after returns the bytes left after a result, negative if it does not fit.
func (r budget) after(result *schema.OperationResult) int {
	bytes := len(result.Body)
	if result.Fault != nil {
		bytes = len(result.Fault.AppendJSON(nil))
	}
	return r.left - max(0, bytes+bytesPerResult-smallResult)
}

// Put stores a result if it fits, else an error.
func (r *budget) Put(to *schema.OperationResult, result schema.OperationResult) {
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

// decideOperations fills in results. If stop, it ends at the first mutation that is
// refused and returns its index, else -1.
func (m *Machine) decideOperations(now int64, b *schema.Batch, results []schema.OperationResult, budget budget, stop bool) (blamed int, err error) {
	for i := range b.Operations {
		op, r := &b.Operations[i], &results[i]
		result, err := m.decideOperation(now, b, op, budget)
		if err != nil {
			return 0, err
		}
		budget.Put(r, result)
		if stop && r.Fault != nil && (op.Mutation != nil || op.Fault != nil) {
			return i, nil
		}
	}
	return -1, nil
}

// decideOperation judges one operation. If its result or events exceed the budget, it
// changes nothing.
func (m *Machine) decideOperation(now int64, b *schema.Batch, op *schema.Operation, budget budget) (r schema.OperationResult, err error) {
	if op.Fault != nil {
		return schema.OperationResult{Fault: op.Fault}, nil
	}
	if m.read > budget.read {
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
		if r = (schema.OperationResult{Code: o.Code, Fault: o.Fault, Body: o.Body}); err == nil && budget.after(&r) < 0 {
			return tooLargeReply()
		}
		if m.bytes > budget.until {
			return schema.ErrTooLarge.With("the events of the batch would have more than %d bytes: use smaller batches", MaxBatchBytes)
		}
		if m.seq > budget.last { // a stream's limit for one atomic batch
			return schema.ErrTooLarge.With("the atomic batch would have more than %d events: use smaller batches", schema.MaxOperations)
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

// expireTargets expires the due documents among the targets of the batch's mutations.
// more: the pending events have to be folded before the others can expire, too.
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

// failAll fills in the results of an atomic batch that failed: the operation to blame
// keeps its own, other mutations depend on it, and gets read the state without it.
func (m *Machine) failAll(now int64, b *schema.Batch, results []schema.OperationResult, budget budget, blamed int) error {
	budget.Put(&results[blamed], results[blamed])
	for i := range b.Operations {
		op := &b.Operations[i]
		switch {
		case i == blamed:
		case !op.Reads:
			results[i] = DependsOn(blamed)
		case op.Fault != nil:
			budget.Put(&results[i], schema.OperationResult{Fault: op.Fault})
		case m.read > budget.read:
			results[i] = schema.OperationResult{Fault: TooMuchRead()}
		default:
			o, err := m.Read(now, b.Collection, op.Get)
			if err != nil {
				return err
			}
			budget.Put(&results[i], schema.OperationResult{Code: o.Code, Fault: o.Fault, Body: o.Body})
		}
	}
	return nil
}

// DependsOn returns the result of a mutation in an atomic batch in which another failed.
func DependsOn(blamed int) schema.OperationResult {
	return schema.OperationResult{Fault: schema.ErrFailedDependency.With("operation %d of the atomic batch was refused, so nothing was done", blamed)}
}
