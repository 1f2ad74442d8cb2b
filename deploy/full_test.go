package deploy_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/test/harness"
)

// TestStorageLimit: when a cluster is at max_file_store, lapse says so and goes on trying.
// Restarted with a larger limit, NATS accepts writes again, and has all that were
// acknowledged.
func TestStorageLimit(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(natsConf)
	check(t, err)
	small := filepath.Join(t.TempDir(), "nats.conf")
	check(t, os.WriteFile(small, []byte(strings.Replace(string(text), "$NATS_MAX_STORE", "4MB", 1)), 0o600))
	c := startClusterWith(t, small, 3)
	contexts(t, c.urls)
	s := harness.Serve(t, serveArgs(c.urls)...)
	done(t, "client", "collection", "create", "orders")

	nc := c.connect(t, "client")
	lapse, err := client.New(nc)
	check(t, err)
	put := func(ctx context.Context) (uint64, error) {
		reply, err := lapse.Do(ctx, "document.upsert", "orders", "a", []byte(`{"fill":"`+strings.Repeat("x", 256<<10)+`"}`))
		if err != nil {
			return 0, err
		}
		return reply.Seq, nil
	}
	var acknowledged uint64
	eventually(t, "lapse says why the log accepts nothing", func() bool {
		if seq, err := put(t.Context()); err == nil {
			acknowledged = seq
		}
		return strings.Contains(s.Stderr(), "storage limit")
	})

	for i, node := range c.nodes {
		node.Shutdown()
		node.WaitForShutdown()
		c.start(t, i, natsConf)
	}
	var next uint64
	repeat(t, func(ctx context.Context) (err error) { next, err = put(ctx); return err })
	if next <= acknowledged {
		t.Errorf("%d was acknowledged, then %d", acknowledged, next)
	}
	done(t, "auditor", "audit")
	s.Stop()
}
