package main

import (
	"context"
	"errors"
	"time"

	"github.com/lapsedb/lapse/client"
)

// Ids of documents begin with one of these.
const (
	live   = "live/"
	memory = "memory/"
)

// Agents are sessions of agents or chats, and what they have learned.
type Agents struct {
	client       *client.Client
	coll, failed *client.Collection
}

// Session is what a live one knows. It expires unless it is used.
type Session struct {
	Turns []string `json:"turns"`
}

// Memory is what the sessions of an id have handed over. It never expires.
type Memory struct {
	Text  string `json:"text"`
	Event uint64 `json:"event"` // the sequence of the last one that it includes
}

// OpenAgents opens the collections, and creates them the first time: a session ends after 30
// minutes without use, and is warned of 5 minutes before. Settings, such as
// client.DefaultTTL and client.WarnBefore, change that, also for live sessions.
func OpenAgents(ctx context.Context, c *client.Client, settings ...client.PropertyOption) (*Agents, error) {
	initial := []client.PropertyOption{client.DefaultTTL(30 * time.Minute), client.WarnBefore(5 * time.Minute)}
	coll, err := c.OpenCollection(ctx, "agents", append(initial, settings...)...)
	if err == nil && len(settings) > 0 {
		coll, err = c.ChangeCollection(ctx, "agents", settings...)
	}
	if err != nil {
		return nil, err
	}
	failed, err := c.OpenCollection(ctx, "not-handed-over")
	return &Agents{c, coll, failed}, err
}

// Open returns a session, which is new if it has no turns, and what was learned before. To
// open it is to use it.
func (a *Agents) Open(ctx context.Context, id string) (client.Item[Session], client.Item[Memory], error) {
	return read(ctx, a.coll.Batch().GetAndTouch(live+id).Get(memory+id))
}

// Say adds a turn to a session, which may be new.
func (a *Agents) Say(ctx context.Context, id, turn string) (client.Item[Session], client.Item[Memory], error) {
	for {
		session, known, err := read(ctx, a.coll.Batch().Get(live+id).Get(memory+id))
		if err != nil {
			return session, known, err
		}
		next := Session{append(session.Value.Turns, turn)}
		if session.ETag == "" {
			session, err = client.Create(ctx, a.coll, live+id, next)
		} else {
			session, err = client.Replace(ctx, a.coll, live+id, next, client.IfMatch(session.ETag))
		}
		if errors.Is(err, client.ErrDocumentExists) || errors.Is(err, client.ErrDocumentNotFound) || errors.Is(err, client.ErrPreconditionFailed) {
			continue // it has changed, begun or ended between the two
		}
		return session, known, err
	}
}

// read returns the session and the memory that a batch reads. Each may be missing.
func read(ctx context.Context, b *client.Batch, opts ...client.RequestOption) (s client.Item[Session], m client.Item[Memory], err error) {
	results, err := b.Run(ctx, opts...)
	if err != nil {
		return s, m, err
	}
	if s, err = client.Decode[Session](results[0]); err == nil || errors.Is(err, client.ErrDocumentNotFound) {
		m, err = client.Decode[Memory](results[1])
	}
	if errors.Is(err, client.ErrDocumentNotFound) {
		err = nil
	}
	return s, m, err
}
