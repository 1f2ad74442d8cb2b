package answer

import (
	"context"
	"slices"

	"github.com/lapsedb/lapse/processor/machine"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// ParseBatch parses a batch request.
func ParseBatch(tail string, header schema.Header, data []byte) (*schema.Batch, *schema.Error) {
	b, fault := schema.ParseBatch(tail, data)
	for _, single := range []string{schema.HeaderRequestID, schema.HeaderIfMatch} {
		if fault == nil && len(header[single]) > 0 {
			fault = schema.ErrBadRequest.With("%s is for single mutations: give the operations of a batch an ifMatch each, or send them by themselves", single)
		}
	}
	if fault == nil {
		fault = header.CheckNoEnd("batch as a whole: its operations have expireAt and keepDeadline")
	}
	if fault == nil {
		b.SetTrace(header.Trace())
	}
	return b, fault
}

// ReadBatch answers a batch of gets from one state and returns the state's sequence. now
// returns the unix second by which to judge deadlines, bytes is the maximum reply, and
// expired is called for each document whose deadline has passed.
//
// It mirrors what the machine does for a batch that mutates: an operation with a fault has
// it, an atomic batch blames its first fault, and what no longer fits the reply becomes a
// 413 of its own (Budget). An error means that the whole batch has to be read again.
func ReadBatch(ctx context.Context, store *projections.Store, b *schema.Batch, now func() int64, bytes int, expired expiredFunc) (results []schema.OperationResult, seq uint64, err error) {
	v, ok, err := store.View(b.Collection)
	if err != nil {
		return nil, 0, err
	}
	if ok {
		defer v.Close()
		seq = v.Seq()
	}
	second := now() // not before the view
	results = make([]schema.OperationResult, len(b.Operations))
	read, blamed := 0, slices.IndexFunc(b.Operations, func(op schema.Operation) bool { return op.Fault != nil })
	budget := machine.NewBudget(bytes, len(results))
	for i := range b.Operations {
		if err := ctx.Err(); err != nil {
			return nil, 0, err
		}
		op := &b.Operations[i]
		var result schema.OperationResult
		switch {
		case b.Atomic && !op.Reads && i != blamed:
			result = machine.DependsOn(blamed)
		case op.Fault != nil:
			result.Fault = op.Fault
		case !ok:
			result.Fault = schema.NoCollection(b.Collection)
		case read > machine.MaxBatchBytes:
			result.Fault = machine.TooMuchRead()
		default:
			record, _, err := v.Document([]byte(op.Get))
			if err != nil {
				return nil, 0, err
			}
			read += len(record.Body)
			if !Lives(v.Collection(), record, second) {
				if err := expired(v.Collection(), op.Get, record); err != nil {
					return nil, 0, err
				}
				result.Fault = machine.NoDocument(v.Collection(), op.Get)
			} else {
				result.Code, result.Body = 200, Present(record)
				if result.Lifetime, err = v.Lifetime(op.Get, record.Meta); err != nil {
					return nil, 0, err
				}
			}
		}
		budget.Put(&results[i], result)
	}
	return results, seq, nil
}
