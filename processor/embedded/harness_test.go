package embedded_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/lapsedb/lapse/processor/embedded"
	"github.com/lapsedb/lapse/schema"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	db     = schema.DatabaseName("main")
	log    = "LAPSE_main"
	muts   = "LAPSE_main_MUTATIONS"
	secret = "K7Q2ZD5W3MBVX4TAHC6RNE"
)

func appendTo(tail string) string { return db.Append() + secret + "." + tail }

// fixture is a server with the two streams, some events in the log, and the
// three kinds of connection.
type fixture struct {
	*embedded.Server
	dir     string
	log     *nats.Conn // the processor's
	service *nats.Conn
	client  *nats.Conn          // without credentials
	js      jetstream.JetStream // over log
	before  string
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
	f := &fixture{dir: t.TempDir()}
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
	if f.js, err = jetstream.New(f.log); err != nil {
		t.Fatal(err)
	}
	createStreams(t, f.js)
	for i, tail := range []string{"orders.DocumentCreated", "orders.DocumentReplaced", "carts.DocumentCreated", "orders.DocumentExpired"} {
		m := nats.NewMsg(appendTo(tail))
		m.Header.Set("Lapse-Time", fmt.Sprint(1000+i))
		m.Header.Set("Nats-Expected-Last-Sequence", fmt.Sprint(i))
		m.Header.Set("Nats-Expected-Stream", log)
		if tail != "orders.DocumentExpired" {
			m.Data = fmt.Appendf(nil, `{"n":%d}`, i)
		}
		if _, err := f.js.PublishMsg(ctx(t), m); err != nil {
			t.Fatal(err)
		}
	}
	f.before = f.state(t)
	return f
}

// quiet keeps refusals by the server, which the tests provoke, from being printed.
var quiet = nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})

// dial connects without credentials.
func (f *fixture) dial(opts ...nats.Option) (*nats.Conn, error) {
	return nats.Connect(f.URL(), append([]nats.Option{quiet, nats.Timeout(patience)}, opts...)...)
}

func createStreams(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	for _, c := range []jetstream.StreamConfig{{
		Name:               log,
		Subjects:           []string{appendTo(">")},
		SubjectTransform:   &jetstream.SubjectTransformConfig{Source: appendTo(">"), Destination: db.Events() + ">"},
		Storage:            jetstream.FileStorage,
		AllowAtomicPublish: true,
		DenyDelete:         true,
	}, {
		Name:     muts,
		Subjects: []string{db.Mutations() + ">"},
		Storage:  jetstream.FileStorage,
	}} {
		if _, err := js.CreateOrUpdateStream(ctx(t), c); err != nil {
			t.Fatal(err)
		}
	}
}

// state returns everything that a client must not change: the streams, their
// configurations, and the content of the log, byte by byte.
func (f *fixture) state(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	l := f.js.ListStreams(ctx(t))
	for si := range l.Info() {
		cfg, _ := json.Marshal(si.Config)
		fmt.Fprintf(&b, "%s %s %s\n", si.Config.Name, si.Created, cfg)
	}
	if l.Err() != nil {
		t.Fatal(l.Err())
	}
	s, err := f.js.Stream(ctx(t), log)
	if err != nil {
		t.Fatalf("the log is gone: %v", err)
	}
	st := s.CachedInfo().State
	fmt.Fprintf(&b, "%d..%d\n", st.FirstSeq, st.LastSeq)
	for seq := uint64(1); seq <= st.LastSeq; seq++ {
		m, err := s.GetMsg(ctx(t), seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%d %s %v %s\n", seq, m.Subject, m.Header, m.Data)
	}
	return b.String()
}

// untouched fails the test if an attack had an effect. It waits long enough for an
// indirect one.
func (f *fixture) untouched(t *testing.T) {
	t.Helper()
	f.client.Flush()
	for range 3 {
		time.Sleep(50 * time.Millisecond)
		if now := f.state(t); now != f.before {
			t.Fatalf("changed from\n%s\nto\n%s", f.before, now)
		}
	}
}

// eventually waits until done, or fails the test after patience.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// mutations returns the last sequence of the mutations stream.
func (f *fixture) mutations(t *testing.T) uint64 {
	t.Helper()
	s, err := f.js.Stream(ctx(t), muts)
	if err != nil {
		t.Fatal(err)
	}
	return s.CachedInfo().State.LastSeq
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
	createStreams(t, js)
	return s, nc, js
}
