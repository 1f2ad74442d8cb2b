package watching

import (
	"bufio"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/lapsedb/lapse/test/harness"
)

var check = harness.Check

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// exported returns the names of the metrics that lapse serve exports, from a scrape.
func exported(t *testing.T) map[string]bool {
	t.Helper()
	metrics := harness.FreeAddr(t)
	s := harness.Serve(t, "--durability", "os", "--metrics", metrics, "--retain", "1h", "--snapshot-every", "1s")
	s.Run("collection", "create", "orders", `{"defaultTtl":1}`).OK()
	s.Run("document", "create", "orders", "a", `{}`).OK()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		names := scrape(t, metrics)
		if names["lapse_snapshot_last_bytes"] {
			return names
		}
		if time.Now().After(deadline) {
			t.Fatalf("no snapshot was made:\n%s", s.Stderr())
		}
	}
}

func scrape(t *testing.T, address string) map[string]bool {
	t.Helper()
	response, err := http.Get("http://" + address + "/metrics")
	check(t, err)
	defer response.Body.Close()
	names := make(map[string]bool)
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if line := lines.Text(); line != "" && line[0] != '#' {
			end := strings.IndexAny(line, "{ ")
			names[line[:end]] = true
		}
	}
	return names
}
