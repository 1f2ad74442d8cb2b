package observe

import (
	"log/slog"
	"time"
)

// AppendFailed reports that events could not be sent, or that the log rejected or
// did not acknowledge them. Seq is the last sequence that could not be sent; 0 if
// the writer reads the log again to find out which events it has.
type AppendFailed struct {
	Seq uint64
	Err error
}

func (e AppendFailed) Log(to *slog.Logger) {
	if e.Seq != 0 {
		to.Warn("append failed", "seq", e.Seq, "err", e.Err)
		return
	}
	to.Warn("append failed, reading the log again", "err", e.Err)
}

// AppendRecovered ends AppendFailed: the log had the in-flight events up to Acked,
// and Decided requests are decided again.
type AppendRecovered struct {
	Acked   uint64
	Decided int
	Took    time.Duration
}

func (e AppendRecovered) Log(to *slog.Logger) {
	to.Info("appends recovered", "acked", e.Acked, "decided again", e.Decided, "took", brief(e.Took))
}

// LogUnreachable reports a failed attempt to read the log or, for the writer, to move
// the fence. Role is that of the processor, Again the time until the next attempt.
type LogUnreachable struct {
	Role  Role
	Err   error
	Since time.Time
	Again time.Duration
}

func (e LogUnreachable) Log(to *slog.Logger) {
	if e.Role == Writer {
		to.Warn("the log is unreachable, writes wait", "err", e.Err, "again", e.Again)
		return
	}
	to.Warn("the log is unreachable, this standby falls behind", "err", e.Err, "again", e.Again)
}

// LogReachable ends LogUnreachable. After is how long it lasted.
type LogReachable struct{ After time.Duration }

func (e LogReachable) Log(to *slog.Logger) {
	to.Info("the log is reachable again", "after", brief(e.After))
}

// ServerSteerable reports a NATS server between two accounts whose version does not refuse
// reply subjects below $JS. Both fields belong to the server to which lapse is connected.
type ServerSteerable struct{ URL, Version string }

func (e ServerSteerable) Log(to *slog.Logger) {
	to.Warn("this NATS publishes replies below $JS. for any client: an account with JetStream or a leaf node may acknowledge for other consumers, "+
		"and delete the log by an export that the manual forbids (page accounts): upgrade to 2.14.10, or to 2.15.3 or newer", "url", e.URL, "version", e.Version)
}

// AppendsRejected reports that the log accepts the fence and rejects the appends
// after it, Times in a row.
type AppendsRejected struct {
	Times int
	Again time.Duration // until the next attempt
}

func (e AppendsRejected) Log(to *slog.Logger) {
	to.Error("the log rejects every append, writes wait", "times", e.Times, "again", e.Again)
}

// MutationsUnreachable reports a failed attempt to read the mutations stream.
type MutationsUnreachable struct {
	Err   error
	Since time.Time
	Again time.Duration // until the next attempt
}

func (e MutationsUnreachable) Log(to *slog.Logger) {
	to.Warn("the mutations stream is unreachable", "err", e.Err, "again", e.Again)
}

// MutationsReachable ends MutationsUnreachable. After is how long it lasted.
type MutationsReachable struct{ After time.Duration }

func (e MutationsReachable) Log(to *slog.Logger) {
	to.Info("the mutations stream is reachable again", "after", brief(e.After))
}

// ForeignMessage reports a message in the log that is not an event of lapse, each
// time it is folded. Err may be nil.
type ForeignMessage struct {
	Seq     uint64
	Subject string
	Err     error
}

func (e ForeignMessage) Log(to *slog.Logger) {
	args := []any{"seq", e.Seq, "subject", e.Subject}
	if e.Err != nil {
		args = append(args, "err", e.Err)
	}
	to.Warn("foreign message in the log skipped", args...)
}

// ForeignMessages reports at the start how many foreign messages the log has, if any.
type ForeignMessages struct{ Messages uint64 }

func (e ForeignMessages) Log(to *slog.Logger) {
	to.Warn("the log has foreign messages; they are skipped", "messages", e.Messages)
}

// LogDamaged reports that a stream has lost messages and lapse continues without them.
// Text describes the loss and the remedy. First and Last are the lost sequences or, if
// Bytes is not 0, the remaining ones.
type LogDamaged struct {
	Text, Stream string
	Bytes        uint64
	First, Last  uint64
}

func (e LogDamaged) Log(to *slog.Logger) {
	args := []any{"stream", e.Stream}
	if e.Bytes > 0 {
		args = append(args, "bytes", e.Bytes)
	}
	to.Error(e.Text, append(args, "first", e.First, "last", e.Last)...)
}

// LogScrubbed reports the scrub of the older part of the log. Err says which events of
// that part are lost; nil if none are.
type LogScrubbed struct {
	Events uint64
	Took   time.Duration
	Err    error
}

func (e LogScrubbed) Log(to *slog.Logger) {
	if e.Err == nil {
		to.Debug("the older part of the log is readable", "events", e.Events, "took", brief(e.Took))
		return
	}
	to.Error("an old part of the log cannot be read: its documents are served, but history and consumers lack it", "err", e.Err)
}

// LogUnread reports that the scrub could not read the older part of the log for a while,
// and tries again.
type LogUnread struct{ Err error }

func (e LogUnread) Log(to *slog.Logger) {
	to.Warn("the older part of the log is not checked yet: NATS does not deliver it; lapse tries again", "err", e.Err)
}

// LogTrimmed reports that retention removed the events before First.
type LogTrimmed struct{ First uint64 }

func (e LogTrimmed) Log(to *slog.Logger) { to.Info("log trimmed", "first", e.First) }

// LogPadded reports padding, appended so that JetStream begins a new file.
type LogPadded struct{ Bytes int }

func (e LogPadded) Log(to *slog.Logger) { to.Debug("log padded", "bytes", e.Bytes) }
