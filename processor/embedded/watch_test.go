package embedded_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/processor/embedded"
	"github.com/lapsedb/lapse/test/attack"
)

// TestSenderIsCutOff: while a service has no time to read, clients that send too much are
// cut off before the service is, also those of an account that imports its subjects. It
// then answers the requests of the others.
func TestSenderIsCutOff(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "user.conf")
	if err := os.WriteFile(file, []byte(`
no_auth_user: guest
accounts { APP {
  users: [{ user: guest, password: guest }]
  imports: [{ service: { account: CLIENTS, subject: "lapse.main.api.>" } }]
} }`), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, config := range map[string]string{"CLIENTS": "", "APP": file} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testSenderIsCutOff(t, newServerWith(t, embedded.Options{Config: config}))
		})
	}
}

func testSenderIsCutOff(t *testing.T, f *fixture) {
	sub, err := f.service.Subscribe(db.API()+">", func(m *nats.Msg) { _ = m.Respond([]byte("here")) })
	check(t, err)
	check(t, sub.SetPendingLimits(-1, -1))
	check(t, f.service.Flush())
	must(t)(f.client.Request(db.API()+"status", nil, patience))
	busy := make(chan struct{})
	goOn := sync.OnceFunc(func() { close(busy) })
	t.Cleanup(goOn)
	// Read a little now and then: NATS itself cuts off a connection that reads nothing
	// for 10 s, which is not long on a slow machine.
	f.service.Opts.InProcessServer.(interface{ Throttle(func()) }).Throttle(func() {
		select {
		case <-busy:
		case <-time.After(time.Second):
		}
	})

	answered := make(chan error, 1)
	go func() {
		_, err := f.client.Request(db.API()+"status", nil, 20*patience)
		answered <- err
	}()
	c, err := attack.Dial(f.URL())
	check(t, err)
	defer c.Close()
	body := bytes.Repeat([]byte("x"), 1<<20)
	for end := time.Now().Add(10 * patience); c.Send(db.API()+"status", body) == nil; {
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

// TestSubscribersAreCutOff: however clients subscribe, the memory of subscriptions is
// bounded, and clients with few subscriptions keep theirs.
func TestSubscribersAreCutOff(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 3900)
	for name, subject := range map[string]string{
		"subjects": "_INBOX.%d.%d" + long, "queue groups": "_INBOX.%d.%d " + long, "tokens": "_INBOX.%d.%d" + strings.Repeat(".x", 5),
	} {
		t.Run(name, func(t *testing.T) {
			f := newServer(t)
			for range 100 {
				must(t)(f.client.SubscribeSync(f.client.NewInbox()))
			}
			before := heap()
			var cut atomic.Int64
			for n := range 60 {
				c, err := attack.Dial(f.URL())
				check(t, err)
				defer c.Close()
				for sid := range 2047 { // and one from Dial
					if err := c.Subscribe(fmt.Sprintf(subject, n, sid), 2+sid); err != nil {
						break
					}
				}
				if c.Ping() != nil {
					break
				}
				go func() { // until it is cut off
					for _, err := c.Read(); err == nil; _, err = c.Read() {
					}
					cut.Add(1)
				}()
				if cut.Load() > 0 {
					break
				}
			}
			eventually(t, "somebody is cut off", func() bool { return cut.Load() > 0 })
			eventually(t, "the heap has what subscriptions may take", func() bool { return heap()-before < 160<<20 })
			if _, err := f.client.Request("$JS.API.CONSUMER.NAMES."+log, nil, patience); err != nil || f.client.Stats().Reconnects > 0 {
				t.Errorf("a client with few subscriptions: %v, %+v", err, f.client.Stats())
			}
		})
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestSubscriptionLimits: a client gets an error for a subscription beyond the limits,
// and keeps the others.
func TestSubscriptionLimits(t *testing.T) {
	t.Parallel()
	f := newServer(t)
	for what, subscribe := range map[string]func(nc *nats.Conn) error{
		"maximum subscriptions exceeded": func(nc *nats.Conn) (err error) {
			for n := 0; n < 2049 && err == nil; n++ {
				_, err = nc.SubscribeSync(nc.NewInbox())
			}
			return err
		},
		"too many tokens": func(nc *nats.Conn) error {
			_, err := nc.SubscribeSync("_INBOX" + strings.Repeat(".x", 8))
			return err
		},
	} {
		reasons := make(chan error, 16)
		nc := f.connect(t, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { reasons <- err }))
		kept, err := nc.SubscribeSync(nc.NewInbox())
		check(t, err)
		check(t, subscribe(nc))
		select {
		case err := <-reasons:
			if !strings.Contains(strings.ToLower(err.Error()), what) {
				t.Errorf("the client got %v, want %s", err, what)
			}
		case <-time.After(patience):
			t.Errorf("no error about %s", what)
		}
		check(t, nc.PublishRequest("$JS.API.CONSUMER.NAMES."+log, kept.Subject, nil))
		if _, err := kept.NextMsg(patience); err != nil {
			t.Errorf("%s: what it had is gone: %v", what, err)
		}
	}
}

// patience is how long a test waits for an expected event.
const patience = 30 * time.Second
