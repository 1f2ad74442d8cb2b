package cosmos

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/lapsedb/lapse/test/child"
	"github.com/lapsedb/lapse/test/tools/npm"
)

// wellKnownKey is the account key of all emulators.
const wellKnownKey = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="

// TestJavaScript: a program with @azure/cosmos finds what Cosmos DB's page about time to live
// says.
func TestJavaScript(t *testing.T) {
	modules := npm.Install(t)
	script, err := filepath.Abs("samples.js")
	if err != nil {
		t.Fatal(err)
	}
	for _, scheme := range []string{"http", "https"} {
		cert := filepath.Join(t.TempDir(), "cert.pem")
		args := []string{"--cosmos", scheme + "://localhost:0"}
		if scheme == "https" {
			args = append(args, "--cosmos-cert-out", cert)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		node := child.CommandContext(ctx, t, "node", script, serve(t, args...), wellKnownKey)
		node.Env = append(node.Env, "NODE_PATH="+modules)
		if scheme == "https" {
			node.Env = append(node.Env, "NODE_EXTRA_CA_CERTS="+cert)
		}
		if out, err := node.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", scheme, err, out)
		}
	}
}
