package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"hash/maphash"

	"github.com/lapsedb/lapse/schema"
)

// Each function below follows one type of event in three steps: onTime says whether the
// version before should have expired by now, ends whether the event names that version,
// and the rest whether its content is right. Then the life changes as the event says.

// life returns the collection of a document event, and the document's state before it.
func (a *Auditor) life(e *schema.Event) (*collection, *life, error) {
	c := a.collection(e)
	l, err := a.state.life(c.incarnation, e.ID)
	return c, l, err
}

// documentPut audits DocumentCreated and DocumentReplaced. A replacement keeps the hold, a
// new document has none.
func (a *Auditor) documentPut(e *schema.Event) error {
	c, l, err := a.life(e)
	if err != nil {
		return err
	}
	a.onTime(c, l, e)
	if e.Type == schema.DocumentReplaced {
		a.ends(c, l, e)
	} else if l.phase == alive {
		a.against(Life, e, "it is created and was alive as version %d", l.version)
	}
	if l.phase == alive {
		c.documents--
	}
	c.documents++
	a.unwarned(c, e.ID, l, e.Time, closedGrace)
	before := *l
	held := l.phase == alive && l.held // a write does not end a hold
	if l.held && !held {
		c.held--
	}
	*l = life{phase: alive, version: e.Seq, ts: second(e.Time), held: held}
	a.content(c, &before, l, e)
	if e.Restored != 0 {
		a.restored(c, &before, l, e)
	}
	c.enter(l)
	return nil
}

// restored audits a DocumentCreated by a restore: its version existed, and if it was the
// last one, the content is equal. The content of earlier versions is not kept.
func (a *Auditor) restored(c *collection, before, l *life, e *schema.Event) {
	version := uint64(e.Restored)
	switch {
	case version >= e.Seq:
		a.against(Restored, e, "it says that it restores version %d, which is not before it", version)
	case before.phase == unseen && version >= max(c.created, c.unseen):
		a.against(Restored, e, "it says that it restores version %d, and there was no such document", version)
	case before.phase != unseen && version > before.version:
		a.against(Restored, e, "it says that it restores version %d, the last one was %d", version, before.version)
	case before.phase != unseen && version == before.version && before.content != 0 && l.content != before.content:
		a.against(Restored, e, "it does not carry the content of version %d", version)
	}
}

// documentHeld audits DocumentHeld and DocumentReleased.
func (a *Auditor) documentHeld(e *schema.Event) error {
	c, l, err := a.life(e)
	if err != nil {
		return err
	}
	a.onTime(c, l, e)
	hold := e.Type == schema.DocumentHeld
	switch ends := a.ends(c, l, e); {
	case l.phase == unseen && ends:
		return nil // unknown whether it was held
	case l.phase != alive:
		return nil
	case !hold && !l.held:
		a.against(Life, e, "version %d was not held", l.version)
		return nil
	}
	if hold && !l.held {
		a.unwarned(c, e.ID, l, e.Time, closedGrace)
		c.held++
	} else if !hold {
		c.held--
		l.freed = e.Time
	}
	l.held = hold
	c.enter(l)
	return nil
}

// documentTouched audits a new version of the same content. For a version from before the
// log the content is unknown, and so is the deadline. The content stays, so ttl and hash
// stay; the version and _ts are new.
func (a *Auditor) documentTouched(e *schema.Event) error {
	c, l, err := a.life(e)
	if err != nil {
		return err
	}
	a.onTime(c, l, e)
	if len(e.Body) > 0 {
		a.against(Body, e, "it carries a body, and a touch has none")
	}
	ends := a.ends(c, l, e)
	if l.phase == alive || ends {
		a.unwarned(c, e.ID, l, e.Time, closedGrace)
		l.version, l.ts, l.warned = e.Seq, second(e.Time), ""
		c.enter(l)
	}
	return nil
}

// documentDeleted audits DocumentDeleted. One of a held document counts as done, so that
// its collection's number of held ones is right.
func (a *Auditor) documentDeleted(e *schema.Event) error {
	c, l, err := a.life(e)
	if err != nil {
		return err
	}
	a.onTime(c, l, e)
	if a.ends(c, l, e) {
		a.image(c, l, e)
	}
	if l.phase == alive {
		a.unwarned(c, e.ID, l, e.Time, closedGrace)
		c.documents--
	}
	if l.held {
		a.against(DeletedHeld, e, "version %d is held", l.version)
		l.held = false
		c.held--
	}
	l.phase, l.ended = deleted, e.Seq
	l.version = max(l.version, uint64(e.Previous))
	return nil
}

// onTime audits that a due version expired before e, a later event of its document.
func (a *Auditor) onTime(c *collection, l *life, e *schema.Event) {
	if !c.overdue(l, e.Time) {
		return
	}
	a.lose(c, e.ID, l, e.Type.String(), e.Seq)
	if e.Type != schema.DocumentCreated {
		// The rest of e is audited as if the document were alive.
		l.phase = alive
		c.documents++
	}
}

// ends audits whether e ends or names the live version, and reports the result. It makes
// the finding. Callers decide whether to go on without a version that the event could end.
func (a *Auditor) ends(c *collection, l *life, e *schema.Event) (ok bool) {
	previous := uint64(e.Previous)
	switch {
	case l.phase == alive && l.version == previous:
		return true
	case l.phase == alive:
		a.against(Previous, e, "it names version %d, alive is version %d", previous, l.version)
	case c.precedes(l, previous):
		return true
	case l.phase == unseen:
		a.against(Life, e, "there was no such document")
	case l.phase == lost:
		a.against(Life, e, "version %d had come due and was not to come back", l.version)
	default:
		a.against(Life, e, "the document was not alive, version %d was %s at %d", l.version, l.phase, l.ended)
	}
	return false
}

// precedes reports whether the content of a version may be from before the log: it is a
// version from there, or a touch of one.
func (c *collection) precedes(l *life, version uint64) bool {
	return l.phase == unseen && (l.version == 0 && version < c.unseen || l.version != 0 && l.version == version)
}

// String returns the phase as findings say it.
func (p phase) String() string {
	return [...]string{"never seen", "alive", "due", "deleted", "expired"}[p]
}

// content audits the body of a new version against the state before it, and updates the
// state. A body may be spaced differently in an export than in the log; compact makes the
// two equal.
func (a *Auditor) content(c *collection, before, l *life, e *schema.Event) {
	l.content = a.hash(e.Body)
	d, fault := schema.ReadDocument(e.ID, e.Body)
	if fault != nil {
		a.against(Body, e, "it carries no legal document: %v", fault)
		return
	}
	body := e.Body
	if !bytes.Equal(d.Body, body) {
		body = compact(body)
		l.content = a.hash(body)
		if !bytes.Equal(d.Body, body) {
			a.against(Body, e, "the document it carries is without its id, or with system properties")
		}
	}
	l.ttl = d.TTL
	if d.BadTTL == nil {
		return
	}
	l.illegal = a.hash(d.BadTTL)
	// A patch that does not name the ttl leaves it as it is.
	kept := e.Type == schema.DocumentReplaced && (before.phase == alive && before.illegal == l.illegal || before.phase == unseen && c.unseen > 0)
	if c.known && c.policy.DefaultTTL != schema.Off && !kept {
		a.against(TTL, e, "accepted while the collection's TTL is on: %v", d.TTLError())
	}
}

// compact returns a document without insignificant white space, which tools may have
// added to an export.
func compact(body []byte) []byte {
	var b bytes.Buffer
	_ = json.Compact(&b, body)
	return b.Bytes()
}

// hash stands for a content: the audit keeps no bodies. Its seed is new for each audit, so
// nobody can make two contents that it takes for one.
func (a *Auditor) hash(body []byte) uint64 { return maphash.Bytes(a.seed, body) }

// image audits the body of an event that ends version l.version or warns of its end.
func (a *Auditor) image(c *collection, l *life, e *schema.Event) {
	switch {
	case len(e.Body) == 0 && c.known && c.policy.PreviousImages:
		a.against(Body, e, "it does not carry the document's last content")
	case len(e.Body) == 0:
	case c.known && !c.policy.PreviousImages:
		a.against(Body, e, "it carries the document's content, and the collection says previousImages false")
	case l.phase == unseen:
		if _, fault := schema.ReadDocument(e.ID, e.Body); fault != nil {
			a.against(Body, e, "it carries no legal document: %v", fault)
		}
	case a.hash(e.Body) != l.content && a.hash(compact(e.Body)) != l.content:
		a.against(Body, e, "it does not carry the content of version %d", l.version)
	}
}

// rejection is the body of a MutationRejected.
type rejection struct {
	Error    string `json:"error"`
	Mutation *struct {
		Op         string `json:"op"`
		Collection string `json:"collection"`
		ID         string `json:"id"`
	} `json:"mutation"`
}

// mutationRejected audits a rejection: its reason must hold for the collection or
// document, and a due document does not exist. Only reasons that follow from existence can
// be checked: the log does not have the If-Match of a rejected mutation.
func (a *Auditor) mutationRejected(e *schema.Event) error {
	var r rejection
	if err := json.Unmarshal(e.Body, &r); err != nil || r.Mutation == nil || r.Error == "" {
		a.against(Body, e, "it carries no rejection: %v", errors.Join(err, errNoMutation))
		return nil
	}
	if e.Collection == schema.InvalidCollection {
		return nil
	}
	c := a.collections[e.Collection]
	switch r.Error {
	case schema.ErrCollectionNotFound.Name:
		if c != nil && !c.assumed && !c.doubted {
			c.doubted = true
			a.against(Rejected, e, "%s was rejected for a collection that was there", r.Mutation.Op)
		}
		return nil
	case schema.ErrCollectionExists.Name:
		if c == nil && !a.before(e.Collection) {
			a.against(Rejected, e, "%s was rejected for a collection that was not there", r.Mutation.Op)
			a.assume(e)
		}
		return nil
	case schema.ErrDocumentNotFound.Name, schema.ErrDocumentExists.Name:
	default:
		return nil
	}
	id, err := schema.ParseDocumentID(r.Mutation.ID)
	if err != nil || c == nil {
		return nil
	}
	l, err := a.state.life(c.incarnation, id)
	if err != nil {
		return err
	}
	if c.overdue(l, e.Time) {
		a.lose(c, id, l, e.Type.String(), e.Seq)
		return nil
	}
	switch exists := r.Error == schema.ErrDocumentExists.Name; {
	case l.phase == alive && !exists:
		a.found(Rejected, e.Seq, c.name, id, "%s was rejected for a document that was alive as version %d", r.Mutation.Op, l.version)
	case l.phase != alive && exists && (l.phase != unseen || c.unseen == 0):
		a.found(Rejected, e.Seq, c.name, id, "%s was rejected for a document that was not alive", r.Mutation.Op)
	}
	return nil
}

// errNoMutation completes a finding where the JSON is legal.
var errNoMutation = errors.New("body lacks error or mutation")
