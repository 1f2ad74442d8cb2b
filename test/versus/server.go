package versus

import (
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/test/harness"
)

// StartServer starts a plain NATS server with JetStream on disk, of the version
// that is inside lapse, in this process until the benchmark ends. It returns its
// URL.
func StartServer(tb testing.TB, syncAlways bool) string {
	tb.Helper()
	return harness.StartNATS(tb, serverOptions(tb.TempDir(), syncAlways)).ClientURL()
}

func serverOptions(dir string, syncAlways bool) *server.Options {
	o := harness.NATSOptions(dir)
	o.SyncAlways = syncAlways
	return o
}

// Connect returns a connection to a server until the benchmark ends.
func Connect(tb testing.TB, url string, opts ...nats.Option) *nats.Conn {
	tb.Helper()
	nc, err := nats.Connect(url, opts...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(nc.Close)
	return nc
}

// Connections returns n connections, to be shared by callers.
func Connections(tb testing.TB, url string, n int) []*nats.Conn {
	tb.Helper()
	conns := make([]*nats.Conn, n)
	for i := range conns {
		conns[i] = Connect(tb, url)
	}
	return conns
}
