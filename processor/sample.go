package processor

import (
	"context"
	"errors"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/projections"
)

// What a Monitor looks up in a processor that serves.

func (p *Processor) sample() sample {
	s := sample{
		cursor:   p.store.Cursor(),
		appended: p.log.written.Load(),
		clock:    p.service.clock.status(),
		answered: p.service.operations.all(),
		queues:   p.service.queues(),
		held:     p.service.held.Load(),
		failure:  p.store.Failure(),
	}
	if p.options.SnapshotEvery > 0 {
		s.snapshots = &snapshotSample{made: p.keeper.made.Load(), failed: p.keeper.failed.Load(), newest: p.keeper.newest.Load()}
	}
	return s
}

func (p *Processor) health() projections.Health { return p.store.Health() }

func (p *Processor) ends(ctx context.Context) (ends streamEnds, err error) {
	if !p.log.nc.IsConnected() {
		return ends, nats.ErrDisconnected
	}
	var mutationsErr error
	var asking sync.WaitGroup
	asking.Go(func() { ends.behind, mutationsErr = p.service.mutations.Behind(ctx, p.store.Cursor().Mutations) })
	ends.first, ends.last, err = p.log.Bounds(ctx)
	asking.Wait()
	return ends, errors.Join(err, mutationsErr)
}

func (p *Processor) countDocuments() (counts documentCounts, err error) {
	collections := p.store.Collections()
	counts.collections = len(collections)
	for _, c := range collections {
		n, err := p.service.live.count(context.Background(), c)
		if err != nil {
			return counts, err
		}
		counts.Documents += n.Documents
		counts.Bytes += n.Bytes
		counts.Pending += n.Pending
		counts.Overdue += n.Overdue
	}
	return counts, nil
}
