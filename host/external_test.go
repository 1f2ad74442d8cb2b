package host

import (
	"bufio"
	"fmt"
	"log/slog"
	"net"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/processor/observe"
)

// versioned is a NATS server of a version, as far as a client needs it to connect.
type versioned string

func (version versioned) InProcessConn() (net.Conn, error) {
	client, server := net.Pipe()
	go func() {
		defer server.Close()
		fmt.Fprintf(server, "INFO {\"server_id\":\"x\",\"version\":%q,\"max_payload\":4194304}\r\n", string(version))
		for lines := bufio.NewScanner(server); lines.Scan(); {
			if lines.Text() == "PING" {
				fmt.Fprint(server, "PONG\r\n")
			}
		}
	}()
	return client, nil
}

// TestReportSteerable: servers that publish replies for clients are reported once, with the
// version, and others are not.
func TestReportSteerable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		servers []versioned
		want    string
	}{
		{[]versioned{"2.15.3", "2.15.3"}, "[]"},
		{[]versioned{"2.15.3", "2.15.2", "2.14.9"}, "[2.15.2]"},
	} {
		target, got := newTarget(Options{}), []string{}
		target.Processor.Logger = slog.New(slog.DiscardHandler)
		target.Processor.Events = func(e observe.Event) {
			if e, ok := e.(observe.ServerSteerable); ok {
				got = append(got, e.Version)
			}
		}
		for _, s := range c.servers {
			nc, err := nats.Connect("nats://x", nats.InProcessServer(s))
			check(t, target.register(new(*nats.Conn))(nc, err))
		}
		target.reportSteerable()
		target.close()
		if fmt.Sprint(got) != c.want {
			t.Errorf("%v: reported %v", c.servers, got)
		}
	}
}
