package console

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/console"
	"github.com/lapsedb/lapse/test/harness"
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	defer closeBrowser()
	return harness.Main(m)
}

// connect starts lapse and returns a client of it.
func connect(t testing.TB) *client.Client {
	t.Helper()
	server := harness.Serve(t, "--durability", "os")
	// While a browser starts that is not in memory yet, others wait for the disk.
	lapse, err := client.Connect(server.URL(), client.WithTimeout(30*time.Second))
	check(t, err)
	t.Cleanup(lapse.Close)
	return lapse
}

// serve starts lapse with a collection whose name is as long as allowed.
func serve(t testing.TB, opts ...client.PropertyOption) (*client.Client, *client.Collection) {
	t.Helper()
	lapse := connect(t)
	coll, err := lapse.CreateCollection(t.Context(), t.Name()+strings.Repeat("_", 64-len(t.Name())), opts...)
	check(t, err)
	return lapse, coll
}

// host serves a handler until the end of the test, and returns its URL.
func host(t testing.TB, handler http.Handler) string {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s.URL
}

// openConsole opens a tab with a console of lapse.
func openConsole(t *testing.T, lapse *client.Client, options console.Options) *tab {
	t.Helper()
	return open(t, host(t, console.New(t.Context(), lapse, options)))
}

// write runs a batch and fails the test unless every operation succeeds.
func write(t testing.TB, batch *client.Batch) {
	t.Helper()
	results, err := batch.Run(t.Context())
	if err == nil {
		err = results.Err()
	}
	check(t, err)
}

func put(t testing.TB, coll *client.Collection, id, body string) {
	t.Helper()
	if _, err := client.Upsert(t.Context(), coll, id, json.RawMessage(body)); err != nil {
		t.Fatal(err)
	}
}
