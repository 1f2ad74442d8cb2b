package test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/test/harness"
	"github.com/lapsedb/lapse/test/stress"
)

// filesWith returns the files below dir that contain a text.
func filesWith(t testing.TB, dir, text string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			var content []byte
			if content, err = os.ReadFile(path); err == nil && bytes.Contains(content, []byte(text)) {
				paths = append(paths, path)
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // files come and go
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// TestRetentionOnDisk: once the retention has passed, no file of the store directory
// contains expired documents, from whatever source. Live ones stay, also one on hold that
// was due before the log begins.
func TestRetentionOnDisk(t *testing.T) {
	t.Parallel()
	s := harness.Serve(t, "--durability", "os", "--retain", "2s")
	nc := dial(t, s)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	const marker = "7Yk2QvXw0LmZ4TbN"
	mustAsk(t, nc, 201, "collection.create.c", `{"defaultTtl":1,"indexingPolicy":{"includedPaths":[{"path":"/secret"}]}}`)
	const held = `{"atomic":true,"operations":[{"op":"create","id":"held","body":{"n":2}},{"op":"hold","id":"held","body":{"reason":"case 7"}}]}`
	mustAsk(t, nc, 200, "batch.c", held)
	for i := range 100 {
		body := fmt.Sprintf(`{"n":%d,"secret":%q}`, i, marker)
		mustAsk(t, nc, 201, fmt.Sprintf("document.create.c.r%d", i), body)
		if _, err := js.Publish(t.Context(), fmt.Sprintf("lapse.main.mutations.document.create.c.m%d", i), []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	mustAsk(t, nc, 201, "document.create.c.keeps", `{"ttl":-1,"n":1}`)
	if len(filesWith(t, s.Dir, marker)) == 0 {
		t.Fatal("there is nothing to find before either")
	}
	var where []string
	eventually(t, "no file has it", func() bool {
		if now := filesWith(t, s.Dir, marker); !slices.Equal(now, where) {
			where = now
			t.Logf("it is in %v", where)
		}
		return len(where) == 0
	})
	mustAsk(t, nc, 200, "document.get.c.keeps", "")
	snapshot(t, s, "verify")
	digest := askDigest(t, s)
	s.Stop()
	if err := os.RemoveAll(filepath.Join(s.Dir, "projection")); err != nil {
		t.Fatal(err)
	}
	s.Restart()
	nc = dial(t, s)
	mustAsk(t, nc, 200, "document.get.c.keeps", "")
	if now := askDigest(t, s); now != digest {
		t.Errorf("from the snapshot the digest is %s, was %s", now, digest)
	}
	if got := mustAsk(t, nc, 200, "document.get.c.held", ""); !strings.Contains(string(got.body), `"n":2`) {
		t.Errorf("the held document is %s", got.body)
	}
	mustAsk(t, nc, 423, "document.delete.c.held", "")
	mustAsk(t, nc, 200, "document.release.c.held", "")
	eventually(t, "the released document expires", func() bool {
		return strings.Contains(string(mustAsk(t, nc, 200, "history.c.held", "").body), `"DocumentExpired"`)
	})
	mustAsk(t, nc, 404, "document.get.c.held", "")
	s.Stop()
}

// askDigest returns the digest in status.
func askDigest(t testing.TB, s *harness.Server) string {
	t.Helper()
	digest := askStatus(t, dial(t, s)).Digest
	if digest == "" {
		t.Fatal("the status has no digest")
	}
	return digest
}

// TestKillWhileTrimming: a server that is killed while it makes snapshots and trims the
// log, and loses the projection now and then, keeps every acknowledged write.
func TestKillWhileTrimming(t *testing.T) {
	t.Parallel()
	random := stress.Rand(t)
	s := harness.Serve(t, "--durability", "os", "--retain", "1s", "--snapshot-every", "1s")
	mustAsk(t, dial(t, s), 201, "collection.create.c", `{"defaultTtl":-1}`)
	const writers = 4
	var (
		mu     sync.Mutex
		last   [writers]int // last acknowledged n
		total  int
		wg     sync.WaitGroup
		ending = make(chan struct{})
	)
	for w := range writers {
		nc := dial(t, s)
		wg.Go(func() {
			for n := 1; ; n++ {
				select {
				case <-ending:
					return
				default:
				}
				// Expired documents make the log worth trimming.
				_, _ = tryAskFor(nc, fmt.Sprintf("document.upsert.c.x%d", w), `{"ttl":1}`, time.Second)
				a, err := tryAskFor(nc, fmt.Sprintf("document.upsert.c.w%d", w), fmt.Sprintf(`{"n":%d}`, n), time.Second)
				if err == nil && (a.code == 200 || a.code == 201) {
					mu.Lock()
					last[w], total = n, total+1
					mu.Unlock()
				}
			}
		})
	}
	count := func() int { mu.Lock(); defer mu.Unlock(); return total }
	trimmed := 0
	for range stress.Pick(2, 60) {
		before := count()
		eventually(t, "some writes", func() bool { return count() > before+50 })
		time.Sleep(time.Duration(random.IntN(2500)) * time.Millisecond)
		s.Kill()
		trimmed += strings.Count(s.Stderr(), "log trimmed")
		if random.IntN(2) == 0 {
			if err := os.RemoveAll(filepath.Join(s.Dir, "projection")); err != nil {
				t.Fatal(err)
			}
		}
		s.Restart()
	}
	close(ending)
	wg.Wait()
	if trimmed == 0 {
		t.Log("the log was never trimmed before a kill") // the machine was too busy
	}
	nc := dial(t, s)
	for w, n := range last {
		var d struct{ N int }
		if err := json.Unmarshal(mustAsk(t, nc, 200, fmt.Sprintf("document.get.c.w%d", w), "").body, &d); err != nil || d.N < n {
			t.Errorf("w%d is at %d, %d was acknowledged (%v)", w, d.N, n, err)
		}
	}
	eventually(t, "all that expires has", func() bool { return askStatus(t, nc).PendingExpiry+askStatus(t, nc).Overdue == 0 })
	digest := askDigest(t, s)
	snapshot(t, s, "create")
	snapshot(t, s, "verify")
	s.Stop()
	if err := os.RemoveAll(filepath.Join(s.Dir, "projection")); err != nil {
		t.Fatal(err)
	}
	s.Restart()
	if now := askDigest(t, s); now != digest {
		t.Errorf("anew the digest is %s, was %s", now, digest)
	}
	s.Stop()
}

// snapshot makes or verifies a snapshot. It retries, since the server's own retention may
// do so each second, and only one runs at a time.
func snapshot(t *testing.T, s *harness.Server, command string) {
	t.Helper()
	eventually(t, "snapshot "+command, func() bool {
		r := s.Run("snapshot", command)
		if strings.Contains(r.Stderr, "429 overloaded") {
			return false
		}
		r.OK()
		return true
	})
}

// TestSnapshotRestore: after the loss of the log, lapse continues from a snapshot.
func TestSnapshotRestore(t *testing.T) {
	t.Parallel()
	s := harness.Serve(t, "--durability", "os")
	nc := dial(t, s)
	mustAsk(t, nc, 201, "collection.create.c", `{}`)
	mustAsk(t, nc, 201, "document.create.c.a", `{"n":1}`)
	s.Run("snapshot", "create").OK()
	restore := func(args ...string) harness.Result {
		return harness.Run(t, nil, append([]string{"snapshot", "restore", "--store-dir", s.Dir}, args...)...)
	}
	if r := restore().Exits(1); !strings.Contains(r.Stderr, "another process uses the store directory") {
		t.Errorf("while it runs: %s", r.Stderr)
	}
	s.Stop()
	restore().OK()
	if err := os.RemoveAll(filepath.Join(s.Dir, "jetstream", "LAPSE", "streams", "LAPSE_main")); err != nil {
		t.Fatal(err)
	}
	if r := restore().Exits(1); !strings.Contains(r.Stderr, "--new-log") {
		t.Errorf("without the log: %s", r.Stderr)
	}
	restore("--new-log").OK()
	s.Restart()
	nc = dial(t, s)
	mustAsk(t, nc, 200, "document.get.c.a", "")
	mustAsk(t, nc, 201, "document.create.c.b", `{"n":1}`)
	s.Stop()
}
