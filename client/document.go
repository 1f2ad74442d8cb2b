package client

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"github.com/lapsedb/lapse/schema"
)

// Item is a document as it was stored.
type Item[T any] struct {
	ID    string
	Value T
	ETag  string // its version: for IfMatch, and the sequence of its event in the feed
	TS    int64  // last modification, seconds since 1970; its time to live counts from here
	// Created tells whether an upsert made the document rather than replaced it.
	Created bool
}

// Modified is TS as a time.
func (item Item[T]) Modified() time.Time { return time.Unix(item.TS, 0) }

// Get reads a document into a T. It fails with ErrDocumentNotFound from the
// document's deadline on. A T of json.RawMessage takes it as it came.
func Get[T any](ctx context.Context, coll *Collection, id string, opts ...RequestOption) (Item[T], error) {
	return request[T](ctx, coll, "document.get", id, nil, opts)
}

// Create stores a document that does not live yet, or fails with
// ErrDocumentExists. A member ttl of value, in seconds, sets its time to live.
func Create[T any](ctx context.Context, coll *Collection, id string, value T, opts ...RequestOption) (Item[T], error) {
	return write[T](ctx, coll, "document.create", id, value, opts)
}

// Upsert stores a document, whether it lives or not; see Item.Created.
func Upsert[T any](ctx context.Context, coll *Collection, id string, value T, opts ...RequestOption) (Item[T], error) {
	return write[T](ctx, coll, "document.upsert", id, value, opts)
}

// Replace stores a document that lives, or fails with ErrDocumentNotFound. Its
// time to live starts again.
func Replace[T any](ctx context.Context, coll *Collection, id string, value T, opts ...RequestOption) (Item[T], error) {
	return write[T](ctx, coll, "document.replace", id, value, opts)
}

// Patch applies a JSON Merge Patch (RFC 7396) to a document that lives: members
// that are null are removed. Its time to live starts again. The item holds the
// document as a whole.
func Patch[T any](ctx context.Context, coll *Collection, id string, patch any, opts ...RequestOption) (Item[T], error) {
	return write[T](ctx, coll, "document.patch", id, patch, opts)
}

// Delete deletes a document that lives, or fails with ErrDocumentNotFound.
func Delete(ctx context.Context, coll *Collection, id string, opts ...RequestOption) error {
	_, err := coll.client.Do(ctx, "document.delete", coll.info.Name, id, nil, opts...)
	return err
}

func write[T any](ctx context.Context, coll *Collection, op, id string, value any, opts []RequestOption) (Item[T], error) {
	body, err := encode(value)
	if err != nil {
		return Item[T]{}, err
	}
	return request[T](ctx, coll, op, id, body, opts)
}

func request[T any](ctx context.Context, coll *Collection, op, id string, body []byte, opts []RequestOption) (Item[T], error) {
	reply, err := coll.client.Do(ctx, op, coll.info.Name, id, body, opts...)
	if err != nil {
		return Item[T]{}, err
	}
	return itemOf[T](reply.Status, reply.Body)
}

func itemOf[T any](status int, body []byte) (Item[T], error) {
	system, err := schema.ReadSystem(body)
	if err != nil {
		return Item[T]{}, badReply(err)
	}
	item := Item[T]{ID: system.ID, TS: system.TS, ETag: system.ETag, Created: status == 201}
	if err := json.Unmarshal(body, &item.Value); err != nil {
		return item, misfit(system.ID, item.Value, err)
	}
	return item, nil
}

// misfit is the error of a document that is not a T: stored by somebody else,
// it may be anything.
func misfit(id string, value any, err error) error {
	return &failure{coded: ErrBadRequest.With("document %q does not fit a %T: %v", id, value, err), cause: err}
}

// encode writes a value as JSON, with < > & as they are, since the server
// keeps a document as it was written.
func encode(value any) ([]byte, error) {
	if raw, ok := value.(json.RawMessage); ok {
		return raw, nil
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		return nil, &failure{coded: ErrBadRequest.With("a %T cannot be written as JSON: %v", value, err), cause: err}
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
