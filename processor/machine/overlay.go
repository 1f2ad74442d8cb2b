package machine

import (
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// overlay holds the state after pending events; lookups try it before the projection. Each
// entry names its event and is dropped when that event is folded: only if it is still that
// event's, since a later one may have replaced it.
//
//	pending: 41 upsert a, 42 delete a        overlay: a → ended by 42
//	41 is folded                             overlay: a → ended by 42 (the projection has a)
//	42 is folded                             overlay: nothing (nor has the projection)
//
// It grows with what is in flight, which the writer bounds.
type overlay struct {
	documents   map[DocumentKey]overlaid
	collections map[schema.CollectionName]overlaidCollection
	messages    map[string]*schema.Event // by Nats-Msg-Id

	// undo holds the earlier state of changed entries, newest last, while attempts,
	// which nest, may be undone.
	undo     []undoStep
	attempts int
}

// DocumentKey names a document over all collections and their incarnations.
type DocumentKey struct {
	Incarnation uint64
	ID          schema.DocumentID
}

// overlaid is a document after a pending event; Version is 0 if it ended. Body is nil
// after a touch of content that the projection has, and after a warning.
type overlaid struct {
	projections.Record
	seq    uint64
	reason string // of a hold that is pending, or was when this event was decided
	warned bool   // the event is a warning: otherwise the document is as folded
}

type overlaidCollection struct {
	*schema.Collection // nil if it was deleted
	seq                uint64
}

// undoStep is the earlier state of one entry.
type undoStep struct {
	document   DocumentKey
	record     overlaid
	collection schema.CollectionName // "" if the step is about a document or message
	properties overlaidCollection
	message    string // "" if the step is about a document or collection
	repeat     *schema.Event
	was        bool
}

func newOverlay() overlay {
	return overlay{
		documents:   make(map[DocumentKey]overlaid),
		collections: make(map[schema.CollectionName]overlaidCollection),
		messages:    make(map[string]*schema.Event),
	}
}

func (o *overlay) setDocument(key DocumentKey, d overlaid) {
	before, was := o.documents[key]
	o.note(undoStep{document: key, record: before, was: was})
	o.documents[key] = d
}

func (o *overlay) setCollection(name schema.CollectionName, c overlaidCollection) {
	before, was := o.collections[name]
	o.note(undoStep{collection: name, properties: before, was: was})
	o.collections[name] = c
}

func (o *overlay) setMessage(e *schema.Event) {
	before, was := o.messages[e.MsgID]
	o.note(undoStep{message: e.MsgID, repeat: before, was: was})
	o.messages[e.MsgID] = e
}

func (o *overlay) note(step undoStep) {
	if o.attempts > 0 {
		o.undo = append(o.undo, step)
	}
}

func restore[K comparable, V any](m map[K]V, key K, before V, was bool) {
	if was {
		m[key] = before
	} else {
		delete(m, key)
	}
}

// takeBack undoes the steps from the first-th on.
func (o *overlay) takeBack(first int) {
	for i := len(o.undo) - 1; i >= first; i-- {
		switch u := &o.undo[i]; {
		case u.collection != "":
			restore(o.collections, u.collection, u.properties, u.was)
		case u.message != "":
			restore(o.messages, u.message, u.repeat, u.was)
		default:
			restore(o.documents, u.document, u.record, u.was)
		}
	}
	o.undo = o.undo[:first]
}

// folded drops the entries of folded events; all: nothing else is pending.
func (o *overlay) folded(facts []projections.Fact, all bool) {
	if all {
		clear(o.documents)
		clear(o.collections)
		clear(o.messages)
		return
	}
	for i := range facts {
		e := facts[i].Event
		switch {
		case e.Type.OnDocument():
			key := DocumentKey{Incarnation: facts[i].Incarnation, ID: e.ID}
			if o.documents[key].seq == e.Seq {
				delete(o.documents, key)
			}
		case e.Type.OnCollection():
			if o.collections[e.Collection].seq == e.Seq {
				delete(o.collections, e.Collection)
			}
		}
		if e.MsgID != "" && o.messages[e.MsgID] == e {
			delete(o.messages, e.MsgID)
		}
	}
}

// attempt runs step. If it returns false or panics, its events and changes are undone.
// Attempts may nest: a batch is one, with one for each operation in it. Undoing costs what
// was done. Work and reads that were counted stay counted, as they were done.
func (m *Machine) attempt(step func() bool) {
	o := &m.overlay
	seq, time, pending, bytes, folds, undo := m.seq, m.time, len(m.pending), m.bytes, m.folds, len(o.undo)
	o.attempts++
	done := false
	defer func() {
		if !done {
			o.takeBack(undo)
			clear(m.pending[pending:])
			m.seq, m.time, m.pending, m.bytes, m.folds = seq, time, m.pending[:pending], bytes, folds
		}
		if o.attempts--; o.attempts == 0 {
			clear(o.undo)
			o.undo = o.undo[:0]
		}
	}()
	done = step()
}
