package bench

import (
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/test/harness"
)

// publishAhead is the maximum number of messages in flight.
const publishAhead = 4096

// publisher publishes to JetStream and checks the acknowledgements later.
type publisher struct {
	b      *testing.B
	js     jetstream.JetStream
	failed atomic.Pointer[error]
}

func publishTo(b *testing.B, nc *nats.Conn) *publisher {
	b.Helper()
	p := &publisher{b: b}
	p.js = harness.JetStream(b, nc, jetstream.WithPublishAsyncMaxPending(publishAhead),
		jetstream.WithPublishAsyncErrHandler(func(_ jetstream.JetStream, _ *nats.Msg, err error) { p.failed.Store(&err) }))
	return p
}

func (p *publisher) publish(m *nats.Msg) {
	if _, err := p.js.PublishMsgAsync(m, jetstream.WithStallWait(timeout)); err != nil {
		p.b.Fatal(err)
	}
}

// wait waits until all published messages are acknowledged.
func (p *publisher) wait() {
	p.b.Helper()
	<-p.js.PublishAsyncComplete()
	if err := p.failed.Load(); err != nil {
		p.b.Fatal(*err)
	}
}
