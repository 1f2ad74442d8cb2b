package observe

import (
	"context"
	"log/slog"
	"time"

	"github.com/lapsedb/lapse/schema"
)

// CatchingUp reports the progress of folding the log at the start, now and then.
type CatchingUp struct{ Seq, End uint64 }

func (e CatchingUp) Log(to *slog.Logger) { to.Debug("folding the log", "seq", e.Seq, "end", e.End) }

// CaughtUp ends CatchingUp: the log is folded up to Seq, the last Events of it now.
type CaughtUp struct {
	Seq, Events uint64
	Took        time.Duration
}

func (e CaughtUp) Log(to *slog.Logger) {
	level := slog.LevelDebug
	if e.Took >= time.Second {
		level = slog.LevelInfo
	}
	to.Log(context.Background(), level, "the log is folded", "seq", e.Seq, "events", e.Events, "took", brief(e.Took))
}

// ProjectionRemade reports that the projection in Dir does not match the log, and
// is restored from a snapshot or folded from the beginning.
type ProjectionRemade struct{ Dir, Why string }

func (e ProjectionRemade) Log(to *slog.Logger) {
	to.Warn("the projection does not fit the log and is folded again", "dir", e.Dir, "why", e.Why)
}

// ProjectionRestored reports that the projection starts from the snapshot at Seq.
type ProjectionRestored struct{ Seq uint64 }

func (e ProjectionRestored) Log(to *slog.Logger) {
	to.Info("projection restored from a snapshot", "seq", e.Seq)
}

// IndexBuilt reports that the indexes of a collection are complete again.
type IndexBuilt struct{ Collection schema.CollectionName }

func (e IndexBuilt) Log(to *slog.Logger) { to.Info("indexes built", "collection", e.Collection) }

// SnapshotMade reports a new, verified snapshot.
type SnapshotMade struct {
	Snapshot schema.Snapshot
	Took     time.Duration
}

func (e SnapshotMade) Log(to *slog.Logger) {
	to.Info("snapshot made and verified", "seq", e.Snapshot.Seq, "bytes", e.Snapshot.Bytes, "took", e.Took.Round(time.Millisecond))
}

// SnapshotRemoved reports that retention removed a snapshot.
type SnapshotRemoved struct{ Seq uint64 }

func (e SnapshotRemoved) Log(to *slog.Logger) { to.Info("snapshot removed", "seq", e.Seq) }

// SnapshotUnusable reports a snapshot that the projection could not be restored
// from.
type SnapshotUnusable struct {
	Seq uint64
	Err error
}

func (e SnapshotUnusable) Log(to *slog.Logger) {
	to.Warn("snapshot unusable", "seq", e.Seq, "why", e.Err)
}

// RetentionFailed reports a failed round of snapshots and retention.
type RetentionFailed struct {
	Err   error
	Again time.Duration // until the next round
}

func (e RetentionFailed) Log(to *slog.Logger) {
	to.Error("snapshots or retention failed; the log is not trimmed", "err", e.Err, "again", e.Again)
}
