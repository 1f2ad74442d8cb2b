package processor

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	config    snapshotConfig
	log       *eventLog
	store     *projections.Store
	mutations *mutationStream
	snapshots *snapshots
	clock     *timekeeper
	noter     noter

	compacted   uint64                          // the last fact when the projection was compacted
	compactedAt int64                           // when that was, ms since 1970
	dirty       bool                            // something was pruned since
	padded      int64                           // when the log was padded last, ms since 1970
	filled      uint64                          // bytes that had been appended then
	stale       bool                            // the newest snapshot may have what was pruned since
	trimmed     atomic.Uint64                   // the first sequence that is left, as of the last look
	made        atomic.Int64                    // snapshots made
	failed      atomic.Int64                    // rounds that failed
	newest      atomic.Pointer[schema.Snapshot] // the newest sound one, as of the last look; nil if there is none
}

// noter is what appends the internal events that retention leaves in the log.
type noter interface {
	// Note appends an internal event and returns when it is durable.
	Note(ctx context.Context, t schema.EventType, body []byte) error
	// Writing reports whether this process writes the log: others trim nothing.
	Writing() bool
}

// keepSnapshots is how many there are at most: one to start from, and one more
// should that turn out damaged.
const keepSnapshots = 2

// lockPause is how often a round looks whether a client's request is done with the
// snapshots.
const lockPause = time.Second

// run goes on until ctx ends.
func (k *keeper) run(ctx context.Context) {
	if k.config.SnapshotEvery == 0 {
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
			k.config.Events.RetentionFailed(RetentionFailure{Err: err, Again: k.config.SnapshotEvery})
		}
		timer.Reset(k.config.SnapshotEvery)
	}
}

// first returns how long to wait for the first round: a process that is started
// often makes its snapshots all the same.
func (k *keeper) first(ctx context.Context) time.Duration {
	list, err := k.snapshots.List(ctx)
	if err != nil || len(list) == 0 {
		return k.config.SnapshotEvery
	}
	k.saw(list)
	age := time.Since(time.UnixMilli(list[0].Created))
	return min(max(k.config.SnapshotEvery-age, 0), k.config.SnapshotEvery)
}

// saw keeps the newest sound one of snapshots, for metrics.
func (k *keeper) saw(newestFirst []schema.Snapshot) {
	if i := slices.IndexFunc(newestFirst, func(one schema.Snapshot) bool { return one.Sound }); i >= 0 {
		k.newest.Store(&newestFirst[i])
	}
}

// round does all there is to do, once. While the clock is not believed that is
// nothing: it could be wrong about what is old. A standby drops what the writer
// has trimmed.
func (k *keeper) round(ctx context.Context) error {
	if _, fault := k.clock.check(); fault != nil {
		return nil
	}
	if !k.noter.Writing() {
		if k.config.Retain == 0 {
			return nil
		}
		return k.prune(ctx)
	}
	if k.config.Retain > 0 {
		// Before the snapshot, which then holds nothing that the log has lost.
		if err := errors.Join(k.pad(ctx), k.prune(ctx)); err != nil {
			return err
		}
	}
	sound, err := k.refresh(ctx)
	if err != nil || k.config.Retain == 0 {
		return err
	}
	judged := k.store.Cursor().Mutations
	return errors.Join(k.trim(ctx, sound), k.mutations.Trim(ctx, judged), k.prune(ctx))
}

// refresh makes a snapshot, if there is anything that the newest lacks, or has
// and should not, and drops those that are not needed. It returns the sound
// ones that are left, newest first.
func (k *keeper) refresh(ctx context.Context) (sound []schema.Snapshot, err error) {
	for !k.snapshots.making.TryLock() { // a client's may take long, and this one is to end with ctx
		select {
		case <-time.After(lockPause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	defer k.snapshots.making.Unlock()
	all, err := k.snapshots.known(ctx)
	if err != nil {
		return nil, err
	}
	cursor := k.store.Cursor()
	newest := slices.IndexFunc(all, func(one storedSnapshot) bool { return one.Sound })
	fresh := newest >= 0 && !k.stale && max(cursor.Last, cursor.Padded) <= all[newest].Seq
	if fresh && k.config.Retain > 0 {
		// It was sound when it was made, and the log is trimmed on its word.
		again, err := k.snapshots.check(ctx, all[newest], openCopy)
		if err != nil {
			return nil, err
		}
		fresh = again.Sound
	}
	if cursor.Last > 0 && !fresh {
		began := time.Now()
		snapshot, err := k.snapshots.Create(ctx)
		if err != nil {
			return nil, err
		}
		k.stale = false
		k.made.Add(1)
		k.config.Events.SnapshotMade(SnapshotMade{Snapshot: snapshot, Took: time.Since(began)})
	}
	return k.drop(ctx)
}

// drop removes snapshots that are not needed: those that were never finished or
// turned out damaged, of those that are sound all but the newest two, and with a
// retention those that are older than that. Those that do not go with the log,
// which an operator may want to begin another one behind, go as they would if
// they did. It returns the sound ones that are left, newest first. The lock of
// the snapshots is held.
func (k *keeper) drop(ctx context.Context) (kept []schema.Snapshot, err error) {
	all, err := k.snapshots.known(ctx)
	if err != nil {
		return nil, err
	}
	// The sound ones first, as they decide what becomes of the others.
	slices.SortStableFunc(all, func(a, b storedSnapshot) int {
		switch {
		case a.Sound == b.Sound:
			return 0
		case a.Sound:
			return -1
		}
		return 1
	})
	for _, one := range all {
		old := k.config.Retain > 0 && one.Created < k.clock.millis()-k.config.Retain.Milliseconds()
		switch {
		case one.Sound && (len(kept) == 0 || len(kept) < keepSnapshots && !old):
			kept = append(kept, one.Snapshot)
			continue
		case one.lost && (len(kept) == 0 || len(kept) < keepSnapshots && !old):
			continue
		}
		if err := k.snapshots.remove(ctx, one.Seq); err != nil {
			return nil, err
		}
		k.config.Events.SnapshotRemoved(SnapshotRemoved{Seq: one.Seq})
	}
	k.saw(kept)
	return kept, nil
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
	from, err := k.log.FirstSince(ctx, k.clock.millis()-k.config.Retain.Milliseconds())
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
	// First, so that no cut goes unsaid.
	if err := k.noter.Note(ctx, schema.LogTrimmed, fmt.Appendf(nil, `{"first":%d}`, from)); err != nil {
		return fmt.Errorf("note that the log is trimmed: %w", err)
	}
	if err := k.log.stream.Purge(ctx, jetstream.WithPurgeSequence(from)); err != nil {
		return fmt.Errorf("trim stream %s: %w", k.log.db.LogStream(), err)
	}
	k.config.Events.LogTrimmed(LogTrim{First: from})
	return nil
}

// prune drops from the projection what the log no longer has and, as often as
// a slow log begins a new file, what ended from its files.
func (k *keeper) prune(ctx context.Context) error {
	first, _, err := k.log.Bounds(ctx)
	if err != nil {
		return err
	}
	pruned := false
	if first != k.trimmed.Load() {
		if pruned, err = k.store.Prune(ctx, first); err != nil {
			return fmt.Errorf("prune the projection: %w", err)
		}
		k.trimmed.Store(first)
	}
	forgotten, err := k.store.Forget(k.clock.millis())
	if err != nil {
		return fmt.Errorf("prune the projection: %w", err)
	}
	k.dirty = k.dirty || pruned || forgotten
	last, now := k.store.Cursor().Last, k.clock.millis()
	if !k.dirty && k.compacted == last || now < k.compactedAt+k.filePeriod() {
		return nil
	}
	if err := k.store.Compact(ctx); err != nil {
		return fmt.Errorf("compact the projection: %w", err)
	}
	k.stale = k.stale || k.dirty
	k.compacted, k.compactedAt, k.dirty = last, now, false
	return nil
}

const (
	// padBytes is the size of the files in which JetStream keeps a stream. It
	// frees a file when all of it is trimmed.
	padBytes = 8 << 20
	// padAtOnce is the size of one event of padding at most: a message of NATS
	// has 1 MiB by default.
	padAtOnce = 480 << 10
	// filesPerRetention is how often a slow log begins a new file.
	filesPerRetention = 4
)

// padSize is the size of one event of padding where a message has at most so
// many bytes.
func padSize(payload int64) int { return min(padAtOnce, int(payload)-2*schema.HeaderRoom) }

// filePeriod is how long a file of a slow log is written to, in ms.
func (k *keeper) filePeriod() int64 { return k.config.Retain.Milliseconds() / filesPerRetention }

// pad has the log begin a new file, if the last one holds facts and has not
// been filled for a quarter of the retention. Where little happens, what is
// trimmed would stay in a file that is not full for a long time.
func (k *keeper) pad(ctx context.Context) error {
	cursor := k.store.Cursor()
	if cursor.Last <= cursor.Padded {
		return nil
	}
	now := k.clock.millis()
	if now < k.padded+k.filePeriod() {
		return nil
	}
	written := k.log.written.Load()
	if k.padded != 0 && written > k.filled+2*padBytes {
		k.padded, k.filled = now, written // it fills its files by itself
		return nil
	}
	size := padSize(k.log.nc.MaxPayload())
	padding := strings.Repeat(".", size)
	for left := padBytes / size; left >= 0; left-- {
		if err := k.noter.Note(ctx, schema.LogPadded, fmt.Appendf(nil, `{"left":%d,"padding":"%s"}`, left, padding)); err != nil {
			return fmt.Errorf("pad the log: %w", err)
		}
	}
	k.padded, k.filled = now, k.log.written.Load()
	k.config.Events.LogPadded(LogPad{Bytes: size * (padBytes/size + 1)})
	return nil
}
