package harness

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// maxPayload is the max_payload of the NATS server inside lapse.
const maxPayload = 4 << 20

// NATSOptions are the options of a NATS server with JetStream in dir, as inside
// lapse: on a free port of 127.0.0.1, without logs and signal handlers.
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

// FreeAddr returns a HOST:PORT of 127.0.0.1 on which nobody listens now.
// Another process may take it first; whoever listens there then fails clearly.
func FreeAddr(t testing.TB) string {
	t.Helper()
	return FreeAddrs(t, 1)[0]
}

// FreeAddrs returns n different addresses, each as FreeAddr. They are below the
// ephemeral ports, so that no connection takes the port of a server that restarts:
// not even that of a client which, while it reconnects, would connect to itself.
func FreeAddrs(t testing.TB, n int) (addrs []string) {
	t.Helper()
	for tries := 0; len(addrs) < n; tries++ {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(22_000)))
		if err == nil {
			defer l.Close()
			addrs = append(addrs, l.Addr().String())
		} else if tries > 1000 {
			t.Fatal(err)
		}
	}
	return addrs
}
