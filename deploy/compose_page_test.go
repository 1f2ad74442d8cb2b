package deploy_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/lapsedb/lapse/test/harness"
)

// TestFirstClient: the first commands of docs/compose.md work on nodes with nats.conf and
// the made keys.
func TestFirstClient(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	harness.Serve(t, serveArgs(c.urls)...)
	commands := regexp.MustCompile(`(?m)^lapse (.* --server tls://127\.0\.0\.1:4222 .*)$`).FindAllStringSubmatch(string(readFile(t, "../docs/compose.md")), -1)
	if len(commands) != 2 {
		t.Fatalf("%d commands of the page are tested, want 2", len(commands))
	}
	here := strings.NewReplacer("tls://127.0.0.1:4222", c.urls[0], "deploy/secrets", secrets)
	for _, command := range commands {
		harness.Run(t, nil, strings.Fields(here.Replace(command[1]))...).OK()
	}
}
