package client

import "github.com/lapsedb/lapse/schema"

// Event is a fact in the log, see the fields of schema.Event.
type Event = schema.Event

// EventType is what happened.
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
	MutationRejected   = schema.MutationRejected
)
