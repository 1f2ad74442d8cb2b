package observe

import (
	"time"

	"github.com/lapsedb/lapse/schema"
)

// EventListener is told what an operator may want to know, as it happens: the
// lines of the log, the metrics and what /readyz says all come from one. Any
// callback may be nil. They are called from many goroutines, some of which
// decide and answer: they must not block, nor call the Processor.
type EventListener struct {
	// RoleChanged is called when the processor becomes the writer or a standby.
	RoleChanged func(RoleChange)
	// FenceMoved is called when a writer's WriterStarted is in the log: nothing
	// that another one still has under way can come into it any more.
	FenceMoved func(FenceMove)

	// LeaseOutOfReach is called when a standby cannot find out whether somebody
	// writes, LeaseInReach when it can again.
	LeaseOutOfReach func(error)
	LeaseInReach    func(struct{})
	// LeaseKept is called when the lease could not be given up.
	LeaseKept func(error)
	// TakeOverFailed is called when another process was faster to become the
	// writer.
	TakeOverFailed func(error)

	// AppendFailed is called when events could not be sent, or the log refused
	// them or said nothing.
	AppendFailed func(AppendFailure)
	// AppendRecovered is called when the writer goes on after that.
	AppendRecovered func(AppendRecovery)
	// LogOutOfReach is called at each attempt in vain to read the log's end and
	// move the fence, LogInReach when one succeeds again.
	LogOutOfReach func(Outage)
	LogInReach    func(Return)
	// FollowOutOfReach and FollowInReach are about the log for a standby.
	FollowOutOfReach func(Outage)
	FollowInReach    func(Return)
	// LogRefuses is called when the log takes the fence and nothing else, again
	// and again.
	LogRefuses func(Refusal)
	// MutationsOutOfReach and MutationsInReach are about the stream of mutations.
	MutationsOutOfReach func(Outage)
	MutationsInReach    func(Return)

	// ConnectionLost and ConnectionBack are about the connections to NATS.
	ConnectionLost func(ConnectionLoss)
	ConnectionBack func(ConnectionReturn)

	// CatchingUp is called while what is in the log is folded at the start, now
	// and then, CaughtUp when all of it is.
	CatchingUp func(CatchUpProgress)
	CaughtUp   func(CatchUp)

	// MutationRejected is called for each MutationRejected that is in the log.
	MutationRejected func(Rejection)
	// RequestsRefused is called for each request refused for want of room.
	RequestsRefused func(Refusals)
	// ReplyRefused is called for each message where requests come in that is none,
	// as its reply subject is no inbox.
	ReplyRefused func(RefusedReply)
	// RequestFailed is called when one fails for a reason of ours, ReplyFailed
	// when an answer cannot be sent.
	RequestFailed func(RequestFailure)
	ReplyFailed   func(ReplyFailure)

	// ClockDoubted is called when the clock is not believed any more, and
	// ClockBelieved when it is again, ClockAccepted when somebody said so.
	ClockDoubted  func(ClockDoubt)
	ClockBelieved func(ClockBelief)
	ClockAccepted func(ClockAcceptance)
	// ServerTimeUnknown is called when the NATS server does not say its time at
	// the start.
	ServerTimeUnknown func(error)

	// SnapshotMade, SnapshotRemoved and SnapshotUseless are about snapshots of the
	// projection.
	SnapshotMade    func(SnapshotMade)
	SnapshotRemoved func(SnapshotRemoved)
	SnapshotUseless func(SnapshotUseless)
	// RetentionFailed is called when a round of snapshots and retention failed.
	RetentionFailed func(RetentionFailure)
	// LogTrimmed is called when the log begins later, LogPadded when it was
	// padded to begin a new file.
	LogTrimmed func(LogTrim)
	LogPadded  func(LogPad)

	// ProjectionRemade is called when the projection is not used and made anew,
	// ProjectionRestored when it begins with a snapshot then.
	ProjectionRemade   func(ProjectionRemake)
	ProjectionRestored func(ProjectionRestore)
	// IndexBuilt is called when the indexes of a collection are whole again.
	IndexBuilt func(IndexBuild)

	// ForeignMessage is called for a message in the log that is not lapse's, each
	// time it is folded; ForeignMessages at the start, if any were.
	ForeignMessage  func(Foreign)
	ForeignMessages func(ForeignCount)
	// LogDamaged is called for what the log has lost and lapse goes on without.
	LogDamaged func(LogDamage)
	// LogScrubbed is called when the older part of the log was read, or could not
	// be.
	LogScrubbed func(Scrubbing)

	// Slow is called for what took longer than it should.
	Slow func(Slowness)
	// StopIncomplete is called when the log could not be told until when lapse ran.
	StopIncomplete func(error)
	// Failed is called when going on is impossible.
	Failed func(error)
}

// RoleChange says what the processor was, "" at the start, what it is, and why.
type RoleChange struct {
	From, To Role
	Why      string
}

// FenceMove says where the fence is and how long it took, with reading the log
// to its end.
type FenceMove struct {
	Seq  uint64
	Took time.Duration
}

// AppendFailure says why an append failed. Seq is the last sequence of what
// could not be sent; 0 if the log is read again, to find out what it has.
type AppendFailure struct {
	Seq uint64
	Err error
}

// AppendRecovery says up to where the log had what was under way, how much is
// decided again, and how long it took.
type AppendRecovery struct {
	Landed  uint64
	Decided int
	Took    time.Duration
}

// Outage says why something was not reached, since when, and when it is tried
// again.
type Outage struct {
	Err   error
	Since time.Time
	Again time.Duration
}

// Return says for how long something was out of reach.
type Return struct{ After time.Duration }

// Refusal says how often in a row, and when it is tried again.
type Refusal struct {
	Times int
	Again time.Duration
}

// ConnectionLoss says which connection is lost, "log", "bulk" or "service", and
// why, if that is known.
type ConnectionLoss struct {
	Connection string
	Err        error
}

// ConnectionReturn says which connection is back, where and after how long.
type ConnectionReturn struct {
	Connection, Server string
	After              time.Duration
}

// CatchUpProgress says how far the log is folded and where it ends.
type CatchUpProgress struct{ Seq, End uint64 }

// CatchUp says up to where the log was folded, how many events of it now, and
// how long that took.
type CatchUp struct {
	Seq, Events uint64
	Took        time.Duration
}

// Rejection is a mutation that was rejected: its sequence in the stream of
// mutations, and why.
type Rejection struct {
	Cause uint64
	Op    schema.Op
	Fault *schema.Error
}

// Refusals is a request that was refused for want of room.
type Refusals struct {
	Operation string
	Code      int
	Why       string
}

// RefusedReply is a message that is no request, as its reply subject is no inbox:
// a service publishes wherever a client says, so it says no to everything else.
type RefusedReply struct {
	Subject, Reply string
}

// RequestFailure is a request that failed. Panic and Stack are those of one that
// panicked.
type RequestFailure struct {
	Operation string
	Err       error
	Panic     any
	Stack     string
}

// ReplyFailure is an answer that could not be sent.
type ReplyFailure struct {
	Operation string
	Err       error
}

// ClockDoubt says why the clock is not believed, and how far it is ahead of what
// it should say.
type ClockDoubt struct {
	Why string
	Off time.Duration
}

// ClockBelief says for how long the clock was not believed, and how many
// requests were refused for that since the start.
type ClockBelief struct {
	After   time.Duration
	Refused uint64
}

// ClockAcceptance says what the clock said and how far it is off. Still is for
// how long time stands still until it gets there, Needless that it was believed
// anyway.
type ClockAcceptance struct {
	Wall     time.Time
	Off      time.Duration
	Still    time.Duration
	Needless bool
}

// SnapshotMade is a snapshot that was made and verified.
type SnapshotMade struct {
	Snapshot schema.Snapshot
	Took     time.Duration
}

// SnapshotRemoved is one that is not needed any more.
type SnapshotRemoved struct{ Seq uint64 }

// SnapshotUseless is one that the projection could not be made of.
type SnapshotUseless struct {
	Seq uint64
	Err error
}

// RetentionFailure says why, and when it is tried again.
type RetentionFailure struct {
	Err   error
	Again time.Duration
}

// LogTrim says with what sequence the log begins now.
type LogTrim struct{ First uint64 }

// LogPad says how many bytes were appended.
type LogPad struct{ Bytes int }

// ProjectionRemake says why the projection in Dir is not used.
type ProjectionRemake struct{ Dir, Why string }

// ProjectionRestore says of which snapshot.
type ProjectionRestore struct{ Seq uint64 }

// IndexBuild says of which collection.
type IndexBuild struct{ Collection schema.CollectionName }

// Foreign is a message that is not lapse's. Err may be nil.
type Foreign struct {
	Seq     uint64
	Subject string
	Err     error
}

// ForeignCount says how many were skipped, ever.
type ForeignCount struct{ Messages uint64 }

// LogDamage says what is lost, in a sentence with what to do; First and Last are
// the sequences lost or, if Bytes is not 0, those that the log has left.
type LogDamage struct {
	What, Stream string
	Bytes        uint64
	First, Last  uint64
}

// Scrubbing says how many events were read. Err is why the rest could not be,
// Lost that it is not there any more.
type Scrubbing struct {
	Events uint64
	Took   time.Duration
	Err    error
	Lost   bool
}

// Slowness says what took how long.
type Slowness struct {
	What string
	Took time.Duration
}

// EnsureDefaults returns l with the callbacks that are nil doing nothing; l may
// be nil, too.
func (l *EventListener) EnsureDefaults() *EventListener {
	var all EventListener
	if l != nil {
		all = *l
	}
	all.pairs(true, &all)
	return &all
}

// TeeEventListener returns a listener that tells both a and b, in this order;
// either may be nil.
func TeeEventListener(a, b *EventListener) *EventListener {
	first, second := a.EnsureDefaults(), b.EnsureDefaults()
	first.pairs(false, second)
	return first
}

// pairs fills in what is nil of all callbacks, or has those of another listener
// called behind them. A test sees to it that none is missing.
func (l *EventListener) pairs(fill bool, o *EventListener) {
	join(fill, &l.RoleChanged, o.RoleChanged)
	join(fill, &l.FenceMoved, o.FenceMoved)
	join(fill, &l.LeaseOutOfReach, o.LeaseOutOfReach)
	join(fill, &l.LeaseInReach, o.LeaseInReach)
	join(fill, &l.LeaseKept, o.LeaseKept)
	join(fill, &l.TakeOverFailed, o.TakeOverFailed)
	join(fill, &l.FollowOutOfReach, o.FollowOutOfReach)
	join(fill, &l.FollowInReach, o.FollowInReach)
	join(fill, &l.AppendFailed, o.AppendFailed)
	join(fill, &l.AppendRecovered, o.AppendRecovered)
	join(fill, &l.LogOutOfReach, o.LogOutOfReach)
	join(fill, &l.LogInReach, o.LogInReach)
	join(fill, &l.LogRefuses, o.LogRefuses)
	join(fill, &l.MutationsOutOfReach, o.MutationsOutOfReach)
	join(fill, &l.MutationsInReach, o.MutationsInReach)
	join(fill, &l.ConnectionLost, o.ConnectionLost)
	join(fill, &l.ConnectionBack, o.ConnectionBack)
	join(fill, &l.CatchingUp, o.CatchingUp)
	join(fill, &l.CaughtUp, o.CaughtUp)
	join(fill, &l.MutationRejected, o.MutationRejected)
	join(fill, &l.RequestsRefused, o.RequestsRefused)
	join(fill, &l.ReplyRefused, o.ReplyRefused)
	join(fill, &l.RequestFailed, o.RequestFailed)
	join(fill, &l.ReplyFailed, o.ReplyFailed)
	join(fill, &l.ClockDoubted, o.ClockDoubted)
	join(fill, &l.ClockBelieved, o.ClockBelieved)
	join(fill, &l.ClockAccepted, o.ClockAccepted)
	join(fill, &l.ServerTimeUnknown, o.ServerTimeUnknown)
	join(fill, &l.SnapshotMade, o.SnapshotMade)
	join(fill, &l.SnapshotRemoved, o.SnapshotRemoved)
	join(fill, &l.SnapshotUseless, o.SnapshotUseless)
	join(fill, &l.RetentionFailed, o.RetentionFailed)
	join(fill, &l.LogTrimmed, o.LogTrimmed)
	join(fill, &l.LogPadded, o.LogPadded)
	join(fill, &l.ProjectionRemade, o.ProjectionRemade)
	join(fill, &l.ProjectionRestored, o.ProjectionRestored)
	join(fill, &l.IndexBuilt, o.IndexBuilt)
	join(fill, &l.ForeignMessage, o.ForeignMessage)
	join(fill, &l.ForeignMessages, o.ForeignMessages)
	join(fill, &l.LogDamaged, o.LogDamaged)
	join(fill, &l.LogScrubbed, o.LogScrubbed)
	join(fill, &l.Slow, o.Slow)
	join(fill, &l.StopIncomplete, o.StopIncomplete)
	join(fill, &l.Failed, o.Failed)
}

func join[T any](fill bool, own *func(T), other func(T)) {
	switch first := *own; {
	case !fill:
		*own = func(info T) { first(info); other(info) }
	case first == nil:
		*own = func(T) {}
	}
}
