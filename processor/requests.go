package processor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// read returns what answers a request that goes to a worker. If it cannot be
// understood it is refused at once, and ok is false.
func (r *request) read() (do func(), ok bool) {
	switch r.op {
	case "document.get":
		return r.getDocument, true
	case "collection.get":
		return r.getCollection, true
	case "collection.list":
		return r.listCollections, true
	case "batch":
		return r.batch, true
	case "history":
		return r.history, true
	case "status":
		return r.status, true
	case "snapshot.list":
		return r.snapshotList, true
	}
	r.refuse(unknownOperation(r.op))
	return nil, false
}

// fail answers with a fault of ours, or because the time for the request has
// passed.
func (r *request) fail(err error) {
	if errors.Is(err, context.DeadlineExceeded) && r.late(time.Now()) {
		r.refuse(r.tooLate())
		return
	}
	r.config.Events.RequestFailed(RequestFailure{Operation: r.op, Err: err})
	r.refuse(schema.AsError(err))
}

// getDocument answers document.get.
func (r *request) getDocument() {
	name, id, fault := documentName(r.tail)
	if fault != nil {
		r.refuse(fault)
		return
	}
	before := r.store.Cursor().Seq
	record, fault, err := r.document(name, id, r.live.now())
	switch {
	case err != nil:
		r.failRead(err)
	case fault != nil:
		r.refuse(fault)
	default:
		r.replyDocument(record, before)
	}
}

// replyDocument answers with a document. before is the sequence that was folded
// before it was read: the document is as it was there, or is newer and as it
// was at its own version. What was folded since, the answer may not claim.
func (r *request) replyDocument(record projections.Record, before uint64) {
	r.claim(max(before, uint64(record.Version)))
	r.reply(200, nil, present(record))
}

// claim says that the answer is of the state at sequence seq, once the store
// says so, too: what is read may be ahead of that for a moment, and who asks
// after this answer came must not be told less.
func (r *request) claim(seq uint64) {
	r.seq = seq
	if r.store.Cursor().Seq < seq {
		ctx, cancel := context.WithTimeout(r.ctx, minSeqTimeout)
		defer cancel()
		_ = r.store.Wait(ctx, seq) // which fails only where nothing is answered any more
	}
}

// getRecent answers document.get if that takes no I/O and waits for nothing:
// what was changed lately is in memory.
func (r *request) getRecent() bool {
	name, id, fault := documentName(r.tail)
	if fault != nil {
		return false
	}
	before, now := r.store.Cursor().Seq, r.live.now()
	c, ok := r.store.Collection(name)
	if !ok {
		return false
	}
	record, ok := r.store.Recent(c, id)
	if !ok || uint64(record.Version) > before && uint64(record.Version) > r.store.Cursor().Seq {
		return false
	}
	switch {
	case record.Version == 0:
		r.seq = before
		r.refuse(noDocument(c, id))
	case lives(c, record, now):
		r.replyDocument(record, before)
	default:
		return false
	}
	return true
}

// document returns a document that lives at now, in seconds, which was read
// before. Its Body is shared and must not be changed. The error may be for
// failRead.
func (s *service) document(name schema.CollectionName, id schema.DocumentID, now int64) (projections.Record, *schema.Error, error) {
	return liveDocument(s.store, name, id, now, s.live.expired)
}

// failRead is fail for a read, which is tried again when the renewal of what it
// wants is no longer under way.
func (r *request) failRead(err error) {
	var renewal *unsettled
	if !errors.As(err, &renewal) {
		r.fail(err)
		return
	}
	r.waitFor(func(ctx context.Context) error { return renewal.wait(ctx, r.live) }, renewal.late())
}

// collection finds the collection that the tail names, or refuses.
func (r *request) collection() (*schema.Collection, bool) {
	name, err := schema.ParseCollectionName(r.tail)
	if err != nil {
		r.refuse(schema.AsError(err))
		return nil, false
	}
	c, ok := r.store.Collection(name)
	if !ok {
		r.refuse(schema.NoCollection(name))
	}
	return c, ok
}

func (r *request) getCollection() {
	c, ok := r.collection()
	if !ok {
		return
	}
	ctx, cancel := r.context(requestTimeout)
	defer cancel()
	n, err := r.live.count(ctx, c)
	if err == nil {
		err = n.unsettled
	}
	if err != nil {
		r.failRead(err)
		return
	}
	r.reply(200, nil, c.AppendReplyWithSize(nil, n.Documents, n.Bytes))
}

// noTail refuses a request that has more in its subject than it takes.
func (r *request) noTail() bool {
	fault := checkNoTail(r.op, r.tail)
	if fault != nil {
		r.refuse(fault)
	}
	return fault == nil
}

// batch answers a batch of gets here and sends any other to the writer.
func (r *request) batch() {
	b, fault := parseBatch(r.tail, r.header, r.data)
	if fault != nil {
		r.refuse(fault)
		return
	}
	if b.Mutates() {
		r.seq = 0 // it will be answered by a later state
		r.submit(&Proposal{Batch: b, Room: r.room})
		return
	}
	ctx, cancel := r.context(requestTimeout)
	defer cancel()
	results, seq, err := readBatch(ctx, r.store, b, r.live.now, r.room, r.live.expired)
	if err != nil {
		r.failRead(err)
		return
	}
	r.claim(max(r.seq, seq))
	r.reply(200, nil, schema.AppendResults(nil, results))
}

// statusTimeout bounds what a status request waits for NATS.
const statusTimeout = 2 * time.Second

func (r *request) status() {
	if !r.noTail() {
		return
	}
	ctx, cancel := r.context(statusTimeout)
	defer cancel()
	status, err := r.service.Status(ctx)
	if err != nil {
		r.fail(err)
		return
	}
	r.replyJSON(200, status)
}

// Status says how the database is.
func (s *service) Status(ctx context.Context) (schema.Status, error) {
	s.settle(ctx)
	cursor, now := s.store.Cursor(), s.live.now()
	status := schema.Status{
		Version:  s.config.Version,
		Database: string(s.config.Database),
		Role:     string(s.role()),
		Seq:      cursor.Seq,
		LogTime:  cursor.Time,
		Digest:   s.store.Digest().String(),
		Clock:    s.clock.status(),
	}
	oldest := int64(0)
	err := addCounts(&status, s.store.Collections(), func(c *schema.Collection) (projections.Counts, error) {
		if err := ctx.Err(); err != nil {
			return projections.Counts{}, err
		}
		n, err := s.live.count(ctx, c)
		if n.Oldest != 0 && (oldest == 0 || n.Oldest < oldest) {
			oldest = n.Oldest
		}
		return n.Counts, err
	})
	if err != nil {
		return status, err
	}
	status.LatenessMs, status.LatenessObjective = s.writer.Lateness(now*1000, oldest)
	status.Waiting = s.waits()
	if _, status.LogEnd, err = s.log.Bounds(ctx); err != nil {
		status.LogEnd = 0
		return status, err
	}
	status.MutationsBehind, err = s.mutations.Behind(ctx, cursor.Mutations)
	return status, err
}

// settle waits for a while for what was renewed before its deadline. How the
// database is has to be told also when the log takes nothing.
func (s *service) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout/2)
	defer cancel()
	_ = s.writer.renewals.settle(ctx, 0, s.live.now())
}

// repeat answers a mutation whose Nats-Msg-Id succeeded before with the
// outcome of then, which the event in the log tells.
func (r *request) repeat(mutation *schema.Mutation, seq uint64) {
	defer r.recover()
	ctx, cancel := context.WithTimeout(r.ctx, statusTimeout)
	defer cancel()
	e, err := r.log.Event(ctx, seq)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		r.refuse(schema.ErrUnavailable.With("this was done before, as event %d, which is past the log's retention: get what is there now", seq))
		return
	}
	if err != nil {
		r.fail(err)
		return
	}
	// The projection tells, but for what an older version folded.
	if !mutation.Made(e) {
		r.refuse(usedBefore(mutation, fmt.Sprintf("event %d, %s of %s %q", seq, e.Type, e.Collection, string(e.ID))))
		return
	}
	code, body, err := repeatOf(e)
	if err != nil {
		r.fail(err)
		return
	}
	r.reply(code, nil, body)
}

func (r *request) listCollections() {
	if !r.noTail() {
		return
	}
	body, fault := listCollections(r.store.Collections(), r.data, r.room)
	if fault != nil {
		r.refuse(fault)
		return
	}
	r.reply(200, nil, body)
}

func (r *request) history() {
	name, id, fault := documentName(r.tail)
	if fault != nil {
		r.refuse(fault)
		return
	}
	limit, fault := parseHistory(r.data)
	if fault != nil {
		r.refuse(fault)
		return
	}
	ctx, cancel := r.context(requestTimeout)
	defer cancel()
	events, err := r.service.History(ctx, name, id, limit)
	switch {
	case errors.Is(err, schema.ErrTooLarge):
		r.refuse(schema.AsError(err))
		return
	case err != nil:
		r.fail(err)
		return
	}
	if len(events) == 0 {
		switch _, fault, err := r.document(name, id, r.live.now()); {
		case err != nil:
			r.failRead(err)
			return
		case fault == nil:
			r.reply(200, nil, []byte(`{"events":[]}`)) // it lives longer than the log is kept
			return
		}
		if _, ok := r.store.Collection(name); !ok {
			r.refuse(schema.NoCollection(name))
			return
		}
		r.refuse(neverWas(name, id))
		return
	}
	r.reply(200, nil, appendHistory(nil, events))
}

// History returns the latest events of an id, newest first and at most limit.
// The projection knows where each life ended, and Lapse-Previous leads back
// from there to where it began: no more of the log is read than is returned.
//
// It returns schema.ErrTooLarge as soon as no reply could hold the events.
func (s *service) History(ctx context.Context, name schema.CollectionName, id schema.DocumentID, limit int) ([]*schema.Event, error) {
	lives, err := s.store.Lives(name, id, limit)
	if err != nil {
		return nil, err
	}
	var events []*schema.Event
	bytes := 0
	err = followLives(lives, limit, func(seq uint64) (*schema.Event, error) {
		e, err := s.log.Event(ctx, seq)
		if err != nil {
			return nil, err
		}
		if bytes += len(e.Body); bytes > s.room {
			return nil, schema.ErrTooLarge.With("the latest %d events have %d bytes and a message at most %d: ask for less with limit", len(events)+1, bytes, s.room)
		}
		events = append(events, e)
		return e, nil
	})
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return events, nil // trimmed from here on
	} else if err != nil {
		return nil, err
	}
	return events, nil
}
