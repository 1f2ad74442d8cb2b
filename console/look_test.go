package console_test

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

// hits fills a collection with the first n of the requests in testdata.
func hits(t *testing.T, coll *client.Collection, n int) {
	t.Helper()
	file, err := os.Open(filepath.Join("..", "test", "testdata", "hits.ndjson.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	batch := coll.Batch()
	send := func() {
		results, err := batch.Run(t.Context())
		if err == nil {
			err = results.Err()
		}
		if err != nil {
			t.Fatal(err)
		}
		batch = coll.Batch()
	}
	lines := bufio.NewScanner(unzipped)
	for i := 0; i < n && lines.Scan(); i++ {
		var hit struct {
			ID   string          `json:"id"`
			Body json.RawMessage `json:"body"`
		}
		if err := json.Unmarshal(lines.Bytes(), &hit); err != nil {
			t.Fatal(err)
		}
		if batch.Upsert(hit.ID, hit.Body); batch.Len() == client.MaxBatch {
			send()
		}
	}
	send()
}

// TestLook makes pictures of every page for people to look at, in the directory
// LAPSE_LOOK.
func TestLook(t *testing.T) {
	dir := os.Getenv("LAPSE_LOOK")
	if dir == "" {
		t.Skip("LAPSE_LOOK is not set")
	}
	s := start(t, "", console.Options{Write: true})
	b := open(t, s, "")
	look := func(name, fragment string) {
		for _, width := range []int64{1280, 360} {
			for _, scheme := range []string{"light", "dark"} {
				b.width(width)
				b.scheme(scheme)
				b.visit(fragment)
				time.Sleep(700 * time.Millisecond)
				if wide := eval[int64](b, `document.documentElement.scrollWidth`); wide > width {
					t.Errorf("%s at %d is %d wide", name, width, wide)
				}
				if err := b.picture(filepath.Join(dir, fmt.Sprintf("%s-%d-%s.png", name, width, scheme))); err != nil {
					t.Error(err)
				}
			}
		}
	}
	look("empty-overview", "")
	look("empty-collections", "collections")
	look("empty-forecast", "forecast")
	look("empty-documents", "documents")
	one, err := lapse.CreateCollection(t.Context(), "one")
	if err != nil {
		t.Fatal(err)
	}
	put(t, one, "a", `{"n":1}`)
	many, err := lapse.CreateCollection(t.Context(), "sessions", client.DefaultTTL(30*24*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	hits(t, many, 10000)
	for i := range 300 {
		put(t, many, fmt.Sprintf("cart-%d", i), fmt.Sprintf(`{"customer":"C%d","ttl":%d}`, i%7, 60+i*200))
	}
	put(t, many, "cart-1", `{"customer":"C1","total":5,"ttl":1}`)
	for _, name := range []string{"overview:", "collections:collections", "one:collections/one", "collection:collections/sessions", "forecast:forecast/sessions", "documents:documents/sessions",
		"document:documents/sessions/83.149.9.216", "expired:documents/sessions/cart-1", "feed:feed"} {
		var fragment string
		for i := range name {
			if name[i] == ':' {
				name, fragment = name[:i], name[i+1:]
				break
			}
		}
		look(name, fragment)
	}
}
