package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// RestoreSnapshot replaces the projection in o.Dir with the snapshot at seq, or the
// newest sound one if seq is 0, and returns it. If the snapshot does not match the log,
// newLog replaces the log with an empty one that begins after it, unless vacant returns an
// error: a processor still serves the database.
func RestoreSnapshot(ctx context.Context, c eventlog.Connections, o Config, seq uint64, newLog bool, vacant func() error) (schema.Snapshot, error) {
	js, err := jetstream.New(c.ForBulk())
	if err != nil {
		return schema.Snapshot{}, err
	}
	// Of any log of the database: the one they belong to may be lost.
	s := NewStore(js, nil, o)
	// Fails if another process has it open.
	readOnly := o.Projection
	readOnly.ReadOnly = true
	store, err := projections.Open(o.Dir, readOnly)
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
	for i, snap := range candidates {
		why, refused := "", false
		err = s.Restore(ctx, snap, func(cursor projections.Cursor) (err error) {
			why, err = logMismatch(ctx, c, o.Config, cursor)
			switch {
			case err != nil || why == "":
				return err
			case !newLog:
				err = fmt.Errorf("snapshot %d does not match the log: %s; restore the log, or start a new one from the snapshot with --new-log", snap.Seq, why)
			default:
				err = vacant()
			}
			refused = err != nil
			return err
		})
		switch {
		case err == nil && why != "":
			return s.replaceLog(ctx, c, snap.Snapshot, o)
		case err == nil:
			return snap.Snapshot, nil
		// An older snapshot would not help, or there is none.
		case refused || unreachable(err) || ctx.Err() != nil || i == len(candidates)-1:
			return snap.Snapshot, err
		}
		o.Events(observe.SnapshotUnusable{Seq: snap.Seq, Err: err})
	}
	return schema.Snapshot{}, nil
}

// choose returns the snapshot at seq or, if seq is 0, all that are sound, newest first.
// It returns an error if there is none.
func (s *Store) choose(ctx context.Context, seq uint64) (candidates []storedSnapshot, err error) {
	all, err := s.all(ctx)
	if err != nil {
		return nil, err
	}
	for _, snap := range all {
		switch {
		case snap.Seq == seq && !snap.Sound:
			return nil, fmt.Errorf("snapshot %d is not sound: %s", snap.Seq, snap.Fault)
		case snap.Sound && (seq == 0 || snap.Seq == seq):
			candidates = append(candidates, snap)
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

// logMismatch is Mismatch with the existing log, which may be missing.
func logMismatch(ctx context.Context, c eventlog.Connections, o eventlog.Config, cursor projections.Cursor) (why string, err error) {
	log, err := eventlog.OpenExisting(ctx, c, o)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return "there is no log", nil
	} else if err != nil {
		return "", err
	}
	defer log.Close()
	return Mismatch(ctx, log, cursor)
}

// replaceLog replaces the log, if there is one, with an empty one from the restored
// snapshot, binds the projection to it, and makes a snapshot of it. The new log needs that
// one: it begins after the snapshot's sequence, so nothing could be rebuilt without it.
func (s *Store) replaceLog(ctx context.Context, c eventlog.Connections, snapshot schema.Snapshot, o Config) (schema.Snapshot, error) {
	js, err := jetstream.New(c.Log)
	if err != nil {
		return snapshot, err
	}
	// Nothing but the replicas is kept of the old log. From here on it is gone, and the
	// snapshot is all there is.
	old, err := js.Stream(ctx, s.db.LogStream())
	if err == nil {
		o.Replicas = cmp.Or(o.Replicas, old.CachedInfo().Config.Replicas)
		if err = js.DeleteStream(ctx, s.db.LogStream()); err != nil {
			err = fmt.Errorf("remove stream %s: %w: have a user with that permission run `nats stream rm %s`, and try again", s.db.LogStream(), err, s.db.LogStream())
		}
	}
	if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return snapshot, err
	}
	var log *eventlog.Log
	err = eventlog.UntilOpen(ctx, c, func(context.Context) error {
		_, err := eventlog.CreateLog(ctx, js, o.Config, snapshot.Seq+1)
		if err == nil || errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // by a request whose reply was lost
			log, err = eventlog.Open(ctx, c, o.Config)
		}
		return err
	})
	if err != nil {
		return snapshot, fmt.Errorf("stream %s: %w", s.db.LogStream(), err)
	}
	defer log.Close()
	store, err := projections.Open(s.dir, o.Projection)
	if err != nil {
		return snapshot, err
	}
	// Until then the projection belongs to the old log, and a start would refuse it.
	if err := store.Rebind(log.Identity()); err != nil {
		return snapshot, errors.Join(err, store.Close())
	}
	// Retention removes the snapshots of the old log when it makes the next ones.
	s.log, s.Store = log, store
	err = eventlog.UntilOpen(ctx, c, func(context.Context) (err error) {
		snapshot, err = s.Create(ctx)
		return err
	})
	return snapshot, errors.Join(err, store.Close())
}
