package harness

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// maxPayload is the max_payload of the NATS server inside lapse.
const maxPayload = 4 << 20

// JetStream returns JetStream on a connection.
func JetStream(t testing.TB, nc *nats.Conn, opts ...jetstream.JetStreamOpt) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(nc, opts...)
	Check(t, err)
	return js
}

// NATSOptions returns options for a NATS server with JetStream in dir, as inside lapse:
// on a free port of 127.0.0.1, without logs and signal handlers.
func NATSOptions(dir string) *server.Options {
	return &server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: dir,
		MaxPayload: maxPayload, NoLog: true, NoSigs: true}
}

// StartNATS starts a NATS server in this process, until the test ends, and
// returns it when it accepts connections.
func StartNATS(t testing.TB, options *server.Options) *server.Server {
	t.Helper()
	s, err := server.NewServer(options)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("the NATS server accepts no connections within a minute")
	}
	return s
}

// Dial connects to a NATS server until the test ends. It allows the server a minute to
// answer, for busy machines.
func Dial(t testing.TB, url string, opts ...nats.Option) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(url, append([]nats.Option{nats.Timeout(time.Minute)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// FreeAddr returns a HOST:PORT of 127.0.0.1 on which nobody listens now. No other test
// gets the same.
func FreeAddr(t testing.TB) string {
	t.Helper()
	return FreeAddrs(t, 1)[0]
}

// FreeAddrs takes ports below the ephemeral range, so that no connection takes the port
// of a server that restarts: not even that of a client which, while it reconnects, would
// connect to itself. A process reserves a block of ports by listening on the first.
const firstPort, portBlocks, portBlock = 10_000, 22, 1_000

var ports struct {
	sync.Mutex
	block           net.Listener // nil before the first
	next, remaining int
}

// FreeAddrs returns n different addresses, each as FreeAddr.
func FreeAddrs(t testing.TB, n int) (addrs []string) {
	t.Helper()
	ports.Lock()
	defer ports.Unlock()
	for len(addrs) < n {
		if ports.remaining == 0 {
			nextBlock(t)
		}
		ports.next, ports.remaining = ports.next+1, ports.remaining-1
		// Listening to find out would keep the port in use for a moment longer: a process
		// that starts now has the listener, too, until it executes its program.
		address := fmt.Sprintf("127.0.0.1:%d", ports.next)
		if c, err := net.Dial("tcp", address); err == nil {
			c.Close()
		} else {
			addrs = append(addrs, address)
		}
	}
	return addrs
}

func nextBlock(t testing.TB) {
	t.Helper()
	if ports.block != nil {
		ports.block.Close()
	}
	for _, block := range rand.Perm(portBlocks) {
		first := firstPort + block*portBlock
		var err error
		if ports.block, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", first)); err == nil {
			ports.next, ports.remaining = first, portBlock-1
			return
		}
	}
	t.Fatal("other tests have taken all ports")
}
