// What holds for each event:
//
//   - It is tried at least once, and again after a failure or a crash: an action has to
//     bear that. LAPSE_SEQ and Idempotency-Key tell it an event that comes again.
//   - Events of one document are tried in their order, however many workers there are.
//     client.Handle sees to that.
//   - After Tries failures it is put aside by Poison, and the next one is tried.
//   - The end of ctx gives a try EndTimeout to end by itself: an interrupted command may
//     have done half of its work.

// Package action runs a command or sends an HTTP request for each event of a feed, at least
// once and in order for each document.
package action

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/lapsedb/lapse/client"
)

// Action is what happens for an event.
type Action interface {
	// Try does it once. It returns nil if it is done, and soon after ctx is done. Its errors
	// have no secrets.
	Try(ctx context.Context, e *client.Event) error
	// Preview returns what Try would do, for JSON.
	Preview(e *client.Event) (any, error)
}

// Options are those of Run. The zero value tries each event for ever.
type Options struct {
	Timeout time.Duration        // of a try; DefaultTimeout if 0
	Workers int                  // tries at the same time; 1 if 0
	Tries   int                  // after so many failures an event goes to Poison; 0 for no limit
	Poison  client.PoisonHandler // such as PoisonCollection; only with Tries
	Without string               // a collection whose events are passed over: that of Poison, or poison would make poison
	Metrics *Metrics             // nil for none
	Logger  *slog.Logger         // of failures; nil for none
}

const (
	DefaultTimeout = 30 * time.Second
	// EndTimeout is how long a try may go on after the context of Run has ended.
	EndTimeout = 10 * time.Second
	// killDelay is the time from a command's SIGTERM to its SIGKILL.
	killDelay = 5 * time.Second
)

// Run does an action for each event of a durable feed, by client.Handle, and again if that
// ends by an error that is worth a retry, as while lapse restarts. It returns ctx's error after
// ctx is done and the tries under way have ended, for which they have EndTimeout. Any
// other error ends Run.
func Run(ctx context.Context, c *client.Client, do Action, durable string, o Options, feed ...client.FeedOption) error {
	o.Timeout, o.Metrics, o.Logger = cmp.Or(o.Timeout, DefaultTimeout), cmp.Or(o.Metrics, NewMetrics(c, durable)), cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	opts := []client.HandleOption{client.Durable(durable), client.Workers(max(o.Workers, 1))}
	for _, f := range feed {
		opts = append(opts, f)
	}
	if o.Tries > 0 {
		opts = append(opts, client.Poison(o.Tries, o.putAside))
	}
	for {
		err := c.Handle(ctx, func(ctx context.Context, e *client.Event) error {
			if e.Collection == o.Without {
				return nil
			}
			return o.try(ctx, do, e)
		}, opts...)
		if coded, ok := errors.AsType[*client.Error](err); !ok || !coded.Retryable() || ctx.Err() != nil {
			return err
		}
		o.Logger.Warn("the log cannot be read, trying again", "err", err)
		pause(ctx)
	}
}

// pause waits before a retry of a request to lapse.
func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(time.Second):
	}
}

// try tries an event once. The end of ctx ends the try later than others, since a try that is
// interrupted comes again. The context of the try is its own; ctx only starts a timer.
func (o *Options) try(ctx context.Context, do Action, e *client.Event) error {
	running, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), o.Timeout, fmt.Errorf("it took longer than %v", o.Timeout))
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		select {
		case <-time.After(EndTimeout):
			cancel()
		case <-running.Done():
		}
	})()
	o.Metrics.tries.Inc()
	err := do.Try(running, e)
	if err != nil && ctx.Err() == nil {
		o.Metrics.failures.Inc()
		o.Logger.Warn("an action has failed", "seq", e.Seq, "type", e.Type, "collection", e.Collection, "err", err)
	}
	return err
}

// putAside is a client.PoisonHandler. The event counts as done only when Poison has stored
// it.
func (o *Options) putAside(ctx context.Context, e *client.Event, cause error) error {
	if err := o.Poison(ctx, e, cause); err != nil {
		return fmt.Errorf("event %d failed (%w) and cannot be put aside: %w", e.Seq, cause, err)
	}
	o.Metrics.poison.Inc()
	o.Logger.Error("an event was put aside", "seq", e.Seq, "type", e.Type, "collection", e.Collection, "tries", o.Tries, "err", cause)
	return nil
}
