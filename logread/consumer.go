package logread

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// Heartbeat is the usual interval in which the server reports that a consumer lives.
	Heartbeat = 2 * time.Second

	pullExpires = 30 * time.Second
	ackPrefix   = "$JS.ACK."

	// arrived is how many messages that NATS pushes are held ready; the others wait in
	// nats.go.
	arrived = 1000

	// maxStalls is the number of heartbeats for which a consumer may wait for flow control.
	maxStalls = 4
)

// ErrStalled means that the server does not receive the answers to flow control.
var ErrStalled = errors.New("flow control is not answered")

// Options say what a Consumer reads, and how.
type Options struct {
	// Config has the name, the first sequence, the filters and the inactive threshold; Open
	// sets the rest.
	Config jetstream.ConsumerConfig

	// Messages and Bytes limit what is requested and not yet read; one request asks for
	// half. If Messages is 0, NATS pushes the messages to an inbox and flow control limits
	// them: an account that imports JetStream's API may not pull from a consumer whose name
	// is random.
	Messages, Bytes int

	// Heartbeat is the interval in which the server reports that the consumer lives. The
	// consumer counts as lost after two and a half of them without a message.
	Heartbeat time.Duration
}

// Consumer reads a stream in order, like an ordered consumer of nats.go. But nats.go treats
// an empty message with a Status header, which publishers can set, as a status of
// JetStream: it drops the message again and again and never reads past it. A Consumer
// recognizes a message by its acknowledgement subject, which only JetStream sets.
//
// It does not go on after a gap: open another one after the last message. One goroutine
// calls Next and Waiting; any may call Close. The protocol with the server, by message:
//
//   - a message of the stream has a reply subject $JS.ACK.…, with a number that counts the
//     consumer's deliveries. A number that is not the next one means that a message was
//     lost on the way.
//   - a status 100 without a reply is a heartbeat. It names the last delivery, which must
//     be the last one that came.
//   - a status 100 with a reply is flow control: the server waits for the answer.
//   - 408 and 409 end a pull, and say how much of it was not sent.
type Consumer struct {
	described
	nc       *nats.Conn
	sub      *nats.Subscription
	messages chan *nats.Msg
	closed   chan struct{}
	status   chan nats.Status // a reconnect, or the end of the connection
	silence  *time.Timer
	patience time.Duration // without a heartbeat

	next, request string // subject and body of a pull
	batch         int    // messages of a pull, 0 if NATS pushes
	requested     int    // messages that may still arrive

	delivered uint64
	stalls    int // heartbeats since the last message at which the consumer waited for flow control
}

// described is a consumer of package jetstream that pulls, or one to which NATS pushes.
type described interface {
	Info(context.Context) (*jetstream.ConsumerInfo, error)
	CachedInfo() *jetstream.ConsumerInfo
}

// Open creates a consumer of a stream and begins to read. ctx bounds only this call. The
// caller deletes the consumer in the end, also after an error: the reply may be late.
func Open(ctx context.Context, s Stream, o Options) (*Consumer, error) {
	c := &Consumer{nc: s.JS.Conn(), closed: make(chan struct{}), patience: o.Heartbeat * 5 / 2, batch: (o.Messages + 1) / 2}
	c.silence, c.status = time.NewTimer(c.patience), c.nc.StatusChanged(nats.CONNECTED, nats.CLOSED)
	err := c.create(ctx, s, o)
	if err == nil {
		err = c.pull()
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// create subscribes to an inbox, and creates a consumer that delivers to it.
func (c *Consumer) create(ctx context.Context, s Stream, o Options) (err error) {
	inbox, config := c.nc.NewInbox(), o.Config
	config.DeliverPolicy, config.OptStartSeq = jetstream.DeliverByStartSequencePolicy, max(config.OptStartSeq, 1)
	config.AckPolicy, config.MemoryStorage, config.Replicas = jetstream.AckNonePolicy, true, 1
	if c.batch == 0 {
		c.messages = make(chan *nats.Msg, arrived)
		// A subscription without a callback drops messages beyond a fixed number, however
		// small they are.
		if c.sub, err = c.nc.Subscribe(inbox, c.receive); err == nil {
			err = c.sub.SetPendingLimits(-1, -1)
		}
		if err == nil {
			config.DeliverSubject, config.FlowControl, config.IdleHeartbeat = inbox, true, o.Heartbeat
			c.described, err = s.JS.CreatePushConsumer(ctx, s.Name, config)
		}
		return err
	}
	c.messages = make(chan *nats.Msg, 2*o.Messages)
	if c.sub, err = c.nc.ChanSubscribe(inbox, c.messages); err != nil {
		return err
	}
	body, err := json.Marshal(map[string]any{"batch": c.batch, "max_bytes": o.Bytes / 2, "expires": pullExpires, "idle_heartbeat": o.Heartbeat})
	if err != nil {
		return err
	}
	c.next, c.request = API(s.JS)+"CONSUMER.MSG.NEXT."+s.Name+"."+config.Name, string(body)
	c.described, err = s.JS.CreateConsumer(ctx, s.Name, config)
	return err
}

// receive passes on a message that NATS pushes. It blocks while the channel is full:
// nats.go holds the others, and flow control limits them.
func (c *Consumer) receive(m *nats.Msg) {
	select {
	case c.messages <- m:
	case <-c.closed:
	}
}

// pull requests messages while less than half of them may still arrive. So one request is
// always under way while the messages of the other are read.
func (c *Consumer) pull() error {
	for c.batch > 0 && c.requested <= c.batch {
		if err := c.nc.PublishRequest(c.next, c.sub.Subject, []byte(c.request)); err != nil {
			return err
		}
		c.requested += c.batch
	}
	return nil
}

// Waiting returns how many messages have arrived and wait for Next; more may have arrived
// if NATS pushes them.
func (c *Consumer) Waiting() int { return len(c.messages) }

// Next waits for a message and returns it with its sequence. It fails with ctx's error when
// ctx is done, with ErrStalled, and with nats.ErrConnectionClosed. Any other error means
// that messages may be missing: some were dropped on the way, the connection was lost, or
// the consumer is gone.
func (c *Consumer) Next(ctx context.Context) (seq uint64, m *nats.Msg, err error) {
	for {
		if err := c.pull(); err != nil {
			return 0, nil, err
		}
		if m, err = c.arrive(ctx); err != nil {
			return 0, nil, err
		}
		if !strings.HasPrefix(m.Reply, ackPrefix) {
			if err := c.control(m); err != nil {
				return 0, nil, err
			}
			continue
		}
		meta, err := m.Metadata()
		if err != nil {
			return 0, nil, err
		}
		if c.delivered++; meta.Sequence.Consumer != c.delivered {
			return 0, nil, fmt.Errorf("received message %d, expected %d", meta.Sequence.Consumer, c.delivered)
		}
		c.stalls = 0
		c.requested--
		return meta.Sequence.Stream, m, nil
	}
}

// arrive waits for a message of the stream or of JetStream itself.
func (c *Consumer) arrive(ctx context.Context) (*nats.Msg, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case m := <-c.messages:
		return m, nil
	default:
	}
	c.silence.Reset(c.patience) // only while the caller waits: it may be slow
	select {
	case m := <-c.messages:
		return m, nil
	case status := <-c.status:
		if status == nats.CLOSED {
			return nil, nats.ErrConnectionClosed
		}
		return nil, errors.New("the connection was lost")
	case <-c.silence.C:
		return nil, fmt.Errorf("no heartbeat of JetStream for %s", c.patience)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// control handles a message of JetStream itself. An error means that messages are missing
// or that the consumer cannot continue.
func (c *Consumer) control(m *nats.Msg) error {
	if sent, err := strconv.ParseUint(m.Header.Get("Nats-Last-Consumer"), 10, 64); err == nil && sent > c.delivered {
		return fmt.Errorf("received %d of %d messages", c.delivered, sent)
	}
	status, stalled := m.Header.Get("Status"), m.Header.Get("Nats-Consumer-Stalled")
	switch {
	case status == "100" && m.Reply != "": // flow control
		return m.Respond(nil)
	case status == "100" && stalled != "":
		if c.stalls++; c.stalls > maxStalls {
			return ErrStalled
		}
		return c.nc.Publish(stalled, nil)
	case status == "100": // heartbeat
		return nil
	case status == "408" || status == "409": // expired, or the next message exceeds the bytes that remain
		if unsent, err := strconv.Atoi(m.Header.Get("Nats-Pending-Messages")); err == nil {
			c.requested -= unsent
			return nil
		}
	}
	return fmt.Errorf("JetStream: status %s %s", status, m.Header.Get("Description"))
}

// Close ends the subscription. The consumer remains: see Open.
func (c *Consumer) Close() {
	close(c.closed)
	if c.sub != nil {
		_ = c.sub.Unsubscribe() // or the connection is closed
	}
	c.silence.Stop()
	c.nc.RemoveStatusListener(c.status)
}
