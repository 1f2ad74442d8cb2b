package lease

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// stuck is a JetStream whose publishes wait for a lock of the client, whatever their context
// is, as while it resolves names for a reconnect.
type stuck struct {
	jetstream.JetStream
	free chan struct{}
}

func (s stuck) PublishMsg(context.Context, *nats.Msg, ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	<-s.free
	return nil, nats.ErrConnectionClosed
}

func (s stuck) KeyValue(context.Context, string) (jetstream.KeyValue, error) {
	return nil, nats.ErrConnectionClosed
}

// TestExpireWithStuckClient: a term ends with its lease, even while the NATS client is stuck.
func TestExpireWithStuckClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, js := time.Now(), stuck{free: make(chan struct{})}
		const ttl = 5 * time.Second
		l := New(js, Config{Database: "main", TTL: ttl, Elapsed: func() time.Duration { return time.Since(began) }})
		l.hold(0)
		kept := make(chan error)
		go func() { kept <- l.Keep(t.Context()) }()
		if err := l.Expire(t.Context()); !errors.Is(err, ErrLeaseLost) || l.Held() {
			t.Errorf("%v, held: %t", err, l.Held())
		}
		if took := time.Since(began); took > ttl+minPoll {
			t.Errorf("it took %s", took)
		}
		close(js.free)
		if err := <-kept; !errors.Is(err, ErrLeaseLost) {
			t.Error(err)
		}
	})
}
