package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/host"
	"github.com/lapsedb/lapse/test/harness"
)

// hang blocks the calls that match, from arming until the end of the test.
type hang struct {
	mu       sync.Mutex
	match    func(call string) bool // nil while it is not armed
	hanging  chan struct{}          // closed by the first call that blocks
	released chan struct{}
}

func (h *hang) arm(match func(call string) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.match = match
}

// call blocks while the call has to hang, and reports whether it did.
func (h *hang) call(what string) (hung bool) {
	h.mu.Lock()
	hung = h.match != nil && h.match(what)
	if hung {
		select {
		case <-h.hanging:
		default:
			close(h.hanging)
		}
	}
	h.mu.Unlock()
	if hung {
		<-h.released
	}
	return hung
}

// release unblocks all calls.
func (h *hang) release() {
	h.arm(nil)
	close(h.released)
}

// proxy forwards data between lapse and a NATS server. A connection stops at the first
// data that match.
func (h *hang) proxy(t *testing.T, to string) (url string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			upstream, err := net.Dial("tcp", strings.TrimPrefix(to, "nats://"))
			if err != nil {
				from.Close()
				continue
			}
			go h.pass(from, upstream)
			go h.pass(upstream, from)
		}
	}()
	return "nats://" + l.Addr().String()
}

func (h *hang) pass(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	buf := make([]byte, 1<<20)
	for {
		n, err := from.Read(buf)
		if h.call("nats " + string(buf[:n])) {
			return // the test has ended
		}
		if _, writeErr := to.Write(buf[:n]); err != nil || writeErr != nil {
			return
		}
	}
}

// lines is a stderr that may hang.
type lines struct {
	h    *hang
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.h.call("stderr " + string(p))
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// served is a `lapse serve` in this process.
type served struct {
	*hang
	t      *testing.T
	stderr *lines
	dir    string
	url    string // for clients
	app    *app
	end    context.CancelFunc // like a signal
	late   chan time.Time     // closed when stopTimeout has passed
	code   chan int
}

// serveHanging starts serve, with an external NATS server if asked, on the store and
// server of an earlier one if given. If match is not nil, calls hang from the beginning.
// At the end of the test they go on, and serve is waited for.
func serveHanging(t *testing.T, external bool, match func(call string) bool, earlier ...*served) *served {
	t.Helper()
	return serveHangingWith(t, nil, external, match, earlier...)
}

// serveHangingWith is serveHanging with more arguments.
func serveHangingWith(t *testing.T, more []string, external bool, match func(call string) bool, earlier ...*served) *served {
	t.Helper()
	h := &hang{match: match, hanging: make(chan struct{}), released: make(chan struct{})}
	s := &served{hang: h, t: t, stderr: &lines{h: h}, code: make(chan int, 1), late: make(chan time.Time)}
	if len(earlier) > 0 {
		s.dir, s.url = earlier[0].dir, earlier[0].url
	} else {
		s.dir = t.TempDir()
	}
	args := append([]string{"serve", "--store-dir", s.dir, "--durability", "os", "--retain", "1s", "--snapshot-every", "1s"}, more...)
	if external && s.url == "" {
		ns, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), MaxPayload: 4 << 20, NoLog: true, NoSigs: true})
		check(t, err)
		ns.Start()
		t.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
		s.url = ns.ClientURL()
	}
	if external {
		args = append(args, "--nats-url", h.proxy(t, s.url))
	} else {
		args = append(args, "--listen", "127.0.0.1:0", "--console", "off")
	}
	var ended sync.WaitGroup
	ready := make(chan string, 1)
	a := newApp(strings.NewReader(""), io.Discard, s.stderr)
	s.app, a.after = a, func(time.Duration) <-chan time.Time { return s.late }
	a.host = func(ctx context.Context, o host.Options) error {
		ended.Add(1)
		defer ended.Done()
		o.Processor.Projection.FS = errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
			h.call(fmt.Sprintf("file %v %s", op.Kind, op.Path))
			return nil
		}))
		events := o.Events
		o.Events = func(e host.Event) {
			events(e)
			switch e := e.(type) {
			case host.Doing:
				h.call("doing " + e())
			case host.Ready:
				ready <- e.URL
			}
		}
		return host.Run(ctx, o)
	}
	var ctx context.Context
	ctx, s.end = context.WithCancel(t.Context())
	go func() { s.code <- a.run(ctx, args) }()
	t.Cleanup(func() {
		s.end()
		h.release()
		ended.Wait()
	})
	if match == nil {
		select {
		case url := <-ready:
			if !external {
				s.url = url
			}
		case code := <-s.code:
			t.Fatalf("it has ended with %d before it was ready:\n%s", code, s.stderr)
		}
	}
	return s
}

// ends sends the signal once a call hangs. If still is not empty, it lets stopTimeout
// pass once serve is doing that. It returns the exit code and the last line.
func (s *served) ends(still string) (code int, last string) {
	s.t.Helper()
	select {
	case <-s.hanging:
	case code := <-s.code:
		s.t.Fatalf("it has ended with %d before anything hangs:\n%s", code, s.stderr)
	case <-time.After(time.Minute):
		s.t.Fatalf("nothing hangs:\n%s", s.stderr)
	}
	s.end()
	for deadline := time.After(time.Minute); still != "" && (*s.app.doing.Load())() != still; {
		select {
		case <-time.After(time.Millisecond):
		case <-deadline:
			s.t.Fatalf("it is not %s but %s:\n%s", still, (*s.app.doing.Load())(), s.stderr)
		}
	}
	if still != "" {
		close(s.late)
	}
	return <-s.code, s.last()
}

// last returns the last line that serve has printed.
func (s *served) last() string {
	all := strings.Split(strings.TrimSuffix(s.stderr.String(), "\n"), "\n")
	return all[len(all)-1]
}

// stopped is what the last line of a serve has that ended as it should.
const stopped = ` level=INFO msg="lapse has stopped" reason="context canceled" ran=`

// has matches calls that contain all texts.
func has(texts ...string) func(call string) bool {
	return func(call string) bool {
		for _, text := range texts {
			if !strings.Contains(call, text) {
				return false
			}
		}
		return true
	}
}

// still returns what the last line of a serve has that did not end in time.
func still(doing string) string {
	return fmt.Sprintf(` level=ERROR msg="did not end within %s (context canceled): it is still %s" ran=`, stopTimeout, doing)
}

// request sends a request to a ready serve, which a busy machine makes a standby for a while.
func (s *served) request(tail, body string) {
	s.t.Helper()
	nc := harness.Dial(s.t, s.url)
	defer nc.Close()
	lost := false // a reply, with lapse's connection: NATS ends that of a process without processor time
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		reply, err := nc.Request("lapse.main.api."+tail, []byte(body), 10*time.Second)
		status := ""
		if err == nil {
			status = reply.Header.Get("Lapse-Status")
		}
		switch {
		case err == nil && status <= "299", lost && status == "409":
			return
		case errors.Is(err, nats.ErrTimeout):
			lost = true
		// A busy machine may want another try: 429 while the snapshot of one before is made.
		case !errors.Is(err, nats.ErrNoResponders) && status != "429" && status != "503":
			s.t.Fatalf("%s: %v %v", tail, reply, err)
		}
		if time.Since(began) > time.Minute {
			s.t.Fatalf("%s: %v %v after a minute\n%s", tail, reply, err, s.stderr)
		}
	}
}

// TestSignalWhileStartHangs: a signal ends serve, whatever hangs while it starts: at
// once and with 0 if it waits for NATS, else with 1 and a line that says what did not
// end, since a blocked file operation cannot be cancelled.
func TestSignalWhileStartHangs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		external, again bool // again starts on the store of another one, without its projection
		hangs           func(string) bool
		still           string // the activity that does not end, "" if serve ends by itself
	}{
		"connect":             {true, false, has("nats CONNECT"), ""},
		"open the streams":    {true, false, has("$JS.API.INFO"), ""},
		"make the log":        {true, false, has("$JS.API.STREAM.CREATE.LAPSE_main"), ""},
		"open the projection": {false, false, has("file ", "projection"), "opening the projection"},
		"look for snapshots":  {true, true, has("$JS.API.STREAM.NAMES", "$O."), ""},
		"describe a snapshot": {true, true, has("$JS.API.DIRECT.GET.OBJ_LAPSE_main_SNAPSHOT"), ""},
		"read a snapshot":     {true, true, has("$JS.API.CONSUMER.CREATE.OBJ_LAPSE_main_SNAPSHOT"), ""},
		"unpack a snapshot":   {true, true, has("file ", ".verify", ".sst"), "restoring snapshots"},
		"read the log":        {true, true, has("$JS.API.CONSUMER.CREATE.LAPSE_main"), ""},
		"make the mutations":  {true, false, has("$JS.API.STREAM.CREATE.LAPSE_main_MUTATIONS"), ""},
		"take the lease":      {true, false, has("$KV.LAPSE_main_LEASE"), ""},
		"move the fence":      {true, false, has(".append."), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var earlier []*served
			if c.again {
				s := serveHanging(t, c.external, nil)
				s.request("collection.create.c", "{}")
				s.request("document.upsert.c.a", "{}") // which may be repeated
				s.request("snapshot.create", "")
				s.end()
				if code := <-s.code; code != 0 {
					t.Fatalf("it ends with %d:\n%s", code, s.stderr)
				}
				check(t, os.RemoveAll(filepath.Join(s.dir, "projection")))
				earlier = append(earlier, s)
			}
			code, last := serveHanging(t, c.external, c.hangs, earlier...).ends(c.still)
			if c.still == "" && (code != 0 || !strings.Contains(last, stopped)) {
				t.Errorf("it ends with %d: %s", code, last)
			} else if c.still != "" && (code != 1 || !strings.Contains(last, still(c.still))) {
				t.Errorf("it ends with %d: %s", code, last)
			}
		})
	}
}

// TestSignalWhileServingHangs: a signal ends serve, whatever hangs while it serves or
// ends: by itself if it waits for NATS, with 1 if it left anything undone; else with 1
// and a line that says what did not end.
func TestSignalWhileServingHangs(t *testing.T) {
	t.Parallel()
	const snapshots = "waiting for the writer and for snapshots"
	// If the connection for appends hangs, an event may be in flight.
	undone := map[string]bool{"NATS": true, "trim the log": true}
	for name, c := range map[string]struct {
		external bool
		hangs    func(string) bool
		last     string // what the last line has; "" if it ends with 0
		still    string // the activity that does not end, "" if serve ends by itself
	}{
		"NATS":                 {true, has("nats "), "", ""},
		"append":               {true, has(".append."), ` msg="stopping: `, ""},
		"write a snapshot":     {true, has("PUB $O.LAPSE_main_SNAPSHOT"), "", ""},
		"read a snapshot":      {true, has("$JS.API.CONSUMER.CREATE.OBJ_LAPSE_main_SNAPSHOT"), "", ""},
		"remove a snapshot":    {true, has("$JS.API.STREAM.DELETE.OBJ_LAPSE_main_SNAPSHOT"), "", ""},
		"trim the log":         {true, has("$JS.API.STREAM.PURGE.LAPSE_main "), "", ""},
		"copy the projection":  {false, has("file ", ".checkpoint"), still(snapshots), snapshots},
		"verify a snapshot":    {false, has("file ", ".verify"), still(snapshots), snapshots},
		"close the projection": {false, has("file ", "projection"), still("closing the projection"), "closing the projection"},
		"close NATS":           {false, has("doing closing NATS"), still("closing NATS"), "closing NATS"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serveHanging(t, c.external, nil)
			s.request("collection.create.c", `{"defaultTtl":1}`)
			nc := harness.Dial(t, s.url)
			if strings.HasPrefix(name, "close ") {
				s.arm(func(call string) bool { return (*s.app.doing.Load())() == c.still && c.hangs(call) })
				s.end()
			} else {
				s.arm(c.hangs)
			}
			for done := false; !done; { // something to append, to copy and to trim
				_ = nc.PublishRequest("lapse.main.api.document.upsert.c.a", nc.NewInbox(), []byte("{}"))
				select {
				case <-s.hanging:
					done = true
				case code := <-s.code:
					t.Fatalf("it has ended with %d before anything hangs:\n%s", code, s.stderr)
				case <-time.After(50 * time.Millisecond):
				}
			}
			code, last := s.ends(c.still)
			if undone[name] && code == 1 && strings.Contains(last, ` msg="stopping: `) {
				return
			}
			if c.last == "" && (code != 0 || !strings.Contains(last, stopped)) || c.last != "" && (code != 1 || !strings.Contains(last, c.last)) {
				t.Errorf("it ends with %d: %s", code, last)
			}
		})
	}
}

// TestSignalWhileOneDatabaseHangs: one database that hangs does not keep the others from
// ending, and the last line names it.
func TestSignalWhileOneDatabaseHangs(t *testing.T) {
	t.Parallel()
	const hung = "closing the projection (database other)"
	s := serveHangingWith(t, []string{"--database", "main,other,third"}, false, nil)
	s.request("collection.create.c", `{"defaultTtl":1}`)
	s.arm(func(call string) bool {
		return strings.Contains((*s.app.doing.Load())(), hung) && has("file ", "projection/other")(call)
	})
	s.end()
	if code, last := s.ends(hung); code != 1 || !strings.Contains(last, still(hung)) {
		t.Errorf("it ends with %d: %s", code, last)
	}
}

// TestSignalWhileStderrBlocks: a signal ends serve even if nobody reads its output.
func TestSignalWhileStderrBlocks(t *testing.T) {
	t.Parallel()
	s := serveHanging(t, false, has("stderr ", "ready: "))
	if code, _ := s.ends("serving"); code != 1 {
		t.Errorf("it ends with %d", code)
	}
}
