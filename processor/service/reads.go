package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/processor/answer"
	"github.com/lapsedb/lapse/processor/machine"
	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/processor/peers"
	"github.com/lapsedb/lapse/processor/writer"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// Reads are answered from the projection, on workers. Two rules hold for each reply.
// Lapse-Seq names a state that the reply has at least: taken before the read, or the
// version of the document that was read (claim). And a document past its deadline is not
// reported as gone while a renewal may be in flight (failRead): the read runs again once
// that is folded.

// fail replies to a request that failed for an internal reason, or ran out of time.
func (r *Request) fail(err error) {
	if errors.Is(err, context.DeadlineExceeded) && r.late(time.Now()) {
		r.refuse(r.tooLate())
		return
	}
	if projections.OfDamage(err) {
		err = schema.ErrUnavailable.With("the projection of this process is damaged; it is folded again: try again")
	}
	r.Config.Events(observe.RequestFailed{Operation: r.op, Err: err})
	r.refuse(schema.AsError(err))
}

// getDocument answers document.get.
func (r *Request) getDocument() {
	name, id, fault := answer.DocumentName(r.Tail)
	if fault != nil {
		r.refuse(fault)
		return
	}
	before := r.Store.Cursor().Seq
	live, fault, err := r.document(name, id, r.Liveness.Now())
	switch {
	case err != nil:
		r.failRead(err)
	case fault != nil:
		r.refuse(fault)
	default:
		r.replyDocument(live, before)
	}
}

// touch answers a touch with minAge: if there is nothing to renew it reads, without the
// writer.
func (r *Request) touch(m *schema.Mutation) {
	before, now := r.Store.Cursor().Seq, r.Liveness.Now()
	c, ok := r.Store.Collection(m.Collection)
	if ok {
		// Only what is in memory may be looked at here, on the goroutine on which requests
		// arrive.
		record, recent := r.Store.Recent(c, m.ID)
		if !recent || uint64(record.Version) > before {
			r.later(func() {
				if !r.answerTouch(m) {
					r.Seq = 0 // the state of the reply will be a later one
					r.submit(&writer.Proposal{Mutation: m})
				}
			})
			return
		}
		if r.leaveRecord(m, c, record, before, now) {
			return
		}
	}
	r.submit(&writer.Proposal{Mutation: m})
}

// answerTouch replies to a touch that renews nothing, and reports whether it did.
func (r *Request) answerTouch(m *schema.Mutation) bool {
	before, now := r.Store.Cursor().Seq, r.Liveness.Now()
	c, ok := r.Store.Collection(m.Collection)
	if !ok {
		return false
	}
	record, _, err := r.Store.Document(c, m.ID)
	return err == nil && r.leaveRecord(m, c, record, before, now)
}

// leaveRecord is leave for a record that was read: it lives, matches If-Match, and is
// younger than minAge. before is the sequence folded before the read.
func (r *Request) leaveRecord(m *schema.Mutation, c *schema.Collection, record projections.Record, before uint64, now int64) bool {
	if !answer.Lives(c, record, now) || !m.Matches(record.Version) || now-record.TS >= int64(m.MinAge) {
		return false
	}
	live, err := answer.NewLive(r.Store, c, m.ID, record)
	if err != nil {
		return false
	}
	body := schema.AppendVersion(nil, m.ID, record.TS, record.Version)
	if m.Content {
		body = answer.Present(record)
	}
	r.replyLive(live, before, body)
	return true
}

// replyDocument replies with a document. before is the sequence that was folded before
// the read: the document is of that state, or newer and of the state at its version. It
// lacks events folded later, so Lapse-Seq must not name them.
func (r *Request) replyDocument(live answer.Live, before uint64) {
	r.replyLive(live, before, answer.Present(live.Record))
}

// replyLive is replyDocument with another body about the document.
func (r *Request) replyLive(live answer.Live, before uint64, body []byte) {
	r.claim(max(before, uint64(live.Version)))
	r.lifetime = live.Lifetime
	r.reply(200, nil, body)
}

// claim sets the Lapse-Seq of the reply. It waits until the cursor reaches it: a read may
// be ahead of the cursor briefly, and a later request must not get an earlier state.
func (r *Request) claim(seq uint64) {
	r.Seq = seq
	if r.Store.Cursor().Seq < seq {
		ctx, cancel := context.WithTimeout(r.ctx, answer.MinSeqTimeout)
		defer cancel()
		_ = r.Store.Wait(ctx, seq) // fails only on the timeout or at the end of the process
	}
}

// getRecent answers document.get if the document is in memory, as recent changes are,
// and the answer needs no wait. It reports whether it answered.
func (r *Request) getRecent() bool {
	name, id, fault := answer.DocumentName(r.Tail)
	if fault != nil {
		return false
	}
	before, now := r.Store.Cursor().Seq, r.Liveness.Now()
	c, ok := r.Store.Collection(name)
	if !ok {
		return false
	}
	record, ok := r.Store.Recent(c, id)
	// A recent document may be ahead of the cursor by a fold under way. Waiting for it is a
	// worker's job.
	if !ok || uint64(record.Version) > before && uint64(record.Version) > r.Store.Cursor().Seq {
		return false
	}
	switch {
	case record.Version == 0:
		r.Seq = before
		r.refuse(machine.NoDocument(c, id))
	case answer.Lives(c, record, now):
		live, err := answer.NewLive(r.Store, c, id, record)
		if err != nil {
			return false // a worker reports the error
		}
		r.replyDocument(live, before)
	default:
		return false
	}
	return true
}

// document returns a document that lives at now, in unix seconds. Its Body is shared and
// must not be changed. The error is for failRead.
func (s *Service) document(name schema.CollectionName, id schema.DocumentID, now int64) (answer.Live, *schema.Error, error) {
	return answer.LiveDocument(s.Store, name, id, now, s.Liveness.Expired)
}

// failRead is fail for a read that may be *peers.Unsettled: such a read runs again once the
// renewal is folded.
func (r *Request) failRead(err error) {
	var unsettled *peers.Unsettled
	if !errors.As(err, &unsettled) {
		r.fail(err)
		return
	}
	r.waitFor(func(ctx context.Context) error { return r.Liveness.Wait(ctx, unsettled) }, unsettled.Timeout())
}

// collection returns the collection that the subject names, or refuses the request.
func (r *Request) collection() (*schema.Collection, bool) {
	name, err := schema.ParseCollectionName(r.Tail)
	if err != nil {
		r.refuse(schema.AsError(err))
		return nil, false
	}
	c, ok := r.Store.Collection(name)
	if !ok {
		r.refuse(schema.NoCollection(name))
	}
	return c, ok
}

// getCollection answers collection.get, with the number and size of live documents.
func (r *Request) getCollection() {
	c, ok := r.collection()
	if !ok {
		return
	}
	ctx, cancel := r.context(requestTimeout)
	defer cancel()
	n, err := r.Liveness.Count(ctx, c)
	if err == nil {
		err = n.Unsettled
	}
	if err != nil {
		r.failRead(err)
		return
	}
	r.reply(200, nil, c.AppendReplyWithSize(nil, n.Documents, n.Bytes, n.Held))
}

// batch answers a batch of gets, and submits any other to the writer.
func (r *Request) batch() {
	b, fault := answer.ParseBatch(r.Tail, r.Header, r.data)
	if fault != nil {
		r.refuse(fault)
		return
	}
	if b.Mutates() {
		r.Seq = 0 // the state of the reply will be a later one
		r.submit(&writer.Proposal{Batch: b, MaxReply: r.MaxReply})
		return
	}
	ctx, cancel := r.context(requestTimeout)
	defer cancel()
	results, seq, err := answer.ReadBatch(ctx, r.Store, b, r.Liveness.Now, r.MaxReply, r.Liveness.Expired)
	if err != nil {
		r.failRead(err)
		return
	}
	r.claim(max(r.Seq, seq))
	r.reply(200, nil, schema.AppendResults(nil, results))
}

// statusTimeout is how long a status request waits for NATS.
const statusTimeout = 2 * time.Second

// status answers status, within statusTimeout, also while NATS is away.
func (r *Request) status() {
	ctx, cancel := r.context(statusTimeout)
	defer cancel()
	status, err := r.Service.Status(ctx)
	if err != nil {
		r.fail(err)
		return
	}
	r.replyJSON(200, status)
}

// Status returns the body of a status reply. What comes of the projection is there even if
// JetStream does not answer; the error then says so. Role and processes are looked up last,
// since the rest may take a while.
func (s *Service) Status(ctx context.Context) (status schema.Status, err error) {
	defer func() { // last: it may have waited for the log
		status.Role = string(s.Role())
		if why := s.obstacle.Load(); why != nil && status.Role == string(observe.Standby) {
			status.CannotTakeOver = *why
		}
		status.Processes = s.processes(status)
		for _, p := range status.Processes {
			if p.Role != schema.RoleNone {
				status.Copies++
			}
		}
	}()
	// Documents that are being renewed would be counted as overdue.
	s.awaitRenewals(ctx)
	cursor, now := s.Store.Cursor(), s.Liveness.Now()
	status = schema.Status{
		Version:  s.Config.Version,
		Database: string(s.Config.Database),
		Seq:      cursor.Seq,
		LogTime:  cursor.Time,
		Digest:   s.Store.Digest().String(),
		Clock:    s.Clock.Status(),
		Test:     s.Clock.Manual(),
	}
	oldest := int64(0)
	err = answer.AddCounts(&status, s.Store.Collections(), func(c *schema.Collection) (projections.Counts, error) {
		if err := ctx.Err(); err != nil {
			return projections.Counts{}, err
		}
		n, err := s.Liveness.Count(ctx, c)
		if n.Oldest != 0 && (oldest == 0 || n.Oldest < oldest) {
			oldest = n.Oldest
		}
		return n.Counts, err
	})
	if err != nil {
		return status, err
	}
	status.LatenessMs, status.LatenessObjective = s.Writer.Lateness(now*1000, oldest)
	status.Waiting = s.waits()
	status.Host, status.PID = observe.ThisProcess()
	status.Storage = s.Config.Storage()
	memory := s.Config.Memory()
	status.Memory = &memory
	if _, status.LogEnd, err = s.Log.Bounds(ctx); err != nil {
		status.LogEnd = 0
	} else {
		status.MutationsBehind, err = s.Mutations.After(ctx, cursor.Mutations)
	}
	if err != nil {
		err = schema.ErrUnavailable.With("JetStream does not answer the process that serves database %s: /readyz and the log of that process say why (%v)", s.Config.Database, err)
	}
	return status, err
}

// processes returns the processes that may serve the database, this one as in status.
func (s *Service) processes(status schema.Status) []schema.Process {
	own := s.peers.Process.Own()
	self := own.Process(schema.Standing{Role: schema.RoleCopy, Seq: status.Seq})
	if status.Role == string(observe.Writer) {
		self.Role = schema.RoleWriter
	}
	if status.LogEnd > status.Seq {
		self.Behind = status.LogEnd - status.Seq
	}
	all := []schema.Process{self}
	for _, m := range s.peers.Process.Members() {
		if standing, ok := m.Of(s.Config.Database); ok && m.ID != self.ID {
			all = append(all, m.Process(standing))
		}
	}
	slices.SortFunc(all, func(a, b schema.Process) int { return strings.Compare(a.ID, b.ID) })
	return all
}

// awaitRenewals waits until renewals whose old deadline has passed are folded, so that
// the counts include them. It gives up at half of statusTimeout: status must answer
// without the log, too.
func (s *Service) awaitRenewals(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout/2)
	defer cancel()
	_ = s.Writer.Renewals.Settle(ctx, 0, s.Liveness.Now())
}

// repeat answers a mutation whose Nats-Msg-Id succeeded before with the earlier outcome,
// from its event in the log.
func (r *Request) repeat(mutation *schema.Mutation, seq uint64) {
	ctx, cancel := context.WithTimeout(r.ctx, statusTimeout)
	defer cancel()
	e, err := r.Log.Event(ctx, seq)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		r.refuse(answer.Trimmed(seq))
		return
	}
	if err != nil {
		r.fail(err)
		return
	}
	// A projection of an older version does not record the mutation of an id, so the event
	// has to be compared.
	if !mutation.Made(e) {
		r.refuse(machine.UsedBefore(mutation, fmt.Sprintf("event %d, %s of %s %q", seq, e.Type, e.Collection, string(e.ID))))
		return
	}
	code, body, err := answer.RepeatOf(e)
	if err == nil {
		r.lifetime, err = answer.LifetimeOf(r.Store, e)
	}
	if err != nil {
		r.fail(err)
		return
	}
	if mutation.Content {
		r.replyContent(mutation, schema.Version(e.Seq), e.Time/1000)
		return
	}
	r.reply(code, nil, body)
}

// replyContent replies with a version of a mutation's document, modified at ts in unix
// seconds.
func (r *Request) replyContent(m *schema.Mutation, version schema.Version, ts int64) {
	ctx, cancel := context.WithTimeout(r.ctx, statusTimeout)
	defer cancel()
	body, err := answer.ContentReply(r.Store, r.Writer.History(ctx), m.Collection, m.ID, version, ts)
	if err != nil {
		r.fail(err)
		return
	}
	r.reply(200, nil, body)
}

// listCollections answers collection.list.
func (r *Request) listCollections() {
	body, fault := answer.ListCollections(r.Store.Collections(), r.data, r.MaxReply)
	if fault != nil {
		r.refuse(fault)
		return
	}
	r.reply(200, nil, body)
}

// history answers history: the projection says where chains of events begin, the log has
// the events.
func (r *Request) history() {
	h, fault := answer.ParseHistory(r.Engine, r.Tail, r.data)
	if fault != nil {
		r.refuse(fault)
		return
	}
	if r.Store.Cursor().Seq < h.From { // another process answered with the page before
		r.wait(h.From)
		return
	}
	ctx, cancel := r.context(requestTimeout)
	defer cancel()
	body, found, err := h.Reply(r.Store, r.MaxReply, func(seq uint64) (*schema.Event, error) {
		e, err := r.Log.Event(ctx, seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil, nil
		}
		return e, err
	})
	switch {
	case errors.Is(err, schema.ErrTooLarge):
		r.refuse(schema.AsError(err))
	case err != nil:
		r.fail(err)
	case found || h.From != 0:
		r.reply(200, nil, body)
	default:
		r.noHistory(h, body)
	}
}

// noHistory answers about a document without events in the log: with none, if it exists,
// since it is older than the retention of the log.
func (r *Request) noHistory(h *answer.History, none []byte) {
	switch _, fault, err := r.document(h.Name, h.ID, r.Liveness.Now()); {
	case err != nil:
		r.failRead(err)
		return
	case fault == nil:
		r.reply(200, nil, none)
		return
	}
	if _, ok := r.Store.Collection(h.Name); !ok {
		r.refuse(schema.NoCollection(h.Name))
		return
	}
	r.refuse(answer.NeverWas(h.Name, h.ID))
}
