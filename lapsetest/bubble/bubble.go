// Package bubble runs the whole of lapse, with an embedded NATS server and its
// JetStream, inside a testing/synctest bubble, for tests of programs that use
// the Go client:
//
//	func TestReminder(t *testing.T) {
//		bubble.Test(t, func(t *testing.T, s *bubble.Server) {
//			c := s.Client(t)
//			…
//			time.Sleep(30 * time.Minute) // passes at once
//			…
//		})
//	}
//
// Everything is real but the clock, which begins at midnight UTC of 2000-01-01,
// stands still while anything runs, and jumps to the next timer when all wait.
// So a test can wait for a deadline to the second, on a machine of any speed. Tests of
// documents and deadlines alone are simpler and faster with package lapsetest, which
// needs no NATS.
//
// # Limits
//
// The server has no listener, since time stands still while a goroutine waits for a
// socket: pass a connection or client to the program under test. Connections have all
// permissions. Other processes and network connections do not work in a bubble either.
//
// All goroutines of the test have to end before it does, including those of connections:
// use Connect and Client, which close them.
//
// nats.go keeps timers for all its connections in one place, and a timer may
// not pass into a bubble or out of it. So tests that use this package are not
// run in parallel with others of their package (Test refuses a test that is
// parallel), and no goroutine that is left from other tests, such as of a
// connection made in TestMain, may use NATS meanwhile. Packages are processes
// of their own, and run in parallel as usual.
//
// NATS and lapse wake up for background work every few seconds of simulated time: an hour
// takes a fraction of a second, a day seconds, a month minutes.
package bubble

import (
	"context"
	"log/slog"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats-server/v2/server/ats"
	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// Database is the name of the database that a Server serves.
const Database = "main"

// startTimeout bounds the start of the processor, in the bubble's time.
const startTimeout = time.Minute

// Server is a lapse server in a bubble.
type Server struct {
	nats      *server.Server
	dir       string
	options   processor.Options
	log       *nats.Conn
	service   *nats.Conn
	processor *processor.Processor // nil while it is stopped
}

// Test runs test in a bubble with a server of an empty database. test gets the bubble's
// t, see testing/synctest; the server logs its warnings and errors to it.
func Test(t *testing.T, test func(t *testing.T, s *Server)) {
	t.Helper()
	// Setenv panics in a parallel test.
	t.Setenv("LAPSE_BUBBLE", "1")
	// All NATS stores share one clock, which a store in a bubble must not start.
	ats.Register()
	defer ats.Unregister()
	forgetTimers()
	defer forgetTimers()
	synctest.Test(t, func(t *testing.T) {
		s := &Server{dir: t.TempDir()}
		s.options = processor.Options{
			Database:   schema.DatabaseName(Database),
			Dir:        "projection",
			Durability: processor.OS,
			Projection: projections.Options{FS: vfs.NewMem(), CacheBytes: 8 << 20, MemTableBytes: 4 << 20},
			Logger:     slog.New(slog.NewTextHandler(testLog{t}, &slog.HandlerOptions{Level: slog.LevelWarn})),
		}
		t.Cleanup(func() { s.shutdown(t) }) // runs after all cleanups of test
		s.start(t)
		test(t, s)
	})
}

// forgetTimers empties every sync.Pool by two garbage collections: nats.go pools timers.
func forgetTimers() {
	runtime.GC()
	runtime.GC()
}

func (s *Server) start(t *testing.T) {
	t.Helper()
	ns, err := server.NewServer(&server.Options{DontListen: true, JetStream: true, StoreDir: s.dir,
		MaxPayload: 4 << 20, NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	ns.Start()
	s.nats = ns
	s.log, s.service = s.connect(t), s.connect(t)
	s.Start(t)
}

// shutdown ends all goroutines, also after a failure.
func (s *Server) shutdown(t *testing.T) {
	t.Helper()
	s.Stop(t)
	if s.nats == nil {
		return
	}
	for _, nc := range []*nats.Conn{s.log, s.service} {
		if nc != nil {
			nc.Close()
		}
	}
	s.nats.Shutdown()
	s.nats.WaitForShutdown()
}

func (s *Server) connect(t *testing.T) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect("", nats.InProcessServer(s.nats), nats.MaxReconnects(-1), nats.ReconnectWait(250*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	return nc
}

// Connect returns a new connection to the NATS server, closed at the end of the test.
func (s *Server) Connect(t *testing.T) *nats.Conn {
	t.Helper()
	nc := s.connect(t)
	t.Cleanup(nc.Close)
	return nc
}

// Client returns a client of the database on a new connection, closed at the end of the
// test.
func (s *Server) Client(t *testing.T, opts ...client.Option) *client.Client {
	t.Helper()
	c, err := client.New(s.Connect(t), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Stop stops lapse as SIGTERM does, if it runs. NATS keeps running: requests have no
// responders, submitted mutations are stored, the feed can be read.
func (s *Server) Stop(t *testing.T) {
	t.Helper()
	if s.processor == nil {
		return
	}
	err := s.processor.Stop()
	s.processor = nil
	if err != nil {
		t.Error(err)
	}
}

// Start starts lapse again after Stop.
func (s *Server) Start(t *testing.T) {
	t.Helper()
	if s.processor != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	p, err := processor.Start(ctx, eventlog.Connections{Log: s.log, Service: s.service}, s.options)
	if err != nil {
		t.Fatal(err)
	}
	s.processor = p
}

// testLog writes the server's log to the test.
type testLog struct{ t *testing.T }

func (l testLog) Write(line []byte) (int, error) {
	l.t.Log(string(line))
	return len(line), nil
}
