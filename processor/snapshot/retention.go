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

// keeper makes snapshots, and with a finite retention drops what is older: the
// log below a snapshot that was verified, the snapshots that newer ones stand
// in for, mutations that were judged, and in the projection what history no
// longer needs.
type Retention struct {
	Config    Config
	Log       *eventlog.Log
	Store     *projections.Store
	Mutations *eventlog.Mutations
	Snapshots *Store
	Clock     *clock.Timekeeper
	Noter     noter

	compacted   uint64                          // the last fact when the projection was compacted
	compactedAt int64                           // when that was, ms since 1970
	dirty       bool                            // something was pruned since
	padded      int64                           // when the log was padded last, ms since 1970
	filled      uint64                          // bytes that had been appended then
	Stale       bool                            // the newest snapshot may have what was pruned since
	Trimmed     atomic.Uint64                   // the first sequence that is left, as of the last look
	Made        atomic.Int64                    // snapshots made
	Failed      atomic.Int64                    // rounds that failed
	Newest      atomic.Pointer[schema.Snapshot] // the newest sound one, as of the last look; nil if there is none
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
const KeepSnapshots = 2

// lockPause is how often a round looks whether a client's request is done with the
// snapshots.
const lockPause = time.Second

// run goes on until ctx ends.
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
		if err := k.Round(ctx); err != nil && ctx.Err() == nil {
			k.Failed.Add(1)
			k.Config.Events(observe.RetentionFailed{Err: err, Again: k.Config.SnapshotEvery})
		}
		timer.Reset(k.Config.SnapshotEvery)
	}
}

// first returns how long to wait for the first round: a process that is started
// often makes its snapshots all the same.
func (k *Retention) first(ctx context.Context) time.Duration {
	list, err := k.Snapshots.List(ctx)
	if err != nil || len(list) == 0 {
		return k.Config.SnapshotEvery
	}
	k.saw(list)
	age := time.Since(time.UnixMilli(list[0].Created))
	return min(max(k.Config.SnapshotEvery-age, 0), k.Config.SnapshotEvery)
}

// saw keeps the newest sound one of snapshots, for metrics.
func (k *Retention) saw(newestFirst []schema.Snapshot) {
	if i := slices.IndexFunc(newestFirst, func(one schema.Snapshot) bool { return one.Sound }); i >= 0 {
		k.Newest.Store(&newestFirst[i])
	}
}

// round does all there is to do, once. While the clock is not believed that is
// nothing: it could be wrong about what is old. A standby drops what the writer
// has trimmed.
func (k *Retention) Round(ctx context.Context) error {
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
		// Before the snapshot, which then holds nothing that the log has lost.
		if err := errors.Join(k.Pad(ctx), k.prune(ctx)); err != nil {
			return err
		}
	}
	sound, err := k.Refresh(ctx)
	if err != nil || k.Config.Retain == 0 {
		return err
	}
	judged := k.Store.Cursor().Mutations
	return errors.Join(k.Trim(ctx, sound), k.Mutations.Trim(ctx, judged), k.prune(ctx))
}

// refresh makes a snapshot, if there is anything that the newest lacks, or has
// and should not, and drops those that are not needed. It returns the sound
// ones that are left, newest first.
func (k *Retention) Refresh(ctx context.Context) (sound []schema.Snapshot, err error) {
	for !k.Snapshots.Making.TryLock() { // a client's may take long, and this one is to end with ctx
		select {
		case <-time.After(lockPause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	defer k.Snapshots.Making.Unlock()
	all, err := k.Snapshots.known(ctx)
	if err != nil {
		return nil, err
	}
	cursor := k.Store.Cursor()
	newest := slices.IndexFunc(all, func(one storedSnapshot) bool { return one.Sound })
	fresh := newest >= 0 && !k.Stale && max(cursor.Last, cursor.Padded) <= all[newest].Seq
	if fresh && k.Config.Retain > 0 {
		// It was sound when it was made, and the log is trimmed on its word.
		again, err := k.Snapshots.check(ctx, all[newest], openCopy)
		if err != nil {
			return nil, err
		}
		fresh = again.Sound
	}
	if cursor.Last > 0 && !fresh {
		began := time.Now()
		snapshot, err := k.Snapshots.Create(ctx)
		if err != nil {
			return nil, err
		}
		k.Stale = false
		k.Made.Add(1)
		k.Config.Events(observe.SnapshotMade{Snapshot: snapshot, Took: time.Since(began)})
	}
	return k.Drop(ctx)
}

// drop removes snapshots that are not needed: those that were never finished or
// turned out damaged, of those that are sound all but the newest two, and with a
// retention those that are older than that. Those that do not go with the log,
// which an operator may want to begin another one behind, go as they would if
// they did. It returns the sound ones that are left, newest first. The lock of
// the snapshots is held.
func (k *Retention) Drop(ctx context.Context) (kept []schema.Snapshot, err error) {
	all, err := k.Snapshots.known(ctx)
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
		old := k.Config.Retain > 0 && one.Created < k.Clock.Millis()-k.Config.Retain.Milliseconds()
		switch {
		case one.Sound && (len(kept) == 0 || len(kept) < KeepSnapshots && !old):
			kept = append(kept, one.Snapshot)
			continue
		case one.lost && (len(kept) == 0 || len(kept) < KeepSnapshots && !old):
			continue
		}
		if err := k.Snapshots.remove(ctx, one.Seq); err != nil {
			return nil, err
		}
		k.Config.Events(observe.SnapshotRemoved{Seq: one.Seq})
	}
	k.saw(kept)
	return kept, nil
}

// trim removes from the log what is older than the retention and below all
// sound snapshots.
func (k *Retention) Trim(ctx context.Context, sound []schema.Snapshot) error {
	if len(sound) == 0 {
		return nil
	}
	cursor := k.Store.Cursor()
	first, _, err := k.Log.Bounds(ctx)
	if err != nil {
		return err
	}
	if first > max(cursor.Last, cursor.Padded) {
		return nil // there is nothing left but what trimming itself notes
	}
	from, err := k.Log.FirstSince(ctx, k.Clock.Millis()-k.Config.Retain.Milliseconds())
	if err != nil {
		return err
	}
	// The event of a snapshot's cursor stays: by it the log is known.
	from = min(from, sound[len(sound)-1].Seq)
	// So does what a repeat may be answered with.
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
	// First, so that no cut goes unsaid.
	if err := k.Noter.Note(ctx, schema.LogTrimmed, fmt.Appendf(nil, `{"first":%d}`, from)); err != nil {
		return fmt.Errorf("note that the log is trimmed: %w", err)
	}
	if err := k.Log.Stream.Purge(ctx, jetstream.WithPurgeSequence(from)); err != nil {
		return fmt.Errorf("trim stream %s: %w", k.Log.DB.LogStream(), err)
	}
	k.Config.Events(observe.LogTrimmed{First: from})
	return nil
}

// prune drops from the projection what the log no longer has and, as often as
// a slow log begins a new file, what ended from its files.
func (k *Retention) prune(ctx context.Context) error {
	first, _, err := k.Log.Bounds(ctx)
	if err != nil {
		return err
	}
	pruned := false
	if first != k.Trimmed.Load() {
		if pruned, err = k.Store.Prune(ctx, first); err != nil {
			return fmt.Errorf("prune the projection: %w", err)
		}
		k.Trimmed.Store(first)
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
	// padBytes is the size of the files in which JetStream keeps a stream. It
	// frees a file when all of it is trimmed.
	PadBytes = 8 << 20
	// padAtOnce is the size of one event of padding at most: a message of NATS
	// has 1 MiB by default.
	padAtOnce = 480 << 10
	// filesPerRetention is how often a slow log begins a new file.
	filesPerRetention = 4
)

// padSize is the size of one event of padding where a message has at most so
// many bytes.
func PadSize(payload int64) int { return min(padAtOnce, int(payload)-2*schema.HeaderRoom) }

// filePeriod is how long a file of a slow log is written to, in ms.
func (k *Retention) filePeriod() int64 { return k.Config.Retain.Milliseconds() / filesPerRetention }

// pad has the log begin a new file, if the last one holds facts and has not
// been filled for a quarter of the retention. Where little happens, what is
// trimmed would stay in a file that is not full for a long time.
func (k *Retention) Pad(ctx context.Context) error {
	cursor := k.Store.Cursor()
	if cursor.Last <= cursor.Padded {
		return nil
	}
	now := k.Clock.Millis()
	if now < k.padded+k.filePeriod() {
		return nil
	}
	written := k.Log.Written.Load()
	if k.padded != 0 && written > k.filled+2*PadBytes {
		k.padded, k.filled = now, written // it fills its files by itself
		return nil
	}
	size := PadSize(k.Log.NC.MaxPayload())
	padding := strings.Repeat(".", size)
	for left := PadBytes / size; left >= 0; left-- {
		if err := k.Noter.Note(ctx, schema.LogPadded, fmt.Appendf(nil, `{"left":%d,"padding":"%s"}`, left, padding)); err != nil {
			return fmt.Errorf("pad the log: %w", err)
		}
	}
	k.padded, k.filled = now, k.Log.Written.Load()
	k.Config.Events(observe.LogPadded{Bytes: size * (PadBytes/size + 1)})
	return nil
}
