package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/lapsedb/lapse/client"
)

// Trials are documents that expire at the end of the trial.
type Trials struct {
	client          *client.Client
	running, unsent *client.Collection
}

// Trial is the document of a running trial; its id is the user's.
type Trial struct {
	Address string `json:"address"`
}

// Mail is a mail to send.
type Mail struct {
	To   string `json:"to"`
	Text string `json:"text"`
}

// Send sends a mail, at most once for a key.
type Send func(ctx context.Context, key string, m Mail) error

// OpenTrials opens the collections, and creates them the first time: a trial has 30 days, and
// the warning is 7 days before. Settings, such as client.DefaultTTL and client.WarnBefore,
// change that, also for trials that run.
func OpenTrials(ctx context.Context, c *client.Client, settings ...client.PropertyOption) (*Trials, error) {
	initial := []client.PropertyOption{client.DefaultTTL(30 * 24 * time.Hour), client.WarnBefore(7 * 24 * time.Hour)}
	running, err := c.OpenCollection(ctx, "trials", append(initial, settings...)...)
	if err == nil && len(settings) > 0 {
		running, err = c.ChangeCollection(ctx, "trials", settings...)
	}
	if err != nil {
		return nil, err
	}
	unsent, err := c.OpenCollection(ctx, "unsent-mails")
	return &Trials{c, running, unsent}, err
}

// Start starts the trial of a user, who can have one at a time.
func (t *Trials) Start(ctx context.Context, user, address string) error {
	_, err := client.Create(ctx, t.running, user, Trial{address})
	return err
}

// Extend starts the trial again: there is another warning.
func (t *Trials) Extend(ctx context.Context, user string) error {
	_, err := client.Touch(ctx, t.running, user)
	return err
}

// Subscribe ends the trial without a mail, since the user has paid. After the end it fails
// with client.ErrDocumentNotFound.
func (t *Trials) Subscribe(ctx context.Context, user string) error {
	return client.Delete(ctx, t.running, user)
}

// Mail sends the mails until ctx is done. Any number of processes may call it, of which one
// sends, one mail after the other. A mail that fails five times waits in the collection
// unsent-mails for a human, so that it does not keep others waiting.
func (t *Trials) Mail(ctx context.Context, send Send) error {
	handle := func(ctx context.Context, e *client.Event) error {
		m, err := t.mail(ctx, e)
		if err != nil || m == nil {
			return err
		}
		// The sequence of the event is the same when it comes again after a crash.
		return send(ctx, fmt.Sprintf("trial-%d", e.Seq), *m)
	}
	return t.client.Handle(ctx, handle, client.Durable("trial-mails"), client.FromStart(), client.InCollection(t.running.Name()),
		client.OfType(client.DocumentExpiring, client.DocumentExpired), client.Poison(5, t.putAside))
}

// putAside keeps an event without a mail. Where its document makes that too large, or too
// deep, the log has it: the id is the sequence.
func (t *Trials) putAside(ctx context.Context, e *client.Event, failure error) error {
	id, aside := fmt.Sprint(e.Seq), map[string]any{"event": e, "error": failure.Error()}
	_, err := client.Upsert(ctx, t.unsent, id, aside)
	if errors.Is(err, client.ErrTooLarge) || errors.Is(err, client.ErrBadRequest) {
		aside["event"] = map[string]string{"type": e.Type.String(), "id": e.ID}
		_, err = client.Upsert(ctx, t.unsent, id, aside)
	}
	return err
}

// mail returns the mail for an event, nil for none.
func (t *Trials) mail(ctx context.Context, e *client.Event) (*Mail, error) {
	var trial Trial
	if err := json.Unmarshal(e.Body, &trial); err != nil {
		return nil, err
	}
	if e.Type == client.DocumentExpired {
		return &Mail{trial.Address, "Your trial has ended."}, nil
	}
	// The event may have waited for this program: the user may have paid, or have more time.
	now, err := client.Get[json.RawMessage](ctx, t.running, e.ID, client.MinSeq(e.Seq))
	if errors.Is(err, client.ErrDocumentNotFound) || err == nil && now.ETag != e.Previous {
		return nil, nil
	}
	return &Mail{trial.Address, "Your trial ends on " + e.Deadline.Format("2 January at 15:04 UTC.")}, err
}
