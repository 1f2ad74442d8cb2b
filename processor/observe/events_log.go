package observe

import (
	"context"
	"log/slog"
	"time"
)

// LoggingEventListener returns a listener that writes lines to a log: what an
// operator has to do something about as errors, what may need a look as
// warnings, and the rest, of which there may be much, at the levels info and
// debug.
func LoggingEventListener(to *slog.Logger) *EventListener {
	return &EventListener{
		RoleChanged: func(i RoleChange) {
			level := slog.LevelInfo
			if i.From == "" {
				level = slog.LevelDebug // who started it says so
			}
			args := []any{"role", string(i.To)}
			if i.Why != "" {
				args = append(args, "why", i.Why)
			}
			to.Log(context.Background(), level, "role changed", args...)
		},
		LeaseOutOfReach: func(err error) { to.Warn("the lease is out of reach: nobody can take over", "err", err) },
		LeaseInReach:    func(struct{}) { to.Info("the lease is in reach again") },
		LeaseKept:       func(err error) { to.Warn("the lease could not be given up, it ends by itself", "err", err) },
		TakeOverFailed:  func(err error) { to.Warn("another lapse was faster", "err", err) },
		FollowOutOfReach: func(i Outage) {
			to.Warn("the log is out of reach", "err", i.Err, "again", i.Again)
		},
		FollowInReach: func(i Return) { to.Info("the log is in reach again", "after", brief(i.After)) },
		FenceMoved:    func(i FenceMove) { to.Debug("the fence moved", "seq", i.Seq, "took", brief(i.Took)) },
		AppendFailed: func(i AppendFailure) {
			if i.Seq != 0 {
				to.Warn("append failed", "seq", i.Seq, "err", i.Err)
				return
			}
			to.Warn("append failed, reading the log again", "err", i.Err)
		},
		AppendRecovered: func(i AppendRecovery) {
			to.Info("the log takes events again", "landed", i.Landed, "decided again", i.Decided, "took", brief(i.Took))
		},
		LogOutOfReach: func(i Outage) { to.Warn("the log is out of reach, writes wait", "err", i.Err, "again", i.Again) },
		LogInReach:    func(i Return) { to.Info("the log is in reach again", "after", brief(i.After)) },
		LogRefuses: func(i Refusal) {
			to.Error("the log refuses what it is given, writes wait", "times", i.Times, "again", i.Again)
		},
		MutationsOutOfReach: func(i Outage) { to.Warn("mutations are out of reach", "err", i.Err, "again", i.Again) },
		MutationsInReach:    func(i Return) { to.Info("mutations are in reach again", "after", brief(i.After)) },
		ConnectionLost: func(i ConnectionLoss) {
			to.Warn("the connection to NATS is lost", "connection", i.Connection, "err", i.Err)
		},
		ConnectionBack: func(i ConnectionReturn) {
			to.Info("the connection to NATS is back", "connection", i.Connection, "url", i.Server, "after", brief(i.After))
		},
		CatchingUp: func(i CatchUpProgress) { to.Debug("the log is being folded", "seq", i.Seq, "end", i.End) },
		CaughtUp: func(i CatchUp) {
			level := slog.LevelDebug
			if i.Took >= time.Second {
				level = slog.LevelInfo
			}
			to.Log(context.Background(), level, "the log is folded", "seq", i.Seq, "events", i.Events, "took", brief(i.Took))
		},
		MutationRejected: func(i Rejection) {
			to.Debug("a mutation is rejected", "mutation", i.Cause, "op", i.Op.String(), "code", i.Fault.Code, "error", i.Fault.Name)
		},
		RequestsRefused: func(i Refusals) {
			to.Warn("requests are refused", "op", i.Operation, "code", i.Code, "why", i.Why)
		},
		ReplyRefused: func(i RefusedReply) {
			to.Warn("a message is ignored: a request has a reply subject that begins with _INBOX.", "subject", i.Subject, "reply", i.Reply)
		},
		RequestFailed: func(i RequestFailure) {
			if i.Panic != nil {
				to.Error("a request panicked", "op", i.Operation, "panic", i.Panic, "stack", i.Stack)
				return
			}
			to.Error("a request failed", "op", i.Operation, "err", i.Err)
		},
		ReplyFailed: func(i ReplyFailure) { to.Warn("reply failed", "op", i.Operation, "err", i.Err) },
		ClockDoubted: func(i ClockDoubt) {
			to.Error("the clock is not believed: nothing expires and writes are refused until it is right, or accepted by SIGUSR1 or a start with --accept-clock",
				"why", i.Why, "off", i.Off)
		},
		ClockBelieved: func(i ClockBelief) {
			to.Info("the clock is right again", "after", i.After, "refused", i.Refused)
		},
		ClockAccepted: func(i ClockAcceptance) {
			if i.Needless {
				to.Info("the clock is believed, there is nothing to accept")
				return
			}
			to.Warn("the clock is accepted as it is", "wall", Timestamp(i.Wall), "off", i.Off)
			if i.Still > 0 {
				to.Warn("time stands still until the clock gets there: nothing expires before that", "for", i.Still)
			}
		},
		ServerTimeUnknown: func(err error) { to.Warn("the NATS server does not say its time", "err", err) },
		SnapshotMade: func(i SnapshotMade) {
			to.Info("snapshot made and verified", "seq", i.Snapshot.Seq, "bytes", i.Snapshot.Bytes, "took", i.Took.Round(time.Millisecond))
		},
		SnapshotRemoved: func(i SnapshotRemoved) { to.Info("snapshot removed", "seq", i.Seq) },
		SnapshotUseless: func(i SnapshotUseless) { to.Warn("a snapshot is of no use", "seq", i.Seq, "why", i.Err) },
		RetentionFailed: func(i RetentionFailure) {
			to.Error("snapshots or retention failed, the log is kept whole; it is tried again", "err", i.Err, "again", i.Again)
		},
		LogTrimmed: func(i LogTrim) { to.Info("log trimmed", "first", i.First) },
		LogPadded:  func(i LogPad) { to.Debug("log padded", "bytes", i.Bytes) },
		ProjectionRemade: func(i ProjectionRemake) {
			to.Warn("the projection does not fit the log and is folded anew", "dir", i.Dir, "why", i.Why)
		},
		ProjectionRestored: func(i ProjectionRestore) { to.Info("the projection begins with a snapshot", "seq", i.Seq) },
		IndexBuilt:         func(i IndexBuild) { to.Info("indexes are built", "collection", i.Collection) },
		ForeignMessage: func(i Foreign) {
			args := []any{"seq", i.Seq, "subject", i.Subject}
			if i.Err != nil {
				args = append(args, "err", i.Err)
			}
			to.Warn("foreign message in the log skipped", args...)
		},
		ForeignMessages: func(i ForeignCount) {
			to.Warn("the log holds messages that are not lapse's; they are skipped", "messages", i.Messages)
		},
		LogDamaged: func(i LogDamage) {
			args := []any{"stream", i.Stream}
			if i.Bytes > 0 {
				args = append(args, "bytes", i.Bytes)
			}
			to.Error(i.What, append(args, "first", i.First, "last", i.Last)...)
		},
		LogScrubbed: func(i Scrubbing) {
			level := slog.LevelWarn
			switch {
			case i.Err == nil:
				to.Debug("the older part of the log can be read", "events", i.Events, "took", brief(i.Took))
				return
			case i.Lost:
				level = slog.LevelError
			}
			to.Log(context.Background(), level, "an old part of the log cannot be read: its documents are served, but history and consumers lack it", "err", i.Err)
		},
		Slow: func(i Slowness) {
			to.Warn("something took long", "what", i.What, "took", brief(i.Took))
		},
		StopIncomplete: func(err error) { to.Warn("the log does not tell until when lapse ran", "err", err) },
		Failed:         func(err error) { to.Debug("going on is impossible", "err", err) }, // who started it says so
	}
}

// brief is a duration without digits that say nothing.
func brief(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(10 * time.Microsecond)
	}
	return d.Round(time.Millisecond)
}

// timestamp writes a time as lines for operators have it.
func Timestamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
