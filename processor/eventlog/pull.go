package eventlog

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/schema"
)

// Puller reads a stream in order, like an ordered consumer of nats.go. But nats.go treats
// an empty message with a Status header, which publishers can set, as a status of
// JetStream: it drops the message again and again and never reads past it. A Puller
// recognizes a message by its acknowledgement subject, which only JetStream sets.
type Puller struct {
	JS     jetstream.JetStream
	Stream string

	// Idle, if not nil, is called when all received messages have been visited.
	Idle func() error

	// FailFast fails within leaderPatience if no consumer can be created, for callers
	// that retry.
	FailFast bool

	// Messages and Bytes limit what is requested and not yet visited; one request asks
	// for half.
	Messages, Bytes int

	Began func() // called, if not nil, once a consumer is created and NATS lets this user pull
}

const (
	pullExpires   = 30 * time.Second
	pullHeartbeat = 2 * time.Second
	pullSilence   = 2*pullHeartbeat + time.Second // without a heartbeat: the consumer is lost
	// leaderPatience is the timeout of a retried request: a stream without a leader does
	// not reply at all.
	leaderPatience = time.Second
	consumerTTL    = 5 * time.Minute // without a pull
	ackPrefix      = "$JS.ACK."
)

// pullRequest is the body of JetStream's MSG.NEXT.
type pullRequest struct {
	Batch     int           `json:"batch"`
	MaxBytes  int           `json:"max_bytes"`
	Expires   time.Duration `json:"expires"`
	Heartbeat time.Duration `json:"idle_heartbeat"`
}

// Read visits the messages from sequence from on, as they arrive, until visit returns
// an error or ctx ends. It always returns an error: theirs, or its own.
func (p *Puller) Read(ctx context.Context, from uint64, visit func(seq uint64, m *nats.Msg) error) error {
	creating := ctx
	if p.FailFast {
		var cancel context.CancelFunc
		creating, cancel = context.WithTimeout(ctx, leaderPatience)
		defer cancel()
	}
	name := schema.ServerConsumer + rand.Text()
	nc := p.JS.Conn()
	// Also if the reply is late. Without waiting: an abandoned consumer expires.
	defer func() { _ = nc.Publish("$JS.API.CONSUMER.DELETE."+p.Stream+"."+name, nil) }()
	_, err := p.JS.CreateConsumer(creating, p.Stream, jetstream.ConsumerConfig{
		Name:              name,
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       max(from, 1),
		AckPolicy:         jetstream.AckNonePolicy,
		InactiveThreshold: consumerTTL,
		MemoryStorage:     true,
		Replicas:          1,
	})
	var api *jetstream.APIError
	if errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeMaximumConsumersLimit {
		return fmt.Errorf("the NATS server allows no more consumers of stream %s, and lapse needs one: "+
			"raise max_consumers, or remove those that nobody uses (nats consumer ls %[1]s, nats consumer rm): %w", p.Stream, err)
	}
	if err != nil {
		return err
	}
	inbox := nc.NewInbox()
	messages := make(chan *nats.Msg, 2*p.Messages)
	sub, err := nc.ChanSubscribe(inbox, messages)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }()
	lost := nc.StatusChanged(nats.CONNECTED) // a reconnect
	defer nc.RemoveStatusListener(lost)

	request, err := json.Marshal(pullRequest{(p.Messages + 1) / 2, p.Bytes / 2, pullExpires, pullHeartbeat})
	if err != nil {
		return err
	}
	requested := 0 // messages that may still arrive
	delivered := uint64(0)
	silence := time.NewTimer(pullSilence)
	defer silence.Stop()
	next := "$JS.API.CONSUMER.MSG.NEXT." + p.Stream + "." + name
	for first := true; ; first = false {
		for requested <= p.Messages/2 {
			if err := nc.PublishRequest(next, inbox, request); err != nil {
				return err
			}
			requested += (p.Messages + 1) / 2
		}
		if first {
			if err := p.began(next); err != nil {
				return err
			}
		}
		if p.Idle != nil && len(messages) == 0 {
			if err := p.Idle(); err != nil {
				return err
			}
		}
		var m *nats.Msg
		select {
		case m = <-messages:
		case <-lost:
			return errors.New("the connection was lost")
		case <-silence.C:
			return fmt.Errorf("no heartbeat of JetStream for %s", pullSilence)
		case <-ctx.Done():
			return ctx.Err()
		}
		silence.Reset(pullSilence)
		if len(m.Reply) <= len(ackPrefix) || m.Reply[:len(ackPrefix)] != ackPrefix {
			left, err := pullEnded(m)
			if err != nil {
				return err
			}
			requested -= left
			continue
		}
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		if delivered++; meta.Sequence.Consumer != delivered {
			return fmt.Errorf("received message %d, expected %d", meta.Sequence.Consumer, delivered)
		}
		requested--
		if err := visit(meta.Sequence.Stream, m); err != nil {
			return err
		}
	}
}

// began returns an error if NATS refuses pulls, which it does not answer. Otherwise it
// calls Began.
func (p *Puller) began(next string) error {
	_ = p.JS.Conn().FlushTimeout(leaderPatience) // or there will be no heartbeat
	if err := Refused(p.JS.Conn(), next); err != nil {
		return err
	}
	if p.Began != nil {
		p.Began()
	}
	return nil
}

// pullEnded returns the number of messages of a pull request that will not arrive,
// according to its status. An error means that the consumer cannot continue.
func pullEnded(m *nats.Msg) (left int, err error) {
	switch status := m.Header.Get("Status"); status {
	case "100": // heartbeat
		return 0, nil
	case "408", "409": // expired, or the next message exceeds the bytes left
		if pending := m.Header.Get("Nats-Pending-Messages"); pending != "" {
			return strconv.Atoi(pending)
		}
		fallthrough
	default:
		return 0, fmt.Errorf("JetStream: status %s %s", status, m.Header.Get("Description"))
	}
}
