package embedded_test

import (
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
				if err != nil {
					t.Fatal(err)
				}
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

// newServerWith is newServer with more options.
func newServerWith(t *testing.T, o embedded.Options) *fixture {
	t.Helper()
	f := &fixture{dir: t.TempDir(), Log: attack.Log{DB: db}}
	o.StoreDir, o.Listen, o.Databases = f.dir, "127.0.0.1:-1", []schema.DatabaseName{db}
	var err error
	if f.Server, err = embedded.Start(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Shutdown)
	must := func(nc *nats.Conn, err error) *nats.Conn {
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
	f.log = must(f.ConnectLog())
	f.service = must(f.ConnectService(quiet))
	f.client = must(f.dial())
	if f.JS, err = jetstream.New(f.log); err != nil {
		t.Fatal(err)
	}
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
	s, err := embedded.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Shutdown)
	nc, err := s.ConnectLog()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	(&attack.Log{DB: db}).CreateStreams(t, js, 1)
	return s, nc, js
}
