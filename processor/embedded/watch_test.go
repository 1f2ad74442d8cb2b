package embedded_test

import (
	"bytes"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/test/flood"
)

// While a service has no time to read, those who send more and more are cut off
// before the service is: what others asked it is there when it goes on.
func TestSenderIsCutOff(t *testing.T) {
	f := newServer(t)
	sub, err := f.service.Subscribe(db.API()+">", func(m *nats.Msg) { _ = m.Respond([]byte("here")) })
	if err != nil {
		t.Fatal(err)
	}
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		t.Fatal(err)
	}
	if err := f.service.Flush(); err != nil {
		t.Fatal(err)
	}
	if _, err := f.client.Request(db.API()+"status", nil, patience); err != nil {
		t.Fatal(err)
	}
	busy := make(chan struct{})
	goOn := sync.OnceFunc(func() { close(busy) })
	t.Cleanup(goOn)
	// It takes a little now and then: one that takes nothing for 10 s, which is not
	// long where all of this is slow, NATS cuts off itself.
	f.service.Opts.InProcessServer.(interface{ Throttle(func()) }).Throttle(func() {
		select {
		case <-busy:
		case <-time.After(time.Second):
		}
	})

	answered := make(chan error, 1)
	go func() {
		_, err := f.client.Request(db.API()+"status", nil, 2*patience)
		answered <- err
	}()
	c, err := flood.Dial(f.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	body := bytes.Repeat([]byte("x"), 1<<20)
	for end := time.Now().Add(patience); c.Send(db.API()+"status", body) == nil; {
		if time.Now().After(end) {
			t.Fatalf("%d MiB were sent to a service that does not read", c.Sent())
		}
	}
	if c.Sent() > 800 {
		t.Errorf("it was cut off after %d MiB", c.Sent())
	}
	goOn()
	if err := <-answered; err != nil {
		t.Errorf("another client was not answered: %v", err)
	}
	if n := f.service.Stats().Reconnects; n != 0 {
		t.Errorf("the service lost its connection %d times", n)
	}
}

// patience is how long a test waits for what has to come.
const patience = 30 * time.Second
