package machine

import (
	"errors"
	"fmt"

	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// Outcome is the result of a mutation or read. Of Again, Recall and More at most one is
// set; the other fields then mean nothing.
type Outcome struct {
	Code  int           // 200, 201, 204; the fault's when there is one
	Fault *schema.Error // why it was refused, else nil
	Body  []byte        // of the reply

	// Lifetime is the deadline and hold of the live document in the reply, if any.
	Lifetime schema.Lifetime

	// Seq is the sequence that has to be folded before the reply: of the last event of
	// the mutation, or of the state that it was judged by.
	Seq uint64

	// Version and TS belong to the document that the reply to a touch has in place of Body;
	// 0 for no such touch. Whoever replies reads it.
	Version schema.Version
	TS      int64

	// Repeat is the sequence of the event of an earlier mutation with the same
	// Nats-Msg-Id, which has the same outcome; 0 for none.
	Repeat uint64

	// Need is what a mutation or batch needs before it is decided again; NoNeed once it is
	// decided.
	Need Need
}

// Need is what has to happen before a mutation or batch is decided again.
type Need int

const (
	NoNeed Need = iota
	// NeedCommit: nothing is decided. Append and commit the pending events first.
	NeedCommit
	// NeedLog: nothing is decided. The History has to read the version of a restore first.
	NeedLog
	// NeedTurn: not all operations of the batch are decided; other proposals come first.
	NeedTurn
)

// maxMsgID is the longest Nats-Msg-Id in bytes.
const maxMsgID = 255

// sweepAtOnce is the number of expiries after which a decision about a collection lets
// the pending events be appended.
const sweepAtOnce = 1024

// Decide judges a mutation at now, in ms, and emits its events. The checks are in the
// order of the contract.
func (m *Machine) Decide(now int64, mu *schema.Mutation) (o Outcome, err error) {
	err = m.guard(func() error {
		m.stamp(now)
		o, err = m.decide(mu)
		return err
	})
	if errors.Is(err, errRecall) {
		return Outcome{Need: NeedLog}, nil
	}
	if errors.Is(err, ErrPanic) {
		o, err = Outcome{Fault: schema.ErrUnavailable.With("the mutation failed inside lapse; it changed nothing")}, nil
	}
	if err != nil {
		return Outcome{}, err
	}
	if o.Need != NoNeed {
		return o, nil
	}
	if o.Fault != nil {
		o.Code = o.Fault.Code
		if mu.Recorded {
			m.reject(mu, o.Fault)
		}
	}
	o.Seq = m.seq
	return o, nil
}

// ErrPanic marks a panic while deciding one mutation; the machine is unchanged.
var ErrPanic = errors.New("panic")

// errRecall: the version of a restore is not at hand.
var errRecall = errors.New("the log has to be read for a restore")

// guard runs step and undoes all of it if it fails or panics.
func (m *Machine) guard(step func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", ErrPanic, r)
		}
	}()
	m.attempt(func() bool {
		err = step()
		return err == nil
	})
	return err
}

// reject emits the MutationRejected of a mutation of the stream.
func (m *Machine) reject(mu *schema.Mutation, fault *schema.Error) {
	e := &schema.Event{Type: schema.MutationRejected, Collection: mu.Collection, Cause: mu.Cause, Trace: mu.Trace,
		Body: mu.AppendRejection(nil, fault)}
	if e.Collection == "" {
		e.Collection = schema.InvalidCollection
	}
	m.emit(e)
}

// fits reports whether a message can carry an event body of so many bytes.
func (m *Machine) fits(bytes int) bool { return m.Largest == 0 || bytes <= m.Largest }

// checkSize returns the error of a mutation whose event body no message can carry.
func (m *Machine) checkSize(bytes int) *schema.Error {
	if m.fits(bytes) {
		return nil
	}
	return schema.ErrTooLarge.With("the event would have %d bytes and the NATS server accepts %d: send less, or raise its max_payload", bytes, m.Largest)
}

// image returns the last content of a document for the event that ends it: none without
// previousImages, or if no message can carry it since max_payload was lowered.
func (m *Machine) image(c *schema.Collection, body []byte) []byte {
	if !c.PreviousImages || !m.fits(len(body)) {
		return nil
	}
	return body
}

// refused is the outcome of a mutation that changes nothing.
func refused(fault *schema.Error) (Outcome, error) { return Outcome{Fault: fault}, nil }

// decide judges a mutation at log time, in the order of checks of section 3 of the
// contract: what is wrong with the request itself (mu.Fault), its size, a repeat of its
// Nats-Msg-Id; then what its target is and was. It emits the events of a mutation that
// succeeds. One that is refused emits at most the DocumentExpired of a document past its
// deadline (living).
func (m *Machine) decide(mu *schema.Mutation) (Outcome, error) {
	if mu.Fault != nil {
		return refused(mu.Fault)
	}
	size := len(mu.Document.Body)
	if mu.Op == schema.CollectionCreate || mu.Op == schema.CollectionReplace {
		size = len(mu.Properties.AppendJSON(nil))
	}
	if fault := m.checkSize(size); fault != nil {
		return refused(fault)
	}
	if len(mu.MsgID) > maxMsgID {
		return refused(schema.ErrBadRequest.With("%s has %d bytes: at most %d are allowed", schema.HeaderRequestID, len(mu.MsgID), maxMsgID))
	}
	if mu.MsgID != "" {
		r, ok, err := m.repeated(mu.MsgID)
		if err != nil {
			return Outcome{}, err
		}
		if ok && r.Mutation != "" && r.Mutation != mu.Tail() {
			return refused(UsedBefore(mu, r.Mutation))
		}
		if ok {
			m.judged(mu)
			return Outcome{Repeat: r.Seq}, nil
		}
	}
	if mu.Op.OnDocument() {
		return m.decideDocument(mu)
	}
	return m.decideCollection(mu)
}

// eventOf returns an event that a mutation makes, to be completed.
func eventOf(mu *schema.Mutation, t schema.EventType) *schema.Event {
	return &schema.Event{Type: t, Collection: mu.Collection, ID: mu.ID, Cause: mu.Cause, MsgID: mu.MsgID, MsgOp: mu.Op, Trace: mu.Trace}
}

// judged emits an internal event for a mutation of the stream that changes nothing.
func (m *Machine) judged(mu *schema.Mutation) {
	if mu.Cause != 0 {
		m.emit(&schema.Event{Type: schema.MutationRepeated, Collection: schema.InternalCollection, Cause: mu.Cause})
	}
}

// repeated returns the event of an earlier mutation with the same Nats-Msg-Id.
func (m *Machine) repeated(id string) (r projections.Repeat, ok bool, err error) {
	if e, ok := m.overlay.messages[id]; ok {
		r = projections.Repeat{Seq: e.Seq, Mutation: string(e.AppendMutation(nil))}
		return r, m.time-e.Time < projections.RepeatWindow, nil
	}
	return m.Store.Repeated(id, m.time)
}

// UsedBefore returns the error of a mutation whose Nats-Msg-Id succeeded for another one.
// With the outcome of that one, its client would conclude that this one was applied.
func UsedBefore(mu *schema.Mutation, other string) *schema.Error {
	return schema.ErrBadRequest.With("%s %.80q was used for %s, and this is %s: use an id of its own for each mutation", schema.HeaderRequestID, mu.MsgID, other, mu.Tail())
}

// NoDocument returns the error for a document that does not exist or has expired.
func NoDocument(c *schema.Collection, id schema.DocumentID) *schema.Error {
	return schema.ErrDocumentNotFound.With("there is no document %q in %s", string(id), c.Name)
}

// checkMatch returns the 412 of an If-Match that names another version than the live one.
func checkMatch(mu *schema.Mutation, version schema.Version) *schema.Error {
	if !mu.Matches(version) {
		return schema.ErrPreconditionFailed.With("If-Match is %.40q and the live version %q: get it again and retry with its _etag", mu.IfMatch, version)
	}
	return nil
}

// decideCollection judges a mutation of a collection. For a change of policy or a deletion,
// everything that is due comes first (rule 4 of section 2): if writes are pending or much
// is due, it is Again, and the caller folds and comes back.
func (m *Machine) decideCollection(mu *schema.Mutation) (Outcome, error) {
	c := m.Collection(mu.Collection)
	if mu.Op == schema.CollectionCreate {
		if c != nil {
			return refused(schema.ErrCollectionExists.With("there is a collection %q: change it with collection.replace", string(c.Name)))
		}
		if fault := m.checkCollections(); fault != nil {
			return refused(fault)
		}
		c = m.emitCollection(mu, schema.CollectionCreated, 0)
		return Outcome{Code: 201, Body: c.AppendReply(nil)}, nil
	}
	if c == nil {
		return refused(schema.NoCollection(mu.Collection))
	}
	if fault := checkMatch(mu, c.Version); fault != nil {
		return refused(fault)
	}
	// Due documents expire, and due warnings are emitted, under the old policy, before it
	// changes. The expiry queues hold only folded documents, so no write may be pending.
	if m.writePending(c) {
		return Outcome{Need: NeedCommit}, nil
	}
	if mu.Op == schema.CollectionDelete {
		if n := m.Store.Held(c); n > 0 {
			return refused(schema.ErrDocumentHeld.With("%d documents of %s are held: release them first", n, c.Name))
		}
	}
	more, err := m.expireAll(c, sweepAtOnce)
	if err != nil || more {
		return Outcome{Need: NeedCommit}, err
	}
	if mu.Op == schema.CollectionReplace {
		c = m.emitCollection(mu, schema.CollectionReplaced, c.Incarnation)
		return Outcome{Code: 200, Body: c.AppendReply(nil)}, nil
	}
	e := eventOf(mu, schema.CollectionDeleted)
	if properties := c.AppendJSON(nil); m.fits(len(properties)) {
		e.Body = properties
	}
	m.emit(e)
	m.overlay.setCollection(c.Name, overlaidCollection{seq: m.seq})
	return Outcome{Code: 204}, nil
}

// writePending reports whether an event is pending in a collection, other than those of a
// sweep.
func (m *Machine) writePending(c *schema.Collection) bool {
	for i := range m.pending {
		e := m.pending[i].Event
		if e.Collection == c.Name && !e.Type.HasDeadline() {
			return true
		}
	}
	return false
}

// emitCollection emits an event that gives a collection its properties;
// incarnation is 0 for a new one.
func (m *Machine) emitCollection(mu *schema.Mutation, t schema.EventType, incarnation uint64) *schema.Collection {
	e := eventOf(mu, t)
	e.Body = mu.Properties.AppendJSON(nil)
	m.emit(e)
	if incarnation == 0 {
		incarnation = m.seq
	}
	c := &schema.Collection{Name: mu.Collection, Incarnation: incarnation, Version: schema.Version(m.seq),
		Time: m.time, Properties: mu.Properties}
	m.overlay.setCollection(c.Name, overlaidCollection{c, m.seq})
	return c
}

// decideDocument judges a mutation of a document: the collection, the live document before
// it, preconditions, then the new content with its ttl.
func (m *Machine) decideDocument(mu *schema.Mutation) (Outcome, error) {
	c := m.Collection(mu.Collection)
	if c == nil {
		return refused(schema.NoCollection(mu.Collection))
	}
	prior, err := m.living(c, mu)
	if err != nil {
		return Outcome{}, err
	}
	if fault := unmet(c, mu, prior.Meta); fault != nil {
		return refused(fault)
	}
	switch mu.Op {
	case schema.DocumentDelete:
		m.deleteDocument(c, mu, prior)
		return Outcome{Code: 204}, nil
	case schema.DocumentHold, schema.DocumentRelease:
		return m.hold(c, mu, prior.Meta)
	case schema.DocumentTouch:
		return m.touchDocument(c, mu, prior.Meta)
	}
	d, restored, fault, err := m.written(c, mu, prior)
	if fault != nil || err != nil {
		return Outcome{Fault: fault}, err
	}
	return m.putDocument(c, mu, d, prior, restored)
}

// preconditions are what each operation asks of the live document before it: that there is
// none or one, which an If-Match asks, too, and that it is held or not. They are checked in
// the order of these fields, If-Match after present.
var preconditions = [...]struct{ absent, present, held, free bool }{
	schema.DocumentCreate:  {absent: true},
	schema.DocumentRestore: {absent: true},
	schema.DocumentUpsert:  {},
	schema.DocumentReplace: {present: true},
	schema.DocumentPatch:   {present: true},
	schema.DocumentTouch:   {present: true},
	schema.DocumentHold:    {present: true},
	schema.DocumentRelease: {present: true, held: true},
	schema.DocumentDelete:  {present: true, free: true},
}

// unmet returns the error of a mutation one of whose preconditions the live document before
// it does not meet; its version is 0 if there is none.
func unmet(c *schema.Collection, mu *schema.Mutation, prior projections.Meta) *schema.Error {
	asks, lives := preconditions[mu.Op], prior.Version != 0
	switch {
	case asks.absent && lives:
		return schema.ErrDocumentExists.With("there is a document %q in %s: change it with document.replace or document.upsert", string(mu.ID), c.Name)
	case !lives && (asks.present || !asks.absent && mu.IfMatch != ""):
		return NoDocument(c, mu.ID)
	case !lives:
		return nil
	}
	if fault := checkMatch(mu, prior.Version); fault != nil {
		return fault
	}
	switch {
	case asks.held && !prior.Held:
		return schema.ErrNotHeld.With("document %q in %s is not held", string(mu.ID), c.Name)
	case asks.free && prior.Held:
		return schema.ErrDocumentHeld.With("document %q in %s is held: release it first", string(mu.ID), c.Name)
	}
	return nil
}

// living returns the live document before a mutation, as prior does, or the zero Record. The
// DocumentExpired of one whose deadline has passed comes before any later event of the
// document, even a rejection.
func (m *Machine) living(c *schema.Collection, mu *schema.Mutation) (projections.Record, error) {
	prior, err := m.prior(c, mu)
	if err != nil || prior.Version == 0 || !prior.Deadline(c).Passed(m.now()) {
		return prior, err
	}
	if mu.Recorded || preconditions[mu.Op].absent || mu.Op == schema.DocumentUpsert && mu.IfMatch == "" {
		m.expire(c, mu.ID, prior)
	}
	return projections.Record{}, nil
}

// written returns the content that a write gives a document, and the version that a restore
// takes it from.
func (m *Machine) written(c *schema.Collection, mu *schema.Mutation, prior projections.Record) (d schema.Document, restored schema.Version, fault *schema.Error, err error) {
	switch d = mu.Document; mu.Op {
	case schema.DocumentPatch:
		d, fault = schema.Patch(mu.ID, prior.Body, mu.Body)
	case schema.DocumentRestore:
		var recall bool
		if d, restored, recall, fault = m.former(c, mu); recall {
			return d, 0, nil, errRecall
		}
	}
	if fault == nil {
		fault = m.checkSize(len(d.Body))
	}
	if fault == nil && mu.End != (schema.End{}) {
		fault, err = m.setEnd(c, mu, &d, prior.Meta)
	}
	if fault == nil && err == nil && c.DefaultTTL != schema.Off {
		fault = d.TTLError()
	}
	return d, restored, fault, err
}

// prior returns the document before the mutation, with its content only if needed.
func (m *Machine) prior(c *schema.Collection, mu *schema.Mutation) (projections.Record, error) {
	if mu.Op == schema.DocumentPatch || mu.Op == schema.DocumentDelete && c.PreviousImages {
		return m.document(c, mu.ID)
	}
	meta, err := m.meta(c, mu.ID)
	if err != nil || meta.Version == 0 || !c.PreviousImages || !meta.Deadline(c).Passed(m.now()) {
		return projections.Record{Meta: meta}, err
	}
	return m.document(c, mu.ID)
}

// setEnd gives the document that a write makes the ttl that ends at its End. prior is the
// document that lives, if any.
func (m *Machine) setEnd(c *schema.Collection, mu *schema.Mutation, d *schema.Document, prior projections.Meta) (*schema.Error, error) {
	// The deadline that prior has, or would have if it were not held.
	kept := schema.DeadlineOf(c.DefaultTTL, prior.TTL, prior.TS)
	switch {
	case mu.End.Given:
		ttl := mu.End.At - m.now()
		if ttl < 1 {
			return schema.ErrBadTTL.With("%s %d has passed: use a second from 1 to %d s away", schema.HeaderExpireAt, mu.End.At, schema.MaxTTL), nil
		}
		if ttl > schema.MaxTTL {
			return schema.ErrBadTTL.With("%s %d is too far: use a second from 1 to %d s away", schema.HeaderExpireAt, mu.End.At, schema.MaxTTL), nil
		}
		d.SetTTL(schema.TTL(ttl))
	case prior.Version == 0 || kept.Rule == schema.NoRule && mu.Op == schema.DocumentPatch:
		return nil, nil // nothing to keep, or kept by the patch
	case kept.Rule != schema.NoRule:
		d.SetTTL(schema.TTL(max(kept.At-m.now(), 1)))
	default:
		r, err := m.document(c, mu.ID)
		if err != nil {
			return nil, err
		}
		d.KeepTTL(r.Body)
	}
	return m.checkSize(len(d.Body)), nil
}

// deleteDocument ends a live document, with its last content where previousImages says so.
func (m *Machine) deleteDocument(c *schema.Collection, mu *schema.Mutation, prior projections.Record) {
	e := eventOf(mu, schema.DocumentDeleted)
	e.Previous, e.Body = prior.Version, m.image(c, prior.Body)
	m.emitFact(projections.Fact{Event: e, Known: true, Incarnation: c.Incarnation, Prior: prior.Meta})
	m.overlay.setDocument(DocumentKey{Incarnation: c.Incarnation, ID: mu.ID}, overlaid{seq: m.seq})
}

// touchDocument gives a document a new version of the same content, which it does not
// read, unless it is younger than the touch asks for.
func (m *Machine) touchDocument(c *schema.Collection, mu *schema.Mutation, prior projections.Meta) (Outcome, error) {
	reason, err := m.reason(c, mu.ID, prior)
	if err != nil {
		return Outcome{}, err
	}
	if m.now()-prior.TS < int64(mu.MinAge) {
		m.judged(mu)
		return touched(c, mu, overlaid{Record: projections.Record{Meta: prior}, reason: reason}), nil
	}
	e := eventOf(mu, schema.DocumentTouched)
	e.Previous, e.Content = prior.Version, prior.ContentVersion()
	m.emitFact(projections.Fact{Event: e, Known: true, Incarnation: c.Incarnation, Prior: prior, TTL: prior.TTL, Sum: prior.Sum})
	key := DocumentKey{Incarnation: c.Incarnation, ID: mu.ID}
	d := overlaid{Record: m.overlay.documents[key].Record, seq: m.seq, reason: reason} // with the content, if that is pending
	d.Meta = prior.Touched(e)
	m.overlay.setDocument(key, d)
	return touched(c, mu, d), nil
}

// touched is the outcome of a touch: version and time, or with content what the reply has
// to read.
func touched(c *schema.Collection, mu *schema.Mutation, d overlaid) Outcome {
	o := Outcome{Code: 200, Lifetime: d.lifetime(c)}
	if mu.Content {
		o.Version, o.TS = d.Version, d.TS
	} else {
		o.Body = schema.AppendVersion(nil, mu.ID, d.TS, d.Version)
	}
	return o
}

// putDocument creates or replaces a document. What it emits and what it puts into the
// overlay must say the same: the overlay stands for the fold until that happens.
func (m *Machine) putDocument(c *schema.Collection, mu *schema.Mutation, d schema.Document, prior projections.Record, restored schema.Version) (Outcome, error) {
	reason, err := m.reason(c, mu.ID, prior.Meta)
	if err != nil {
		return Outcome{}, err
	}
	e := eventOf(mu, schema.DocumentCreated)
	e.Previous, e.Body, e.Restored = prior.Version, d.Body, restored
	o := Outcome{Code: 201}
	if prior.Version != 0 {
		e.Type = schema.DocumentReplaced
		o.Code = 200
		if mu.Op == schema.DocumentCreate {
			panic("machine: create over a living document")
		}
	}
	sum := projections.SumOf(d.Body)
	m.emitFact(projections.Fact{Event: e, Known: true, Incarnation: c.Incarnation, Prior: prior.Meta, TTL: d.TTL, Sum: sum})
	meta := projections.Meta{Version: schema.Version(m.seq), TS: m.now(), TTL: d.TTL, Size: int64(len(d.Body)), Sum: sum, Held: prior.Held}
	now := overlaid{Record: projections.Record{Meta: meta, Body: d.Body}, seq: m.seq, reason: reason}
	m.overlay.setDocument(DocumentKey{Incarnation: c.Incarnation, ID: mu.ID}, now)
	o.Body = schema.AppendReply(make([]byte, 0, len(d.Body)+48), d.Body, meta.TS, meta.Version)
	o.Lifetime = now.lifetime(c)
	return o, nil
}

// get answers document.get, pending events included, at now in ms.
func (m *Machine) get(now int64, name schema.CollectionName, id schema.DocumentID) (Outcome, error) {
	m.stamp(now)
	o := Outcome{Seq: m.seq}
	c := m.Collection(name)
	if c == nil {
		o.Fault = schema.NoCollection(name)
	} else if r, err := m.document(c, id); err != nil {
		return Outcome{}, err
	} else if r.Version == 0 || r.Deadline(c).Passed(m.now()) {
		o.Fault = NoDocument(c, id)
	} else {
		o.Code, o.Body = 200, schema.AppendReply(nil, r.Body, r.TS, r.Version)
		reason, err := m.reason(c, id, r.Meta)
		if err != nil {
			return Outcome{}, err
		}
		o.Lifetime = overlaid{Record: r, reason: reason}.lifetime(c)
		return o, nil
	}
	o.Code = o.Fault.Code
	return o, nil
}

// MaxCollections limits the collections of a database: a start, status and metrics walk
// all of them, which takes milliseconds at this limit.
const MaxCollections = 10_000

// checkCollections returns the error of a mutation that would exceed MaxCollections. A
// database that has more keeps them.
func (m *Machine) checkCollections() *schema.Error {
	n := len(m.sweep.queues) // as folded
	if n+len(m.overlay.collections) < MaxCollections {
		return nil
	}
	for name, c := range m.overlay.collections {
		switch _, folded := m.Store.Collection(name); {
		case c.Collection == nil && folded:
			n--
		case c.Collection != nil && !folded:
			n++
		}
	}
	if n < MaxCollections {
		return nil
	}
	return schema.ErrTooLarge.With("the database has %d collections and may have %d: delete one first, or tell documents apart by a member", n, MaxCollections)
}
