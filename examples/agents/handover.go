package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lapsedb/lapse/client"
)

// Learn returns what is known after a session. It may ask a model, and take minutes.
type Learn func(ctx context.Context, known string, s Session) (string, error)

// HandOver hands over sessions that end, until ctx is done. Any number of processes may call
// it, one of which works. A session that fails ten times at its warning is tried again when
// it has expired, and then waits in the collection not-handed-over for a human.
func (a *Agents) HandOver(ctx context.Context, learn Learn) error {
	handle := func(ctx context.Context, e *client.Event) error {
		for {
			err := a.handOver(ctx, e, learn)
			if failed, ok := errors.AsType[*client.Error](err); !ok || !failed.Retryable() {
				return err
			}
			select { // that lapse restarts is no failure of the session
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Second):
			}
		}
	}
	return a.client.Handle(ctx, handle, client.Durable("agents"), client.FromStart(), client.InCollection(a.coll.Name()),
		client.OfType(client.DocumentExpiring, client.DocumentExpired), client.Workers(8), client.Poison(10, a.putAside))
}

func (a *Agents) putAside(ctx context.Context, e *client.Event, failure error) error {
	if e.Type == client.DocumentExpiring {
		return nil
	}
	_, err := client.Upsert(ctx, a.failed, fmt.Sprint(e.Seq), map[string]string{"session": e.ID, "version": e.Previous, "error": failure.Error()})
	return err
}

// handOver puts what a session has learned into the memory. After a warning the same batch
// ends the session, so of that and a renewal one happens.
func (a *Agents) handOver(ctx context.Context, e *client.Event, learn Learn) error {
	var s Session
	if err := json.Unmarshal(e.Body, &s); err != nil {
		return a.putAside(ctx, e, err)
	}
	id, ok := strings.CutPrefix(e.ID, live)
	if !ok || len(s.Turns) == 0 {
		return nil // a memory, or of another program
	}
	now, known, err := read(ctx, a.coll.Batch().Get(e.ID).Get(memory+id), client.MinSeq(e.Seq))
	warning := e.Type == client.DocumentExpiring
	if err != nil || known.Value.Event >= e.Seq || warning && now.ETag != e.Previous {
		return err // nil if it comes again after a crash, was renewed, or has ended
	}
	text, err := learn(ctx, known.Value.Text, s)
	if err != nil {
		return err
	}
	b, next := a.coll.Batch(), Memory{text, e.Seq}
	if known.ETag == "" {
		b.Create(memory+id, next, client.NeverExpire)
	} else {
		b.Replace(memory+id, next, client.NeverExpire, client.OnlyIfMatch(known.ETag))
	}
	if warning {
		b.Delete(e.ID, client.OnlyIfMatch(e.Previous))
	}
	results, err := b.RunAtomic(ctx)
	if err != nil {
		return err
	}
	if end := results[len(results)-1].Err; warning && (errors.Is(end, client.ErrPreconditionFailed) || errors.Is(end, client.ErrDocumentNotFound)) {
		return nil // it was renewed meanwhile, or has expired: another event hands it over
	}
	return results.Err()
}
