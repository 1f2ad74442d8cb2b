package answer

import (
	"strconv"
	"time"

	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// Parts of replies that packages service and offline share.

// MinSeqTimeout is how long a request waits for its Lapse-Min-Seq, or for a renewal.
const MinSeqTimeout = 2 * time.Second

// UnknownOperation returns the error for an operation that does not exist.
func UnknownOperation(op string) *schema.Error {
	if op == schema.MoveOperation {
		return schema.ErrPreconditionFailed.With("one process alone serves this database: there is none to move it to")
	}
	return schema.ErrBadRequest.With("unknown operation %q: use one of %v", op, schema.OperationNames(nil))
}

// Check checks that a request has no more than its operation accepts. Package schema checks
// mutations.
func Check(o schema.OperationInfo, tail string, header schema.Header, body []byte) *schema.Error {
	if fault := header.CheckNoEnd(o.Name); fault != nil {
		return fault
	}
	if o.Tail == schema.NoTail && tail != "" {
		return schema.ErrBadRequest.With("%s: the subject has extra tokens after it: %q", o.Name, tail)
	}
	if o.NoBody && len(body) > 0 {
		return schema.CheckNoBody(o.Name, body)
	}
	if o.Name == "query" && len(body) > MaxQueryBytes {
		return schema.ErrTooLarge.With("the query has %d bytes: at most %d are allowed", len(body), MaxQueryBytes)
	}
	return nil
}

// MaxQueryBytes is the maximum size of a query in bytes, since many may wait.
const MaxQueryBytes = 1 << 20

// ParseMinSeq parses a Lapse-Min-Seq.
func ParseMinSeq(text string) (uint64, *schema.Error) {
	seq, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, schema.ErrBadRequest.With("%s is %.40q: use a sequence of the log", schema.HeaderMinSeq, text)
	}
	return seq, nil
}

// MinSeqLate returns the error for a Lapse-Min-Seq that was not reached in time.
func MinSeqLate(seq uint64) *schema.Error {
	return schema.ErrTimeout.With("sequence %d was not reached within %s", seq, MinSeqTimeout)
}

// TooLargeBody returns the error for a reply that exceeds a message; both in bytes.
func TooLargeBody(bytes, most int) *schema.Error {
	return schema.ErrTooLarge.With("the reply has %d bytes and a message at most %d: ask for less at a time", bytes, most)
}

// RepeatOf returns the reply to the mutation that made an event, from the event alone: a
// repeat of a Nats-Msg-Id gets the outcome of then, whatever has happened since.
func RepeatOf(e *schema.Event) (code int, body []byte, err error) {
	switch e.Type {
	case schema.DocumentCreated, schema.CollectionCreated:
		code = 201
	case schema.DocumentReplaced, schema.CollectionReplaced:
		code = 200
	case schema.DocumentHeld:
		return 200, schema.AppendHeld(nil, e.ID, schema.ReadReason(e.Body)), nil
	case schema.DocumentReleased:
		return 200, schema.AppendReleased(nil, e.ID), nil
	case schema.DocumentTouched:
		return 200, schema.AppendVersion(nil, e.ID, e.Time/1000, schema.Version(e.Seq)), nil
	default:
		return 204, nil, nil
	}
	if e.Type.OnDocument() {
		return code, schema.AppendReply(nil, e.Body, e.Time/1000, schema.Version(e.Seq)), nil
	}
	properties, fault := schema.ReadProperties(e.Collection, e.Body)
	if fault != nil {
		return 0, nil, fault
	}
	c := schema.Collection{Name: e.Collection, Version: schema.Version(e.Seq), Time: e.Time, Properties: properties}
	return code, c.AppendReply(nil), nil
}

// LifetimeOf returns the lifetime of the version that an event made or is about, zero if
// that version is no longer the current one.
func LifetimeOf(store *projections.Store, e *schema.Event) (schema.Lifetime, error) {
	c, ok := store.Collection(e.Collection)
	if !ok || !e.Type.OnDocument() {
		return schema.Lifetime{}, nil
	}
	record, _, err := store.Document(c, e.ID)
	made := schema.Version(e.Seq)
	if !e.Type.MakesVersion() {
		made = e.Previous
	}
	if err != nil || record.Version == 0 || record.Version != made {
		return schema.Lifetime{}, err
	}
	live, err := NewLive(store, c, e.ID, record)
	return live.Lifetime, err
}

// AddCounts adds the counts of all collections to a status.
func AddCounts(status *schema.Status, collections []*schema.Collection, count func(*schema.Collection) (projections.Counts, error)) error {
	for _, c := range collections {
		n, err := count(c)
		if err != nil {
			return err
		}
		status.Documents += n.Documents
		status.PendingExpiry += n.Pending
		status.Held += n.Held
		status.Overdue += n.Overdue
	}
	return nil
}

// SecondFunc returns the unix second by which to judge deadlines in a state with that log
// time, in ms.
type SecondFunc = func(logTime int64) int64
