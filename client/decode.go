package client

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/lapsedb/lapse/schema"
)

// DecodeError is the error of a call that succeeded, but whose reply, document or event
// does not decode into the Go type. A write that fails with it is applied; to repeat it,
// use ETag with IfMatch.
//
// It has no code, so it matches no Err variable.
type DecodeError struct {
	Collection string // empty if unknown
	ID         string // of the document, if it is about one
	ETag       string // version of the stored document; empty for an event, or if unknown
	Seq        uint64 // log sequence of the event, or of the state that answered, for MinSeq; 0 if unknown
	Body       []byte // what does not decode
	Err        error  // why
}

// Error says that the document is stored, and why it does not decode.
func (e *DecodeError) Error() string {
	if e.ID == "" {
		return e.Err.Error()
	}
	what := fmt.Sprintf("document %q", e.ID)
	if e.Collection != "" {
		what += " of " + e.Collection
	}
	if e.ETag == "" {
		return fmt.Sprintf("%s: %v", what, e.Err)
	}
	return fmt.Sprintf("%s is stored as version %s, but %v", what, e.ETag, e.Err)
}

// Unwrap returns the cause.
func (e *DecodeError) Unwrap() error { return e.Err }

// because returns a copy of e with a cause.
func (e DecodeError) because(err error) error {
	e.Err = err
	return &e
}

// decodeReply decodes a reply that is no document into v.
func decodeReply(collection string, reply *Reply, v any) error {
	return unreadable(collection, "", reply, json.Unmarshal(reply.Body, v))
}

// unreadable returns the error of a reply that cannot be read, nil if err is nil.
func unreadable(collection, id string, reply *Reply, err error) error {
	if err == nil {
		return nil
	}
	return DecodeError{Collection: collection, ID: id, Seq: reply.Seq, Body: reply.Body}.because(garbled(err))
}

// garbled describes a fault of a reply. It hides err, which may have a code.
func garbled(err error) error {
	return fmt.Errorf("the request succeeded, but its reply cannot be read: %v: is the client older than the server?", err)
}

// itemOf decodes the document about.Body of a reply with a status. about has what is known of
// it. An item that comes with an error lacks the Value at least.
func itemOf[T any](about DecodeError, status int) (Item[T], error) {
	system, err := schema.ReadSystem(about.Body)
	if err != nil {
		return Item[T]{ID: about.ID}, about.because(garbled(err))
	}
	item := Item[T]{ID: system.ID, Modified: timeOf(system.TS), ETag: system.ETag, Created: status == 201, Lifetime: lifetimeOf(system.Lifetime)}
	about.ID, about.ETag = cmp.Or(system.ID, about.ID), system.ETag
	item.Value, err = decode[T](about)
	return item, err
}

// leftOut are the members without which a document is decoded, one choice after the
// other, until it fits. The lifetime and ttl may be content.
var leftOut = [][]string{
	nil,
	{"_ts", "_etag"},
	{"_ts", "_etag", "_deadline", "_rule", "_hold"},
	{"_ts", "_etag", "_deadline", "_rule", "_hold", "ttl"},
	{"_ts", "_etag", "_deadline", "_rule", "_hold", "id"},
	{"_ts", "_etag", "_deadline", "_rule", "_hold", "ttl", "id"},
}

// decode decodes the document about.Body into a T. Members that lapse adds must not prevent
// it: a map[string]string has no place for a number, a strict UnmarshalJSON may refuse
// them. But a T that names a member with another type is wrong.
func decode[T any](about DecodeError) (T, error) {
	var last error
	for _, names := range leftOut {
		body := about.Body
		if names != nil {
			body = schema.Without(body, names...)
		}
		var value T
		if last = json.Unmarshal(body, &value); last == nil {
			return value, nil
		}
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](last); ok && wrong.Field != "" {
			break
		}
	}
	var none T
	return none, about.because(fmt.Errorf("it does not fit a %v: %w", reflect.TypeFor[T](), last))
}
