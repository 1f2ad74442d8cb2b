package processor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// keeper makes snapshots, and with a finite retention drops what is older: the
// log below a snapshot that was verified, the snapshots that newer ones stand
// in for, mutations that were judged, and in the projection what history no
// longer needs.
type keeper struct {
	options   Options
	logger    *slog.Logger
	log       *eventLog
	store     *projections.Store
	mutations *mutationStream
	snapshots *snapshots
	clock     *timekeeper
	wishes    chan<- *wish

	compacted uint64        // the last fact when the projection was compacted
	padded    int64         // when the log was padded last, ms since 1970
	filled    uint64        // bytes that had been appended then
	stale     bool          // the newest snapshot may have what was pruned since
	trimmed   atomic.Uint64 // the first sequence that is left, as of the last look
	made      atomic.Int64  // snapshots made
	failed    atomic.Int64  // rounds that failed
}

// keepSnapshots is how many there are at most: one to start from, and one more
// should that turn out damaged.
const keepSnapshots = 2

// run goes on until ctx ends.
func (k *keeper) run(ctx context.Context) {
	if k.options.SnapshotEvery == 0 {
		return
	}
	timer := time.NewTimer(k.first(ctx))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		if err := k.round(ctx); err != nil && ctx.Err() == nil {
			k.failed.Add(1)
			k.logger.Error("snapshots or retention failed, the log is kept whole; it is tried again", "err", err, "again", k.options.SnapshotEvery)
		}
		timer.Reset(k.options.SnapshotEvery)
	}
}

// first returns how long to wait for the first round: a process that is started
// often makes its snapshots all the same.
func (k *keeper) first(ctx context.Context) time.Duration {
	list, err := k.snapshots.List(ctx)
	if err != nil || len(list) == 0 {
		return k.options.SnapshotEvery
	}
	age := time.Since(time.UnixMilli(list[0].Created))
	return min(max(k.options.SnapshotEvery-age, 0), k.options.SnapshotEvery)
}

// round does all there is to do, once. While the clock is not believed that is
// nothing: it could be wrong about what is old.
func (k *keeper) round(ctx context.Context) error {
	if _, fault := k.clock.check(); fault != nil {
		return nil
	}
	if k.options.Retain > 0 {
		// Before the snapshot, which then holds nothing that the log has lost.
		if err := errors.Join(k.pad(ctx), k.prune(ctx)); err != nil {
			return err
		}
	}
	list, err := k.snapshots.List(ctx)
	if err != nil {
		return err
	}
	if list, err = k.refresh(ctx, list); err != nil {
		return err
	}
	if list, err = k.drop(ctx, list); err != nil || k.options.Retain == 0 {
		return err
	}
	judged := k.store.Cursor().Mutations
	return errors.Join(k.trim(ctx, list), k.mutations.Trim(ctx, judged), k.prune(ctx))
}

// refresh makes a snapshot, if there is anything that the newest lacks, or has
// and should not.
func (k *keeper) refresh(ctx context.Context, list []schema.Snapshot) ([]schema.Snapshot, error) {
	cursor := k.store.Cursor()
	for _, newest := range list {
		if !newest.Sound {
			continue
		}
		if cursor.Last <= newest.Seq && cursor.Padded <= newest.Seq && !k.stale {
			return list, nil
		}
		break
	}
	if cursor.Last == 0 {
		return list, nil // nothing ever happened
	}
	began := time.Now()
	snapshot, err := k.snapshots.Create(ctx)
	if errors.Is(err, errBusy) {
		return list, nil // an operator's, which will do as well
	} else if err != nil {
		return list, err
	}
	k.stale = false
	k.made.Add(1)
	k.logger.Info("snapshot made and verified", "seq", snapshot.Seq, "bytes", snapshot.Bytes, "took", time.Since(began).Round(time.Millisecond))
	return k.snapshots.List(ctx)
}

// drop removes snapshots that are not needed: those that were never finished,
// and of the others all but the newest two, and with a retention those that are
// older. It returns the sound ones that are left, newest first.
func (k *keeper) drop(ctx context.Context, list []schema.Snapshot) (kept []schema.Snapshot, err error) {
	if !k.snapshots.making.TryLock() {
		return nil, nil // one is not finished because it is being made
	}
	defer k.snapshots.making.Unlock()
	for _, snapshot := range list {
		old := k.options.Retain > 0 && snapshot.Created < k.clock.millis()-k.options.Retain.Milliseconds()
		if snapshot.Sound && (len(kept) == 0 || len(kept) < keepSnapshots && !old) {
			kept = append(kept, snapshot)
			continue
		}
		if err := k.snapshots.remove(ctx, snapshot.Seq); err != nil {
			return nil, err
		}
		k.logger.Info("snapshot removed", "seq", snapshot.Seq)
	}
	return kept, nil
}

// tidy drops the snapshots that are not needed.
func (k *keeper) tidy(ctx context.Context) error {
	list, err := k.snapshots.List(ctx)
	if err == nil {
		_, err = k.drop(ctx, list)
	}
	return err
}

// trim removes from the log what is older than the retention and below all
// sound snapshots.
func (k *keeper) trim(ctx context.Context, sound []schema.Snapshot) error {
	if len(sound) == 0 {
		return nil
	}
	cursor := k.store.Cursor()
	first, _, err := k.log.Bounds(ctx)
	if err != nil {
		return err
	}
	if first > max(cursor.Last, cursor.Padded) {
		return nil // there is nothing left but what trimming itself notes
	}
	from, err := k.log.FirstSince(ctx, k.clock.millis()-k.options.Retain.Milliseconds())
	if err != nil {
		return err
	}
	// The event of a snapshot's cursor stays: by it the log is known.
	from = min(from, sound[len(sound)-1].Seq)
	// So does what a repeat may be answered with.
	repeats, ok, err := k.store.RepeatsFrom(max(k.clock.millis(), cursor.Time))
	if err != nil {
		return err
	}
	if ok {
		from = min(from, repeats)
	}
	if from <= first {
		return nil
	}
	if err := k.log.stream.Purge(ctx, jetstream.WithPurgeSequence(from)); err != nil {
		return fmt.Errorf("trim stream %s: %w", k.log.db.LogStream(), err)
	}
	k.logger.Info("log trimmed", "first", from)
	return k.note(ctx, schema.LogTrimmed, fmt.Appendf(nil, `{"first":%d}`, from), 1)
}

// prune drops from the projection what the log no longer has.
func (k *keeper) prune(ctx context.Context) error {
	first, _, err := k.log.Bounds(ctx)
	if err != nil {
		return err
	}
	k.trimmed.Store(first)
	pruned, err := k.store.Prune(first)
	if err != nil {
		return fmt.Errorf("prune the projection: %w", err)
	}
	last := k.store.Cursor().Last
	if !pruned && k.compacted == last {
		return nil // nothing can have ended since
	}
	k.stale = k.stale || pruned
	if err := k.store.Compact(ctx); err != nil {
		return fmt.Errorf("compact the projection: %w", err)
	}
	k.compacted = last
	return nil
}

const (
	// padBytes is the size of the files in which JetStream keeps a stream. It
	// frees a file when all of it is trimmed.
	padBytes = 8 << 20
	// padAtOnce is the size of one event of padding: a message of NATS has
	// 1 MiB by default.
	padAtOnce = 480 << 10
	// padsPerRetention is how often a slow log begins a new file.
	padsPerRetention = 4
)

// pad has the log begin a new file, if the last one holds facts and has not
// been filled for a quarter of the retention. Where little happens, what is
// trimmed would stay in a file that is not full for a long time.
func (k *keeper) pad(ctx context.Context) error {
	cursor := k.store.Cursor()
	if cursor.Last <= cursor.Padded {
		return nil
	}
	now := k.clock.millis()
	if now < k.padded+k.options.Retain.Milliseconds()/padsPerRetention {
		return nil
	}
	written := k.log.written.Load()
	if k.padded != 0 && written > k.filled+2*padBytes {
		k.padded, k.filled = now, written // it fills its files by itself
		return nil
	}
	body := []byte(`{"padding":"` + strings.Repeat(".", padAtOnce) + `"}`)
	if err := k.note(ctx, schema.LogPadded, body, padBytes/padAtOnce+1); err != nil {
		return fmt.Errorf("pad the log: %w", err)
	}
	k.padded, k.filled = now, k.log.written.Load()
	return nil
}

// note has the writer append an internal event n times, and waits for it.
func (k *keeper) note(ctx context.Context, t schema.EventType, body []byte, n int) error {
	done := make(chan Outcome, n)
	for range n {
		select {
		case k.wishes <- &wish{internal: &schema.Event{Type: t, Body: body}, done: func(o Outcome) { done <- o }}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for range n {
		select {
		case o := <-done:
			if o.Fault != nil {
				return o.Fault
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
