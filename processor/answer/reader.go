// Package answer makes replies from a projection, without NATS or a clock, for packages
// service and offline.
//
// It imports machine, projections, projections/query and schema. Start reading at
// Reader, which answers every read; the other files are named after operations.
package answer

import (
	"context"

	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/projections/query"
	"github.com/lapsedb/lapse/schema"
)

// Reader answers reads from the folded state, at a time that the caller passes, in ms since
// 1970. It uses no clock and no NATS. An error is a *schema.Error if the request is
// invalid. It is for one goroutine at a time: the service has its own, concurrent way to
// the same functions.
type Reader struct {
	Store  *projections.Store
	Limits query.Limits
	engine *query.Engine // of queries
}

// Seq returns the sequence of the last event folded.
func (r *Reader) Seq() uint64 { return r.Store.Cursor().Seq }

// Time returns the log time of the last event folded, in ms.
func (r *Reader) Time() int64 { return r.Store.Cursor().Time }

// Mismatches returns the number of events that did not match the state before them. They
// changed nothing.
func (r *Reader) Mismatches() uint64 { return r.Store.Cursor().Foreign }

// Digest returns the digest of the folded state, as in status.
func (r *Reader) Digest() string { return r.Store.Digest().String() }

// Document answers document.get.
func (r *Reader) Document(now int64, name schema.CollectionName, id schema.DocumentID) (body []byte, lifetime schema.Lifetime, err error) {
	live, fault, err := LiveDocument(r.Store, name, id, now/1000, NoRenewals)
	if err != nil {
		return nil, lifetime, err
	}
	if fault != nil {
		return nil, lifetime, fault
	}
	return Present(live.Record), live.Lifetime, nil
}

// Collection answers collection.get.
func (r *Reader) Collection(now int64, name schema.CollectionName) ([]byte, error) {
	c, ok := r.Store.Collection(name)
	if !ok {
		return nil, schema.NoCollection(name)
	}
	n, err := r.Store.Count(c, now/1000)
	if err != nil {
		return nil, err
	}
	return c.AppendReplyWithSize(nil, n.Documents, n.Bytes, n.Held), nil
}

// Collections answers collection.list.
func (r *Reader) Collections(body []byte) ([]byte, error) {
	reply, fault := ListCollections(r.Store.Collections(), body, r.Limits.EnsureDefaults().Bytes)
	if fault != nil {
		return nil, fault
	}
	return reply, nil
}

// Query answers a query.
func (r *Reader) Query(ctx context.Context, now int64, name schema.CollectionName, body []byte) ([]byte, error) {
	engine, err := r.queries()
	if err != nil {
		return nil, err
	}
	reply, err := engine.Answer(ctx, r.Store, query.Ask{
		Collection: name,
		Body:       body,
		Now:        func(int64) int64 { return now / 1000 },
		Room:       r.Limits.EnsureDefaults().Bytes,
		MinSeq:     r.Seq(),
	})
	return reply.Body, err
}

// queries returns the engine of queries, made at its first use.
func (r *Reader) queries() (_ *query.Engine, err error) {
	if r.engine == nil {
		// A fixed secret: cursors are valid for another fold of the same log, too.
		r.engine, err = query.New(query.Options{Limits: r.Limits, Secret: []byte("lapse")})
	}
	return r.engine, err
}

// Status answers status.
func (r *Reader) Status(now int64) (schema.Status, error) {
	cursor := r.Store.Cursor()
	status := schema.Status{
		Version:  schema.NoVersionName,
		Database: string(schema.DefaultDatabase),
		Role:     "writer",
		Seq:      cursor.Seq,
		LogEnd:   cursor.Seq,
		LogTime:  cursor.Time,
		Digest:   r.Digest(),
	}
	return status, AddCounts(&status, r.Store.Collections(), func(c *schema.Collection) (projections.Counts, error) {
		return r.Store.Count(c, now/1000)
	})
}

// History answers history, in at most Limits.Bytes.
func (r *Reader) History(tail string, body []byte, event EventFunc) ([]byte, error) {
	engine, err := r.queries()
	if err != nil {
		return nil, err
	}
	h, fault := ParseHistory(engine, tail, body)
	if fault != nil {
		return nil, fault
	}
	reply, found, err := h.Reply(r.Store, r.Limits.EnsureDefaults().Bytes, event)
	if err == nil && !found && h.From == 0 {
		if _, ok := r.Store.Collection(h.Name); !ok {
			return nil, schema.NoCollection(h.Name)
		}
		return nil, NeverWas(h.Name, h.ID)
	}
	return reply, err
}
