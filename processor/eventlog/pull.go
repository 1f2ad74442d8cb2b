package eventlog

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/logread"
	"github.com/lapsedb/lapse/schema"
)

// Puller reads a stream in order, as logread.Consumer does, with what a processor needs
// besides: it says why NATS refuses a consumer or pulls, and tells when it has caught up.
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
	// leaderPatience is the timeout of a retried request: a stream without a leader does
	// not reply at all.
	leaderPatience = time.Second
	consumerTTL    = 5 * time.Minute // without a pull
)

// Read visits the messages from sequence from on, as they arrive, until visit returns an
// error or ctx ends. It always returns an error: theirs, or its own. visit and Idle are
// called on the caller's goroutine, one at a time.
func (p *Puller) Read(ctx context.Context, from uint64, visit func(seq uint64, m *nats.Msg) error) error {
	creating := ctx
	if p.FailFast {
		var cancel context.CancelFunc
		creating, cancel = context.WithTimeout(ctx, leaderPatience)
		defer cancel()
	}
	name := schema.ServerConsumer + rand.Text()
	subject := p.Stream + "." + name
	// Without waiting: an abandoned consumer expires.
	defer func() { _ = p.JS.Conn().Publish("$JS.API.CONSUMER.DELETE."+subject, nil) }()
	consumer, err := logread.Open(creating, logread.Stream{JS: p.JS, Name: p.Stream}, logread.Options{
		Config:   jetstream.ConsumerConfig{Name: name, OptStartSeq: from, InactiveThreshold: consumerTTL},
		Messages: p.Messages, Bytes: p.Bytes, Heartbeat: logread.Heartbeat,
	})
	if errors.Is(err, jetstream.ErrMaximumConsumersLimit) {
		return fmt.Errorf("the NATS server allows no more consumers of stream %s, and lapse needs one: "+
			"raise max_consumers, or remove those that nobody uses (nats consumer ls %[1]s, nats consumer rm): %w", p.Stream, err)
	}
	if err != nil {
		return err
	}
	defer consumer.Close()
	if err := p.began("$JS.API.CONSUMER.MSG.NEXT." + subject); err != nil {
		return err
	}
	for {
		if p.Idle != nil && consumer.Waiting() == 0 {
			if err := p.Idle(); err != nil {
				return err
			}
		}
		seq, m, err := consumer.Next(ctx)
		if err != nil {
			return err
		}
		if err := visit(seq, m); err != nil {
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
