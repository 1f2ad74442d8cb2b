package observe

import (
	"log/slog"
	"time"

	"github.com/lapsedb/lapse/schema"
)

// MutationRejected reports a MutationRejected in the log. Cause is the mutation's
// sequence in the mutations stream.
type MutationRejected struct {
	Cause uint64
	Op    schema.Op
	Fault *schema.Error
}

func (e MutationRejected) Log(to *slog.Logger) {
	to.Debug("mutation rejected", "mutation", e.Cause, "op", e.Op.String(), "code", e.Fault.Code, "error", e.Fault.Name)
}

// RequestRejected reports a request rejected because of overload.
type RequestRejected struct {
	Operation string
	Code      int
	Why       string
}

func (e RequestRejected) Log(to *slog.Logger) {
	to.Warn("request rejected", "op", e.Operation, "code", e.Code, "why", e.Why)
}

// ReplyRefused reports a message on a request subject whose reply subject is not
// an inbox, or that came by another subject than its own. It is ignored: a client must not
// choose where the service publishes.
type ReplyRefused struct{ Subject, Reply string }

func (e ReplyRefused) Log(to *slog.Logger) {
	to.Warn("message ignored: its reply subject is not an inbox, or it came by another subject", "subject", e.Subject, "reply", e.Reply)
}

// RequestFailed reports an internal error. Panic and Stack are set if the request
// panicked, Err otherwise.
type RequestFailed struct {
	Operation string
	Err       error
	Panic     any
	Stack     string
}

func (e RequestFailed) Log(to *slog.Logger) {
	if e.Panic != nil {
		to.Error("a request panicked", "op", e.Operation, "panic", e.Panic, "stack", e.Stack)
		return
	}
	to.Error("a request failed", "op", e.Operation, "err", e.Err)
}

// ReplyFailed reports a reply that could not be sent.
type ReplyFailed struct {
	Operation string
	Err       error
}

func (e ReplyFailed) Log(to *slog.Logger) { to.Warn("reply failed", "op", e.Operation, "err", e.Err) }

// Slow reports an operation that took longer than expected. TraceID is that of its request,
// "" for none.
type Slow struct {
	What    string
	Took    time.Duration
	TraceID string
}

func (e Slow) Log(to *slog.Logger) {
	args := []any{"what", e.What, "took", brief(e.Took)}
	if e.TraceID != "" {
		args = append(args, "trace_id", e.TraceID)
	}
	to.Warn("slow operation", args...)
}

// Answered counts the replies to an operation with one code: "other" for a code
// that lapse does not define. Too frequent for an Event.
type Answered struct {
	Operation, Code string
	Requests        uint64
}

// Queue is the length of a queue and its limit.
type Queue struct {
	Name           string
	Length, Places int
}
