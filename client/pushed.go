package client

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// defaultHeartbeat is the interval in which the server reports that a push consumer lives.
// A reader makes its consumer again after twice this time of silence.
const defaultHeartbeat = 2 * time.Second

// maxStalls is the number of heartbeats for which a consumer may wait for flow control.
const maxStalls = 4

// pushed is the source of a feed without a stored position for an account that imports
// the API of the log: pulls are imported for each consumer by its name, and the names of
// such readers are random. NATS pushes the messages to an inbox instead. Flow control
// bounds what waits there. After a gap, or silence, the consumer is made again after the
// last message.
type pushed struct {
	client *Client
	ctx    context.Context
	config jetstream.ConsumerConfig
	resets int // left since the last message, below 0 for no limit

	last    uint64 // sequence of the last message, 0 before the first one
	number  uint64 // of the last message, counted by the consumer
	stalls  int    // heartbeats since, at which the consumer waited for flow control
	release func() bool

	mu    sync.Mutex
	sub   *nats.Subscription
	info  *jetstream.ConsumerInfo // nil while there is no consumer
	ended bool
}

// openPushed is openOrdered with a consumer of this configuration.
func (c *Client) openPushed(ctx, opening context.Context, config jetstream.ConsumerConfig, untilNow bool) (*pushed, error) {
	config.AckPolicy, config.FlowControl, config.IdleHeartbeat = jetstream.AckNonePolicy, true, c.heartbeat
	config.InactiveThreshold, config.MemoryStorage, config.Replicas = inactive, true, 1
	p := &pushed{client: c, ctx: ctx, config: config, resets: -1}
	if untilNow {
		p.resets = maxResets
	}
	if err := p.open(opening); err != nil {
		p.end()
		return nil, err
	}
	p.release = context.AfterFunc(ctx, p.end) // the body of the loop may not return
	return p, nil
}

// open creates a consumer, and waits until the server knows who listens to it.
func (p *pushed) open(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return context.Canceled
	}
	c := p.client
	inbox := c.nc.NewInbox()
	sub, err := c.nc.SubscribeSync(inbox)
	if err == nil {
		err = sub.SetPendingLimits(-1, -1) // flow control limits them
	}
	if err != nil {
		return err
	}
	p.sub, p.number, p.stalls = sub, 0, 0
	config := p.config
	config.Name, config.DeliverSubject = readerName(), inbox
	if p.last != 0 {
		config.DeliverPolicy, config.OptStartSeq, config.OptStartTime = jetstream.DeliverByStartSequencePolicy, p.last+1, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	consumer, err := reader(c, ctx, func(ctx context.Context) (jetstream.PushConsumer, error) {
		return c.js.CreatePushConsumer(ctx, c.database.LogStream(), config)
	})
	if err != nil {
		return err
	}
	p.info = consumer.CachedInfo()
	for info := p.info; !info.PushBound; {
		select {
		case <-ctx.Done():
			return c.unheard(ctx)
		case <-time.After(poll):
		}
		if info, err = consumer.Info(ctx); err != nil {
			return cmp.Or(c.unheard(ctx), err)
		}
	}
	return nil
}

// unheard returns the error of a consumer whose messages nobody can receive, once ctx has
// ended because of its deadline.
func (c *Client) unheard(ctx context.Context) error {
	if !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return nil
	}
	return ErrUnavailable.With("the log is not delivered to the inboxes of this connection (%s>): import that subject as a stream from the account of the log, or connect with the inbox prefix that is imported (--inbox-prefix, inbox_prefix of a NATS context, nats.CustomInboxPrefix)", c.denials.inboxes)
}

func (p *pushed) next(ctx context.Context) (delivery, error) {
	for {
		d, ok, err := p.receive(ctx)
		switch {
		case ctx.Err() != nil:
			return delivery{}, ctx.Err()
		case ok:
			return d, nil
		case errors.Is(err, errGap):
			err = p.reset(ctx)
		}
		if err != nil {
			return delivery{}, err
		}
	}
}

// errGap is the error for messages that are missing, or for silence.
var errGap = errors.New("messages are missing")

// receive waits for a message. It is not ok if that is one for the reader itself.
func (p *pushed) receive(ctx context.Context) (d delivery, ok bool, err error) {
	waiting, cancel := context.WithTimeout(ctx, 2*p.client.heartbeat)
	defer cancel()
	m, err := p.sub.NextMsgWithContext(waiting)
	if errors.Is(err, context.DeadlineExceeded) {
		err = errGap
	}
	if err != nil {
		return d, false, err
	}
	if m.Header.Get("Status") != "" {
		return d, false, p.control(m)
	}
	meta, err := m.Metadata()
	if err != nil {
		return d, false, err
	}
	if meta.Sequence.Consumer != p.number+1 {
		return d, false, errGap
	}
	p.stalls = 0
	p.last, p.number = meta.Sequence.Stream, meta.Sequence.Consumer
	if p.resets >= 0 {
		p.resets = maxResets
	}
	return delivery{
		subject: m.Subject, headers: m.Header, data: m.Data,
		seq: p.last, number: p.number, times: meta.NumDelivered,
	}, true, nil
}

// control answers flow control, and returns errGap if the server has sent more messages
// than have arrived.
func (p *pushed) control(m *nats.Msg) error {
	if sent, err := strconv.ParseUint(m.Header.Get("Nats-Last-Consumer"), 10, 64); err == nil && sent > p.number {
		return errGap
	}
	if m.Reply != "" {
		return m.Respond(nil)
	}
	stalled := m.Header.Get("Nats-Consumer-Stalled")
	if stalled == "" {
		return nil
	}
	if p.stalls++; p.stalls > maxStalls {
		stream := p.client.database.LogStream()
		return ErrUnavailable.With("the log stops, since flow control is not answered: import $JS.FC.%s.> from the account of lapse's clients, with a permission to publish there", stream)
	}
	return p.client.nc.Publish(stalled, nil)
}

// reset makes the consumer again. It tries until it succeeds, or there is no reset left:
// NATS and lapse restart.
func (p *pushed) reset(ctx context.Context) error {
	err := nats.ErrTimeout
	for ; p.resets != 0; p.resets-- {
		if !p.client.nc.IsConnected() && !p.client.nc.IsClosed() {
			return nil // receive waits for the connection
		}
		p.mu.Lock()
		p.stop()
		p.mu.Unlock()
		err = p.open(ctx)
		refused, ok := errors.AsType[*jetstream.APIError](err)
		if err == nil || ctx.Err() != nil || p.client.nc.IsClosed() || ok && refused.Code == 400 {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(p.client.heartbeat):
		}
	}
	return err
}

// stop deletes the consumer and unsubscribes. The caller holds mu.
func (p *pushed) stop() {
	if p.sub != nil {
		_ = p.sub.Unsubscribe() // or the connection is closed
	}
	if p.info != nil {
		p.client.drop(p.ctx, p.info)
		p.info = nil
	}
}

// end stops for good.
func (p *pushed) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended {
		p.ended = true
		p.stop()
	}
}

func (p *pushed) done(delivery) error { return nil }

func (p *pushed) close() {
	p.release()
	p.end()
}
