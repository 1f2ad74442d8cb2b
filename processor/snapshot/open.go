package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/projections"
)

// OpenProjection opens the projection in o.Dir if it matches the log, and otherwise
// rebuilds it: the projection is a cache, and the log decides. It removes the old one only
// when there is a snapshot or a whole log to rebuild it from. The caller closes the store.
//
// An error about access, such as a lock or a full disk, rebuilds nothing: the projection
// may be sound. Everything that can refuse the start is checked before the projection is
// removed.
func OpenProjection(ctx context.Context, log *eventlog.Log, snapshots *Store, o Config) (*projections.Store, error) {
	o.Doing("opening the projection")
	store, err := projections.Open(o.Dir, o.Projection)
	if unreachable(err) {
		return nil, err
	}
	// The open holds a lock: no other process works in o.Dir.
	if err := removeLeftovers(o); err != nil {
		return nil, Closing(store, err)
	}
	var cursor projections.Cursor
	var why string
	if err != nil {
		why, err = err.Error(), nil
	} else {
		cursor = store.Cursor()
		why, err = Mismatch(ctx, log, cursor)
	}
	if err == nil {
		err = snapshots.checkLog(ctx, cursor)
	}
	if err == nil {
		err = snapshots.checkEnd(ctx, cursor, o)
	}
	if err != nil {
		return nil, Closing(store, err)
	}
	if why == "" {
		return bind(store, log)
	}
	if err := Closing(store, nil); err != nil {
		return nil, err
	}
	if why != emptyProjection {
		o.Events(observe.ProjectionRemade{Dir: o.Dir, Why: why})
	}
	return rebuildProjection(ctx, log, snapshots, o)
}

// bind binds a projection to the log, also one of a log that this one continues.
func bind(store *projections.Store, log *eventlog.Log) (*projections.Store, error) {
	if cursor := store.Cursor(); cursor.Seq > 0 && cursor.Stream != log.Identity() {
		if err := store.Rebind(log.Identity()); err != nil {
			return nil, Closing(store, err)
		}
	}
	store.Identify(log.Identity())
	return store, nil
}

// emptyProjection is the mismatch of a projection that has nothing folded.
const emptyProjection = "it is empty"

// removeLeftovers removes the temporary directories of a killed process.
func removeLeftovers(o Config) error {
	for _, dir := range []string{checkpointDir(o.Dir), verifyDir(o.Dir)} {
		if err := o.Projection.FS.RemoveAll(dir); err != nil {
			return fmt.Errorf("remove temporary directories: %w", err)
		}
	}
	return nil
}

// rebuildProjection restores the projection from the newest sound snapshot or, if there
// is none, empties it, to be folded from the beginning of the log.
func rebuildProjection(ctx context.Context, log *eventlog.Log, snapshots *Store, o Config) (*projections.Store, error) {
	first, _, err := log.Bounds(ctx)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", o.Database.LogStream(), err)
	}
	all, err := snapshots.all(ctx)
	if err != nil {
		return nil, err
	}
	var faults []string
	// From the newest on. One that cannot be restored is reported and passed over: an older
	// one costs a longer fold.
	for _, snap := range all {
		err := errors.New(snap.Fault)
		if snap.Sound {
			o.Doing("restoring snapshots")
			if err = snapshots.Restore(ctx, snap, func(projections.Cursor) error { return nil }); err == nil {
				o.Events(observe.ProjectionRestored{Seq: snap.Seq})
				store, err := projections.Open(o.Dir, o.Projection)
				if err != nil {
					return nil, err
				}
				return bind(store, log)
			}
			if unreachable(err) || ctx.Err() != nil {
				return nil, err
			}
		}
		o.Events(observe.SnapshotUnusable{Seq: snap.Seq, Err: err})
		faults = append(faults, fmt.Sprintf("%d: %v", snap.Seq, err))
	}
	// The log alone is not enough: its beginning is in no snapshot that can be read.
	if first > 1 {
		if len(faults) == 0 {
			faults = []string{"there is none"}
		}
		return nil, fmt.Errorf("stream %s begins at %d, and no snapshot reaches up to there (%s): restore the stream or a snapshot from a backup",
			o.Database.LogStream(), first, strings.Join(faults, "; "))
	}
	if err := o.Projection.FS.RemoveAll(o.Dir); err != nil {
		return nil, fmt.Errorf("remove the projection: %w", err)
	}
	store, err := projections.Open(o.Dir, o.Projection)
	if err != nil {
		return nil, err
	}
	store.Identify(log.Identity())
	return store, nil
}

// unreachable reports whether an error is about access to a projection (permission,
// lock, disk, limits) and not about its content: it may be sound.
func unreachable(err error) bool {
	for _, cause := range []error{fs.ErrPermission, syscall.EAGAIN, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM} {
		if errors.Is(err, cause) {
			return true
		}
	}
	return projections.OfDisk(err) || err != nil && strings.Contains(err.Error(), "lock held by current process")
}

// Closing closes the projection, if it is not nil, and returns err joined with the
// error of closing, or the failure of the disk or the damage that caused both.
func Closing(store *projections.Store, err error) error {
	if store == nil {
		return err
	}
	err = errors.Join(err, store.Close())
	if failure := store.Failure(); failure != nil {
		return failure // the cause of the others
	}
	select {
	case damage := <-store.Damaged():
		if err != nil {
			return damage
		}
	default:
	}
	return err
}
