package test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lapsedb/lapse/test/harness"
	"github.com/lapsedb/lapse/test/stress"
)

// TestDamagedStore: with any file of a synced log damaged, after a clean stop or a kill,
// either the start is refused with a line that says what to do, and changes no file; or
// everything acknowledged is there. With --accept-lost-end the rest is served, and audit
// finds the loss.
func TestDamagedStore(t *testing.T) {
	t.Parallel()
	r := stress.Rand(t)
	s := harness.Serve(t)
	nc := dial(t, s)
	mustAsk(t, nc, 201, "collection.create.c", "")
	fill(t, nc, r, 250)
	events := export(t, s)
	dirs := t.TempDir()
	killed, stopped := filepath.Join(dirs, "killed"), filepath.Join(dirs, "stopped")
	s.Kill()
	copyDir(t, s.Dir, killed)
	s.Restart()
	s.Stop()
	copyDir(t, s.Dir, stopped)

	outcomes := make(map[string]int)
	s.Dir = filepath.Join(dirs, "damaged")
	for range stress.Pick(5, 300) {
		from := []string{killed, stopped}[r.IntN(2)]
		copyDir(t, from, s.Dir)
		what := damageBlock(t, s.Dir, r) + " in what was " + filepath.Base(from)
		then := harness.Files(t, s.Dir)
		if s.Start() {
			outcomes["whole"]++
			if left := export(t, s); len(left) < len(events) {
				t.Fatalf("%s: %d of %d events are served\n%s", what, len(left), len(events), s.Stderr())
			}
			s.Kill()
			continue
		}
		outcomes["refused"]++
		if now := harness.Files(t, s.Dir); !maps.Equal(then, now) {
			t.Fatalf("%s: it refuses, and has changed files\n%s", what, s.Stderr())
		}
		lines := harness.Lines(s.Stderr())
		last := lines[len(lines)-1]
		if !strings.HasPrefix(last, "lapse: ") || !strings.Contains(last, ".blk") || !strings.Contains(last, "restore") {
			t.Fatalf("%s: it refuses with\n%s", what, s.Stderr())
		}
		if !strings.Contains(last, "--accept-lost-end") {
			continue
		}
		outcomes["accepted"]++
		s.With("--accept-lost-end")
		s.Restart()
		left := export(t, s)
		nc := dial(t, s)
		a := mustAsk(t, nc, 201, "collection.create.more", "")
		if a.seq <= events[len(events)-1].Seq || len(left) >= len(events) || !strings.Contains(s.Stderr(), "has lost its end") {
			t.Fatalf("%s: %d of %d events are left, the next is %d\n%s", what, len(left), len(events), a.seq, s.Stderr())
		}
		if found := s.Run("audit"); found.Code != 1 || !strings.Contains(found.Stdout, "sequence") {
			t.Fatalf("%s: audit says\n%s", what, found.Stdout)
		}
		s.Kill()
		s.With()
		s.Restart() // an accepted loss is not asked about again
		s.Kill()
	}
	t.Log(outcomes)
}

// damageBlock damages a random file of the log and returns a description.
func damageBlock(t testing.TB, dir string, r *rand.Rand) string {
	files, err := filepath.Glob(filepath.Join(streamDir(t, dir), "msgs/*.blk"))
	if err != nil || len(files) < 2 {
		t.Fatal(files, err)
	}
	name := files[r.IntN(len(files))]
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	at, kind := r.IntN(len(b)), r.IntN(4)
	what := fmt.Sprintf("%s of %d bytes, at %d: %s", filepath.Base(name), len(b), at, []string{"a bit", "zeros", "the end", "gone"}[kind])
	switch kind {
	case 0:
		b[at] ^= 1 << r.IntN(8)
	case 1:
		clear(b[at:min(at+4096, len(b))])
	case 2:
		b = b[:at]
	case 3:
		remove(t, name)
		return what
	}
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return what
}
