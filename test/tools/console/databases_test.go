package console

import (
	"testing"
	"time"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/console"
	"github.com/lapsedb/lapse/test/harness"
)

// TestDatabases: the header switches between databases, and stays on the same page.
func TestDatabases(t *testing.T) {
	t.Parallel()
	server := harness.Serve(t, "--durability", "os", "--database", "main,other")
	var clients []*client.Client
	for _, name := range []string{"main", "other"} {
		c, err := client.Connect(server.URL(), client.WithDatabase(name), client.WithTimeout(30*time.Second))
		check(t, err)
		t.Cleanup(c.Close)
		clients = append(clients, c)
	}
	b := open(t, host(t, console.Several(t.Context(), clients, console.Options{}))+"/main")
	b.visit("collections")
	b.pick(`select[aria-label="Database"]`, "other")
	b.arrives("/other/#/collections")
	b.until(`document.querySelector('select[aria-label="Database"]').value === 'other'`)
}
