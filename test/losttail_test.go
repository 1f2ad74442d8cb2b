package test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/test/harness"
	"github.com/lapsedb/lapse/test/stress"
)

// damagedStore is a store directory with a log, of which copies are damaged.
type damagedStore struct {
	dir    string
	events []event // that its log has
}

const messages = "jetstream/*/streams/LAPSE_main/msgs"

// blocks are the files with the log's messages, oldest first.
func blocks(t testing.TB, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, messages, "*.blk"))
	if err != nil || len(files) == 0 {
		t.Fatalf("blocks of the log below %s: %v, %v", dir, files, err)
	}
	slices.SortFunc(files, func(a, b string) int { return len(a) - len(b) + 0*strings.Compare(a, b) })
	slices.SortStableFunc(files, func(a, b string) int {
		if len(a) != len(b) {
			return len(a) - len(b)
		}
		return strings.Compare(a, b)
	})
	return files
}

func stream(t testing.TB, dir string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "jetstream/*/streams/LAPSE_main"))
	if err != nil || len(found) != 1 {
		t.Fatalf("the log below %s: %v, %v", dir, found, err)
	}
	return found[0]
}

func copyDir(t testing.TB, from, to string) {
	t.Helper()
	if err := os.RemoveAll(to); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

func remove(t testing.TB, path string) {
	t.Helper()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}

// flip changes one bit of a file.
func flip(t testing.TB, path string, random *rand.Rand) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at, bit := random.IntN(len(b)), random.IntN(8)
	t.Logf("bit %d of byte %d of %s, which has %d", bit, at, filepath.Base(path), len(b))
	b[at] ^= 1 << bit
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func truncate(t testing.TB, path string, random *rand.Rand) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	size := random.Int64N(info.Size())
	t.Logf("%s is cut to %d of %d bytes", filepath.Base(path), size, info.Size())
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
}

// fill writes documents, about 40 KB each, so that a few hundred of them make
// more than one block.
func fill(t testing.TB, nc *nats.Conn, random *rand.Rand, writes int) {
	t.Helper()
	for i := range writes {
		id := random.IntN(100)
		tail, body := fmt.Sprintf("document.upsert.c.%d", id), fmt.Sprintf(`{"n":%d,"x":"%s"}`, i, strings.Repeat("x", random.IntN(80_000)))
		if i%10 == 9 {
			tail, body = fmt.Sprintf("document.delete.c.%d", id), ""
		}
		if a := ask(t, nc, tail, body); a.code >= 500 || a.code == 400 {
			t.Fatalf("%s: %d %s", tail, a.code, a.body)
		}
	}
}

func export(t testing.TB, s *harness.Server) []event {
	t.Helper()
	return parseEvents(t, s.Run("export").OK())
}

// living are the documents that a log makes, with their versions.
func living(events []event) map[string]string {
	documents := make(map[string]string)
	for _, e := range events {
		switch e.Type {
		case "DocumentCreated", "DocumentReplaced":
			documents[e.ID] = fmt.Sprintf("%d %s", e.Seq, e.Body)
		case "DocumentDeleted", "DocumentExpired":
			delete(documents, e.ID)
		}
	}
	return documents
}

// served are the documents that a server has.
func served(t testing.TB, nc *nats.Conn) map[string]string {
	t.Helper()
	documents := make(map[string]string)
	for i := range 100 {
		a := ask(t, nc, fmt.Sprintf("document.get.c.%d", i), "")
		if a.code == 404 {
			continue
		}
		var d struct {
			ID   string `json:"id"`
			ETag string `json:"_etag"`
		}
		if a.code != 200 || json.Unmarshal(a.body, &d) != nil {
			t.Fatalf("get %d: %d %.200s", i, a.code, a.body)
		}
		body, _, _ := strings.Cut(string(a.body), `,"_ts"`)
		documents[d.ID] = d.ETag + " " + body + "}"
	}
	return documents
}

func TestLostTail(t *testing.T) {
	random := stress.Rand(t)
	s := harness.Serve(t, "--durability", "os")
	nc := dial(t, s)
	mustAsk(t, nc, 201, "collection.create.c", "")
	fill(t, nc, random, 100)
	s.Stop()
	older := filepath.Join(t.TempDir(), "older")
	copyDir(t, s.Dir, older)
	s.Restart()
	eventually(t, "the service is back", func() bool { _, err := tryAskFor(nc, "status", "", time.Second); return err == nil })
	fill(t, nc, random, 400)
	events := export(t, s)
	s.Stop()
	dir := s.Dir
	t.Log(blocks(t, dir))
	for i := range stress.Pick(6, 100) {
		for name, damage := range map[string]func(t *testing.T, dir string){
			"cut":           func(t *testing.T, dir string) { b := blocks(t, dir); truncate(t, b[len(b)-1], random) },
			"cut first":     func(t *testing.T, dir string) { truncate(t, blocks(t, dir)[0], random) },
			"flip":          func(t *testing.T, dir string) { flip(t, blocks(t, dir)[0], random) },
			"flip last":     func(t *testing.T, dir string) { b := blocks(t, dir); flip(t, b[len(b)-1], random) },
			"no block":      func(t *testing.T, dir string) { remove(t, blocks(t, dir)[0]) },
			"no last block": func(t *testing.T, dir string) { b := blocks(t, dir); remove(t, b[len(b)-1]) },
			"flip, no index": func(t *testing.T, dir string) {
				flip(t, blocks(t, dir)[0], random)
				remove(t, stream(t, dir)+"/msgs/index.db")
			},
			"cut, no index": func(t *testing.T, dir string) {
				b := blocks(t, dir)
				truncate(t, b[len(b)-1], random)
				remove(t, stream(t, dir)+"/msgs/index.db")
			},
			"no stream":        func(t *testing.T, dir string) { remove(t, stream(t, dir)) },
			"no index":         func(t *testing.T, dir string) { remove(t, stream(t, dir)+"/msgs/index.db") },
			"flip index":       func(t *testing.T, dir string) { flip(t, stream(t, dir)+"/msgs/index.db", random) },
			"flip meta":        func(t *testing.T, dir string) { flip(t, stream(t, dir)+"/meta.inf", random) },
			"older log":        func(t *testing.T, dir string) { copyDir(t, stream(t, older), stream(t, dir)) },
			"older projection": func(t *testing.T, dir string) { copyDir(t, older+"/projection", dir+"/projection") },
		} {
			for _, projection := range []bool{true, false} {
				t.Run(fmt.Sprint(name, i, projection), func(t *testing.T) {
					s.Dir = filepath.Join(t.TempDir(), "store")
					copyDir(t, dir, s.Dir)
					if !projection {
						remove(t, s.Dir+"/projection")
					}
					damage(t, s.Dir)
					if !s.Start() {
						t.Logf("refused: %s", s.Stderr())
						return
					}
					eventually(t, "the service is back", func() bool { _, err := tryAskFor(nc, "status", "", time.Second); return err == nil })
					documents := served(t, nc)
					left := export(t, s)
					t.Logf("serves %d of %d events, as log: %v, as original %v\n%s", len(left), len(events), maps.Equal(documents, living(left)), maps.Equal(documents, living(events)), s.Stderr())
					s.Kill()
				})
			}
		}
	}
}
