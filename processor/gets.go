package processor

import (
	"context"
	"slices"

	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// parseBatch reads a batch request.
func parseBatch(tail string, header schema.Header, data []byte) (*schema.Batch, *schema.Error) {
	b, fault := schema.ParseBatch(tail, data)
	for _, single := range []string{schema.HeaderRequestID, schema.HeaderIfMatch} {
		if fault == nil && len(header[single]) > 0 {
			fault = schema.ErrBadRequest.With("%s is for single mutations: give the operations of a batch an ifMatch each, or send them by themselves", single)
		}
	}
	return b, fault
}

// readBatch answers a batch that changes nothing, from one state, of which it
// returns the sequence; now tells the second. bytes is what the reply may have.
func readBatch(ctx context.Context, store *projections.Store, b *schema.Batch, now func() int64, bytes int, gone goneFunc) (results []schema.OperationResult, seq uint64, err error) {
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
	room := newRoom(bytes, len(results))
	for i := range b.Operations {
		if err := ctx.Err(); err != nil {
			return nil, 0, err
		}
		op := &b.Operations[i]
		var result schema.OperationResult
		switch {
		case b.Atomic && !op.Reads && i != blamed:
			result = dependsOn(blamed)
		case op.Fault != nil:
			result.Fault = op.Fault
		case !ok:
			result.Fault = schema.NoCollection(b.Collection)
		case read > maxBatchBytes:
			result.Fault = tooMuchRead()
		default:
			record, _, err := v.Document([]byte(op.Get))
			if err != nil {
				return nil, 0, err
			}
			read += len(record.Body)
			if !lives(v.Collection(), record, second) {
				if err := gone(v.Collection(), op.Get, record); err != nil {
					return nil, 0, err
				}
				result.Fault = noDocument(v.Collection(), op.Get)
			} else {
				result.Code, result.Body = 200, present(record)
			}
		}
		room.put(&results[i], result)
	}
	return results, seq, nil
}
