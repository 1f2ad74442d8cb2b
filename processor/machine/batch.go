package machine

import (
	"errors"
	"math"

	"github.com/lapsedb/lapse/schema"
)

// A batch is decided operation by operation, each against the state after those before it.
// A plain batch may be interrupted (More) when its work reaches the turn's limit; what is
// decided stays decided, and other requests get their turn. An atomic one is decided in one
// attempt: at the first refusal everything that it emitted is undone, and each other
// mutation is a 424.
//
// Budgets keep one request from occupying the writer or exceeding a message: bytes of the
// reply, of events, and of documents read; for an atomic batch also its work and the number
// of its events, which a stream limits. What would exceed a budget is refused before it
// changes anything.

// BatchRun is a batch while it is decided.
type BatchRun struct {
	*schema.Batch
	First uint64 // if it is atomic: sequence of the first event that it may have made

	results []schema.OperationResult
	next    int // the operation to decide next
	budget  budget
}

// NewBatchRun returns a batch to be decided; reply is the maximum reply in bytes.
func NewBatchRun(b *schema.Batch, reply int) *BatchRun {
	results := make([]schema.OperationResult, len(b.Operations))
	run := &BatchRun{Batch: b, results: results, budget: NewBudget(reply, len(results))}
	if b.Atomic {
		run.budget.work = MaxAtomicWork
	}
	return run
}

// Rest returns the operations that are not decided.
func (r *BatchRun) Rest() []schema.Operation { return r.Operations[r.next:] }

// DecideBatch judges the operations of a batch in order, at now in ms. Operations whose
// results would exceed the maximum reply, or whose events or reads would exceed
// MaxBatchBytes, are refused and change nothing.
//
// The outcome is NeedTurn when the work has reached a limit, which at least one operation may
// exceed. An atomic batch is decided in one piece, so its own limit is MaxAtomicWork. Its
// events are the last pending ones, from First on, to be appended as one; if it fails it
// leaves none. As with Decide, the outcome may also be NeedCommit or NeedLog.
func (m *Machine) DecideBatch(now int64, run *BatchRun, work int) (o Outcome, err error) {
	if run.Atomic {
		o, err = m.decideAtomic(now, run)
	} else {
		o, err = m.decideOperations(now, run, work)
	}
	if o.Need != NoNeed || err != nil {
		return o, err
	}
	return Outcome{Code: 200, Body: schema.AppendResults(nil, run.results), Seq: m.seq}, nil
}

// decideAtomic decides an atomic batch.
func (m *Machine) decideAtomic(now int64, run *BatchRun) (o Outcome, err error) {
	// Due targets expire first and apart from the batch. What it releases may be due, and
	// expires within it.
	more, err := m.expireTargets(now, run.Batch)
	run.First = m.seq + 1
	if more || err != nil {
		return Outcome{Need: NeedCommit}, err
	}
	before := run.budget
	run.budget.last = m.seq + schema.MaxOperations
	m.counts = true
	defer func() { m.counts = false }()
	m.attempt(func() bool {
		o, err = m.decideOperations(now, run, math.MaxInt)
		return err == nil && o.Need == NoNeed && o.Fault == nil
	})
	if err != nil || o.Need != NoNeed {
		run.next, run.budget = 0, before
		clear(run.results)
		return o, err
	}
	if o.Fault != nil {
		before.reads = run.budget.reads
		run.budget = before
		return Outcome{}, m.failAll(now, run, run.next)
	}
	return Outcome{}, nil
}

// MaxBatchBytes limits the bodies of the events of one batch, and the documents that it
// reads. Small deletes can make large events, and an atomic batch has to fit into the
// queue of a stream, 128 MiB; small patches of large documents occupy the writer.
const MaxBatchBytes = 64 << 20

// MaxAtomicWork limits the work of an atomic batch, apart from reading and writing the
// documents that it ends: nothing else is decided meanwhile.
const MaxAtomicWork = 32 << 20

// budget holds the remaining limits of a batch. The reply reserves smallResult bytes for
// each result, so that an error always fits.
type budget struct {
	reply  int    // bytes of the reply
	events int    // bytes of the bodies of events
	reads  int    // bytes of documents read; negative once it is exceeded
	work   int    // see MaxAtomicWork
	last   uint64 // sequence that no event may exceed
}

// NewBudget returns the budget of a batch with a maximum reply in bytes and a number of
// results.
func NewBudget(reply, results int) budget {
	return budget{reply: reply - (results+1)*smallResult, events: MaxBatchBytes, reads: MaxBatchBytes, work: math.MaxInt, last: math.MaxUint64}
}

const (
	smallResult    = 160 // a result without content, or with an error of the batch
	bytesPerResult = 32  // upper bound of the bytes around a result's body
)

// after returns the bytes of the reply that remain after a result, negative if it does not fit.
func (r budget) after(result *schema.OperationResult) int {
	return r.reply - max(0, result.Size()+bytesPerResult-smallResult)
}

// Put stores a result if it fits, else an error. An error always fits: NewBudget has
// reserved its space.
func (r *budget) Put(to *schema.OperationResult, result schema.OperationResult) {
	if remaining := r.after(&result); remaining >= 0 {
		*to, r.reply = result, remaining
	} else {
		*to = schema.OperationResult{Fault: tooLargeReply()}
	}
}

// TooMuchRead returns the error of an operation in a batch that has read too much before
// it.
func TooMuchRead() *schema.Error {
	return schema.ErrTooLarge.With("the documents of the batch have too many bytes: use smaller batches")
}

func tooLargeReply() *schema.Error {
	return schema.ErrTooLarge.With("the reply of the batch would be too large: use smaller batches")
}

// decideOperations fills in results until the work reaches a limit. In an atomic batch it
// ends at the first mutation that is refused, with its fault.
func (m *Machine) decideOperations(now int64, run *BatchRun, work int) (Outcome, error) {
	for until := m.work + min(work, math.MaxInt-m.work); run.next < len(run.Operations); run.next++ {
		if m.work >= until {
			return Outcome{Need: NeedTurn}, nil
		}
		op, r := &run.Operations[run.next], &run.results[run.next]
		result, err := m.decideOperation(now, run, op)
		if errors.Is(err, errRecall) {
			return Outcome{Need: NeedLog}, nil
		}
		if err != nil {
			return Outcome{}, err
		}
		run.budget.Put(r, result)
		if run.Atomic && r.Fault != nil && (op.Mutation != nil || op.Fault != nil) {
			return Outcome{Fault: r.Fault}, nil
		}
	}
	return Outcome{}, nil
}

// decideOperation judges one operation. If its result or events exceed the budget, it
// changes nothing.
func (m *Machine) decideOperation(now int64, run *BatchRun, op *schema.Operation) (r schema.OperationResult, err error) {
	b := &run.budget
	if op.Fault != nil {
		return schema.OperationResult{Fault: op.Fault}, nil
	}
	if op.Mutation == nil {
		return m.readOperation(now, run, op)
	}
	if b.reads < 0 {
		return schema.OperationResult{Fault: TooMuchRead()}, nil
	}
	reads := m.reads
	defer func() { b.reads -= m.reads - reads }()
	bytes, worked := m.bytes, m.work
	work := func() int { // of the operation, as MaxAtomicWork limits it
		done := m.work - worked
		if op.Mutation.Op == schema.DocumentDelete {
			done -= m.reads - reads + m.bytes - bytes
		}
		return done
	}
	err = m.guard(func() error {
		m.stamp(now)
		o, err := m.decide(op.Mutation)
		if o.Version != 0 && err == nil {
			o.Body, err = m.content(op.Mutation, o)
		}
		if r = (schema.OperationResult{Code: o.Code, Fault: o.Fault, Body: o.Body, Lifetime: o.Lifetime}); err == nil && b.after(&r) < 0 {
			return tooLargeReply()
		}
		switch {
		case m.bytes-bytes > b.events:
			return schema.ErrTooLarge.With("the events of the batch would have more than %d bytes: use smaller batches", MaxBatchBytes)
		case m.seq > b.last: // a stream's limit for one atomic batch
			return schema.ErrTooLarge.With("the atomic batch would have more than %d events: use smaller batches", schema.MaxOperations)
		case work() > b.work:
			return schema.ErrTooLarge.With("the atomic batch would read, write and index more than %d bytes: use smaller batches", MaxAtomicWork)
		}
		return err
	})
	var fault *schema.Error
	switch {
	case errors.As(err, &fault):
		return schema.OperationResult{Fault: fault}, nil
	case errors.Is(err, ErrPanic):
		return schema.OperationResult{Fault: schema.ErrUnavailable.With("the operation failed inside lapse; it changed nothing")}, nil
	case err != nil:
		return r, err
	}
	b.events -= m.bytes - bytes
	b.work -= work()
	return r, nil
}

// content returns the document that a touch replies with.
func (m *Machine) content(mu *schema.Mutation, o Outcome) ([]byte, error) {
	r, err := m.document(m.Collection(mu.Collection), mu.ID)
	if err != nil {
		return nil, err
	}
	return schema.AppendReply(nil, r.Body, o.TS, o.Version), nil
}

// readOperation answers a get of a batch.
func (m *Machine) readOperation(now int64, run *BatchRun, op *schema.Operation) (r schema.OperationResult, err error) {
	b := &run.budget
	if b.reads < 0 || b.work < 0 {
		return schema.OperationResult{Fault: TooMuchRead()}, nil
	}
	reads := m.reads
	o, err := m.get(now, run.Collection, op.Get)
	b.reads -= m.reads - reads
	b.work -= m.reads - reads
	return schema.OperationResult{Code: o.Code, Fault: o.Fault, Body: o.Body, Lifetime: o.Lifetime}, err
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

// failAll fills in the results of an atomic batch that failed: the operation to blame keeps
// its own, other mutations depend on it, and gets read the state without it. Nothing of the
// batch is pending any more.
func (m *Machine) failAll(now int64, run *BatchRun, blamed int) error {
	budget, results := &run.budget, run.results
	budget.Put(&results[blamed], results[blamed])
	for i := range run.Operations {
		op := &run.Operations[i]
		switch {
		case i == blamed:
		case !op.Reads:
			results[i] = DependsOn(blamed)
		case op.Fault != nil:
			budget.Put(&results[i], schema.OperationResult{Fault: op.Fault})
		default:
			r, err := m.readOperation(now, run, op)
			if err != nil {
				return err
			}
			budget.Put(&results[i], r)
		}
	}
	return nil
}

// DependsOn returns the result of a mutation in an atomic batch in which another failed.
func DependsOn(blamed int) schema.OperationResult {
	return schema.OperationResult{Fault: schema.ErrFailedDependency.With("operation %d of the atomic batch was refused, so nothing was done", blamed)}
}
