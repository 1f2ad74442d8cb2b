package compose

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jsm.go"
	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/test/harness"
)

// TestEmbeddedBackup: by the means of NATS alone, the operator of an embedded server backs
// up the streams while it serves, and restores them in another store directory, in which
// lapse goes on from the backup. The operator also audits the log.
func TestEmbeddedBackup(t *testing.T) {
	as := []string{"--operator-nkey", environment["NKEY_OPERATOR"]}
	server := harness.Serve(t, as...)
	lapse, err := client.Connect(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer lapse.Close()
	do(t, lapse, "collection.create", "", `{"defaultTtl":3600}`)
	for n := range 20 {
		do(t, lapse, "document.upsert", fmt.Sprint("d", n), `{}`)
	}
	if _, err := lapse.Conn().Request("lapse.main.mutations.document.delete.orders.d19", nil, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the mutation is judged", func() bool {
		status, err := lapse.Status(t.Context())
		return err == nil && status.Documents == 19
	})
	before := digest(t, server)

	backup := t.TempDir()
	operator, hangUp := operatorOf(t, server)
	for _, name := range streams {
		stream, err := operator.LoadStream(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.SnapshotToDirectory(t.Context(), filepath.Join(backup, name), jsm.SnapshotConsumers(), jsm.SnapshotHealthCheck()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	hangUp()
	do(t, lapse, "document.upsert", "late", `{}`)
	server.Run("audit", "--nkey", filepath.Join(secrets, "nkeys", "operator.nk"), "--inbox-prefix", "_OPERATOR").OK()
	server.Stop()

	restored := harness.Serve(t, append(as, "--database", "restore")...)
	operator, hangUp = operatorOf(t, restored)
	for _, name := range streams {
		if _, _, err := operator.RestoreSnapshotFromDirectory(t.Context(), name, filepath.Join(backup, name)); err != nil {
			t.Fatal(err)
		}
	}
	hangUp()
	restored.Stop()
	restored.With(as...)
	restored.Restart()
	if after := digest(t, restored); after != before {
		t.Errorf("the digest is %s, was %s", after, before)
	}
	if r := restored.Run("document", "get", "orders", "late"); r.Code != 1 || !strings.Contains(r.Stderr, "404") {
		t.Errorf("%+v", r)
	}
	restored.Run("document", "get", "orders", "d18").OK()
	restored.Run("document", "upsert", "orders", "d0", `{"n":1}`).OK()
	restored.Run("audit").OK()
}

// operatorOf returns a manager of the streams of an embedded server.
func operatorOf(t *testing.T, server *harness.Server) (manager *jsm.Manager, hangUp func()) {
	t.Helper()
	key, err := nats.NkeyOptionFromSeed(filepath.Join(secrets, "nkeys", "operator.nk"))
	if err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(server.URL(), key, nats.CustomInboxPrefix("_OPERATOR"))
	if err != nil {
		t.Fatal(err)
	}
	if manager, err = jsm.New(nc, jsm.WithTimeout(10*time.Second)); err != nil {
		t.Fatal(err)
	}
	return manager, nc.Close
}

func digest(t *testing.T, server *harness.Server) string {
	t.Helper()
	var status struct{ Digest string }
	if err := json.Unmarshal([]byte(server.Run("status", "--json").OK()), &status); err != nil || status.Digest == "" {
		t.Fatalf("%+v, %v", status, err)
	}
	return status.Digest
}
