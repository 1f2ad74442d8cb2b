package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// TestConnectionClosedForGood: if NATS closes any connection for good, serve ends with
// one line. Without that connection lapse would keep the lease and answer nothing.
func TestConnectionClosedForGood(t *testing.T) {
	t.Parallel()
	all := map[string]func(*target) *nats.Conn{
		"log":     func(p *target) *nats.Conn { return p.Log },
		"bulk":    func(p *target) *nats.Conn { return p.Bulk },
		"service": func(p *target) *nats.Conn { return p.services[0] },
	}
	for where, connections := range map[string][]string{"embedded": {"log", "service"}, "external": {"log", "bulk", "service"}} {
		for _, databases := range []string{"main", "main,other"} {
			for _, connection := range connections {
				t.Run(fmt.Sprintf("%s/%s/%s", where, databases, connection), func(t *testing.T) {
					t.Parallel()
					s := serveHangingWith(t, []string{"--database", databases}, where == "external", nil)
					nc := all[connection](s.target)
					// nats.go does not reconnect after the server's error for this.
					if err := nc.Publish(strings.Repeat("a", 5000), nil); err != nil {
						t.Fatal(err)
					}
					select {
					case code := <-s.code:
						last := s.last()
						if want := closed(nc); code != 1 || last != want {
							t.Errorf("it ends with %d: %s, and not with 1: %s", code, last, want)
						}
					case <-time.After(time.Minute):
						t.Errorf("it goes on:\n%s", s.stderr)
					}
				})
			}
		}
	}
}

// closed returns the last line of serve.
func closed(nc *nats.Conn) string {
	return fmt.Sprintf("lapse: NATS closed the connection %q for good: nats: maximum control line exceeded: see the log of the NATS server, and start lapse again", nc.Opts.Name)
}
