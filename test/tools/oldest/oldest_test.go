package oldest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lapsedb/lapse/test/child"
)

// tests are those of deploy that use all of NATS that lapse and its clients use: requests,
// mutations, the feed by durable and ordered readers, edits of consumers, synced appends,
// take-overs, and what NATS refuses an account with JetStream.
const tests = "^Test(Serve|AppAccount|Steering|InfoOpensNothing)$"

// TestOldestNATS: lapse, its clients and nats.conf work with the oldest server, without a
// warning, and the manual names its version.
func TestOldestNATS(t *testing.T) {
	nats := filepath.Join(t.TempDir(), "nats-server")
	run := func(dir, name string, args ...string) string {
		t.Helper()
		cmd := child.Tool(t.Context(), name, args...)
		cmd.Dir, cmd.Env = dir, append(cmd.Env, "TEST_NATS_SERVER="+nats)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return string(out)
	}
	run("server", "go", "build", "-o", nats, "github.com/nats-io/nats-server/v2")
	_, version, _ := strings.Cut(run(".", nats, "--version"), ": v")
	root := filepath.Join("..", "..", "..")
	page, err := os.ReadFile(filepath.Join(root, "docs", "deploy.md"))
	if err != nil {
		t.Fatal(err)
	}
	if oldest := "or " + strings.TrimSpace(version) + ", the oldest version"; !strings.Contains(string(page), oldest) {
		t.Errorf("docs/deploy.md does not say %q", oldest)
	}
	run(root, "go", "test", "-count", "1", "-timeout", "9m", "-run", tests, "./deploy")
}
