package deploy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/harness"
)

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

// TestSnapshotRestore: with the rights of lapse, snapshots of a cluster can be restored
// into a store directory beside a lapse that serves, and with a new log after the loss of
// the old one.
func TestSnapshotRestore(t *testing.T) {
	t.Parallel()
	c, one, two := serveOrders(t)
	done(t, "client", "snapshot", "create")
	digest := digestOf(t)

	restore := func(s *harness.Server, args ...string) harness.Result {
		args = append([]string{"snapshot", "restore", "--store-dir", s.Dir}, args...)
		return harness.Run(t, nil, append(args, connectionArgs(c.urls)...)...)
	}
	if r := restore(two).Exits(1); !strings.Contains(r.Stderr, "another process uses the store directory") {
		t.Errorf("while it runs: %s", r.Stderr)
	}
	two.Stop()
	if err := os.RemoveAll(filepath.Join(two.Dir, "projection")); err != nil {
		t.Fatal(err)
	}
	var snapshot schema.Snapshot
	if err := json.Unmarshal([]byte(restore(two).OK()), &snapshot); err != nil || snapshot.Digest != digest {
		t.Errorf("it restored %+v, %v; the digest was %s", snapshot, err, digest)
	}
	two.Restart()
	if strings.Contains(two.Stderr(), "restored from a snapshot") || strings.Contains(two.Stderr(), "folded again") {
		t.Errorf("it does not accept what was restored:\n%s", two.Stderr())
	}

	// The log is lost, the snapshot is not.
	one.Stop()
	two.Stop()
	js, err := jetstream.New(c.connect(t, "operator"))
	if err != nil {
		t.Fatal(err)
	}
	repeat(t, func(ctx context.Context) error {
		if err := js.DeleteStream(ctx, log); !errors.Is(err, jetstream.ErrStreamNotFound) {
			return err
		}
		return nil // deleted by a request whose reply was lost
	})
	if r := restore(one).Exits(1); !strings.Contains(r.Stderr, "--new-log") {
		t.Errorf("without the log: %s", r.Stderr)
	}
	restore(one, "--new-log", "--replicas", "3").OK()
	one.Restart()
	two.Restart() // folds the same, beginning with the snapshot
	if now := digestOf(t); now != digest {
		t.Errorf("with a new log the digest is %s, was %s", now, digest)
	}
	done(t, "client", "document", "upsert", "orders", "d0", `{"n":100}`)
	done(t, "auditor", "audit")
	for _, line := range c.violations() {
		t.Error(line)
	}
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
