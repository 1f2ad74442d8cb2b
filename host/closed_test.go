package host

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/schema"
)

// TestConnectionClosedForGood: if NATS closes any connection for good, Run ends with one
// line. Without that connection lapse would keep the lease and answer nothing.
func TestConnectionClosedForGood(t *testing.T) {
	t.Parallel()
	all := map[string]func(*target) *nats.Conn{
		"log":     func(p *target) *nats.Conn { return p.Log },
		"bulk":    func(p *target) *nats.Conn { return p.Bulk },
		"service": func(p *target) *nats.Conn { return p.services[0] },
	}
	for where, connections := range map[string][]string{"embedded": {"log", "service"}, "external": {"log", "bulk", "service"}} {
		for _, databases := range [][]schema.DatabaseName{{"main"}, {"main", "other"}} {
			for _, connection := range connections {
				t.Run(fmt.Sprintf("%s/%d/%s", where, len(databases), connection), func(t *testing.T) {
					t.Parallel()
					o := Options{StoreDir: t.TempDir(), Databases: databases, Listen: "127.0.0.1:0", Processor: processor.Options{Durability: processor.OS}}
					if where == "external" {
						o.Listen, o.External, o.Processor.Lease = "", startNATS(t), 5*time.Second
					}
					ready := make(chan struct{})
					o.Events = func(e Event) {
						if _, ok := e.(Ready); ok {
							close(ready)
						}
					}
					r, ended := newRun(o), make(chan error, 1)
					go func() { ended <- r.run(t.Context()) }()
					select {
					case <-ready:
					case err := <-ended:
						t.Fatal(err)
					}
					nc := all[connection](r.target)
					// nats.go does not reconnect after the server's error for this.
					check(t, nc.Publish(strings.Repeat("a", 5000), nil))
					want := fmt.Sprintf("NATS closed the connection %q for good: nats: maximum control line exceeded: see the log of the NATS server, and start lapse again", nc.Opts.Name)
					if err := <-ended; err == nil || err.Error() != want {
						t.Errorf("it ends with %v, and not with %s", err, want)
					}
				})
			}
		}
	}
}

// startNATS starts a NATS server until the end of the test. It has a port: a pipe may lose
// the last error that a server writes.
func startNATS(t *testing.T) *External {
	t.Helper()
	ns, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), MaxPayload: 4 << 20, NoLog: true, NoSigs: true})
	check(t, err)
	ns.Start()
	if !ns.ReadyForConnections(time.Minute) {
		t.Fatal("the NATS server does not start")
	}
	t.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
	return &External{Connect: func(_ string, options ...nats.Option) (*nats.Conn, error) {
		return nats.Connect(ns.ClientURL(), options...)
	}}
}
