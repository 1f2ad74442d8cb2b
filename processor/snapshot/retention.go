package snapshot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/processor/clock"
	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// A round, on the writer, every SnapshotEvery:
//
//	pad ─► prune ─► snapshot ─► drop old snapshots ─► trim the log ─► trim mutations ─► prune
//
// The order keeps one promise: the log is never trimmed above what a verified snapshot
// holds. What a round does not reach for an error, the next one does; each step may be
// repeated.
//
// The event at a snapshot's cursor stays in the log, since it shows that the two belong
// together. So do the events of the last two minutes with a Nats-Msg-Id, from which repeats
// are answered.
//
// Personal data should go when its time has come: trimmed events must vanish from the files
// of the log, of the projection and of snapshots. JetStream frees a file when all of it is
// trimmed, hence pad; Pebble when it compacts, hence the compaction in prune; a snapshot
// that may hold pruned facts is Stale, and replaced.

// Retention makes snapshots and, if Config.Retain is finite, removes what is older:
// the log below a verified snapshot, snapshots that newer ones replace, judged
// mutations, and what the projection keeps for history only.
type Retention struct {
	Config    Config
	Log       *eventlog.Log
	Store     *projections.Store
	Mutations *eventlog.Mutations
	Snapshots *Store
	Clock     *clock.Timekeeper
	Noter     noter

	compacted   uint64 // the last fact at the last compaction of the projection
	compactedAt int64  // its time, Unix ms
	dirty       bool   // something was pruned since
	padded      int64  // when the log was padded last, Unix ms
	filled      uint64 // bytes appended by then
	unpadded    uint64 // the cursor before that: facts after it may be in the new file
	Stale       bool   // the newest snapshot may hold what was pruned since

	trimmed atomic.Uint64                   // the log's first sequence, as of the last prune
	Made    atomic.Int64                    // snapshots made
	Failed  atomic.Int64                    // failed rounds
	Newest  atomic.Pointer[schema.Snapshot] // the newest sound snapshot as of the last list; nil if none
}

// noter appends the internal events of retention to the log.
type noter interface {
	// Note appends an internal event and returns when it is durable.
	Note(ctx context.Context, t schema.EventType, body []byte) error
	// Writing reports whether this process is the writer: only the writer trims.
	Writing() bool
}

// keepSnapshots is how many are kept: one to start from, and one in case that is
// damaged.
const keepSnapshots = 2

// lockPoll is how often a round tries to lock the snapshots.
const lockPoll = time.Second

// Run runs a round every Config.SnapshotEvery until ctx ends.
func (k *Retention) Run(ctx context.Context) {
	if k.Config.SnapshotEvery == 0 {
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
			k.Failed.Add(1)
			k.Config.Events(observe.RetentionFailed{Err: err, Again: k.Config.SnapshotEvery})
		}
		timer.Reset(k.Config.SnapshotEvery)
	}
}

// first returns the wait for the first round, from the age of the newest sound snapshot: a
// process that restarts often makes snapshots too. An unfinished one has no age. Ages are
// by the wall clock here, since the round itself checks the clock.
func (k *Retention) first(ctx context.Context) time.Duration {
	if list, err := k.Snapshots.List(ctx); err == nil {
		k.setNewest(list)
	}
	newest := k.Newest.Load()
	if newest == nil {
		return k.Config.SnapshotEvery
	}
	age := time.Since(time.UnixMilli(newest.Created))
	return min(max(k.Config.SnapshotEvery-age, 0), k.Config.SnapshotEvery)
}

// setNewest keeps the newest sound snapshot, for metrics.
func (k *Retention) setNewest(newestFirst []schema.Snapshot) {
	if i := slices.IndexFunc(newestFirst, func(snap schema.Snapshot) bool { return snap.Sound }); i >= 0 {
		k.Newest.Store(&newestFirst[i])
	}
}

// round does one round. It does nothing while the clock is not trusted: ages could be
// wrong. A standby only prunes what the writer has trimmed.
func (k *Retention) round(ctx context.Context) error {
	if _, fault := k.Clock.Check(); fault != nil {
		return nil
	}
	if !k.Noter.Writing() {
		if k.Config.Retain == 0 {
			return nil
		}
		return k.prune(ctx)
	}
	if k.Config.Retain > 0 {
		// Before the snapshot, so that it holds nothing that the log has trimmed.
		if err := errors.Join(k.pad(ctx), k.prune(ctx)); err != nil {
			return err
		}
	}
	sound, err := k.refresh(ctx)
	if err != nil || k.Config.Retain == 0 {
		return err
	}
	judged := k.Store.Cursor().Mutations
	return errors.Join(k.trim(ctx, sound), k.Mutations.Trim(ctx, judged), k.prune(ctx))
}

// refresh makes a snapshot, if the newest sound one lacks facts or holds pruned ones,
// and removes those that are not needed. It returns the sound ones left, newest first.
func (k *Retention) refresh(ctx context.Context) (sound []schema.Snapshot, err error) {
	for !k.Snapshots.Making.TryLock() { // a client's request may hold it long; stay cancellable
		select {
		case <-time.After(lockPoll):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	defer k.Snapshots.Making.Unlock()
	all, err := k.Snapshots.readable(ctx)
	if err != nil {
		return nil, err
	}
	cursor := k.Store.Cursor()
	newest := slices.IndexFunc(all, func(snap storedSnapshot) bool { return snap.Sound })
	fresh := newest >= 0 && !k.Stale && max(cursor.Last, cursor.Padded) <= all[newest].Seq
	if fresh && k.Config.Retain > 0 {
		// Check it again: the log is trimmed because of it.
		again, err := k.Snapshots.check(ctx, all[newest], openCopy)
		if err != nil {
			return nil, err
		}
		fresh = again.Sound
	}
	if fresh {
		return k.drop(ctx, all)
	}
	var made schema.Snapshot
	if cursor.Last > 0 {
		began := time.Now()
		if made, err = k.Snapshots.Create(ctx); err != nil {
			return nil, err
		}
		k.Stale = false
		k.Made.Add(1)
		k.Config.Events(observe.SnapshotMade{Snapshot: made, Took: time.Since(began)})
	}
	return k.Drop(ctx, made)
}

// Drop removes snapshots: the unfinished and damaged ones, all but the newest two sound
// ones, and all but the newest sound one if they are older than the retention. Those
// that do not match the log are kept by the same rule: an operator may want to create
// another log from one. It returns the sound ones left, newest first. made is the
// snapshot just made, the zero value for none: metadata comes from any replica of its
// stream, which may not have the latest yet. The caller holds Snapshots.Making.
func (k *Retention) Drop(ctx context.Context, made schema.Snapshot) (kept []schema.Snapshot, err error) {
	all, err := k.Snapshots.readable(ctx)
	if err != nil {
		return nil, err
	}
	for i := range all {
		if made.Sound && all[i].Seq == made.Seq {
			all[i].Snapshot = made
		}
	}
	return k.drop(ctx, all)
}

// drop is Drop of all snapshots, listed before. It keeps the first sound one whatever its
// age: the log may be trimmed below it.
func (k *Retention) drop(ctx context.Context, all []storedSnapshot) (kept []schema.Snapshot, err error) {
	// The sound ones first: they decide which of the others stay.
	slices.SortStableFunc(all, func(a, b storedSnapshot) int {
		switch {
		case a.Sound == b.Sound:
			return 0
		case a.Sound:
			return -1
		}
		return 1
	})
	for _, snap := range all {
		old := k.Config.Retain > 0 && snap.Created < k.Clock.Millis()-k.Config.Retain.Milliseconds()
		switch {
		case snap.Sound && (len(kept) == 0 || len(kept) < keepSnapshots && !old):
			kept = append(kept, snap.Snapshot)
			continue
		case snap.lost && (len(kept) == 0 || len(kept) < keepSnapshots && !old):
			continue
		}
		if err := k.Snapshots.remove(ctx, snap.Seq); err != nil {
			return nil, err
		}
		k.Config.Events(observe.SnapshotRemoved{Seq: snap.Seq})
	}
	k.setNewest(kept)
	return kept, nil
}

// trim removes events from the log that are older than the retention and below all sound
// snapshots. A LogTrimmed event notes it first: a start can then tell a trimmed beginning
// from a lost one.
func (k *Retention) trim(ctx context.Context, sound []schema.Snapshot) error {
	if len(sound) == 0 {
		return nil
	}
	cursor := k.Store.Cursor()
	first, _, err := k.Log.Bounds(ctx)
	if err != nil {
		return err
	}
	if first > max(cursor.Last, cursor.Padded) {
		return nil // only the notes of trimming are left
	}
	from, err := k.Log.FirstSince(ctx, k.Clock.Millis()-k.Config.Retain.Milliseconds())
	if err != nil {
		return err
	}
	// Keep the event at a snapshot's cursor: Mismatch compares it.
	from = min(from, sound[len(sound)-1].Seq)
	// Keep the events that a repeat may be answered from.
	repeats, ok, err := k.Store.RepeatsFrom(max(k.Clock.Millis(), cursor.Time))
	if err != nil {
		return err
	}
	if ok {
		from = min(from, repeats)
	}
	if from <= first {
		return nil
	}
	// Before the purge, so that no trim is unrecorded.
	if err := k.Noter.Note(ctx, schema.LogTrimmed, fmt.Appendf(nil, `{"first":%d}`, from)); err != nil {
		return fmt.Errorf("note that the log is trimmed: %w", err)
	}
	if err := k.Log.Stream.Purge(ctx, jetstream.WithPurgeSequence(from)); err != nil {
		return fmt.Errorf("trim stream %s: %w", k.Log.DB.LogStream(), err)
	}
	k.Config.Events(observe.LogTrimmed{First: from})
	return nil
}

// prune removes from the projection what the log no longer has and, once per
// filePeriod, compacts it, so that its files lose it too.
func (k *Retention) prune(ctx context.Context) error {
	first, _, err := k.Log.Bounds(ctx)
	if err != nil {
		return err
	}
	pruned := false
	if first != k.trimmed.Load() {
		if pruned, err = k.Store.Prune(ctx, first); err != nil {
			return fmt.Errorf("prune the projection: %w", err)
		}
		k.trimmed.Store(first)
	}
	forgotten, err := k.Store.Forget(k.Clock.Millis())
	if err != nil {
		return fmt.Errorf("prune the projection: %w", err)
	}
	k.dirty = k.dirty || pruned || forgotten
	last, now := k.Store.Cursor().Last, k.Clock.Millis()
	if !k.dirty && k.compacted == last || now < k.compactedAt+k.filePeriod() {
		return nil
	}
	if err := k.Store.Compact(ctx); err != nil {
		return fmt.Errorf("compact the projection: %w", err)
	}
	k.Stale = k.Stale || k.dirty
	k.compacted, k.compactedAt, k.dirty = last, now, false
	return nil
}

const (
	// padBytes is the size of JetStream's stream files. It frees a file when all of it
	// is trimmed.
	padBytes = 8 << 20
	// padAtOnce bounds one event of padding: a NATS message has at most 1 MiB by default.
	padAtOnce = 480 << 10
	// filesPerRetention is how often a slow log begins a new file, per retention.
	filesPerRetention = 4
)

// padSize returns the size of one event of padding for a maximum message size.
func padSize(maxPayload int64) int { return min(padAtOnce, int(maxPayload)-2*schema.HeaderRoom) }

// filePeriod is how long a slow log writes to one file, in ms.
func (k *Retention) filePeriod() int64 { return k.Config.Retain.Milliseconds() / filesPerRetention }

// pad appends padding until JetStream begins a new file, if the last one holds facts
// and was not filled for a filePeriod. In a slow log trimmed events would stay for long
// in a file that is not full.
func (k *Retention) pad(ctx context.Context) error {
	cursor := k.Store.Cursor()
	if cursor.Last <= cursor.Padded && (k.unpadded == 0 || cursor.Last <= k.unpadded) {
		return nil
	}
	now := k.Clock.Millis()
	if now < k.padded+k.filePeriod() {
		return nil
	}
	written := k.Log.Written.Load()
	if k.padded != 0 && written > k.filled+2*padBytes {
		k.padded, k.filled = now, written // the events fill files themselves
		return nil
	}
	size := padSize(k.Log.NC.MaxPayload())
	padding := strings.Repeat(".", size)
	for remaining := padBytes / size; remaining >= 0; remaining-- {
		if remaining == 0 && k.Store.Cursor().Last > cursor.Last {
			break // a fact came between, maybe into the new file: a later round pads for it
		}
		if remaining == 0 {
			// What a file lacks, and no more: snapshots end with this event, which is read
			// whenever they are compared with the log.
			padding = padding[:padBytes%size]
		}
		if err := k.Noter.Note(ctx, schema.LogPadded, fmt.Appendf(nil, `{"left":%d,"padding":"%s"}`, remaining, padding)); err != nil {
			return fmt.Errorf("pad the log: %w", err)
		}
	}
	k.padded, k.filled, k.unpadded = now, k.Log.Written.Load(), cursor.Seq
	k.Config.Events(observe.LogPadded{Bytes: padBytes})
	return nil
}
