package test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/lapsedb/lapse/test/harness"
	"github.com/lapsedb/lapse/test/stress"
)

// ballast fills a disk up to its last byte with a file that is not lapse's.
type ballast struct {
	t    testing.TB
	file string
}

func (b ballast) fill() {
	b.t.Helper()
	f, err := os.OpenFile(b.file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil && !errors.Is(err, syscall.ENOSPC) {
		b.t.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 20; size > 0; {
		if _, err := f.Write(make([]byte, size)); errors.Is(err, syscall.ENOSPC) {
			size /= 16
		} else if err != nil {
			b.t.Fatal(err)
		}
	}
}

func (b ballast) drop() {
	b.t.Helper()
	check(b.t, os.Remove(b.file))
}

// TestDiskFull: when the disk fills up under load, at random moments, the server ends
// with a line that says so. It starts again when there is space, with every acknowledged
// write, once.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	for _, durability := range []string{"fsync", "os"} {
		t.Run(durability, func(t *testing.T) {
			rng := stress.Rand(t)
			dir := filepath.Join(t.TempDir(), "disk")
			harness.SmallDisk(t, dir, 48<<20)
			b := ballast{t, filepath.Join(dir, "ballast")}
			s := harness.ServeIn(t, dir, "--durability", durability)
			mustAsk(t, dial(t, s), 201, "collection.create.load", fmt.Sprintf(`{"defaultTtl":%d}`, writerTTL))
			w := startWriters(t, s, 4)
			for range stress.Pick(2, 20) {
				before, more := w.count(), 50+rng.IntN(200)
				eventually(t, "some writes", func() bool { return w.count() > before+more })
				b.fill()
				isFull(t, s.Fails())
				if rng.IntN(2) == 0 { // restart too early
					s.Start() // may become ready in the rest of a page, but no more
					isFull(t, s.Fails())
				}
				b.drop()
				s.Restart()
			}
			w.stop()
			w.verify()
			s.Stop()
		})
	}
}

func isFull(t testing.TB, line string) {
	t.Helper()
	// The streams may use three quarters of the disk, and can reach that limit first.
	full := strings.Contains(line, "no space left on device") || strings.Contains(line, "resource limits exceeded")
	if !full || !strings.Contains(line, "free some space and start again") {
		t.Errorf("on a full disk it says %q", line)
	}
}
