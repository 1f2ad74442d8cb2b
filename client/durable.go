package client

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/schema"
)

const (
	defaultAckWait = 5 * time.Second

	// maxAckPending is the limit of unacknowledged messages. A pull requests at most
	// half: the next pull is answered while the messages of the last one are handled.
	maxAckPending = 1000
	maxGroup      = maxAckPending / 2

	// readers is the priority group of all readers of a durable. The server pins one of
	// them, and only the pinned reader gets messages.
	readers = "readers"

	// unpin is the prefix of a JetStream API subject.
	unpin = "CONSUMER.UNPIN."

	// notPermitted begins what the gate of lapse says to what clients may not do.
	notPermitted = "not permitted: "

	// poll is the interval of requests for the state of a consumer that another reader
	// may use.
	poll = 50 * time.Millisecond
)

// durable is the source of a feed whose position the server stores.
//
// It pulls messages in groups, ahead of the loop, and acknowledges each without waiting.
// Groups grow from one message while nothing is redelivered. So a message that crashes the
// process again and again is soon alone in flight, and only its own delivery count grows.
//
// Its window keeps the order of the log, also when a reader has crashed and when messages
// are lost on the way.
//
// Three goroutines share it: receive pulls, keep reports messages as in progress, and the
// loop calls next, done and close. mu guards the fields below it; wake and space each have
// one place, so a signal is never lost and never waits. Whoever changes the state under mu
// signals both.
type durable struct {
	client   *Client
	consumer jetstream.Consumer
	every    time.Duration // interval of in-progress reports
	end      uint64

	cancel  context.CancelFunc
	stopped sync.WaitGroup
	wake    chan struct{} // capacity 1, for next: the state has changed
	space   chan struct{} // capacity 1, for receive: the state has changed

	mu        sync.Mutex
	window    window
	confirmed time.Time // last time at which the server knew that this reader has its messages
	err       error     // why receive has ended
}

// openDurable returns the source of a durable, nil if there is nothing to read up to end.
// opening bounds the requests until then; the source itself lasts until close.
func (c *Client) openDurable(ctx, opening context.Context, f *feed, end uint64) (source, error) {
	consumer, err := c.durableConsumer(opening, f)
	if err != nil {
		return nil, err
	}
	info := consumer.CachedInfo()
	if f.untilNow && info.AckFloor.Stream >= end {
		return nil, nil
	}
	// Ends in close, which a loop reaches after its context is done.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	d := &durable{
		client: c, consumer: consumer, every: info.Config.AckWait / 3, cancel: cancel, wake: make(chan struct{}, 1), space: make(chan struct{}, 1),
		window: newWindow(info.Config.PriorityPolicy == jetstream.PriorityPolicyPinned), confirmed: time.Now(),
	}
	if f.untilNow {
		d.end = end
	}
	d.stopped.Go(func() { d.receive(ctx) })
	d.stopped.Go(func() { d.extend(ctx) })
	return d, nil
}

// durableConsumer returns the consumer, and creates it if it does not exist. It never
// changes an existing one, since another loop may read from it.
func (c *Client) durableConsumer(ctx context.Context, f *feed) (jetstream.Consumer, error) {
	stream, filters := c.database.LogStream(), f.filters(c.database)
	consumer, err := c.js.Consumer(ctx, stream, f.durable)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		var begin uint64
		if begin, err = c.begin(ctx, f); err != nil {
			return nil, err
		}
		config := f.consumer(c.database, begin)
		config.Durable, config.AckPolicy, config.MaxAckPending = f.durable, jetstream.AckExplicitPolicy, maxAckPending
		config.AckWait = cmp.Or(f.ackWait, defaultAckWait)
		config.PriorityPolicy, config.PriorityGroups, config.PinnedTTL = jetstream.PriorityPolicyPinned, []string{readers}, config.AckWait
		creating, cancel := context.WithTimeout(ctx, c.timeout) // or a lost reply would take all of ctx's time
		consumer, err = c.js.CreateConsumer(creating, stream, config)
		if cancel(); err != nil {
			// A concurrent first start may have created it, or the reply was lost.
			if existing, missing := c.js.Consumer(ctx, stream, f.durable); missing == nil {
				consumer, err = existing, nil
			}
		}
	}
	if errors.Is(err, jetstream.ErrNotPullConsumer) {
		return nil, ErrBadRequest.With("the consumer %q belongs to another program: choose another durable name", f.durable)
	}
	if err != nil {
		return nil, err
	}
	config := consumer.CachedInfo().Config
	pinned := config.PriorityPolicy == jetstream.PriorityPolicyPinned && slices.Equal(config.PriorityGroups, []string{readers})
	if config.AckPolicy != jetstream.AckExplicitPolicy || !pinned && (config.MaxAckPending != 1 || config.PriorityPolicy != jetstream.PriorityPolicyNone) {
		return nil, ErrBadRequest.With("the consumer %q belongs to another program: choose another durable name", f.durable)
	}
	remove := "delete the consumer if no loop reads it any more (nats consumer rm " + stream + " " + f.durable + ")"
	if had := filtersOf(c.database, config); !slices.Equal(had, canonical(c.database, filters)) {
		return nil, ErrBadRequest.With("the durable %q reads %.500s, and this reader selects %.500s: choose another durable name, or %s",
			f.durable, strings.Join(had, " "), strings.Join(filters, " "), remove)
	}
	if f.ackWait != 0 && f.ackWait != config.AckWait {
		return nil, ErrBadRequest.With("the durable %q has the ack wait %v, and this loop asks for %v: leave the option out, or %s", f.durable, config.AckWait, f.ackWait, remove)
	}
	return consumer, nil
}

// filtersOf returns the canonical filters of a consumer.
func filtersOf(db schema.DatabaseName, config jetstream.ConsumerConfig) []string {
	if len(config.FilterSubjects) > 0 {
		return canonical(db, config.FilterSubjects)
	}
	return canonical(db, []string{cmp.Or(config.FilterSubject, db.Events()+">")})
}

// canonical maps filters that choose the same events to one form: an event subject has
// two tokens after its prefix, so "orders.>" is "orders.*".
func canonical(db schema.DatabaseName, filters []string) []string {
	same := make([]string, 0, len(filters))
	for _, filter := range filters {
		if head, wildcard := strings.CutSuffix(filter, ">"); wildcard && head != db.Events() {
			filter = head + "*"
		} else if filter == db.Events()+"*.*" {
			filter = db.Events() + ">"
		}
		same = append(same, filter)
	}
	slices.Sort(same)
	return slices.Compact(same)
}

// receive pulls groups of messages until ctx is done or the consumer fails. What it does
// not expect to pass, such as a deleted consumer or a refused pull, ends the feed with an
// error that says what to do; everything else is tried again after poll.
func (d *durable) receive(ctx context.Context) {
	answered, began := false, time.Now()
	for size := 1; ; {
		if !d.waitForSpace(ctx, size) {
			return
		}
		received, bytes, redelivered, err := d.pull(ctx, size)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, jetstream.ErrConsumerDeleted), errors.Is(err, jetstream.ErrBadRequest), errors.Is(err, nats.ErrConnectionClosed):
			d.change(func() { d.err = err })
			return
		case err != nil && strings.Contains(err.Error(), notPermitted):
			_, why, _ := strings.Cut(err.Error(), notPermitted)
			d.change(func() {
				d.err = ErrUnavailable.With("pulls from the consumer %q are refused: %s", d.consumer.CachedInfo().Name, why)
			})
			return
		case d.client.importsLog() && !answered && errors.Is(err, nats.ErrNoResponders) && time.Since(began) > d.client.timeout:
			info := d.consumer.CachedInfo()
			d.change(func() {
				d.err = ErrUnavailable.With("nobody answers pulls from the consumer %q: import $JS.API.CONSUMER.MSG.NEXT.%s.%[1]s, as %[3]sCONSUMER.MSG.NEXT.%[2]s.%[1]s, from the account of the log (a service with response_type stream)",
					info.Name, info.Stream, d.client.api())
			})
			return
		case err != nil: // the server is unreachable, or another reader is pinned
			select {
			case <-ctx.Done():
				return
			case <-time.After(poll):
			}
		}
		answered = answered || !errors.Is(err, nats.ErrNoResponders)
		size = d.window.nextGroup(size, received, bytes, redelivered)
		if received == 0 && d.end != 0 {
			if info, err := d.consumer.Info(ctx); err == nil && info.AckFloor.Stream >= d.end {
				d.change(func() { d.err = io.EOF })
				return
			}
		}
	}
}

// pull requests a group and adds its messages as they arrive, until it is complete or the
// request expires, early enough to keep the reader pinned.
func (d *durable) pull(ctx context.Context, size int) (received, bytes int, redelivered bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, d.every*3/2)
	defer cancel()
	opts := []jetstream.FetchOpt{jetstream.FetchContext(ctx)}
	if d.window.pinned {
		opts = append(opts, jetstream.FetchPriorityGroup(readers))
	}
	batch, err := d.consumer.Fetch(size, opts...)
	if err != nil {
		return 0, 0, false, err
	}
	for msg := range batch.Messages() {
		received++
		delivered, err := deliveryOf(msg)
		if err != nil {
			return received, bytes, redelivered, err
		}
		bytes += len(delivered.data)
		redelivered = redelivered || delivered.times > 1
		d.change(func() { d.window.add(delivered) })
	}
	if err = batch.Error(); errors.Is(err, context.DeadlineExceeded) {
		err = nil
	}
	return received, bytes, redelivered, err
}

// change changes the state under the lock and wakes next and waitForSpace.
func (d *durable) change(state func()) {
	d.mu.Lock()
	state()
	d.mu.Unlock()
	signal(d.wake)
	signal(d.space)
}

// signal wakes whoever waits at c, or else lets the next wait end at once.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// waitForSpace waits until the next group may be pulled; false when ctx is done.
func (d *durable) waitForSpace(ctx context.Context, size int) bool {
	for {
		d.mu.Lock()
		space := d.window.hasSpace(size)
		d.mu.Unlock()
		if space {
			return ctx.Err() == nil
		}
		select {
		case <-ctx.Done():
			return false
		case <-d.space:
		}
	}
}

// next hands out the first message of the window, once it may (see window). While the
// window is unsettled it asks for the consumer's state, every poll. After two intervals
// without contact to the server it drops what was not handed out: the ack wait is three, so
// another reader may have these messages soon.
func (d *durable) next(ctx context.Context) (delivery, error) {
	for {
		if err := ctx.Err(); err != nil {
			return delivery{}, err
		}
		d.mu.Lock()
		if time.Since(d.confirmed) > 2*d.every {
			// The server may have redelivered the messages to another reader meanwhile.
			d.window.drop()
			d.confirmed = time.Now()
			signal(d.space)
		}
		first, ok := d.window.take()
		waits, err := len(d.window.ready) > 0, d.err
		d.mu.Unlock()
		if ok {
			return first, nil
		}
		var again <-chan time.Time
		switch {
		case waits:
			if first, ok, err := d.first(ctx); ok || err != nil {
				return first, err
			}
			again = time.After(poll)
		case err != nil:
			return delivery{}, err
		}
		select {
		case <-ctx.Done():
		case <-d.wake:
		case <-again:
		}
	}
}

// first returns the first message of an unsettled window if it may be handed out. Errors
// leave that open, to ask again, but for nats.ErrPermissionViolation, with which it fails.
func (d *durable) first(ctx context.Context) (m delivery, ok bool, err error) {
	d.mu.Lock()
	q := d.window.inquire()
	d.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, d.every)
	defer cancel()
	info, err := d.consumer.Info(ctx)
	if err != nil {
		return delivery{}, false, nil
	}
	isFirst := q.follows(info.AckFloor)
	if !isFirst {
		isFirst, err = d.isNext(ctx, info.AckFloor.Stream, q.first.seq)
	}
	if errors.Is(err, nats.ErrPermissionViolation) {
		return delivery{}, false, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	defer signal(d.space)
	m, ok = d.window.settle(q, isFirst, info.NumAckPending)
	return m, ok, nil
}

// isNext reports whether seq is the first event after sequence after that the consumer
// chooses. It fails with nats.ErrPermissionViolation if this user may not ask.
func (d *durable) isNext(ctx context.Context, after, seq uint64) (bool, error) {
	guarded, release := d.client.denials.guard(ctx, messageGet)
	defer release()
	for _, subject := range filtersOf(d.client.database, d.consumer.CachedInfo().Config) {
		next, err := d.client.nextOf(guarded, after, subject)
		if err != nil || next != 0 && next < seq {
			return false, d.client.denied(guarded, err, d.client.noLog())
		}
	}
	return true, nil
}

// extend extends the ack wait of the messages: a slow loop body keeps its events, and only a
// vanished reader loses them.
func (d *durable) extend(ctx context.Context) {
	tick := time.NewTicker(d.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		at := time.Now()
		d.mu.Lock()
		held := slices.Collect(maps.Values(d.window.unacked))
		d.mu.Unlock()
		for _, delivered := range held {
			_ = delivered.acks.InProgress() // if the report is lost, the server redelivers the event
		}
		if len(held) == 0 || d.flush(ctx) == nil {
			d.mu.Lock()
			d.confirmed = at
			d.mu.Unlock()
		}
	}
}

// flush waits until the server has what was sent before.
func (d *durable) flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, d.every)
	defer cancel()
	return d.client.nc.FlushWithContext(ctx)
}

// done acknowledges a message. It leaves the window first: an acknowledgement that is lost
// leads to a redelivery, which is then a new message of the window.
func (d *durable) done(delivered delivery) error {
	d.change(func() { d.window.remove(delivered.seq) })
	return delivered.acks.Ack()
}

// close gives back what was not handled, so that another reader, or the next start, has it
// at once instead of after the ack wait. The order counts: first the messages in transit
// arrive, then receive ends, then the pin is given up, and only then the messages go back.
func (d *durable) close() {
	ctx := context.Background()
	for deadline := time.Now().Add(d.every); time.Now().Before(deadline); {
		// The server redelivers a message in transit only after the ack wait.
		if d.arrived(ctx) {
			break
		}
		select {
		case <-d.wake:
		case <-time.After(poll / 10):
		}
	}
	d.cancel()
	d.stopped.Wait()
	if d.window.pin != "" {
		// Without the unpin, the next reader would wait until the pin expires. It also
		// ends pulls of the old pin: jetstream closes a batch before it unsubscribes, so
		// such a pull could receive the messages returned below, and lose them.
		ctx, cancel := context.WithTimeout(ctx, d.every)
		info := d.consumer.CachedInfo()
		_, _ = d.client.nc.RequestWithContext(ctx, d.client.api()+unpin+info.Stream+"."+info.Name, []byte(`{"group":"`+readers+`"}`))
		cancel()
	}
	for _, seq := range slices.Sorted(maps.Keys(d.window.unacked)) {
		_ = d.window.unacked[seq].acks.Nak() // redelivered at once, not after the ack wait
	}
	_ = d.flush(ctx) // before the process ends
}

// arrived reports whether all messages that the server has sent have been received.
func (d *durable) arrived(ctx context.Context) bool {
	d.mu.Lock()
	own, settled := len(d.window.unacked), d.window.settled
	d.mu.Unlock()
	if !settled {
		return true // pending messages may belong to other readers
	}
	ctx, cancel := context.WithTimeout(ctx, d.every)
	defer cancel()
	info, err := d.consumer.Info(ctx)
	return err != nil || info.NumAckPending <= own
}
