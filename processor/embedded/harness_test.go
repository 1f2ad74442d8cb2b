package embedded_test

import (
	"cmp"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/lapsedb/lapse/processor/embedded"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/attack"
	"github.com/lapsedb/lapse/test/harness"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	db   = schema.DatabaseName("main")
	log  = "LAPSE_main"
	muts = "LAPSE_main_MUTATIONS"
)

var eventually = harness.Eventually

func appendTo(tail string) string { return db.Append() + attack.Secret + "." + tail }

// fixture is a server with the two streams, some events in the log, and the
// three kinds of connection.
type fixture struct {
	*embedded.Server
	attack.Log // as the processor
	dir        string
	log        *nats.Conn // the processor's
	service    *nats.Conn
	client     *nats.Conn // without credentials
}

// newServers calls test with a server, and with one that has several gates.
func newServers(t *testing.T, test func(t *testing.T, f *fixture)) {
	t.Helper()
	t.Parallel()
	for _, more := range []int{0, 2} {
		t.Run(fmt.Sprint(1+more, " gates"), func(t *testing.T) {
			t.Parallel()
			f := newServer(t)
			for range more {
				end, err := f.OpenGate()
				check(t, err)
				t.Cleanup(end)
			}
			test(t, f)
		})
	}
}

func newServer(t *testing.T) *fixture {
	t.Helper()
	return newServerWith(t, embedded.Options{})
}

// start starts a server until the end of the test if not before, with a store and the
// database main if the options do not say.
func start(t *testing.T, o embedded.Options) *embedded.Server {
	t.Helper()
	if o.StoreDir == "" {
		o.StoreDir = t.TempDir()
	}
	o.Listen = cmp.Or(o.Listen, "127.0.0.1:-1")
	o.Databases = []schema.DatabaseName{db}
	s, err := embedded.Start(o)
	check(t, err)
	t.Cleanup(s.Shutdown)
	return s
}

// newServerWith is newServer with more options.
func newServerWith(t *testing.T, o embedded.Options) *fixture {
	t.Helper()
	f := &fixture{dir: t.TempDir(), Log: attack.Log{DB: db}}
	o.StoreDir = f.dir
	f.Server = start(t, o)
	f.log = connected(t)(f.ConnectLog())
	f.service = connected(t)(f.ConnectService(quiet))
	f.client = connected(t)(f.dial())
	f.JS = jetStream(t, f.log)
	f.Create(t, f.JS, 1)
	return f
}

// quiet keeps refusals by the server, which the tests provoke, from being printed.
var quiet = nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})

// dial connects without credentials.
func (f *fixture) dial(opts ...nats.Option) (*nats.Conn, error) {
	return nats.Connect(f.URL(), append([]nats.Option{quiet, nats.Timeout(patience)}, opts...)...)
}

// untouched fails the test if an attack had an effect. It waits long enough for an
// indirect one.
func (f *fixture) untouched(t *testing.T) {
	t.Helper()
	f.client.Flush()
	for range 3 {
		time.Sleep(50 * time.Millisecond)
		f.Unchanged(t, "the attack")
	}
}

func ctx(t *testing.T) context.Context {
	c, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return c
}

// startLog starts a server with the streams, until the end of the test if not before, and
// connects to it as the processor does.
func startLog(t *testing.T, o embedded.Options) (*embedded.Server, *nats.Conn, jetstream.JetStream) {
	t.Helper()
	s := start(t, o)
	nc := connected(t)(s.ConnectLog())
	js := jetStream(t, nc)
	(&attack.Log{DB: db}).CreateStreams(t, js, 1)
	return s, nc, js
}

var check, must, jetStream = harness.Check, harness.Must, harness.JetStream

// subscribe handles what is sent to a subject, from now on.
func subscribe(t *testing.T, nc *nats.Conn, subject string, handle nats.MsgHandler) {
	t.Helper()
	_, err := nc.Subscribe(subject, handle)
	check(t, err)
	check(t, nc.Flush())
}

// connect is dial until the end of the test.
func (f *fixture) connect(t *testing.T, opts ...nats.Option) *nats.Conn {
	t.Helper()
	return connected(t)(f.dial(opts...))
}

// connected returns a connection that is there until the end of the test.
func connected(t *testing.T) func(*nats.Conn, error) *nats.Conn {
	return func(nc *nats.Conn, err error) *nats.Conn {
		t.Helper()
		check(t, err)
		t.Cleanup(nc.Close)
		return nc
	}
}
