package deploy_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/child"
	"github.com/lapsedb/lapse/test/harness"
)

const (
	db   = schema.DatabaseName("main")
	log  = "LAPSE_main"
	muts = "LAPSE_main_MUTATIONS"
)

// patience bounds the wait for each condition of a test.
const patience = 60 * time.Second

// cluster is a set of nodes that run with nats.conf.
type cluster struct {
	nodes  []*server.Server // in this process; nil for programs
	urls   []string
	routes []string // of all three nodes
	stores []string

	programs []*harness.Process // see natsServer

	mu       sync.Mutex
	messages []string // warnings and errors
}

// natsServer is the program that a node runs, "" for the server in this process. Tests that
// look into the server cannot use it; test/tools/oldest has those that can.
var natsServer = os.Getenv("TEST_NATS_SERVER")

// natsConf is the shipped configuration of a node.
const natsConf = "../nats.conf"

// nodeVariables returns the variables of a node with the certificates in a directory.
func nodeVariables(secrets, name, listen, route, store string, routes []string) map[string]string {
	all := maps.Clone(environment)
	for variable, file := range map[string]string{"NATS_CERT": "cert.pem", "NATS_KEY": "key.pem", "NATS_ROUTE_CERT": "route-cert.pem", "NATS_ROUTE_KEY": "route-key.pem"} {
		all[variable] = filepath.Join(secrets, name, file)
	}
	for i, addr := range routes {
		all[fmt.Sprint("NATS_ROUTE_", i+1)] = "tls://" + addr
	}
	all["NATS_MAX_STORE"], all["NATS_MONITOR"], all["NATS_ROUTE_CA"] = "10GB", "127.0.0.1:-1", filepath.Join(secrets, "route-ca.pem")
	all["NATS_NAME"], all["NATS_LISTEN"], all["NATS_CLUSTER"], all["NATS_CLUSTER_ADVERTISE"], all["NATS_STORE"] = name, listen, route, route, store
	return all
}

// nodeOptions reads nats.conf, or a changed one, with the variables of a node. They are not
// in the environment of this process, which other tests share.
func nodeOptions(config, secrets, name, listen, route, store string, routes []string) (*server.Options, error) {
	text, err := os.ReadFile(config)
	if err != nil {
		return nil, err
	}
	all := nodeVariables(secrets, name, listen, route, store, routes)
	o := &server.Options{}
	err = o.ProcessConfigString(os.Expand(string(text), func(name string) string {
		if value, ok := all[name]; ok {
			return value
		}
		return "$" + name // as in a subject
	}))
	if warned, ok := err.(interface{ Errors() []error }); ok && len(warned.Errors()) == 0 {
		err = nil // warnings only
	}
	return o, err
}

// startCluster starts nodes 1 to n of three and waits for JetStream if n is a majority.
func startCluster(t *testing.T, n int) *cluster {
	t.Helper()
	return startClusterWith(t, natsConf, n)
}

// start starts the i-th node, also again.
func (c *cluster) start(t *testing.T, i int, config string) {
	t.Helper()
	name, listen := fmt.Sprint("nats-", i+1), strings.TrimPrefix(c.urls[i], "tls://")
	if natsServer != "" {
		c.runProgram(t, config, nodeVariables(secrets, name, listen, c.routes[i], c.stores[i], c.routes))
		return
	}
	o, err := nodeOptions(config, secrets, name, listen, c.routes[i], c.stores[i], c.routes)
	check(t, err)
	c.nodes[i] = c.run(t, o)
}

// run starts a node until the test ends.
func (c *cluster) run(t *testing.T, o *server.Options) *server.Server {
	t.Helper()
	o.NoSigs = true
	s, err := server.NewServer(o)
	check(t, err)
	s.SetLogger(&recorder{c: c}, false, false)
	go s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	return s
}

// runProgram starts a node as a process of its own until the test ends.
func (c *cluster) runProgram(t *testing.T, config string, variables map[string]string) {
	t.Helper()
	cmd := child.Command(t, natsServer, "--config", config)
	for variable, value := range variables {
		cmd.Env = append(cmd.Env, variable+"="+value)
	}
	p := harness.StartProcess(t, cmd, nil)
	t.Cleanup(p.Kill)
	select {
	case <-p.Ready:
	case <-p.Ended:
		t.Fatalf("a node ends: %s", p.Output())
	case <-time.After(patience):
		t.Fatalf("a node does not start: %s", p.Output())
	}
	c.programs = append(c.programs, p)
}

// startClusterWith is startCluster with another nats.conf.
func startClusterWith(t *testing.T, config string, n int) *cluster {
	t.Helper()
	c := &cluster{nodes: make([]*server.Server, n)}
	addrs := harness.FreeAddrs(t, 3+n)
	c.routes = addrs[:3]
	for i, addr := range addrs[3:] {
		c.urls, c.stores = append(c.urls, "tls://"+addr), append(c.stores, filepath.Join(t.TempDir(), "store"))
		c.start(t, i, config)
	}
	for _, s := range c.nodes {
		if s != nil && !s.ReadyForConnections(patience) {
			t.Fatalf("a node does not start: %s", c.log())
		}
	}
	if n < 2 {
		return c
	}
	nc := c.connect(t, "operator")
	defer nc.Close()
	js, _ := jetstream.New(nc)
	repeat(t, func(ctx context.Context) error { _, err := js.AccountInfo(ctx); return err })
	if natsServer != "" {
		return c
	}
	eventually(t, "the leader knows that every node is there", func() bool {
		return slices.ContainsFunc(c.nodes, func(s *server.Server) bool {
			known, err := s.Jsz(nil)
			return err == nil && len(s.JetStreamClusterPeers()) == n && // empty except on the leader
				!slices.ContainsFunc(known.Meta.Replicas, func(p *server.PeerInfo) bool { return !p.Current })
		})
	})
	return c
}

// inboxes maps users to their inbox prefixes; others have _INBOX.
var inboxes = map[string]string{
	"processor": "_PROCESSOR", "bulk": "_BULK", "gate-log": "_GATE", "gate-clients": "_GATE", "service": "_SERVICE",
	"operator": "_OPERATOR", "producer": "_INBOX.producer", "auditor": "_INBOX.auditor", "app": "_INBOX.app",
}

// login returns the connection options of a user.
func login(t *testing.T, user string) []nats.Option {
	t.Helper()
	key, err := nats.NkeyOptionFromSeed(filepath.Join(secrets, "nkeys", user+".nk"))
	check(t, err)
	options := []nats.Option{key, nats.RootCAs(filepath.Join(secrets, "ca.pem")), nats.Name(user), nats.MaxReconnects(-1), nats.Timeout(patience),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})}
	if prefix := inboxes[user]; prefix != "" {
		options = append(options, nats.CustomInboxPrefix(prefix))
	}
	return options
}

func (c *cluster) connect(t *testing.T, user string, opts ...nats.Option) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(strings.Join(c.urls, ","), append(login(t, user), opts...)...)
	if err != nil {
		t.Fatalf("%s: %v: %s", user, err, c.log())
	}
	t.Cleanup(nc.Close)
	return nc
}

func (c *cluster) log() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	messages := slices.Clone(c.messages)
	for _, p := range c.programs {
		messages = append(messages, p.Output())
	}
	return strings.Join(messages, "\n")
}

// auditorsReader matches the refusal to delete a reader's consumer.
var auditorsReader = regexp.MustCompile(`"\$JS\.API\.CONSUMER\.DELETE\.LAPSE_\w+\.` + schema.ReaderConsumer)

// violations returns the log lines of the servers about permission violations.
func (c *cluster) violations() (found []string) {
	for _, line := range strings.Split(c.log(), "\n") {
		// An auditor may delete no consumer. nats.go tries to delete the old one when it
		// recreates a reader's, as it does after a busy machine was silent for a while.
		if strings.Contains(line, "Violation") && !auditorsReader.MatchString(line) {
			found = append(found, line)
		}
	}
	return found
}

// recorder keeps the warnings and errors of a server.
type recorder struct{ c *cluster }

func (r *recorder) add(format string, args []any) {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	r.c.messages = append(r.c.messages, fmt.Sprintf(format, args...))
}
func (r *recorder) Noticef(string, ...any)            {}
func (r *recorder) Debugf(string, ...any)             {}
func (r *recorder) Tracef(string, ...any)             {}
func (r *recorder) Warnf(format string, args ...any)  { r.add(format, args) }
func (r *recorder) Errorf(format string, args ...any) { r.add(format, args) }
func (r *recorder) Fatalf(format string, args ...any) { r.add(format, args) }

var (
	check      = harness.Check
	eventually = harness.Eventually
	repeat     = harness.Repeat
)

// TestCredentialsRequired: a node refuses clients without a key, and routes without a
// certificate. Its certificate is valid only with ca.pem, and the certificates of routes
// have another authority.
func TestCredentialsRequired(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1)
	v, err := c.nodes[0].Varz(nil)
	if err != nil || v.MaxPayload != 4<<20 || !v.JetStream.Config.SyncAlways || !v.TLSRequired || !v.Cluster.TLSRequired || !v.Cluster.TLSVerify {
		t.Errorf("%+v, %v", v, err)
	}
	if addr := c.nodes[0].MonitorAddr(); !addr.IP.IsLoopback() {
		t.Errorf("everybody can see the connections at %s", addr)
	}
	ca := nats.RootCAs(filepath.Join(secrets, "ca.pem"))
	for _, opts := range [][]nats.Option{
		{ca}, {ca, nats.UserInfo("client", "client")}, {ca, nats.Token("client")}, {ca, nats.UserInfo(environment["NKEY_CLIENT"], "")},
	} {
		nc, err := nats.Connect(c.urls[0], append(opts, nats.Timeout(patience))...)
		if err == nil {
			nc.Close()
		}
		if !errors.Is(err, nats.ErrAuthorization) {
			t.Errorf("got %v", err)
		}
	}
	if nc, err := nats.Connect(c.urls[0]); err == nil {
		nc.Close()
		t.Error("the certificate is trusted without its authority")
	}
	if nc, err := nats.Connect(c.urls[0], append(login(t, "client"), nats.RootCAs(filepath.Join(secrets, "route-ca.pem")))...); err == nil {
		nc.Close()
		t.Error("the certificates are of one authority")
	}
}
