package console

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/console"
)

// hits fills a collection with the requests in testdata. Three of five documents have
// their own ttl, of up to a day.
func hits(t *testing.T, coll *client.Collection) {
	t.Helper()
	file, err := os.Open(filepath.Join("..", "..", "testdata", "hits.ndjson.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(unzipped)
	for more := true; more; {
		batch := coll.Batch()
		for batch.Len() < client.MaxBatch {
			if more = lines.Scan(); !more {
				break
			}
			var hit struct {
				ID   string         `json:"id"`
				Body map[string]any `json:"body"`
			}
			if err := json.Unmarshal(lines.Bytes(), &hit); err != nil {
				t.Fatal(err)
			}
			if n, _ := hit.Body["bytes"].(float64); int(n)%5 > 1 {
				hit.Body["ttl"] = 600 + int(n)%86400
			}
			batch.Upsert(hit.ID, hit.Body)
		}
		write(t, batch)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
}

// TestScreenshots writes the pictures of the manual into the directory TEST_SCREENSHOTS.
func TestScreenshots(t *testing.T) {
	dir := os.Getenv("TEST_SCREENSHOTS")
	if dir == "" {
		t.Skip("TEST_SCREENSHOTS is not set")
	}
	lapse := connect(t)
	b := openConsole(t, lapse, console.Options{Write: true})
	b.expect("404")
	take := func(name string) {
		if err := b.picture(filepath.Join(dir, name+".png"), name != "due"); err != nil {
			t.Fatal(err)
		}
	}
	sessions, err := lapse.CreateCollection(t.Context(), "sessions", client.DefaultTTL(30*24*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lapse.CreateCollection(t.Context(), "carts", client.TTLPerDocument(), client.IncludePaths("/customer")); err != nil {
		t.Fatal(err)
	}
	b.visit("")
	b.sees("Processes")
	hits(t, sessions)
	put(t, sessions, "cart-1", `{"customer":"C1","total":5}`)
	put(t, sessions, "cart-1", `{"customer":"C1","total":7,"ttl":1}`)
	b.until(`document.querySelectorAll('.u-over').length === 3`)
	b.until(`/10,0\d\d/.test(document.querySelector('.facts').innerText)`)
	for e, err := range lapse.Changes(t.Context(), client.Durable("billing"), client.FromSeq(1)) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Seq > 9900 {
			break
		}
	}
	for i := range 600 { // the charts need data
		put(t, sessions, fmt.Sprint("visitor-", i%50), `{"pages":1,"ttl":172800}`)
		time.Sleep(100 * time.Millisecond)
	}
	b.width(1280)
	take("overview")
	b.visit("collections/sessions")
	b.pick(`select[aria-label="Time to live: unit"]`, "seconds")
	b.fill(`input[aria-label="Time to live"]`, "5")
	b.sees("documents will expire at once.")
	b.until(`document.querySelectorAll('.beside .u-over').length === 2`)
	take("ttl")
	b.visit("documents/sessions?until=24h")
	b.sees("ttl of")
	b.until(`document.querySelectorAll('tbody tr').length > 10`)
	take("due")
	b.visit("documents/sessions/cart-1")
	b.sees("Last content")
	take("document")
}
