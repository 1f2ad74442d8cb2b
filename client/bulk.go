package client

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"time"
)

// Limits of a request of RunBatches. A larger one takes the writer longer than others
// should wait; MaxBatch operations of small documents are as fast as half of them.
const (
	bulkOperations = 500
	bulkBytes      = 256 << 10 // of bodies
	bulkHeaders    = 1 << 10   // for headers and what encloses the operations
	bulkEnvelope   = 96        // what encloses a body
)

// How long RunBatches sends a request again, and how often.
const (
	bulkPatience = time.Minute
	bulkPause    = 200 * time.Millisecond
)

// RunBatches runs the batches of a sequence, with up to inFlight requests at a time, and
// yields the results of each in the order of the sequence. It puts small batches of one
// collection into one request, so that a batch may well be one operation. Operations on
// one document are applied in the order of the sequence.
//
// A nil batch says that the next one is not ready: RunBatches sends what it has, and yields
// the results before it goes on with the sequence.
//
// A request that fails with ErrUnavailable or ErrOverloaded changed nothing, and is sent
// again for a minute; one of unconditional upserts and gets also after ErrTimeout. Any
// other error is that of each batch in the request; the loop may go on. After ErrTimeout
// or context.Canceled the request may have been applied.
//
// The loop reads the sequence on its own goroutine, ahead of the results. When the loop
// ends, so do the requests in flight.
func RunBatches(ctx context.Context, batches iter.Seq[*Batch], inFlight int) iter.Seq2[Results, error] {
	return func(yield func(Results, error) bool) {
		// What is in flight, and why it keeps the order of a document: a request is sent
		// only if none of its documents is in another one in flight (busy). Requests are
		// awaited in order, so results come in order, and a document is free again once its
		// request was yielded. held is the request that has to wait; nothing overtakes it.
		next, stop := iter.Pull(batches)
		defer stop()
		var running sync.WaitGroup
		defer running.Wait()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		source := &bulkSource{next: next}
		busy := make(map[documentKey]bool) // documents of requests in flight
		var queue []*bulkRequest           // in flight, in order
		var held *bulkRequest              // not sent yet
		for {
			for len(queue) < max(inFlight, 1) {
				if held == nil && (!source.paused || len(queue) == 0) {
					held = source.request()
				}
				if held == nil || slices.ContainsFunc(held.documents, func(d documentKey) bool { return busy[d] }) {
					break
				}
				for _, d := range held.documents {
					busy[d] = true
				}
				r := held
				queue, held = append(queue, r), nil
				running.Go(func() { r.run(ctx) })
			}
			if len(queue) == 0 {
				if source.paused {
					continue
				}
				return
			}
			r := queue[0]
			queue = queue[1:]
			<-r.done
			for _, d := range r.documents {
				delete(busy, d)
			}
			if !r.yield(yield) {
				return
			}
		}
	}
}

type documentKey struct{ collection, id string }

// bulkRequest is one request for several batches.
type bulkRequest struct {
	batches   []*Batch
	documents []documentKey

	done    chan struct{}
	results Results
	err     error
}

// run sends the request until it has an answer, or an error that a repeat does not change.
// After a lost answer it repeats only what may be done twice: upserts without a condition,
// and gets.
func (r *bulkRequest) run(ctx context.Context) {
	defer close(r.done)
	whole := Batch{coll: r.batches[0].coll, err: r.batches[0].err}
	for _, b := range r.batches {
		whole.operations = append(whole.operations, b.operations...)
	}
	if len(whole.operations) == 0 {
		r.err = whole.err
		return
	}
	repeatable := !slices.ContainsFunc(whole.operations, func(op operation) bool {
		return op.Op != "get" && (op.Op != "upsert" || op.IfMatch != "")
	})
	lost := false // the answer of a try
	for began := time.Now(); ; {
		r.results, r.err = whole.Run(ctx)
		for i := range r.results {
			r.results[i].Again = lost
		}
		lost = lost || errors.Is(r.err, ErrTimeout)
		again := errors.Is(r.err, ErrUnavailable) || errors.Is(r.err, ErrOverloaded) || errors.Is(r.err, ErrTimeout) && repeatable
		if !again || time.Since(began) > bulkPatience {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(bulkPause):
		}
	}
}

// yield yields to each batch its part of the results, without copying.
func (r *bulkRequest) yield(yield func(Results, error) bool) bool {
	results := r.results
	for _, b := range r.batches {
		var own Results
		if r.err == nil {
			own, results = results[:len(b.operations):len(b.operations)], results[len(b.operations):]
		}
		if !yield(own, r.err) {
			return false
		}
	}
	return true
}

// bulkSource makes requests of a sequence of batches.
type bulkSource struct {
	next    func() (*Batch, bool)
	pending *Batch // for the next request
	paused  bool   // the last batch was nil
}

// request returns the next request, nil at the end and at a nil batch. A batch with an
// invalid operation has one of its own.
func (s *bulkSource) request() *bulkRequest {
	r := &bulkRequest{done: make(chan struct{})}
	operations, size := 0, 0
	s.paused = false
	for {
		b, more := s.pending, s.pending != nil
		if s.pending = nil; !more {
			b, more = s.next()
		}
		if s.paused = more && b == nil; !more || s.paused {
			break
		}
		operations += len(b.operations)
		size += b.size()
		if len(r.batches) > 0 {
			first := r.batches[0]
			if operations > bulkOperations || size > bulkBytes || size+bulkEnvelope*operations > b.coll.client.bulkRoom() || b.coll != first.coll || b.err != nil || first.err != nil {
				s.pending = b
				break
			}
		}
		r.batches = append(r.batches, b)
		for i := range b.operations {
			r.documents = append(r.documents, documentKey{b.coll.info.Name, b.operations[i].ID})
		}
	}
	if len(r.batches) == 0 {
		return nil
	}
	return r
}

// bulkRoom returns how many bytes of operations this connection may send in a request.
func (c *Client) bulkRoom() int {
	c.awaitLimits(bulkBytes)
	return int(c.nc.MaxPayload()) - bulkHeaders
}

// size returns about how many bytes the operations have in a request.
func (b *Batch) size() (bytes int) {
	for i := range b.operations {
		bytes += 2*len(b.operations[i].ID) + len(b.operations[i].Body) + len(b.operations[i].IfMatch) // quotes are escaped
	}
	return bytes
}
