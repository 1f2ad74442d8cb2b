package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// openProjection opens the projection in o.Dir if it is one of this log, and
// else makes it anew: it is a cache, and never trusted over the log. It is only
// removed when there is something to make it of.
func OpenProjection(ctx context.Context, log *eventlog.Log, snapshots *Store, o Config) (*projections.Store, error) {
	o.Doing("opening the projection")
	store, err := projections.Open(o.Dir, o.Projection)
	if unreachable(err) {
		return nil, err
	}
	// No other process works here now.
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
		store.Identify(log.Identity())
		return store, nil
	}
	if err := Closing(store, nil); err != nil {
		return nil, err
	}
	if why != emptyProjection {
		o.Events(observe.ProjectionRemade{Dir: o.Dir, Why: why})
	}
	return remakeProjection(ctx, log, snapshots, o)
}

// emptyProjection is why a projection is not one to begin with that was never
// folded.
const emptyProjection = "it is empty"

// removeLeftovers removes what a process that was killed had on the way.
func removeLeftovers(o Config) error {
	for _, left := range []string{checkpointDir(o.Dir), verifyDir(o.Dir)} {
		if err := o.Projection.FS.RemoveAll(left); err != nil {
			return fmt.Errorf("remove what an earlier process left: %w", err)
		}
	}
	return nil
}

// checkLog refuses an empty log beside a projection or snapshots of another one:
// they may be all that is left of it.
func (s *Store) checkLog(ctx context.Context, cursor projections.Cursor) error {
	_, last, err := s.log.Bounds(ctx)
	if err != nil || last > 0 {
		return err
	}
	what := ""
	if cursor.Seq > 0 && cursor.Stream != s.log.Identity() {
		what = fmt.Sprintf("the projection in %s, up to event %d", s.dir, cursor.Seq)
	}
	all, err := s.known(ctx)
	if err != nil {
		return err
	}
	for _, one := range all {
		if one.lost && what == "" {
			what = fmt.Sprintf("the snapshot at event %d", one.Seq)
		}
	}
	if what == "" {
		return nil
	}
	return fmt.Errorf("stream %s is empty, and %s is of a log that is gone: restore the stream, or begin behind the newest snapshot with `lapse snapshot restore --new-log`; to begin with nothing, remove the projection and the object stores %s*",
		s.db.LogStream(), what, s.db.SnapshotStore())
}

// remakeProjection makes the projection anew from the newest snapshot that is
// sound or, if there is none, from the beginning of the log.
func remakeProjection(ctx context.Context, log *eventlog.Log, snapshots *Store, o Config) (*projections.Store, error) {
	first, _, err := log.Bounds(ctx)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", o.Database.LogStream(), err)
	}
	all, err := snapshots.all(ctx)
	if err != nil {
		return nil, err
	}
	var faults []string
	for _, one := range all {
		err := errors.New(one.Fault)
		if one.Sound {
			o.Doing("restoring snapshots")
			if err = snapshots.Restore(ctx, one, func(projections.Cursor) error { return nil }); err == nil {
				o.Events(observe.ProjectionRestored{Seq: one.Seq})
				return projections.Open(o.Dir, o.Projection)
			}
			if unreachable(err) || ctx.Err() != nil {
				return nil, err
			}
		}
		o.Events(observe.SnapshotUnusable{Seq: one.Seq, Err: err})
		faults = append(faults, fmt.Sprintf("%d: %v", one.Seq, err))
	}
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

// unreachable tells whether an error is about reaching the projection, not
// about what is in it: then it may be sound, or another process's.
func unreachable(err error) bool {
	for _, cause := range []error{fs.ErrPermission, syscall.EAGAIN, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM} {
		if errors.Is(err, cause) {
			return true
		}
	}
	return projections.OfDisk(err) || err != nil && strings.Contains(err.Error(), "lock held by current process")
}

// misfit says why a projection with this cursor is not one of the log, or is
// not one to begin with; "" if it is.
func Mismatch(ctx context.Context, log *eventlog.Log, cursor projections.Cursor) (why string, err error) {
	first, last, err := log.Bounds(ctx)
	if err != nil {
		return "", fmt.Errorf("stream %s: %w", log.DB.LogStream(), err)
	}
	switch {
	case cursor.Seq == 0 && last == 0:
		return "", nil
	case cursor.Seq == 0:
		return emptyProjection, nil
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
		if now, _, err := log.Bounds(ctx); err != nil || now > first {
			return Mismatch(ctx, log, cursor) // it was trimmed just now
		}
		return "", fmt.Errorf("%w: event %d, the last one folded, is missing from stream %s; restore the stream", eventlog.ErrGap, cursor.Seq, log.DB.LogStream())
	} else if err != nil {
		return "", fmt.Errorf("read event %d: %w", cursor.Seq, err)
	}
	if !cursor.Check(e) {
		return fmt.Sprintf("event %d is not the one it was folded from", cursor.Seq), nil
	}
	return "", nil
}

// restoreSnapshot makes the projection in o.Dir what a snapshot has; see
// RestoreSnapshot. vacant returns an error while a processor serves the database.
func RestoreSnapshot(ctx context.Context, c eventlog.Connections, o Config, seq uint64, newLog bool, vacant func() error) (schema.Snapshot, error) {
	js, err := jetstream.New(c.ForBulk())
	if err != nil {
		return schema.Snapshot{}, err
	}
	s := NewStore(js, nil, o)
	// Nobody may have it open.
	look := o.Projection
	look.ReadOnly = true
	store, err := projections.Open(o.Dir, look)
	if unreachable(err) {
		return schema.Snapshot{}, err
	}
	if err := Closing(store, removeLeftovers(o)); err != nil {
		return schema.Snapshot{}, err
	}
	candidates, err := s.choose(ctx, seq)
	if err != nil {
		return schema.Snapshot{}, err
	}
	for i, one := range candidates {
		why, refused := "", false
		err = s.Restore(ctx, one, func(cursor projections.Cursor) (err error) {
			why, err = lost(ctx, c, o.Config, cursor)
			switch {
			case err != nil || why == "":
				return err
			case !newLog:
				err = fmt.Errorf("snapshot %d does not go with the log that is there: %s; restore the log, or begin a new one behind the snapshot with --new-log", one.Seq, why)
			default:
				err = vacant()
			}
			refused = err != nil
			return err
		})
		switch {
		case err == nil && why != "":
			return s.beginAgain(ctx, c, one.Snapshot, o)
		case err == nil:
			return one.Snapshot, nil
		case refused || unreachable(err) || ctx.Err() != nil || i == len(candidates)-1:
			return one.Snapshot, err
		}
		o.Events(observe.SnapshotUnusable{Seq: one.Seq, Err: err})
	}
	return schema.Snapshot{}, nil
}

// choose returns the snapshot of sequence seq, or all that are said to be sound,
// newest first and at least one, if that is 0.
func (s *Store) choose(ctx context.Context, seq uint64) (candidates []storedSnapshot, err error) {
	all, err := s.all(ctx)
	if err != nil {
		return nil, err
	}
	for _, one := range all {
		switch {
		case one.Seq == seq && !one.Sound:
			return nil, fmt.Errorf("snapshot %d is not sound: %s", one.Seq, one.Fault)
		case one.Sound && (seq == 0 || one.Seq == seq):
			candidates = append(candidates, one)
		}
	}
	switch {
	case len(candidates) > 0:
		return candidates, nil
	case seq == 0:
		return nil, fmt.Errorf("database %s has no sound snapshot", s.db)
	}
	return nil, fmt.Errorf("database %s has no snapshot %d", s.db, seq)
}

// lost says why a projection with this cursor does not go with the log that is
// there, if any is; "" if it does.
func lost(ctx context.Context, c eventlog.Connections, o eventlog.Config, cursor projections.Cursor) (why string, err error) {
	log, err := eventlog.OpenExisting(ctx, c, o)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return "there is no log", nil
	} else if err != nil {
		return "", err
	}
	defer log.Close()
	return Mismatch(ctx, log, cursor)
}

// beginAgain puts an empty log in the place of the one that is there, if any,
// and has the restored projection and a new snapshot go with it.
func (s *Store) beginAgain(ctx context.Context, c eventlog.Connections, snapshot schema.Snapshot, o Config) (schema.Snapshot, error) {
	js, err := jetstream.New(c.Log)
	if err != nil {
		return snapshot, err
	}
	old, err := js.Stream(ctx, s.db.LogStream())
	if err == nil {
		o.Replicas = cmp.Or(o.Replicas, old.CachedInfo().Config.Replicas)
		if err = js.DeleteStream(ctx, s.db.LogStream()); err != nil {
			err = fmt.Errorf("remove stream %s: %w: have it removed by somebody who may, with `nats stream rm %s`, and try again", s.db.LogStream(), err, s.db.LogStream())
		}
	}
	if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return snapshot, err
	}
	if _, err := eventlog.CreateLog(ctx, js, s.db, snapshot.Seq+1, o.Replicas); err != nil {
		return snapshot, fmt.Errorf("stream %s: %w", s.db.LogStream(), err)
	}
	log, err := eventlog.Open(ctx, c, o.Config)
	if err != nil {
		return snapshot, err
	}
	defer log.Close()
	store, err := projections.Open(s.dir, o.Projection)
	if err != nil {
		return snapshot, err
	}
	if err := store.Rebind(log.Identity()); err != nil {
		return snapshot, errors.Join(err, store.Close())
	}
	// Those of the log that was are of no use to this one, and go when the next
	// are made.
	s.log, s.Store = log, store
	snapshot, err = s.Create(ctx)
	return snapshot, errors.Join(err, store.Close())
}

// closing closes the projection, if there is one, after err, which may be nil.
func Closing(store *projections.Store, err error) error {
	if store == nil {
		return err
	}
	err = errors.Join(err, store.Close())
	if failure := store.Failure(); failure != nil {
		return failure // of which the rest came
	}
	return err
}

// checkEnd compares the log's end with what is known of it. What is lost is kept
// in the log's lost if the log may lack it, and an error otherwise.
func (s *Store) checkEnd(ctx context.Context, cursor projections.Cursor, o Config) error {
	l := s.log
	known, by := l.Extent.Read(), "what was acknowledged"
	if cursor.Stream == l.Identity() && cursor.Seq > known.Seq {
		known, by = eventlog.Extent{Seq: cursor.Seq, Judged: cursor.Mutations}, "the projection"
	}
	all, err := s.all(ctx)
	if err != nil {
		return err
	}
	for _, one := range all {
		if one.lost && !one.given && one.stream == l.Identity() && one.Seq > known.Seq {
			known, by = eventlog.Extent{Seq: one.Seq, Judged: one.cursor.Mutations}, fmt.Sprintf("the snapshot at %d", one.Seq)
		}
	}
	if l.End.Last > known.Seq {
		known.Seq, by = l.End.Last, "what NATS knows of it"
	}
	// A stream that has a new leader may not have applied all that it holds.
	last := uint64(0)
	for began := time.Now(); ; {
		if _, last, err = l.Bounds(ctx); err != nil {
			return err
		}
		if last >= known.Seq {
			return nil
		}
		if o.Alone || time.Since(began) > eventlog.TruncationDelay {
			break
		}
		select {
		case <-time.After(eventlog.ResumeInterval):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if !o.AcceptLostEnd {
		return fmt.Errorf("stream %s has lost its end: it ends at %d, and went to %d by %s; restore it from a copy, or start with --accept-lost-end to go on without, and judge again what mutations were judged there",
			l.DB.LogStream(), last, known.Seq, by)
	}
	l.Lost = eventlog.Gap{First: last + 1, Last: known.Seq}
	l.Judged = known.Judged
	return s.give(ctx, all)
}
