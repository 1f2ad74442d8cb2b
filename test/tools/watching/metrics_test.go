package watching

import (
	"bufio"
	"maps"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/lapsedb/lapse/test/harness"
)

var check = harness.Check

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// exported returns the names of the metrics that lapse serve and lapse watch export, from
// scrapes.
func exported(t *testing.T) map[string]bool {
	t.Helper()
	metrics := harness.FreeAddr(t)
	s := harness.Serve(t, "--durability", "os", "--metrics", metrics, "--retain", "1h", "--snapshot-every", "1s")
	s.Run("collection", "create", "orders", `{"defaultTtl":1}`).OK()
	s.Run("document", "create", "orders", "a", `{}`).OK()
	ofWatch := harness.FreeAddr(t)
	watch := harness.StartProcess(t, harness.Command(t, "watch", "--server", s.URL(), "--durable", "d", "--exec", "true", "--metrics", ofWatch), nil)
	t.Cleanup(func() {
		watch.Kill()
		if t.Failed() {
			t.Log(watch.Output())
		}
	})
	harness.Eventually(t, "the watch is ready", func() bool { return strings.Contains(watch.Output(), "ready: ") })
	var names map[string]bool
	harness.Eventually(t, "a snapshot is made", func() bool {
		names = scrape(t, metrics)
		return names["lapse_snapshot_last_bytes"]
	})
	maps.Copy(names, scrape(t, ofWatch))
	return names
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
