package cluster

import (
	"os/exec"
	"path/filepath"
	"testing"
)

const natsServer = "github.com/nats-io/nats-server/v2"

// binary builds nats-server, of the version that go.mod has.
func binary(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "nats-server")
	if out, err := exec.Command("go", "build", "-o", path, natsServer).CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", natsServer, err, out)
	}
	return path
}
