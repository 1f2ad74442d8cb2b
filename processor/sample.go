package processor

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/internal/memory"
	"github.com/lapsedb/lapse/processor/monitor"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// Processor implements monitor.Source.

// Sample implements monitor.Source, without I/O.
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

// Memory implements monitor.Source, and is part of status: what the process uses, not only
// this database.
func (p *Processor) Memory() schema.Memory {
	health := p.store.Health()
	return schema.Memory{LimitBytes: p.options.MemoryLimit, ResidentBytes: memory.Resident(), HeapBytes: memory.Heap(),
		CacheBytes: health.CacheBytes, MemtableBytes: health.MemTableBytes}
}

// Ends implements monitor.Source. It asks for both streams at the same time, and not at all
// while the connection is lost: the request would wait for its time-out.
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

// Usage implements monitor.Source. With replicas, NATS counts what an account stores in all
// of them, and a tier of an account limits one.
func (p *Processor) Usage(ctx context.Context) (usage monitor.Usage, err error) {
	if !p.log.NC.IsConnected() {
		return usage, nats.ErrDisconnected
	}
	log, logErr := p.log.Stream.Info(ctx)
	mutations, err := p.service.Mutations.Info(ctx)
	if err := errors.Join(logErr, err); err != nil {
		return usage, err
	}
	usage.Log, usage.Mutations = log.State.Bytes, mutations.State.Bytes
	usage.AddLimit("log", log.Config.MaxBytes, usage.Log, 1)
	usage.AddLimit("mutations", mutations.Config.MaxBytes, usage.Mutations, 1)
	replicas := uint64(max(log.Config.Replicas, 1))
	account, err := p.log.JS.AccountInfo(ctx)
	if err != nil {
		return usage, err
	}
	usage.AddLimit("account", account.Limits.MaxStore, account.Store, replicas)
	if tier, ok := account.Tiers[fmt.Sprintf("R%d", replicas)]; ok {
		usage.AddLimit("account", tier.Limits.MaxStore*int64(replicas), tier.Store, replicas)
	}
	if p.options.Limits != nil {
		usage.Limits = append(usage.Limits, p.options.Limits()...)
	}
	return usage, nil
}

// CountDocuments implements monitor.Source.
func (p *Processor) CountDocuments() (counts monitor.DocumentCounts, err error) {
	collections := p.store.Collections()
	counts.Collections = len(collections)
	for _, c := range collections {
		n, err := p.service.Liveness.Count(context.Background(), c)
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
