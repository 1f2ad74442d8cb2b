package processor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// read returns what answers a request that goes to a worker. If it cannot be
// understood it is refused at once, and ok is false.
func (r *request) read() (answer func(), ok bool) {
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

func unknownOperation(op string) *schema.Error {
	return schema.ErrBadRequest.With("unknown operation %q: use one of %v", op, schema.Operations)
}

// now returns the second by which reads judge deadlines: log time, which does
// not go back, moved on by the clock.
func (s *service) now() int64 { return s.clock.second(s.store.Cursor().Time) }

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
	record, fault, err := r.document(name, id, r.now())
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

// documentName reads the end of a subject: a collection and an id.
func documentName(tail string) (schema.CollectionName, schema.DocumentID, *schema.Error) {
	collection, token, _ := strings.Cut(tail, ".")
	name, err := schema.ParseCollectionName(collection)
	if err != nil {
		return "", "", schema.AsError(err)
	}
	id, err := schema.DecodeID(token)
	if err != nil {
		return "", "", schema.AsError(err)
	}
	return name, id, nil
}

// getRecent answers document.get if that takes no I/O and waits for nothing:
// what was changed lately is in memory.
func (r *request) getRecent() bool {
	name, id, fault := documentName(r.tail)
	if fault != nil {
		return false
	}
	before, now := r.store.Cursor().Seq, r.now()
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
	return liveDocument(s.store, name, id, now, s.gone)
}

// goneFunc returns an error if a document whose deadline has passed in the
// version read may have another.
type goneFunc func(c *schema.Collection, id schema.DocumentID, record projections.Record) error

// reallyGone is the goneFunc where nothing is under way.
func reallyGone(*schema.Collection, schema.DocumentID, projections.Record) error { return nil }

func liveDocument(store *projections.Store, name schema.CollectionName, id schema.DocumentID, now int64, gone goneFunc) (projections.Record, *schema.Error, error) {
	c, ok := store.Collection(name)
	if !ok {
		return projections.Record{}, schema.NoCollection(name), nil
	}
	record, _, err := store.Document(c, id)
	if err != nil || lives(c, record, now) {
		return record, nil, err
	}
	return projections.Record{}, noDocument(c, id), gone(c, id, record)
}

// gone returns nil if a document whose deadline has passed in the version read,
// 0 for none, was not renewed before, and an error for failRead if it was, or if
// that is not known.
func (s *service) gone(c *schema.Collection, id schema.DocumentID, record projections.Record) error {
	version := record.Version
	if version == 0 {
		return nil
	}
	document := documentKey{c.Incarnation, id}
	if !s.sole() {
		if at := record.Deadline(c).At; at > s.certainUpTo() {
			return &renewalUnderWay{c.Name, document, at}
		}
	} else if of, ok := s.writer.renewals.underWay(document); ok {
		return &renewalUnderWay{c.Name, of, 0}
	}
	// A renewal may have been folded since it was read.
	latest, ok := s.store.Collection(c.Name)
	if ok && latest.Incarnation == c.Incarnation && latest.Version != c.Version {
		return &renewalUnderWay{c.Name, ofCollection(c.Incarnation), 0}
	}
	meta, _, err := s.store.Meta(c, id)
	if err == nil && meta.Version != 0 && meta.Version != version {
		err = &renewalUnderWay{c.Name, document, 0}
	}
	return err
}

// missed returns an error for failRead if an answer about a collection, of the
// state at sequence seq and judged at a second, lacks what was renewed before.
func (s *service) missed(c *schema.Collection, seq uint64, now int64) error {
	if !s.sole() {
		overdue, err := s.overdue(c, now)
		if overdue {
			err = &renewalUnderWay{c.Name, ofCollection(c.Incarnation), now}
		}
		return err
	}
	if s.writer.renewals.missed(c.Incarnation, seq, now) {
		return &renewalUnderWay{c.Name, ofCollection(c.Incarnation), now}
	}
	return nil
}

// renewalUnderWay says that a document may be neither gone nor there, as long
// as the log has to take its newest version, or the newest of its collection.
type renewalUnderWay struct {
	name schema.CollectionName
	key  documentKey // without an id: of the collection
	now  int64       // or those of any document of it that had to come before, 0 for none
}

func (e *renewalUnderWay) Error() string { return "a renewal is under way" }

func (e *renewalUnderWay) wait(ctx context.Context, s *service) error {
	r := &s.writer.renewals
	if e.now != 0 && !s.sole() {
		return s.makeCertain(ctx, e.now)
	}
	if e.now != 0 {
		return r.settle(ctx, e.key.incarnation, e.now)
	}
	return r.wait(ctx, e.key)
}

// late is what those are told who waited too long.
func (e *renewalUnderWay) late() *schema.Error {
	what := fmt.Sprintf("document %q", string(e.key.id))
	if e.key.id == "" {
		what = fmt.Sprintf("collection %s", e.name)
	}
	return schema.ErrTimeout.With("the log did not take the last change of %s within %s: try again", what, minSeqTimeout)
}

// failRead is fail for a read, which is tried again when the renewal of what it
// wants is no longer under way.
func (r *request) failRead(err error) {
	var renewal *renewalUnderWay
	if !errors.As(err, &renewal) {
		r.fail(err)
		return
	}
	r.waitFor(func(ctx context.Context) error { return renewal.wait(ctx, r.service) }, renewal.late())
}

// lives tells whether a record, of Version 0 if there is none, exists at now, in
// seconds.
func lives(c *schema.Collection, record projections.Record, now int64) bool {
	return record.Version != 0 && !record.Deadline(c).Passed(now)
}

// present returns a live document as clients see it.
func present(record projections.Record) []byte {
	return schema.AppendReply(make([]byte, 0, len(record.Body)+48), record.Body, record.TS, record.Version)
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
	n, err := r.count(ctx, c)
	if err == nil {
		err = n.missed
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

func checkNoTail(op, tail string) *schema.Error {
	if tail == "" {
		return nil
	}
	return schema.ErrBadRequest.With("%s takes nothing after it, the subject has %q", op, tail)
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
	results, seq, err := readBatch(ctx, r.store, b, r.now, r.room, r.gone)
	if err != nil {
		r.failRead(err)
		return
	}
	r.claim(max(r.seq, seq))
	r.reply(200, nil, schema.AppendResults(nil, results))
}

// parseBatch reads a batch request.
func parseBatch(tail string, header nats.Header, data []byte) (*schema.Batch, *schema.Error) {
	b, fault := schema.ParseBatch(tail, data)
	for _, single := range []string{schema.HeaderRequestID, schema.HeaderIfMatch} {
		if fault == nil && len(header.Values(single)) > 0 {
			fault = schema.ErrBadRequest.With("%s is for single mutations: give the operations of a batch an ifMatch each, or send them by themselves", single)
		}
	}
	return b, fault
}

// readBatch answers a batch that changes nothing, from one state, of which it
// returns the sequence; now tells the second. bytes is what the reply may have.
func readBatch(ctx context.Context, store *projections.Store, b *schema.Batch, now func() int64, bytes int, gone goneFunc) (results []schema.OperationResult, seq uint64, err error) {
	v, ok, err := store.View(b.Collection)
	if err != nil {
		return nil, 0, err
	}
	if ok {
		defer v.Close()
		seq = v.Seq()
	}
	second := now() // not before the view
	results = make([]schema.OperationResult, len(b.Operations))
	read, blamed := 0, slices.IndexFunc(b.Operations, func(op schema.Operation) bool { return op.Fault != nil })
	room := newRoom(bytes, len(results))
	for i := range b.Operations {
		if err := ctx.Err(); err != nil {
			return nil, 0, err
		}
		op := &b.Operations[i]
		var result schema.OperationResult
		switch {
		case b.Atomic && !op.Reads && i != blamed:
			result = dependsOn(blamed)
		case op.Fault != nil:
			result.Fault = op.Fault
		case !ok:
			result.Fault = schema.NoCollection(b.Collection)
		case read > maxBatchBytes:
			result.Fault = tooMuchRead()
		default:
			record, _, err := v.Document([]byte(op.Get))
			if err != nil {
				return nil, 0, err
			}
			read += len(record.Body)
			if !lives(v.Collection(), record, second) {
				if err := gone(v.Collection(), op.Get, record); err != nil {
					return nil, 0, err
				}
				result.Fault = noDocument(v.Collection(), op.Get)
			} else {
				result.Code, result.Body = 200, present(record)
			}
		}
		room.put(&results[i], result)
	}
	return results, seq, nil
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
	cursor, now := s.store.Cursor(), s.now()
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
		n, err := s.count(ctx, c)
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
	_ = s.writer.renewals.settle(ctx, 0, s.now())
}

// addCounts counts the documents of all collections.
func addCounts(status *schema.Status, collections []*schema.Collection, count func(*schema.Collection) (projections.Counts, error)) error {
	for _, c := range collections {
		n, err := count(c)
		if err != nil {
			return err
		}
		status.Documents += n.Documents
		status.PendingExpiry += n.Pending
		status.Overdue += n.Overdue
	}
	return nil
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

// repeatOf returns the answer to the mutation that made an event.
func repeatOf(e *schema.Event) (code int, body []byte, err error) {
	switch e.Type {
	case schema.DocumentCreated, schema.CollectionCreated:
		code = 201
	case schema.DocumentReplaced, schema.CollectionReplaced:
		code = 200
	default:
		return 204, nil, nil
	}
	if e.Type.OnDocument() {
		return code, schema.AppendReply(nil, e.Body, e.Time/1000, schema.Version(e.Seq)), nil
	}
	properties, fault := schema.ParseProperties(e.Collection, e.Body)
	if fault != nil {
		return 0, nil, fault
	}
	c := schema.Collection{Name: e.Collection, Version: schema.Version(e.Seq), Time: e.Time, Properties: properties}
	return code, c.AppendReply(nil), nil
}
