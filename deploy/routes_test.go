package deploy_test

import (
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lapsedb/lapse/test/harness"
)

// TestRoutesByAdvertisedName: nodes that hear of each other from a third one connect to
// the address that each advertises, which its certificate names, and not to the IP
// address that its connections come from, which no certificate names.
func TestRoutesByAdvertisedName(t *testing.T) {
	t.Parallel()
	const inside = "127.0.0.2" // where the nodes are; their certificates name 127.0.0.1
	if l, err := net.Listen("tcp", inside+":0"); err != nil {
		t.Skipf("this system has one loopback address: %v", err)
	} else {
		l.Close()
	}
	c := &cluster{}
	names := harness.FreeAddrs(t, 3)
	for i, name := range names {
		// Each node has a route to the first one only, and hears of the other.
		o, err := nodeOptions(natsConf, secrets, fmt.Sprint("nats-", i+1), "127.0.0.1:-1", name, filepath.Join(t.TempDir(), "store"), []string{names[0], names[0], names[0]})
		if err != nil {
			t.Fatal(err)
		}
		o.Cluster.Host = inside
		translate(t, name, fmt.Sprintf("%s:%d", inside, o.Cluster.Port))
		c.nodes = append(c.nodes, c.run(t, o))
	}
	for _, s := range c.nodes {
		eventually(t, s.Name()+" has routes to both others", func() bool {
			if strings.Contains(c.log(), "x509: ") {
				t.Fatal(c.log())
			}
			known := map[string]bool{}
			routes, err := s.Routez(nil)
			for _, r := range routes.Routes {
				known[r.RemoteName] = true
			}
			return err == nil && len(known) == len(names)-1
		})
	}
}

// translate forwards connections from one address to another, and has them come from
// the host of that other, as the address translation of a container network does.
func translate(t *testing.T, from, to string) {
	t.Helper()
	l, err := net.Listen("tcp", from)
	if err != nil {
		t.Fatal(err)
	}
	host, _, err := net.SplitHostPort(to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}}
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := dialer.Dial("tcp", to)
			if err != nil {
				near.Close()
				continue
			}
			for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
				go func() {
					_, _ = io.Copy(way[0], way[1])
					near.Close()
					far.Close()
				}()
			}
		}
	}()
}
