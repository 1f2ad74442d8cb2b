package processor

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/test/harness"
	"github.com/lapsedb/lapse/test/stress"
)

// natsVariable makes the test binary a NATS server for a directory and a port, in a
// process that can be killed.
const natsVariable = "LAPSE_TEST_NATS"

// serveNATS runs that server. It ends when standard input closes, so that it does not
// outlive the test.
func serveNATS(dir string) {
	var port int
	if _, err := fmt.Sscan(os.Getenv(natsVariable+"_PORT"), &port); err != nil {
		panic(err)
	}
	ns, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: dir,
		MaxPayload: 4 << 20, NoSigs: true, NoLog: true})
	if err != nil {
		panic(err)
	}
	ns.Start()
	if !ns.ReadyForConnections(patience) {
		panic("the NATS server does not start")
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	ns.Shutdown()
	ns.WaitForShutdown()
}

// natsProcess is a NATS server in its own process, on the same directory and port after
// each start.
type natsProcess struct {
	*harness.Process
	t     testing.TB
	dir   string
	port  string
	stdin io.Closer
}

func (p *natsProcess) start() {
	p.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), natsVariable+"="+p.dir, fmt.Sprintf("%s_PORT=%s", natsVariable, p.port))
	cmd.Stderr = os.Stderr
	var err error
	if p.stdin, err = cmd.StdinPipe(); err != nil {
		p.t.Fatal(err)
	}
	p.Process = harness.StartProcess(p.t, cmd, nil)
	select {
	case <-p.Ready:
	case <-p.Ended:
		p.t.Fatalf("the NATS server does not start: %s", p.ProcessState)
	}
}

// stop shuts the server down in order.
func (p *natsProcess) stop() { _ = p.stdin.Close(); <-p.Ended }

// proxy forwards connections to another port, until they are stalled or closed.
type proxy struct {
	listener net.Listener
	to       string
	running  sync.WaitGroup

	mu    sync.Mutex
	pairs []*pair
}

// pair is a proxied connection: its two ends.
type pair struct {
	ends    [2]net.Conn
	stalled atomic.Bool   // forward nothing more, close neither end
	free    chan struct{} // closed with the pair
	once    sync.Once
}

func newProxy(t testing.TB, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, to: to}
	p.running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				c.Close()
				continue
			}
			one := &pair{ends: [2]net.Conn{c, server}, free: make(chan struct{})}
			p.mu.Lock()
			p.pairs = append(p.pairs, one)
			p.mu.Unlock()
			for i := range one.ends {
				p.running.Go(func() { one.forward(one.ends[i], one.ends[1-i]) })
			}
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.each((*pair).close)
		p.running.Wait()
	})
	return p
}

func (p *pair) close() {
	p.once.Do(func() {
		close(p.free)
		p.ends[0].Close()
		p.ends[1].Close()
	})
}

// forward copies from one end to the other. A stalled connection stays open until the end
// of the test, and neither end learns of it.
func (p *pair) forward(from, to net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if p.stalled.Load() {
			<-p.free
		}
		if err == nil {
			_, err = to.Write(buffer[:n])
		}
		if err != nil {
			p.close()
			return
		}
	}
}

func (p *proxy) each(do func(*pair)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.pairs {
		do(one)
	}
}

func (p *proxy) stall() { p.each(func(one *pair) { one.stalled.Store(true) }) }

// TestNATSKilled is TestOutages with processes and sockets: the NATS server is
// killed under load, or stopped, and connections stall with their buffers full.
func TestNATSKilled(t *testing.T) {
	t.Parallel()
	o := &outage{random: stress.Rand(t), wire: &wire{t: t, dir: t.TempDir(), logs: &logBuffer{}}}
	o.options = Options{
		Dir:        filepath.Join(o.dir, "projection"),
		Durability: OS,
		Projection: projections.Options{CacheBytes: 1 << 20, MemTableBytes: 1 << 20},
		Logger:     slog.New(slog.NewTextHandler(o.wire.logs, nil)),
	}
	address := harness.FreeAddr(t)
	_, port, _ := net.SplitHostPort(address)
	process := &natsProcess{t: t, dir: o.dir, port: port}
	process.start()
	o.shutdown = process.stop
	logs, services := newProxy(t, address), newProxy(t, address)
	connect := func(to string) *nats.Conn {
		nc, err := nats.Connect("nats://"+to, append(eventlog.ConnectOptions(), nats.PingInterval(time.Second), nats.FlusherTimeout(time.Second))...)
		o.check(err)
		return nc
	}
	o.log, o.service, o.client = connect(logs.listener.Addr().String()), connect(services.listener.Addr().String()), connect(address)
	o.run()
	o.want(201, "collection.create.load", `{"defaultTtl":3600}`)
	load := o.startLoad(6, 10*time.Millisecond)
	for i := range stress.Pick(4, 100) {
		time.Sleep(time.Duration(100+o.random.IntN(200)) * time.Millisecond) // of load
		switch fault := o.random.IntN(3); {
		case i%10 == 1:
			if fault != 0 {
				logs.stall()
			}
			if fault != 1 {
				services.stall()
			}
			load.probe("connections stalled", i)
		case fault > 0:
			process.Kill()
			process.start()
			load.probe("the server was killed", i)
		default:
			process.stop()
			process.start()
			load.probe("the server was stopped", i)
		}
	}
	load.finish()
}
