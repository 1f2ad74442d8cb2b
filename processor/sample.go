package processor

import (
	"context"
	"errors"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/processor/monitor"
	"github.com/lapsedb/lapse/projections"
)

// Processor implements monitor.Source.

func (p *Processor) Sample() monitor.Sample {
	s := monitor.Sample{
		Role:     p.service.Role(),
		Cursor:   p.store.Cursor(),
		Appended: p.log.Written.Load(),
		Clock:    p.service.Clock.Status(),
		Answered: p.service.Operations.All(),
		Queues:   p.service.Queues(),
		Held:     p.service.Held.Load(),
		Failure:  p.store.Failure(),
	}
	if p.options.SnapshotEvery > 0 {
		s.Snapshots = &monitor.SnapshotSample{Made: p.retention.Made.Load(), Failed: p.retention.Failed.Load(), Newest: p.retention.Newest.Load()}
	}
	return s
}

func (p *Processor) Health() projections.Health { return p.store.Health() }

func (p *Processor) Ends(ctx context.Context) (ends monitor.StreamEnds, err error) {
	if !p.log.NC.IsConnected() {
		return ends, nats.ErrDisconnected
	}
	var mutationsErr error
	var asking sync.WaitGroup
	asking.Go(func() { ends.Behind, mutationsErr = p.service.Mutations.After(ctx, p.store.Cursor().Mutations) })
	ends.First, ends.Last, err = p.log.Bounds(ctx)
	asking.Wait()
	return ends, errors.Join(err, mutationsErr)
}

func (p *Processor) CountDocuments() (counts monitor.DocumentCounts, err error) {
	collections := p.store.Collections()
	counts.Collections = len(collections)
	for _, c := range collections {
		n, err := p.service.Live.Count(context.Background(), c)
		if err != nil {
			return counts, err
		}
		counts.Documents += n.Documents
		counts.Bytes += n.Bytes
		counts.Pending += n.Pending
		counts.Held += n.Held
		counts.Overdue += n.Overdue
	}
	return counts, nil
}
