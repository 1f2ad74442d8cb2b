package processor

import (
	"context"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/machine"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/versus"
)

// publisher publishes asynchronously the subjects, headers and bodies that the writer
// would append, to a stream configured like the log, but without fence, decisions and
// folds. It makes the messages beforehand.
type publisher struct {
	b      *testing.B
	js     jetstream.JetStream
	prefix string
	store  *projections.Store
	decide *machine.Machine
	next   int
}

// publishAhead is the limit of unacknowledged messages: a higher one makes publishing no
// faster, a lower one slower.
const publishAhead = 4096

func startPublisher(b *testing.B) *publisher {
	b.Helper()
	p := &publisher{b: b, prefix: schema.DatabaseName("main").Append() + "K7Q2ZD5W3MBVX4TAHC6RNE."}
	p.js = versus.JetStream(b, versus.Connect(b, versus.StartServer(b, false)), jetstream.WithPublishAsyncMaxPending(publishAhead))
	_, err := p.js.CreateStream(context.Background(), eventlog.LogConfig("main", p.prefix))
	if err != nil {
		b.Fatal(err)
	}
	if p.store, err = projections.Open("projection", projections.Options{FS: vfs.NewMem()}); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = p.store.Close() })
	if p.decide, err = machine.NewMachine(p.store); err != nil {
		b.Fatal(err)
	}
	p.messages([]*schema.Mutation{schema.NewMutation("collection.create.bench", []byte(`{"defaultTtl":3600}`))})
	return p
}

// messages returns the messages that the writer would append for mutations.
func (p *publisher) messages(mutations []*schema.Mutation) []*nats.Msg {
	messages := make([]*nats.Msg, 0, len(mutations))
	for _, mu := range mutations {
		if _, err := p.decide.Decide(time.Now().UnixMilli(), mu); err != nil {
			p.b.Fatal(err)
		}
		for _, fact := range p.decide.Take() {
			m := &nats.Msg{Subject: p.prefix + fact.EventTokens(), Header: nats.Header{}, Data: fact.Body}
			fact.Headers(func(name, value string) { m.Header[name] = []string{value} })
			messages = append(messages, m)
		}
		if p.decide.Pending() >= machine.SimulationPending {
			p.fold()
		}
	}
	p.fold()
	return messages
}

func (p *publisher) fold() {
	if err := p.decide.Commit(p.decide.Seq()); err != nil {
		p.b.Fatal(err)
	}
}

// round publishes n messages and waits for all acknowledgements.
func (p *publisher) round(n int) versus.Rate {
	messages := p.messages(upserts(p.next, p.next+n))
	p.next += n
	clock := versus.Start()
	var last jetstream.PubAckFuture
	for _, m := range messages {
		var err error
		if last, err = p.js.PublishMsgAsync(m, jetstream.WithStallWait(time.Minute)); err != nil {
			p.b.Fatal(err)
		}
	}
	<-p.js.PublishAsyncComplete()
	rate := clock.Stop(len(messages))
	select {
	case <-last.Ok():
	case err := <-last.Err():
		p.b.Fatal(err)
	}
	return rate
}
