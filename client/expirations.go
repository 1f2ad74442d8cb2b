package client

import (
	"context"
	"iter"
)

// Expiration is the end of a document that reached its deadline, or the warning before.
type Expiration[T any] struct {
	*Event
	// Value is the content of the document if HasValue, which is false in
	// collections without previous images.
	Value    T
	HasValue bool
}

// Expirations is Changes for expired documents, with their last content as a T. With
// Durable it is a persistent timer: each expiry is handled at least once.
//
// A document that does not decode into a T is yielded with a *DecodeError and the event.
// As in Changes, the loop may then go on, and any other error is the last value.
func Expirations[T any](ctx context.Context, c *Client, opts ...FeedOption) iter.Seq2[Expiration[T], error] {
	return expirations[T](ctx, c, DocumentExpired, opts)
}

// Warnings is Expirations for documents before they expire at Deadline: each gets one
// DocumentExpiring, in collections with WarnBefore.
func Warnings[T any](ctx context.Context, c *Client, opts ...FeedOption) iter.Seq2[Expiration[T], error] {
	return expirations[T](ctx, c, DocumentExpiring, opts)
}

func expirations[T any](ctx context.Context, c *Client, t EventType, opts []FeedOption) iter.Seq2[Expiration[T], error] {
	opts = append(opts[:len(opts):len(opts)], func(f *feed) { f.types = []EventType{t} })
	return func(yield func(Expiration[T], error) bool) {
		for e, err := range c.Changes(ctx, opts...) {
			x := Expiration[T]{Event: e}
			if err == nil && len(e.Body) > 0 {
				x.HasValue = true
				x.Value, err = decode[T](DecodeError{Collection: e.Collection, ID: e.ID, Seq: e.Seq, Body: e.Body})
			}
			if !yield(x, err) {
				return
			}
		}
	}
}
