package deploy_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lapsedb/lapse/test/harness"
)

// TestBackup: with the operator's key, a database of a cluster is backed up while lapse serves
// it, and restored there once every lapse has stopped, with its replicas. Processes whose
// projection is newer than the backup need no hint. The same key deletes it.
func TestBackup(t *testing.T) {
	t.Parallel()
	c, one, two := serveOrders(t)
	operator := func(args ...string) harness.Result {
		return harness.Run(t, nil, append(args, "--server", strings.Join(c.urls, ","), "--nkey", filepath.Join(secrets, "nkeys", "operator.nk"),
			"--tls-ca", filepath.Join(secrets, "ca.pem"), "--timeout", "20s")...)
	}
	dir := t.TempDir()
	eventually(t, "a backup", func() bool { return operator("backup", dir, "--verify").Code == 0 })
	digest := digestOf(t)
	done(t, "client", "document", "upsert", "orders", "late", `{}`)
	if r := operator("restore", dir, "--replace").Exits(1); !strings.Contains(r.Stderr, "is served: stop every lapse") {
		t.Errorf("while lapse serves: %s", r.Stderr)
	}
	one.Stop()
	two.Stop()
	if r := operator("restore", dir).Exits(1); !strings.Contains(r.Stderr, "give --replace to lose them") {
		t.Errorf("over newer events: %s", r.Stderr)
	}
	eventually(t, "the restore", func() bool { return operator("restore", dir, "--replace").Code == 0 })
	one.Restart()
	two.Restart()
	if now := digestOf(t); now != digest {
		t.Errorf("the digest is %s, was %s", now, digest)
	}
	done(t, "client", "document", "upsert", "orders", "d0", `{"n":100}`)
	done(t, "auditor", "audit")

	if r := operator("database", "delete", "main", "--yes").Exits(1); !strings.Contains(r.Stderr, "is served: stop every lapse") {
		t.Errorf("while lapse serves: %s", r.Stderr)
	}
	one.Stop()
	two.Stop()
	eventually(t, "the deletion", func() bool { return operator("database", "delete", "main", "--yes").Code == 0 })
	if list := operator("database", "list").OK(); list != "" {
		t.Errorf("there are still %s", list)
	}
	for _, line := range c.violations() {
		t.Error(line)
	}
}

// serveOrders starts a cluster of three and two processes beside it, one of which writes, with
// ten documents in orders.
func serveOrders(t *testing.T) (c *cluster, one, two *harness.Server) {
	t.Helper()
	c = startCluster(t, 3)
	contexts(t, c.urls)
	one, two = harness.Serve(t, serveArgs(c.urls)...), harness.Serve(t, serveArgs(c.urls)...)
	eventually(t, "one of them writes", func() bool { return writes(one) != writes(two) })
	done(t, "client", "collection", "create", "orders", "--default-ttl", "1h")
	for n := range 10 {
		done(t, "client", "document", "upsert", "orders", fmt.Sprint("d", n), fmt.Sprintf(`{"n":%d}`, n))
	}
	return c, one, two
}

// digestOf returns the digest of whichever process answers.
func digestOf(t *testing.T) string {
	t.Helper()
	var status struct{ Digest string }
	if err := json.Unmarshal([]byte(done(t, "client", "status", "--json")), &status); err != nil || status.Digest == "" {
		t.Fatalf("%+v, %v", status, err)
	}
	return status.Digest
}
