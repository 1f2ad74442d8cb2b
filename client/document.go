package client

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"github.com/lapsedb/lapse/schema"
)

// Item is a stored document. With a *DecodeError it is complete but for the Value.
type Item[T any] struct {
	ID    string
	Value T
	ETag  string // its version: for IfMatch, and the sequence of its event in the feed
	// Modified is the second of the last modification; the time to live counts from here.
	Modified time.Time
	// Created reports whether an upsert created the document rather than replaced it.
	Created bool

	// Lifetime is set by requests for one document, by batches, and by queries with Deadlines.
	Lifetime
}

// Get decodes a document into a T; json.RawMessage accepts it unchanged. It fails with
// ErrDocumentNotFound from the document's deadline on.
func Get[T any](ctx context.Context, coll *Collection, id string, opts ...RequestOption) (Item[T], error) {
	return request[T](ctx, coll, "document.get", id, nil, opts)
}

// Create stores a new document, or fails with ErrDocumentExists. TTL, or a member ttl of
// value in seconds, sets its time to live.
func Create[T any](ctx context.Context, coll *Collection, id string, value T, opts ...WriteOption) (Item[T], error) {
	return put[T](ctx, coll, "document.create", id, value, opts)
}

// Upsert creates or replaces a document; see Item.Created.
func Upsert[T any](ctx context.Context, coll *Collection, id string, value T, opts ...WriteOption) (Item[T], error) {
	return put[T](ctx, coll, "document.upsert", id, value, opts)
}

// Replace replaces a document, or fails with ErrDocumentNotFound. Its time to live
// starts again.
func Replace[T any](ctx context.Context, coll *Collection, id string, value T, opts ...WriteOption) (Item[T], error) {
	return put[T](ctx, coll, "document.replace", id, value, opts)
}

// Patch applies a JSON Merge Patch (RFC 7396), in which null removes a member, or fails
// with ErrDocumentNotFound. The document's time to live starts again. The item has
// the complete document.
func Patch[T any](ctx context.Context, coll *Collection, id string, patch any, opts ...WriteOption) (Item[T], error) {
	return put[T](ctx, coll, "document.patch", id, patch, opts)
}

// Delete deletes a document, or fails with ErrDocumentNotFound.
func Delete(ctx context.Context, coll *Collection, id string, opts ...RequestOption) error {
	_, err := coll.client.Do(ctx, "document.delete", coll.info.Name, id, nil, opts...)
	return err
}

// Touched is a new version of unchanged content.
type Touched struct {
	ETag     string
	Modified time.Time
	Lifetime
}

// Touch starts the document's time to live again without sending or logging its content,
// or fails with ErrDocumentNotFound. With MinAge a document that is younger stays as it is.
func Touch(ctx context.Context, coll *Collection, id string, opts ...WriteOption) (Touched, error) {
	reply, err := touch(ctx, coll, id, nil, opts)
	if err != nil {
		return Touched{}, err
	}
	system, err := schema.ReadSystem(reply.Body)
	return Touched{ETag: system.ETag, Modified: timeOf(system.TS), Lifetime: reply.Lifetime}, unreadable(coll.info.Name, id, reply, err)
}

// GetAndTouch is Touch, and returns the document: one request where a store of sessions
// otherwise makes two.
func GetAndTouch[T any](ctx context.Context, coll *Collection, id string, opts ...WriteOption) (Item[T], error) {
	reply, err := touch(ctx, coll, id, []byte(`{"content":true}`), opts)
	if err != nil {
		return Item[T]{}, err
	}
	return itemOfReply[T](coll, id, reply)
}

func touch(ctx context.Context, coll *Collection, id string, body []byte, opts []WriteOption) (*Reply, error) {
	w, err := newWrite(opts)
	if err == nil && w.ttl != schema.Inherit {
		err = ErrBadRequest.With("TTL is no option of Touch: the ttl of the document stays; change it with Patch")
	}
	if err != nil {
		return nil, err
	}
	return coll.client.Do(ctx, "document.touch", coll.info.Name, id, w.body(body), w.opts...)
}

// Restore creates an expired or deleted document again, with the content of version, an
// ETag of its history, or of its last version if version is empty. Its ttl is unchanged
// and counts from now. It fails with ErrDocumentExists, and with ErrVersionNotFound if
// the version never existed or the log no longer has its content.
func Restore[T any](ctx context.Context, coll *Collection, id, version string, opts ...RequestOption) (Item[T], error) {
	body, err := encode(restore{version})
	if err != nil {
		return Item[T]{}, err
	}
	return request[T](ctx, coll, "document.restore", id, body, opts)
}

type restore struct {
	Version string `json:"version,omitempty"`
}

// Hold holds a document, with a reason that may be empty: until Release it does not expire
// and cannot be deleted. A second Hold changes the reason.
func Hold(ctx context.Context, coll *Collection, id, reason string, opts ...RequestOption) error {
	body, err := encode(hold{reason})
	if err != nil {
		return err
	}
	_, err = coll.client.Do(ctx, "document.hold", coll.info.Name, id, body, opts...)
	return err
}

type hold struct {
	Reason string `json:"reason,omitempty"`
}

// Release ends the hold of a document, or fails with ErrNotHeld. The deadline is the same
// as without the hold: a document whose deadline passed meanwhile expires at once.
func Release(ctx context.Context, coll *Collection, id string, opts ...RequestOption) error {
	_, err := coll.client.Do(ctx, "document.release", coll.info.Name, id, nil, opts...)
	return err
}

func put[T any](ctx context.Context, coll *Collection, op, id string, value any, opts []WriteOption) (Item[T], error) {
	w, err := newWrite(opts)
	if err == nil && w.minAge != 0 {
		err = ErrBadRequest.With("MinAge is an option of Touch and GetAndTouch")
	}
	if err != nil {
		return Item[T]{}, err
	}
	body, err := encode(value)
	if err != nil {
		return Item[T]{}, err
	}
	return request[T](ctx, coll, op, id, w.body(body), w.opts)
}

func request[T any](ctx context.Context, coll *Collection, op, id string, body []byte, opts []RequestOption) (Item[T], error) {
	reply, err := coll.client.Do(ctx, op, coll.info.Name, id, body, opts...)
	if err != nil {
		return Item[T]{}, err
	}
	return itemOfReply[T](coll, id, reply)
}

func itemOfReply[T any](coll *Collection, id string, reply *Reply) (Item[T], error) {
	item, err := itemOf[T](DecodeError{Collection: coll.info.Name, ID: id, Seq: reply.Seq, Body: reply.Body}, reply.Status)
	item.Lifetime = reply.Lifetime
	return item, err
}

// timeOf returns seconds since 1970 as a time; 0 means missing and gives the zero time.
func timeOf(seconds int64) time.Time {
	if seconds == 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0).UTC()
}

// encode encodes a value as JSON without escaping < > &, since the server stores
// documents as sent.
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
