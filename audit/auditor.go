package audit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lapsedb/lapse/schema"
)

// Options of an Auditor. The zero value audits an exported log.
type Options struct {
	// Stream is set for the log's own stream, with internal events: sequences and causes
	// rise by one. A stream that begins above 1 was trimmed, or begun after a snapshot.
	Stream bool

	// Partial is set for a log without its beginning: collections and documents may exist
	// that no event of it created.
	Partial bool

	// Findings is the number of findings kept per rule; 1000 if 0. More are only counted.
	Findings int

	// FS holds the temporary state of the audit; a new temporary directory if nil.
	FS vfs.FS
}

// Auditor audits one log. It is not safe for concurrent use. Its methods return an error
// if the temporary files fail, which ends the audit. The audit holds what the log says so
// far, and compares each event with it. A violation becomes a finding, and the event
// counts all the same: the state follows the log, not the rules, so that one fault is one
// finding and not one for each later event.
//
// Where the log lacks its beginning, what may have been there before is no finding
// (before, precedes).
type Auditor struct {
	options Options
	dir     string // temporary directory to remove, "" for none
	state   *state
	seed    maphash.Seed
	report  Report
	kept    map[Rule][]Finding

	sequence, time, cause rising
	begins                uint64 // first sequence of the log according to its own events
	resumed               int64  // log time, ms, of the last start or resumption of a writer
	late                  int64  // log time, ms, of the last late expiry or warning
	active                activity

	collections  map[schema.CollectionName]*collection
	incarnations uint64 // number of the last one assigned

	// named are the collections that the log has mentioned. If the log lacks its
	// beginning, others may exist.
	named map[schema.CollectionName]bool
}

// New returns an auditor at the beginning of a log. Close it when done. Memory is bounded
// by the number of collections, not of documents: those are in Pebble.
func New(options Options) (*Auditor, error) {
	options.Findings = cmp.Or(options.Findings, 1000)
	a := &Auditor{options: options, seed: maphash.MakeSeed(), kept: make(map[Rule][]Finding),
		collections: make(map[schema.CollectionName]*collection), named: make(map[schema.CollectionName]bool),
		report: Report{Complete: !options.Partial, Types: make(map[schema.EventType]uint64), Found: make(map[Rule]uint64)}}
	fs, dir := options.FS, "audit"
	if fs == nil {
		var err error
		if a.dir, err = os.MkdirTemp("", "lapse-audit-"); err != nil {
			return nil, fmt.Errorf("audit: %w", err)
		}
		fs, dir = vfs.Default, a.dir
	}
	var err error
	if a.state, err = openState(dir, fs); err != nil {
		return nil, errors.Join(fmt.Errorf("audit: %w", err), a.remove())
	}
	return a, nil
}

// Close removes the temporary state.
func (a *Auditor) Close() error { return errors.Join(a.state.close(), a.remove()) }

// Failed receives an error when the temporary files fail, as on a full disk. A call in
// flight may then never return.
func (a *Auditor) Failed() <-chan error { return a.state.failed }

// Abandon is Close after Failed: it does not wait.
func (a *Auditor) Abandon() error { return a.remove() }

func (a *Auditor) remove() error {
	if a.dir == "" {
		return nil
	}
	return os.RemoveAll(a.dir)
}

// found records a finding about the event at seq. Findings beyond Options.Findings are
// counted, so that a log with a million faults needs no memory for them.
func (a *Auditor) found(rule Rule, seq uint64, c schema.CollectionName, id schema.DocumentID, format string, args ...any) {
	a.report.Found[rule]++
	if len(a.kept[rule]) < a.options.Findings {
		a.kept[rule] = append(a.kept[rule], Finding{Seq: seq, Rule: rule, Collection: c, ID: id, Message: fmt.Sprintf(format, args...)})
	}
}

// against records a finding about an event.
func (a *Auditor) against(rule Rule, e *schema.Event, format string, args ...any) {
	a.found(rule, e.Seq, e.Collection, e.ID, format, args...)
}

// Event audits the next event of the log. The caller keeps ownership of the event. An
// event goes through what concerns every event (sequence, time, cause), and then its own
// type.
func (a *Auditor) Event(e *schema.Event) error {
	a.position(e.Seq)
	a.report.Types[e.Type]++
	if !a.time.any {
		a.report.FirstTime = e.Time
	}
	if !a.time.next(e.Time, 0) {
		a.against(Time, e, "log time goes back, from %s to %s", moment(a.report.LastTime), moment(e.Time))
	}
	a.report.LastTime = e.Time
	a.active.record(e.Time)
	a.judged(e)
	switch e.Type {
	case schema.CollectionCreated:
		return a.collectionCreated(e)
	case schema.CollectionReplaced:
		return a.collectionReplaced(e)
	case schema.CollectionDeleted:
		return a.collectionDeleted(e)
	case schema.DocumentCreated, schema.DocumentReplaced:
		return a.documentPut(e)
	case schema.DocumentTouched:
		return a.documentTouched(e)
	case schema.DocumentHeld, schema.DocumentReleased:
		return a.documentHeld(e)
	case schema.DocumentDeleted:
		return a.documentDeleted(e)
	case schema.DocumentExpired:
		return a.documentExpired(e)
	case schema.DocumentExpiring:
		return a.documentExpiring(e)
	case schema.MutationRejected:
		return a.mutationRejected(e)
	case schema.WriterStarted, schema.WriterResumed, schema.LogTrimmed:
		a.internal(e)
	}
	return nil
}

// internal audits an internal event. Such events show where the log begins, and since when
// a writer runs. Without the latter the audit would blame a stop of lapse for each expiry
// that came late.
func (a *Auditor) internal(e *schema.Event) {
	var note struct{ First, Reused uint64 }
	_ = json.Unmarshal(e.Body, &note) // without a body, the fields are 0
	if e.Type == schema.LogTrimmed {
		a.begins = max(a.begins, note.First)
		return
	}
	a.resumed = e.Time
	if e.Seq == a.report.First {
		a.begins = max(a.begins, e.Seq) // the stream was begun after a snapshot
	}
	if note.Reused >= e.Seq {
		a.against(Sequence, e, "the log has lost its end: other events had sequences %d to %d before", e.Seq, note.Reused)
	}
}

// Foreign records the message at seq, which is no event for the reason why.
func (a *Auditor) Foreign(seq uint64, why error) {
	a.position(seq)
	a.found(Foreign, seq, "", "", "this is no event of a log: %v", why)
}

// position audits the sequence of an event or foreign message.
func (a *Auditor) position(seq uint64) {
	r := &a.report
	if r.Events++; r.Events == 1 {
		r.First = seq
		r.Complete = r.Complete && (!a.options.Stream || seq == 1)
	}
	last := uint64(a.sequence.last)
	switch rose := a.sequence.next(int64(seq), 1); {
	case !rose:
		a.found(Sequence, seq, "", "", "sequence does not increase: the previous is %d", last)
	case a.options.Stream && r.Events > 1 && seq == last+2:
		a.found(Sequence, seq, "", "", "sequence %d before it is not in the log", last+1)
	case a.options.Stream && r.Events > 1 && seq > last+1:
		a.found(Sequence, seq, "", "", "sequences %d to %d before it are not in the log", last+1, seq-1)
	}
	r.Last = max(r.Last, seq)
}

// judged audits the cause of an event: the sequence of its mutation. Each message of the
// mutations stream is judged once, in order, also if that changes nothing: so in the log's
// own stream causes rise by one. An export lacks internal events, and with them causes of
// repeats.
func (a *Auditor) judged(e *schema.Event) {
	if e.Cause == 0 {
		return
	}
	if e.Type.HasDeadline() {
		a.against(Cause, e, "has Lapse-Cause %d; it must have none", e.Cause)
		return
	}
	a.report.Mutations++
	first, last := !a.cause.any, uint64(a.cause.last)
	if first && !a.report.Complete || first && !a.options.Stream {
		last = e.Cause - 1
	}
	if rose := a.cause.next(int64(e.Cause), 1); !rose && e.Cause == last {
		a.against(Cause, e, "mutation %d is judged once more", e.Cause)
		return
	} else if !rose {
		a.against(Cause, e, "mutation %d is judged out of order, after mutation %d", e.Cause, last)
		return
	}
	if e.Cause <= last+1 {
		return
	}
	switch missing := e.Cause - last - 1; {
	case !a.options.Stream:
		a.report.Unexplained += missing
	case missing == 1:
		a.against(Cause, e, "mutation %d, before its own, is no event's cause", last+1)
	default:
		a.against(Cause, e, "mutations %d to %d, before its own, are no event's cause", last+1, e.Cause-1)
	}
}

// Finish ends the audit at the end of the log, and returns the report. Finish judges what
// only the end shows: versions that are due and have no event to come.
func (a *Auditor) Finish() (Report, error) {
	for _, name := range slices.Sorted(maps.Keys(a.collections)) {
		c := a.collections[name]
		a.report.Documents += c.documents
		if err := a.finish(c); err != nil {
			return Report{}, err
		}
	}
	if first := a.report.First; a.options.Stream && !a.options.Partial && first > max(a.begins, 1) {
		a.found(Sequence, first, "", "", "the log has lost its beginning: sequences %d to %d before it are missing, and no retention has trimmed them", max(a.begins, 1), first-1)
	}
	r := a.report
	r.Collections = len(a.collections)
	r.Due = r.Expired + r.Pending + r.Lost
	for _, rule := range slices.Sorted(maps.Keys(a.kept)) {
		r.Findings = append(r.Findings, a.kept[rule]...)
	}
	slices.SortStableFunc(r.Findings, func(x, y Finding) int { return cmp.Compare(x.Seq, y.Seq) })
	return r, nil
}

// Lines audits an exported log, one event as JSON per line. JSON with a sequence that is
// no valid event is a finding; any other line is an error with its number. progress, if
// not nil, is called with the length of lines in bytes.
func (a *Auditor) Lines(ctx context.Context, r io.Reader, progress func(bytes int)) error {
	for line, err := range schema.ReadEvents(ctx, r) {
		if progress != nil {
			progress(line.Bytes)
		}
		switch {
		case err == nil:
			err = a.Event(line.Event)
		case line.Seq != 0:
			a.Foreign(line.Seq, errors.Unwrap(err))
			err = nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// rising checks that numbers rise. A drop is one finding: later numbers are compared with
// the number after the drop, not with those before it. Example: after 5, 6, 3, 4, 5 there
// is one finding, at 3. isOdd says that odd is valid.
type rising struct {
	last int64
	odd  int64 // the number of the last finding, if isOdd
	any  bool

	isOdd bool
}

// next reports whether the next number exceeds the last by at least least.
func (r *rising) next(n, least int64) bool {
	if !r.any || n >= r.last+least || r.isOdd && n >= r.odd+least {
		r.last, r.any, r.isOdd = n, true, false
		return true
	}
	r.odd, r.isOdd = n, true
	return false
}
