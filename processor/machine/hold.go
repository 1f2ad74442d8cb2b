package machine

import (
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// hold holds or releases a document. Its version and _ts stay, so the deadline after a
// release is what it would have been all along: a release may make it overdue, and the
// sweep then expires it.
func (m *Machine) hold(c *schema.Collection, mu *schema.Mutation, prior projections.Meta) (Outcome, error) {
	e := eventOf(mu, schema.DocumentHeld)
	e.Previous = prior.Version
	now := prior
	now.Held = mu.Op == schema.DocumentHold
	reason := mu.Reason
	o := Outcome{Code: 200, Body: schema.AppendHeld(nil, mu.ID, reason)}
	if !now.Held {
		var err error
		if reason, err = m.reason(c, mu.ID, prior); err != nil {
			return Outcome{}, err
		}
		e.Type, o.Body = schema.DocumentReleased, schema.AppendReleased(nil, mu.ID)
	}
	e.Body = schema.AppendReason(nil, reason)
	m.emitFact(projections.Fact{Event: e, Known: true, Incarnation: c.Incarnation, Prior: prior, TTL: prior.TTL, Sum: prior.Sum})
	key := DocumentKey{Incarnation: c.Incarnation, ID: mu.ID}
	d := overlaid{Record: m.overlay.documents[key].Record, seq: m.seq, reason: reason} // with the content, if that is pending
	// TS and TTL are as before: a hold is no modification.
	d.Meta = now
	m.overlay.setDocument(key, d)
	o.Lifetime = d.lifetime(c)
	return o, nil
}

// reason returns the reason of a hold, pending events included.
func (m *Machine) reason(c *schema.Collection, id schema.DocumentID, meta projections.Meta) (string, error) {
	if !meta.Held {
		return "", nil
	}
	if d, ok := m.overlay.documents[DocumentKey{Incarnation: c.Incarnation, ID: id}]; ok {
		return d.reason, nil
	}
	return m.Store.Reason(c, id)
}

// lifetime returns what a reply says about the deadline and hold of the document.
func (d overlaid) lifetime(c *schema.Collection) schema.Lifetime {
	l := schema.Lifetime{Deadline: d.Deadline(c), Held: d.Held}
	if d.Held {
		l.Reason = d.reason
	}
	return l
}
