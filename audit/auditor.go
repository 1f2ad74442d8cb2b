package audit

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"os"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lapsedb/lapse/schema"
)

// Options of an Auditor. The zero value audits an exported log.
type Options struct {
	// Stream is for the log's stream itself, with internal events: sequences and causes
	// rise by one. A stream that begins above 1 was trimmed, or begun after a snapshot.
	Stream bool

	// Partial is for a log without its beginning: collections and documents may exist
	// that no event of it created.
	Partial bool

	// Findings is how many findings of each rule are kept; 1000 if 0. More are counted.
	Findings int

	// FS holds the state during the audit; a new temporary directory if nil.
	FS vfs.FS
}

// Auditor audits one log. It is not safe for concurrent use. An error is a failure of its
// temporary files, which ends the audit.
type Auditor struct {
	options Options
	dir     string // to be removed, "" for none
	state   *state
	seed    maphash.Seed
	report  Report
	kept    map[Rule][]Finding

	sequence, time, cause rising
	begins                uint64 // where the log begins by what it says itself
	resumed               int64  // log time, ms, at which a writer started last, or went on
	late                  int64  // log time, ms, of the last expiry or warning that came late
	active                activity

	collections  map[schema.CollectionName]*collection
	incarnations uint64 // given out

	// named are the collections that the log has mentioned. With a missing beginning,
	// others may exist.
	named map[schema.CollectionName]bool
}

// New returns an auditor at the beginning of a log. Close it.
func New(options Options) (*Auditor, error) {
	if options.Findings == 0 {
		options.Findings = 1000
	}
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

// Close removes the state.
func (a *Auditor) Close() error { return errors.Join(a.state.close(), a.remove()) }

// Failed receives an error when the temporary files fail, as with a full disk. A call in
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

// found records a finding about the event at seq.
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

// Event audits the next event of the log. The caller keeps the event.
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
	a.active.at(e.Time)
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

// internal audits an internal event.
func (a *Auditor) internal(e *schema.Event) {
	var says struct{ First, Reused uint64 }
	_ = json.Unmarshal(e.Body, &says) // one that says nothing is empty
	if e.Type == schema.LogTrimmed {
		a.begins = max(a.begins, says.First)
		return
	}
	a.resumed = e.Time
	if e.Seq == a.report.First {
		a.begins = max(a.begins, e.Seq) // it was begun behind a snapshot
	}
	if says.Reused >= e.Seq {
		a.against(Sequence, e, "the log has lost its end: other events had sequences %d to %d before", e.Seq, says.Reused)
	}
}

// Foreign records the message at seq, which is no event because of fault.
func (a *Auditor) Foreign(seq uint64, why error) {
	a.position(seq)
	a.found(Foreign, seq, "", "", "this is no event of a log: %v", why)
}

// position audits the sequence and time of an event.
func (a *Auditor) position(seq uint64) {
	r := &a.report
	if r.Events++; r.Events == 1 {
		r.First = seq
		r.Complete = r.Complete && (!a.options.Stream || seq == 1)
	}
	last := uint64(a.sequence.last)
	switch rose := a.sequence.next(int64(seq), 1); {
	case !rose:
		a.found(Sequence, seq, "", "", "it stands behind sequence %d", last)
	case a.options.Stream && r.Events > 1 && seq == last+2:
		a.found(Sequence, seq, "", "", "sequence %d before it is not in the log", last+1)
	case a.options.Stream && r.Events > 1 && seq > last+1:
		a.found(Sequence, seq, "", "", "sequences %d to %d before it are not in the log", last+1, seq-1)
	}
	r.Last = max(r.Last, seq)
}

// judged audits the mutation that caused an event.
func (a *Auditor) judged(e *schema.Event) {
	if e.Cause == 0 {
		return
	}
	if e.Type.HasDeadline() {
		a.against(Cause, e, "mutation %d is told as the cause of an expiry or warning, which has none", e.Cause)
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
		a.against(Cause, e, "mutation %d is judged behind mutation %d: each is judged once, in order", e.Cause, last)
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

// Finish ends the audit at the end of the log, and returns the report.
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
