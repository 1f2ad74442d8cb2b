package processor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// openProjection opens the projection in o.Dir if it is one of this log, and
// else makes it anew: it is a cache, and never trusted over the log.
func openProjection(ctx context.Context, log *eventLog, snapshots *snapshots, o Options) (*projections.Store, error) {
	store, err := projections.Open(o.Dir, o.Projection)
	if unreachable(err) {
		return nil, err
	}
	if err == nil {
		var why string
		// No other process works here now.
		if err := removeLeftovers(o); err != nil {
			return nil, errors.Join(err, store.Close())
		}
		if why, err = misfit(ctx, log, store.Cursor()); err == nil && why == "" {
			store.Identify(log.Identity())
			return store, nil
		}
		empty := store.Cursor().Seq == 0
		if closeErr := store.Close(); err != nil {
			return nil, errors.Join(err, closeErr)
		}
		if err = errors.New(why); empty {
			err = nil
		}
	}
	if err != nil {
		o.Logger.Warn("the projection does not fit the log and is folded anew", "dir", o.Dir, "why", err)
	}
	return remakeProjection(ctx, log, snapshots, o)
}

// removeLeftovers removes what a process that was killed had on the way.
func removeLeftovers(o Options) error {
	for _, left := range []string{checkpointDir(o.Dir), verifyDir(o.Dir)} {
		if err := o.Projection.FS.RemoveAll(left); err != nil {
			return fmt.Errorf("remove what an earlier process left: %w", err)
		}
	}
	return nil
}

// remakeProjection makes the projection anew from the newest snapshot that is
// sound or, if there is none, from the beginning of the log.
func remakeProjection(ctx context.Context, log *eventLog, snapshots *snapshots, o Options) (*projections.Store, error) {
	first, _, err := log.Bounds(ctx)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", o.Database.LogStream(), err)
	}
	list, err := snapshots.List(ctx)
	if err != nil {
		return nil, err
	}
	var faults []string
	for _, snapshot := range list {
		if !snapshot.Sound {
			continue
		}
		err := snapshots.Restore(ctx, snapshot)
		if unreachable(err) || ctx.Err() != nil {
			return nil, err
		}
		if err == nil {
			var store *projections.Store
			if store, err = projections.Open(o.Dir, o.Projection); err == nil {
				var why string
				if why, err = misfit(ctx, log, store.Cursor()); err == nil && why == "" {
					o.Logger.Info("the projection begins with a snapshot", "seq", snapshot.Seq)
					return store, nil
				}
				if err == nil {
					err = errors.New(why)
				}
				err = errors.Join(err, store.Close())
			}
		}
		o.Logger.Warn("a snapshot is of no use", "seq", snapshot.Seq, "why", err)
		faults = append(faults, fmt.Sprintf("%d: %v", snapshot.Seq, err))
	}
	if err := o.Projection.FS.RemoveAll(o.Dir); err != nil {
		return nil, fmt.Errorf("remove the projection: %w", err)
	}
	if first > 1 {
		if len(faults) == 0 {
			faults = []string{"there is none"}
		}
		return nil, fmt.Errorf("stream %s begins at %d, and no snapshot reaches up to there (%s): restore the stream or a snapshot from a backup",
			o.Database.LogStream(), first, strings.Join(faults, "; "))
	}
	store, err := projections.Open(o.Dir, o.Projection)
	if err != nil {
		return nil, err
	}
	store.Identify(log.Identity())
	return store, nil
}

// unreachable tells whether an error is about reaching the projection, not
// about what is in it: then it may be sound, or another process's.
func unreachable(err error) bool {
	for _, cause := range []error{fs.ErrPermission, syscall.EAGAIN, syscall.EMFILE, syscall.ENFILE, syscall.ENOSPC, syscall.EROFS} {
		if errors.Is(err, cause) {
			return true
		}
	}
	return err != nil && strings.Contains(err.Error(), "lock held by current process")
}

// misfit says why a projection with this cursor is not one of the log, or is
// not one to begin with; "" if it is.
func misfit(ctx context.Context, log *eventLog, cursor projections.Cursor) (why string, err error) {
	first, last, err := log.Bounds(ctx)
	if err != nil {
		return "", fmt.Errorf("stream %s: %w", log.db.LogStream(), err)
	}
	switch {
	case cursor.Seq == 0 && last == 0:
		return "", nil
	case cursor.Seq == 0:
		return "it is empty", nil
	case cursor.Stream != log.Identity():
		return "it was folded from another stream", nil
	case last < cursor.Seq:
		return fmt.Sprintf("it was folded up to %d and the log ends at %d", cursor.Seq, last), nil
	case first == cursor.Seq+1:
		return "", nil // the log was begun behind a snapshot
	case first > cursor.Seq:
		return fmt.Sprintf("it was folded up to %d and the log begins at %d", cursor.Seq, first), nil
	}
	e, err := log.Event(ctx, cursor.Seq)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return "", fmt.Errorf("event %d, the last one folded, is missing from stream %s: restore the stream", cursor.Seq, log.db.LogStream())
	} else if err != nil {
		return "", fmt.Errorf("read event %d: %w", cursor.Seq, err)
	}
	if !cursor.Check(e) {
		return fmt.Sprintf("event %d is not the one it was folded from", cursor.Seq), nil
	}
	return "", nil
}

// RestoreSnapshot makes the projection in o.Dir what a snapshot has, the newest
// sound one if seq is 0; no processor may run. The next one that starts folds
// the rest of the log.
//
// If the log is not the one that the snapshot was made from, or ends before it,
// that is an error that says so, unless newLog is given: then an empty log that
// begins behind the snapshot takes its place, and what came after the snapshot
// is lost.
func RestoreSnapshot(ctx context.Context, logConn *nats.Conn, o Options, seq uint64, newLog bool) (schema.Snapshot, error) {
	o = o.EnsureDefaults()
	js, err := jetstream.New(logConn)
	if err != nil {
		return schema.Snapshot{}, err
	}
	s := &snapshots{db: o.Database, js: js, fs: o.Projection.FS, dir: o.Dir, logger: o.Logger, now: o.Clock.millis}
	snapshot, err := s.choose(ctx, seq)
	if err != nil {
		return snapshot, err
	}
	cursor, err := s.peek(ctx, snapshot)
	if err != nil {
		return snapshot, err
	}
	why, err := s.lost(ctx, cursor)
	if err != nil {
		return snapshot, err
	}
	if why != "" && !newLog {
		return snapshot, fmt.Errorf("snapshot %d does not go with the log that is there: %s; restore the log, or begin a new one behind the snapshot with --new-log", snapshot.Seq, why)
	}
	if err := s.Restore(ctx, snapshot); err != nil || why == "" {
		return snapshot, err
	}
	return s.beginAgain(ctx, snapshot, o)
}

// peek returns the cursor in a snapshot.
func (s *snapshots) peek(ctx context.Context, snapshot schema.Snapshot) (cursor projections.Cursor, err error) {
	store, err := s.js.ObjectStore(ctx, s.bucket(snapshot.Seq))
	if err != nil {
		return cursor, fmt.Errorf("snapshot %d: %w", snapshot.Seq, err)
	}
	err = s.readBack(ctx, store, snapshot, func(dir string) error {
		if err := s.check(dir, snapshot, false); err != nil {
			return err
		}
		cursor, _, err = openCopy(s.fs, dir)
		return err
	})
	return cursor, err
}

// choose returns the snapshot of sequence seq or the newest sound one.
func (s *snapshots) choose(ctx context.Context, seq uint64) (schema.Snapshot, error) {
	list, err := s.List(ctx)
	if err != nil {
		return schema.Snapshot{}, err
	}
	for _, snapshot := range list {
		if snapshot.Seq == seq || seq == 0 && snapshot.Sound {
			if !snapshot.Sound {
				return snapshot, fmt.Errorf("snapshot %d is not sound: %s", snapshot.Seq, snapshot.Fault)
			}
			return snapshot, nil
		}
	}
	if seq == 0 {
		return schema.Snapshot{}, fmt.Errorf("database %s has no sound snapshot", s.db)
	}
	return schema.Snapshot{}, fmt.Errorf("database %s has no snapshot %d", s.db, seq)
}

// lost says why a projection with this cursor does not go with the log that is
// there, if any is; "" if it does.
func (s *snapshots) lost(ctx context.Context, cursor projections.Cursor) (why string, err error) {
	_, err = s.js.Stream(ctx, s.db.LogStream())
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return "there is no log", nil
	} else if err != nil {
		return "", err
	}
	log, err := openLog(ctx, s.js.Conn(), s.db, s.logger)
	if err != nil {
		return "", err
	}
	defer log.close()
	return misfit(ctx, log, cursor)
}

// beginAgain puts an empty log in the place of the one that is there, if any,
// and has the restored projection and a new snapshot go with it.
func (s *snapshots) beginAgain(ctx context.Context, snapshot schema.Snapshot, o Options) (schema.Snapshot, error) {
	if err := s.js.DeleteStream(ctx, s.db.LogStream()); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return snapshot, err
	}
	if _, err := createLog(ctx, s.js, s.db, snapshot.Seq+1); err != nil {
		return snapshot, fmt.Errorf("stream %s: %w", s.db.LogStream(), err)
	}
	log, err := openLog(ctx, s.js.Conn(), s.db, s.logger)
	if err != nil {
		return snapshot, err
	}
	defer log.close()
	old, err := s.List(ctx)
	if err != nil {
		return snapshot, err
	}
	store, err := projections.Open(s.dir, o.Projection)
	if err != nil {
		return snapshot, err
	}
	if err := store.Rebind(log.Identity()); err != nil {
		return snapshot, errors.Join(err, store.Close())
	}
	// Those of the log that was are of no use to this one.
	s.log, s.store = log, store
	snapshot, err = s.Create(ctx)
	for _, other := range old {
		if err == nil && other.Seq != snapshot.Seq {
			err = s.remove(ctx, other.Seq)
		}
	}
	return snapshot, errors.Join(err, store.Close())
}
