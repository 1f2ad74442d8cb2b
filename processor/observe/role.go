package observe

import (
	"log/slog"
	"os"
	"time"
)

// ThisProcess returns the name of the machine, "" if unknown, and the id of this process there:
// by them an operator tells several processes apart.
func ThisProcess() (host string, pid int) {
	host, _ = os.Hostname()
	return host, os.Getpid()
}

// Role is what a processor does for its database.
type Role string

const (
	// Writer decides mutations, appends to the log, and answers all requests.
	Writer Role = "writer"
	// Standby folds the log, answers reads, and takes over when the writer's lease
	// expires.
	Standby Role = "standby"
	// None serves nothing: other processes have the copies of the database.
	None Role = "none"
)

// RoleChanged reports that the processor became the writer or a standby. From is
// "" at the start.
type RoleChanged struct {
	From, To Role
	Why      string
}

func (e RoleChanged) Log(to *slog.Logger) {
	args := []any{"role", string(e.To)}
	if e.Why != "" {
		args = append(args, "why", e.Why)
	}
	to.Info("role changed", args...)
}

// FenceMoved reports that the writer's WriterStarted is in the log, at Seq: no
// append that another writer still has in flight can succeed. Took includes
// reading the log to its end.
type FenceMoved struct {
	Seq  uint64
	Took time.Duration
}

func (e FenceMoved) Log(to *slog.Logger) {
	to.Debug("the fence moved", "seq", e.Seq, "took", brief(e.Took))
}

// LeaseUnreachable reports that a standby can neither read the lease nor take an expired
// one, so it cannot take over.
type LeaseUnreachable struct{ Err error }

func (e LeaseUnreachable) Log(to *slog.Logger) {
	to.Warn("the lease is unreachable: this standby cannot take over", "err", e.Err)
}

// LeaseReachable ends LeaseUnreachable.
type LeaseReachable struct{}

func (e LeaseReachable) Log(to *slog.Logger) { to.Info("the lease is reachable again") }

// PeerHangs reports that another process, with this id, is connected and does
// not reply.
type PeerHangs struct{ ID string }

func (e PeerHangs) Log(to *slog.Logger) {
	to.Warn("another process hangs: NATS is made to disconnect it", "process", e.ID)
}

// LeaseReleaseFailed reports that a standby must wait until the lease expires.
type LeaseReleaseFailed struct{ Err error }

func (e LeaseReleaseFailed) Log(to *slog.Logger) {
	to.Warn("lease release failed; it will expire on its own", "err", e.Err)
}

// TakeoverFailed reports that this process had the lease and did not become the writer:
// another one was faster, or JetStream did not reply.
type TakeoverFailed struct{ Err error }

func (e TakeoverFailed) Log(to *slog.Logger) {
	to.Warn("takeover failed: this process stays a standby and tries again", "err", e.Err)
}

// ConnectionLost reports a lost connection to NATS: "log", "bulk" or "service".
// Err may be nil.
type ConnectionLost struct {
	Connection string
	Err        error
}

func (e ConnectionLost) Log(to *slog.Logger) {
	to.Warn("the connection to NATS is lost", "connection", e.Connection, "err", e.Err)
}

// ConnectionBack ends ConnectionLost. Server is the URL it is connected to now.
type ConnectionBack struct {
	Connection, Server string
	After              time.Duration
}

func (e ConnectionBack) Log(to *slog.Logger) {
	to.Info("the connection to NATS is back", "connection", e.Connection, "url", e.Server, "after", brief(e.After))
}

// StopIncomplete reports that the writer could not append when it stopped.
type StopIncomplete struct{ Err error }

func (e StopIncomplete) Log(to *slog.Logger) {
	to.Warn("the time of the stop could not be appended to the log", "err", e.Err)
}

// Failed reports that the processor stops because of an error.
type Failed struct{ Err error }

func (e Failed) Log(to *slog.Logger) {
	to.Debug("the processor failed", "err", e.Err) // the command logs it as an error
}
