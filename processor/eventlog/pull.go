package eventlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/lapsedb/lapse/schema"
)

// puller reads a stream in order, as an ordered consumer of nats.go does but for
// one thing: that takes a message without a body and with a header Status for
// JetStream's own word, and drops it, again and again, so that nothing behind it
// is ever read. Headers are the publisher's. A message is what can be
// acknowledged, which only JetStream says.
type Puller struct {
	JS     jetstream.JetStream
	Stream string

	// idle, if there is one, is called when everything that came was visited.
	Idle func() error

	// impatient tries again rather than wait, for whoever reads for ever.
	Impatient bool

	// How much is asked for before it is visited, half of it at a time.
	Messages, Bytes int

	Began func() // called when the stream answers, if not nil
}

const (
	pullExpires   = 30 * time.Second
	pullHeartbeat = 2 * time.Second
	pullSilence   = 2*pullHeartbeat + time.Second // after which nobody answers any more
	// leaderPatience is how long JetStream may take to answer before it is asked
	// again: a stream without a leader says nothing, and does not say so either.
	leaderPatience = time.Second
	consumerLife   = 5 * time.Minute // of one that nobody pulls from
	acknowledge    = "$JS.ACK."
)

// pullRequest is what JetStream wants to be asked.
type pullRequest struct {
	Batch     int           `json:"batch"`
	MaxBytes  int           `json:"max_bytes"`
	Expires   time.Duration `json:"expires"`
	Heartbeat time.Duration `json:"idle_heartbeat"`
}

// read visits the messages from sequence from on, as they come, until visit
// returns an error or ctx ends; it returns that error, or what else happened.
func (p *Puller) Read(ctx context.Context, from uint64, visit func(seq uint64, m *nats.Msg) error) error {
	creating := ctx
	if p.Impatient {
		var cancel context.CancelFunc
		creating, cancel = context.WithTimeout(ctx, leaderPatience)
		defer cancel()
	}
	consumer, err := p.JS.CreateConsumer(creating, p.Stream, jetstream.ConsumerConfig{
		Name:              schema.ServerConsumer + nuid.Next(),
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       max(from, 1),
		AckPolicy:         jetstream.AckNonePolicy,
		InactiveThreshold: consumerLife,
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
	if p.Began != nil {
		p.Began()
	}
	name := consumer.CachedInfo().Name
	nc := p.JS.Conn()
	// Nobody waits for the answer: it goes by itself in a while.
	defer func() { _ = nc.Publish("$JS.API.CONSUMER.DELETE."+p.Stream+"."+name, nil) }()
	inbox := nc.NewInbox()
	messages := make(chan *nats.Msg, 2*p.Messages)
	sub, err := nc.ChanSubscribe(inbox, messages)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }()
	lost := nc.StatusChanged(nats.CONNECTED) // again, after it was lost
	defer nc.RemoveStatusListener(lost)

	request, err := json.Marshal(pullRequest{(p.Messages + 1) / 2, p.Bytes / 2, pullExpires, pullHeartbeat})
	if err != nil {
		return err
	}
	asked := 0 // messages that may still come
	delivered := uint64(0)
	silence := time.NewTimer(pullSilence)
	defer silence.Stop()
	for {
		for asked <= p.Messages/2 {
			if err := nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+p.Stream+"."+name, inbox, request); err != nil {
				return err
			}
			asked += (p.Messages + 1) / 2
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
			return fmt.Errorf("JetStream said nothing for %s", pullSilence)
		case <-ctx.Done():
			return ctx.Err()
		}
		silence.Reset(pullSilence)
		if len(m.Reply) <= len(acknowledge) || m.Reply[:len(acknowledge)] != acknowledge {
			left, err := pullEnded(m)
			if err != nil {
				return err
			}
			asked -= left
			continue
		}
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		if delivered++; meta.Sequence.Consumer != delivered {
			return fmt.Errorf("message %d came where %d was next", meta.Sequence.Consumer, delivered)
		}
		asked--
		if err := visit(meta.Sequence.Stream, m); err != nil {
			return err
		}
	}
}

// pullEnded reads JetStream's own word on a pull request: how many of its
// messages do not come. An error says that none will, of any.
func pullEnded(m *nats.Msg) (left int, err error) {
	switch status := m.Header.Get("Status"); status {
	case "100": // it is there
		return 0, nil
	case "408", "409": // it waited long enough, or the next one is too large for what is left
		if pending := m.Header.Get("Nats-Pending-Messages"); pending != "" {
			return strconv.Atoi(pending)
		}
		fallthrough
	default:
		return 0, fmt.Errorf("JetStream says %s %s", status, m.Header.Get("Description"))
	}
}
