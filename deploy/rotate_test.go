package deploy_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/test/child"
	"github.com/lapsedb/lapse/test/harness"
)

// rotation is a cluster whose secrets in use are in dir, and the next ones.
type rotation struct {
	*cluster
	t               *testing.T
	dir, next, conf string
}

func newRotation(t *testing.T) *rotation {
	t.Helper()
	r := &rotation{t: t, dir: t.TempDir(), next: t.TempDir()}
	if out, err := child.Tool(t.Context(), "go", "run", "github.com/lapsedb/lapse/deploy/keys", "-dir", r.next).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	r.next, r.conf = filepath.Join(r.next, "secrets"), filepath.Join(r.dir, "nats.conf")
	check(t, os.CopyFS(r.dir, os.DirFS(secrets)))
	r.configure(string(readFile(t, natsConf)))
	r.cluster = startClusterWith(t, r.conf, 3)
	return r
}

func (r *rotation) configure(text string) {
	r.t.Helper()
	check(r.t, os.WriteFile(r.conf, []byte(text), 0o600))
}

// put writes a file in use: those of that name in the directories, one after the other.
func (r *rotation) put(name string, from ...string) {
	r.t.Helper()
	var text []byte
	for _, from := range from {
		text = append(text, readFile(r.t, filepath.Join(from, name))...)
	}
	check(r.t, os.WriteFile(filepath.Join(r.dir, name), text, 0o600))
}

// optionsOf returns the options of a node by what is in use now.
func (r *rotation) optionsOf(i int) *server.Options {
	r.t.Helper()
	o, err := nodeOptions(r.conf, r.dir, fmt.Sprint("nats-", i+1), strings.TrimPrefix(r.urls[i], "tls://"), r.routes[i], r.stores[i], r.routes)
	check(r.t, err)
	return o
}

// reload has all nodes read what is in use, and waits until they have their routes.
func (r *rotation) reload() {
	r.t.Helper()
	for i, s := range r.nodes {
		o := r.optionsOf(i)
		o.NoSigs = true
		check(r.t, s.ReloadOptions(o))
	}
	eventually(r.t, "all routes are there", func() bool {
		return !slices.ContainsFunc(r.nodes, func(s *server.Server) bool {
			known := map[string]bool{}
			routes, err := s.Routez(nil)
			for _, r := range routes.Routes {
				known[r.RemoteName] = true
			}
			return err != nil || len(known) != len(r.nodes)-1
		})
	})
}

// client connects with the seed below a directory; nil if that fails.
func (r *rotation) client(seeds string, ca string) *nats.Conn {
	key, err := nats.NkeyOptionFromSeed(filepath.Join(seeds, "nkeys", "client.nk"))
	check(r.t, err)
	nc, err := nats.Connect(strings.Join(r.urls, ","), key, nats.RootCAs(ca), nats.MaxReconnects(-1), nats.Timeout(patience), nats.ReconnectWait(10*time.Millisecond))
	if err != nil {
		return nil
	}
	r.t.Cleanup(nc.Close)
	return nc
}

func (r *rotation) answers(nc *nats.Conn) {
	r.t.Helper()
	eventually(r.t, "lapse answers", func() bool {
		m, err := nc.Request("lapse.main.api.status", nil, 5*time.Second)
		return err == nil && m.Header.Get("Lapse-Status") == "200"
	})
}

// TestRotate: as docs/rotate.md says, certificates of another authority and another key of a
// user replace the ones in use by reloads, while lapse and a client go on.
func TestRotate(t *testing.T) {
	t.Parallel()
	r := newRotation(t)
	ca := filepath.Join(r.dir, "ca.pem")
	args := serveArgs(r.urls)
	args[slices.Index(args, "--tls-ca")+1] = ca
	harness.Serve(t, args...)
	client := r.client(r.dir, ca)
	r.answers(client)

	// Both authorities, then the new certificates, then the new authority alone.
	r.put("ca.pem", secrets, r.next)
	r.put("route-ca.pem", secrets, r.next)
	r.reload()
	for n := 1; n <= 3; n++ {
		for _, file := range []string{"cert.pem", "key.pem", "route-cert.pem", "route-key.pem"} {
			r.put(filepath.Join(fmt.Sprint("nats-", n), file), r.next)
		}
	}
	r.reload()
	r.put("ca.pem", r.next)
	r.put("route-ca.pem", r.next)
	r.reload()
	for i := range r.nodes { // everyone connects again, by the new certificates
		r.nodes[i].Shutdown()
		r.nodes[i].WaitForShutdown()
		r.nodes[i] = r.run(t, r.optionsOf(i))
		r.answers(client)
	}
	if r.client(r.dir, filepath.Join(secrets, "ca.pem")) != nil {
		t.Error("the old authority is trusted still")
	}

	// A second user with the same rights, then without the first.
	key := regexp.MustCompile(`(?m)^NKEY_CLIENT=(.*)$`).FindSubmatch(readFile(t, filepath.Join(r.next, ".env")))
	shipped := string(readFile(t, natsConf))
	block := regexp.MustCompile(`(?s)      \{\n        nkey: \$NKEY_CLIENT\n.*?\n      \}\n`).FindString(shipped)
	renewed := strings.Replace(block, "$NKEY_CLIENT", `"`+string(key[1])+`"`, 1)
	r.configure(strings.Replace(shipped, block, block+renewed, 1))
	r.reload()
	r.answers(client)
	newer := r.client(r.next, ca)
	r.answers(newer)
	r.configure(strings.Replace(shipped, block, renewed, 1))
	r.reload()
	r.answers(newer)
	eventually(t, "the old key is refused", func() bool { return !client.IsConnected() })
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	check(t, err)
	return text
}
