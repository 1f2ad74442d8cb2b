package client

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/lapsedb/lapse/schema"
)

// Event is a fact in the log.
type Event struct {
	Seq        uint64    // log sequence, which identifies a repeat
	Time       time.Time // log time, to the millisecond
	Type       EventType
	Collection string
	ID         string // of document events
	Previous   string // ETag of the version that the event ends (Replaced, Deleted, Expired, Touched) or is about

	// Of Expired and Expiring: when the document expires, its time to live, and the rule
	// that set it.
	Deadline time.Time
	TTL      time.Duration
	Rule     Rule

	Cause uint64 // sequence returned by Submit, 0 for none
	// TraceParent is the W3C trace context of the write, "" for none. Expired and Expiring have
	// none: the event of Previous may.
	TraceParent string
	// Body is the document, the properties of a collection, or the error and mutation of
	// a MutationRejected.
	Body json.RawMessage

	source *schema.Event
	ctx    context.Context // nil outside of a loop
}

// EventOf returns an event of package schema as one of this package. They share the body.
func EventOf(e *schema.Event) *Event {
	event := &Event{Seq: e.Seq, Time: time.UnixMilli(e.Time).UTC(), Type: e.Type, Collection: string(e.Collection), ID: string(e.ID),
		Cause: e.Cause, TraceParent: e.Trace.Parent, Body: e.Body, source: e}
	if e.Previous != 0 {
		event.Previous = e.Previous.String()
	}
	if e.Deadline.Rule != schema.NoRule {
		event.Deadline, event.TTL, event.Rule = timeOf(e.Deadline.At), time.Duration(e.Deadline.TTL)*time.Second, e.Deadline.Rule
	}
	return event
}

// Schema returns the event in the form of package schema, nil unless it comes from a feed
// or from JSON. It must not be changed.
func (e *Event) Schema() *schema.Event { return e.source }

// MarshalJSON returns the event as lapse export prints it.
func (e *Event) MarshalJSON() ([]byte, error) {
	if e.source == nil {
		return nil, errors.New("client: an Event that the program made has no JSON")
	}
	return e.source.AppendJSON(nil), nil
}

// UnmarshalJSON reads an event as lapse export prints it.
func (e *Event) UnmarshalJSON(data []byte) error {
	var source schema.Event
	if err := source.UnmarshalJSON(data); err != nil {
		return err
	}
	*e = *EventOf(&source)
	return nil
}

// EventType is the type of an event.
type EventType = schema.EventType

// Event types.
const (
	CollectionCreated  = schema.CollectionCreated
	CollectionReplaced = schema.CollectionReplaced
	CollectionDeleted  = schema.CollectionDeleted
	DocumentCreated    = schema.DocumentCreated
	DocumentReplaced   = schema.DocumentReplaced
	DocumentDeleted    = schema.DocumentDeleted
	DocumentExpired    = schema.DocumentExpired
	DocumentTouched    = schema.DocumentTouched // a new version of the same content: no body
	DocumentHeld       = schema.DocumentHeld
	DocumentReleased   = schema.DocumentReleased
	DocumentExpiring   = schema.DocumentExpiring // a warning before DocumentExpired, see WarnBefore
	MutationRejected   = schema.MutationRejected
)

// Rule is the origin of a deadline.
type Rule = schema.Rule

// Rules.
const (
	NoRule         = schema.NoRule
	RuleDocument   = schema.RuleDocument   // ttl of the document
	RuleCollection = schema.RuleCollection // defaultTtl of the collection
)
