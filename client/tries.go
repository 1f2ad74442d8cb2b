package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/schema"
)

// tries says how often the handler of an event has failed. The consumer's metadata have
// those of the first event that a reader has: a delivery is no try, since an event may be
// delivered to readers that end before they handle it. They are written before each try
// of an event that was delivered before, and when Handle ends. So a reader that finds a
// running try knows that its process crashed.
type tries struct {
	Seq     uint64 `json:"seq"`
	Failed  uint64 `json:"failed"`            // without the running one
	Running bool   `json:"running,omitempty"` // a try has begun
}

// readTries reads the metadata of a consumer; without legal tries there are none.
func readTries(metadata map[string]string) (t tries) {
	if json.Unmarshal([]byte(metadata[schema.ConsumerTries]), &t) != nil {
		return tries{}
	}
	return t
}

// of returns how many tries of an event failed, at most limit, and whether the last one
// ended with its process; times is the number of deliveries. An event without an entry
// had one try at most, in its first delivery, which writes none: that one counts, but
// only a crash that is certain puts an event aside without another try.
func (t tries) of(seq, times, limit uint64) (failed uint64, crashed bool) {
	switch {
	case times <= 1:
		return 0, false
	case t.Seq != seq:
		failed = 1
	case t.Running:
		return t.Failed + 1, true
	default:
		failed = t.Failed
	}
	return min(failed, limit-1), false
}

// counter counts the tries of a durable's events up to a limit. It is safe for concurrent
// use; a nil one counts nothing.
type counter struct {
	durable *durable
	limit   uint64
	first   uint64 // the first event that was handed out

	mu     sync.Mutex
	failed map[uint64]uint64 // by sequence, of events that are not handled yet
}

// recorded reports whether the tries of an event are in the metadata. Those after the
// first were only delivered with it: the crashing event soon is the first.
func (c *counter) recorded(d delivery) bool {
	return c != nil && d.seq == c.first && d.times > 1
}

// begin returns how many tries of an event failed before this process, and the error of
// the last one if it is certain.
func (c *counter) begin(ctx context.Context, d delivery) (failed uint64, err error) {
	if !c.recorded(d) {
		return 0, nil
	}
	info, err := c.durable.consumer.Info(ctx)
	if err != nil {
		return 0, nil // NATS is unreachable: the event is tried
	}
	failed, crashed := readTries(info.Config.Metadata).of(d.seq, d.times, c.limit)
	c.count(d, failed)
	if crashed {
		return failed, fmt.Errorf("event %d: the process ended while its handler ran, in try %d of %d", d.seq, failed, c.limit)
	}
	return failed, nil
}

// try notes that a try of an event begins. The error is not nil if this user may not write
// that, and the event was delivered more often than it may be tried.
func (c *counter) try(ctx context.Context, d delivery, failed uint64) error {
	if !c.recorded(d) {
		return nil
	}
	if err := c.write(ctx, tries{Seq: d.seq, Failed: failed, Running: true}); errors.Is(err, errNotEdited) && d.times > c.limit {
		return fmt.Errorf("event %d was delivered %d times, and its tries cannot be counted: %w", d.seq, d.times, err)
	}
	return nil
}

// count notes how many tries of an event have failed.
func (c *counter) count(d delivery, failed uint64) {
	if c != nil {
		c.mu.Lock()
		c.failed[d.seq] = failed
		c.mu.Unlock()
	}
}

// handled forgets the tries of an event.
func (c *counter) handled(d delivery) {
	if c != nil {
		c.mu.Lock()
		delete(c.failed, d.seq)
		c.mu.Unlock()
	}
}

// end writes the tries of the event with which the next reader begins, without one that
// was interrupted. The handlers have returned.
func (c *counter) end(ctx context.Context) {
	if c == nil {
		return
	}
	c.durable.mu.Lock()
	handedBack := slices.Sorted(maps.Keys(c.durable.window.unacked))
	c.durable.mu.Unlock()
	if len(handedBack) > 0 {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.durable.every)
		defer cancel()
		_ = c.write(ctx, tries{Seq: handedBack[0], Failed: c.failed[handedBack[0]]}) // or the next reader tries it once more
	}
}

// errNotEdited is the error for a user who may not edit the consumer.
var errNotEdited = errors.New("this user may not edit the consumer")

func (c *counter) write(ctx context.Context, t tries) error {
	text, err := json.Marshal(t)
	if err != nil {
		return err
	}
	ctx, release := c.durable.client.denials.guard(ctx, c.durable.consumer.CachedInfo().Name)
	defer release()
	info, err := c.durable.consumer.Info(ctx)
	if err != nil {
		return err
	}
	if info.Config.Metadata == nil {
		info.Config.Metadata = make(map[string]string)
	}
	info.Config.Metadata[schema.ConsumerTries] = string(text)
	_, err = c.durable.client.js.UpdateConsumer(ctx, info.Stream, info.Config)
	if cause := c.durable.client.denials.cause(ctx, err); cause != nil {
		return fmt.Errorf("%w: %w", errNotEdited, cause)
	}
	if refused, ok := errors.AsType[*jetstream.APIError](err); ok && refused.Code == 400 {
		return fmt.Errorf("%w: %w", errNotEdited, err)
	}
	return err
}
