package test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lapsedb/lapse/test/harness"
	"github.com/lapsedb/lapse/test/stress"
)

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
			check(t, os.RemoveAll(filepath.Join(s.Dir, "projection")))
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
	check(t, os.RemoveAll(filepath.Join(s.Dir, "projection")))
	s.Restart()
	if now := askDigest(t, s); now != digest {
		t.Errorf("folded again the digest is %s, was %s", now, digest)
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
	check(t, os.RemoveAll(filepath.Join(s.Dir, "jetstream", "LAPSE", "streams", "LAPSE_main")))
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
