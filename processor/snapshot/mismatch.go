package snapshot

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/projections"
)

// The projection is a cache of the log, and a snapshot a copy of it. Whether one belongs to
// the log as it is now is decided by its cursor: the identity of the log, the last folded
// sequence, and a hash over what was folded. Cheap checks come first (identity, bounds);
// then the event at the cursor is read and compared.

// checkLog rejects an empty log if there is a projection or a snapshot of another one:
// they may be all that is left of it.
func (s *Store) checkLog(ctx context.Context, cursor projections.Cursor) error {
	_, last, err := s.log.Bounds(ctx)
	if err != nil || last > 0 {
		return err
	}
	relic := ""
	if cursor.Seq > 0 && cursor.Stream != s.log.Identity() {
		relic = fmt.Sprintf("the projection in %s, up to event %d", s.dir, cursor.Seq)
	}
	all, err := s.readable(ctx)
	if err != nil {
		return err
	}
	for _, snap := range all {
		if snap.lost && relic == "" {
			relic = fmt.Sprintf("the snapshot at event %d", snap.Seq)
		}
	}
	if relic == "" {
		return nil
	}
	return fmt.Errorf("stream %s is empty, and %s belongs to a deleted log: restore the stream, or start a new log from the newest snapshot with `lapse snapshot restore --new-log`; to begin with nothing, remove the projection and the object stores %s*",
		s.db.LogStream(), relic, s.db.SnapshotStore())
}

// Mismatch returns why a projection with this cursor does not match the log, or is
// empty and the log is not; "" if it matches.
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
	case !log.Continues(cursor.Stream):
		return "it was folded from another stream", nil
	case last < cursor.Seq:
		return fmt.Sprintf("it was folded up to %d and the log ends at %d", cursor.Seq, last), nil
	// The event at the cursor cannot be compared, since the log begins after it; the
	// identity has to do.
	case first == cursor.Seq+1:
		return "", nil // a log created from a snapshot
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

// checkEnd compares the log's end with the furthest that the extent file, the projection,
// the snapshots and NATS know. If the log ends before, it returns an error or, with
// AcceptLostEnd, sets the log's Lost and Judged. In a cluster it waits a while: a new
// leader may not have applied all that it has.
func (s *Store) checkEnd(ctx context.Context, cursor projections.Cursor, o Config) error {
	l := s.log
	reached := l.Extent.Read().Further(eventlog.Extent{Seq: l.End.Last, By: "what NATS knows"})
	// A projection of a log that this one continues may be ahead of where it was restored
	// to.
	if cursor.Stream == l.Identity() {
		reached = reached.Further(eventlog.Extent{Seq: cursor.Seq, Judged: cursor.Mutations, By: eventlog.ByProjection})
	}
	all, err := s.all(ctx)
	if err != nil {
		return err
	}
	for _, snap := range all {
		if snap.lost && !snap.givenUp && snap.stream == l.Identity() {
			reached = reached.Further(eventlog.Extent{Seq: snap.Seq, Judged: snap.cursor.Mutations, By: fmt.Sprintf("the snapshot at %d", snap.Seq)})
		}
	}
	err = reached.AwaitEnd(ctx, l.DB.LogStream(), !o.Alone, func() (uint64, error) {
		_, last, err := l.Bounds(ctx)
		return last, err
	})
	if lost, ok := errors.AsType[*eventlog.LostEnd](err); ok && o.AcceptLostEnd {
		l.Lost = eventlog.Gap{First: lost.Last + 1, Last: reached.Seq}
		l.Judged = reached.Judged
		return s.giveUp(ctx, all)
	}
	return err
}
