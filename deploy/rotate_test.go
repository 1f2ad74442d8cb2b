package deploy_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/test/child"
	"github.com/lapsedb/lapse/test/harness"
)

// TestRotate: as docs/rotate.md says, certificates of another authority and another key of a
// user replace the ones in use by reloads, while lapse and a client go on.
func TestRotate(t *testing.T) {
	t.Parallel()
	next := t.TempDir()
	if out, err := child.Tool(t.Context(), "go", "run", "github.com/lapsedb/lapse/deploy/keys", "-dir", next).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	next = filepath.Join(next, "secrets")
	dir := t.TempDir() // secrets in use
	check(t, os.CopyFS(dir, os.DirFS(secrets)))
	// put writes a file in use: those of that name in the directories, one after the other.
	put := func(name string, from ...string) {
		t.Helper()
		var text []byte
		for _, from := range from {
			part, err := os.ReadFile(filepath.Join(from, name))
			check(t, err)
			text = append(text, part...)
		}
		check(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	config := filepath.Join(dir, "nats.conf")
	shipped, err := os.ReadFile(natsConf)
	check(t, err)
	configure := func(text string) {
		check(t, os.WriteFile(config, []byte(text), 0o600))
	}
	configure(string(shipped))

	c := startClusterWith(t, config, 3)
	reload := func() {
		t.Helper()
		for i, s := range c.nodes {
			o, err := nodeOptions(config, dir, fmt.Sprint("nats-", i+1), strings.TrimPrefix(c.urls[i], "tls://"), c.routes[i], c.stores[i], c.routes)
			if err == nil {
				o.NoSigs = true
				err = s.ReloadOptions(o)
			}
			check(t, err)
		}
		eventually(t, "all routes are there", func() bool {
			return !slices.ContainsFunc(c.nodes, func(s *server.Server) bool {
				known := map[string]bool{}
				routes, err := s.Routez(nil)
				for _, r := range routes.Routes {
					known[r.RemoteName] = true
				}
				return err != nil || len(known) != len(c.nodes)-1
			})
		})
	}
	ca := filepath.Join(dir, "ca.pem")
	args := serveArgs(c.urls)
	args[slices.Index(args, "--tls-ca")+1] = ca
	harness.Serve(t, args...)
	connect := func(seeds string, ca string) *nats.Conn {
		key, err := nats.NkeyOptionFromSeed(filepath.Join(seeds, "nkeys", "client.nk"))
		check(t, err)
		nc, err := nats.Connect(strings.Join(c.urls, ","), key, nats.RootCAs(ca), nats.MaxReconnects(-1), nats.Timeout(patience), nats.ReconnectWait(10*time.Millisecond))
		if err != nil {
			return nil
		}
		t.Cleanup(nc.Close)
		return nc
	}
	client := connect(dir, ca)
	answers := func(nc *nats.Conn) {
		t.Helper()
		eventually(t, "lapse answers", func() bool {
			m, err := nc.Request("lapse.main.api.status", nil, 5*time.Second)
			return err == nil && m.Header.Get("Lapse-Status") == "200"
		})
	}
	answers(client)

	// Both authorities, then the new certificates, then the new authority alone.
	put("ca.pem", secrets, next)
	put("route-ca.pem", secrets, next)
	reload()
	for n := 1; n <= 3; n++ {
		for _, file := range []string{"cert.pem", "key.pem", "route-cert.pem", "route-key.pem"} {
			put(filepath.Join(fmt.Sprint("nats-", n), file), next)
		}
	}
	reload()
	put("ca.pem", next)
	put("route-ca.pem", next)
	reload()
	for i := range c.nodes { // everyone connects again, by the new certificates
		c.nodes[i].Shutdown()
		c.nodes[i].WaitForShutdown()
		o, err := nodeOptions(config, dir, fmt.Sprint("nats-", i+1), strings.TrimPrefix(c.urls[i], "tls://"), c.routes[i], c.stores[i], c.routes)
		check(t, err)
		c.nodes[i] = c.run(t, o)
		answers(client)
	}
	if connect(dir, filepath.Join(secrets, "ca.pem")) != nil {
		t.Error("the old authority is trusted still")
	}

	// A second user with the same rights, then without the first.
	key := ""
	for line := range strings.Lines(string(readFile(t, filepath.Join(next, ".env")))) {
		if name, value, _ := strings.Cut(strings.TrimSpace(line), "="); name == "NKEY_CLIENT" {
			key = value
		}
	}
	const start, end = "      {\n        nkey: $NKEY_CLIENT\n", "\n      }\n"
	at := strings.Index(string(shipped), start)
	block := string(shipped)[at:]
	block = block[:strings.Index(block, end)+len(end)]
	renewed := strings.Replace(block, "$NKEY_CLIENT", `"`+key+`"`, 1)
	configure(strings.Replace(string(shipped), block, block+renewed, 1))
	reload()
	answers(client)
	newer := connect(next, ca)
	answers(newer)
	configure(strings.Replace(string(shipped), block, renewed, 1))
	reload()
	answers(newer)
	eventually(t, "the old key is refused", func() bool { return !client.IsConnected() })
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	check(t, err)
	return text
}
