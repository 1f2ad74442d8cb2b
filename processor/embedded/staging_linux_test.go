package embedded_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"github.com/lapsedb/lapse/processor/embedded"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/harness"
)

// sendBatch sends the messages first to last of a batch to the log. The last one requests
// a reply, whose error it returns.
func sendBatch(nc *nats.Conn, batch string, first, last int, commit bool, data []byte) error {
	for n := first; n <= last; n++ {
		m := nats.NewMsg(appendTo("orders.DocumentCreated"))
		m.Data = data
		m.Header.Set(jetstreamext.BatchIDHeader, batch)
		m.Header.Set(jetstreamext.BatchSeqHeader, strconv.Itoa(n))
		if n < last {
			if err := nc.PublishMsg(m); err != nil {
				return err
			}
			continue
		}
		if commit {
			m.Header.Set(jetstreamext.BatchCommitHeader, "1")
		}
		reply, err := nc.RequestMsg(m, patience)
		if err != nil {
			return err
		}
		var ack struct{ Error *jetstream.APIError }
		if len(reply.Data) > 0 && json.Unmarshal(reply.Data, &ack) == nil && ack.Error != nil {
			return ack.Error
		}
	}
	return nil
}

// TestInterruptedBatch: a batch that a full disk interrupts is completed by the next start
// with enough space, wherever it is staged, and not half applied by one on the full disk.
func TestInterruptedBatch(t *testing.T) {
	t.Parallel()
	for _, inMemory := range []bool{true, false} {
		t.Run(fmt.Sprintf("memory=%t", inMemory), func(t *testing.T) {
			t.Parallel()
			const messages, bytes = 100, 20 << 10
			dir := t.TempDir()
			harness.SmallDisk(t, dir, 48<<20)
			lines := &sources{lines: make(map[uintptr][]string)}
			options := embedded.Options{StoreDir: filepath.Join(dir, "store"), Listen: "127.0.0.1:0", Databases: []schema.DatabaseName{"main"}, SyncAlways: true, Logger: slog.New(lines.handler())}
			s, nc, _ := startLog(t, options)
			batch, free := "batch", int64(messages*bytes/2)
			if inMemory {
				stage := s.Stage("main")
				if stage == nil {
					t.Skip("this system has no file system in memory at /dev/shm")
				}
				batch = stage(messages * bytes)
			} else {
				free += messages * bytes
			}
			ballast := filepath.Join(dir, "ballast")
			fillUp(t, ballast, free)
			go sendBatch(nc, batch, 1, messages, true, make([]byte, bytes)) // is not acknowledged
			<-s.Failed()
			nc.Close()
			s.Shutdown()
			if full, err := embedded.Start(options); err == nil {
				full.Shutdown()
				t.Fatal("it starts on the full disk")
			} else if !strings.HasSuffix(err.Error(), "free some space and start again") {
				t.Fatal(err)
			}
			check(t, os.Remove(ballast))
			_, _, js := startLog(t, options)
			stream, err := js.Stream(t.Context(), log)
			check(t, err)
			if last := stream.CachedInfo().State.LastSeq; last != messages {
				t.Errorf("the log ends at %d, want the whole batch of %d", last, messages)
			}
			for _, line := range lines.lines {
				if text := strings.Join(line, ""); strings.Contains(text, "Failed restoring") {
					t.Error(text)
				}
			}
		})
	}
}

// fillUp fills a disk but for some bytes.
func fillUp(t *testing.T, file string, free int64) {
	t.Helper()
	disk, err := vfs.Default.GetDiskUsage(filepath.Dir(file))
	if err == nil {
		err = os.WriteFile(file, make([]byte, int64(disk.AvailBytes)-free), 0o600)
	}
	check(t, err)
}

// TestLeftovers: a start removes what killed processes left in memory, that of its own
// store and of others after a while, whatever it syncs, and nothing of living ones.
func TestLeftovers(t *testing.T) {
	t.Parallel()
	living := start(t, embedded.Options{SyncAlways: true})
	if living.Memory() == "" {
		t.Skip("this system has no file system in memory at /dev/shm")
	}
	const hour = time.Hour
	check(t, os.Chtimes(living.Memory(), time.Time{}, time.Now().Add(-hour)))
	for _, sync := range []bool{true, false} {
		own := t.TempDir()
		kept := make(map[string]bool)
		for _, killed := range []struct {
			store string
			age   time.Duration
			kept  bool
		}{{own, 0, false}, {t.TempDir(), hour, false}, {t.TempDir(), 0, true}} {
			path := embedded.MemoryPath(killed.store)
			err := os.MkdirAll(filepath.Join(path, "batch", "msgs"), 0o700)
			if err == nil {
				t.Cleanup(func() { os.RemoveAll(path) })
				err = os.Chtimes(path, time.Time{}, time.Now().Add(-killed.age))
			}
			check(t, err)
			kept[filepath.Join(path, "batch")] = killed.kept
		}
		s := start(t, embedded.Options{StoreDir: own, SyncAlways: sync})
		for path, kept := range kept {
			if _, err := os.Stat(path); kept != (err == nil) {
				t.Errorf("sync %t: %s: %v, want it kept: %t", sync, path, err, kept)
			}
		}
		if has := s.Memory() != ""; has != sync {
			t.Errorf("sync %t: has memory %t", sync, has)
		}
	}
	must(t)(os.Stat(living.Memory()))
}

// TestStage: a staged batch is in memory and not on disk, and is removed soon after its
// commit, at a shutdown and at a start.
func TestStage(t *testing.T) {
	t.Parallel()
	options := embedded.Options{StoreDir: t.TempDir(), Listen: "127.0.0.1:0", Databases: []schema.DatabaseName{"main"}, SyncAlways: true}
	s, nc, js := startLog(t, options)
	stage := s.Stage("main")
	if stage == nil {
		t.Skip("this system has no file system in memory at /dev/shm")
	}
	batches := filepath.Join(options.StoreDir, "jetstream", "LAPSE", "streams", "LAPSE_main", "batches")
	var memory string
	for round := range 3 {
		batch := stage(100)
		check(t, sendBatch(nc, batch, 1, 5, false, []byte(`{}`)))
		links, err := os.ReadDir(batches)
		if err != nil || len(links) != 1 || links[0].Type() != os.ModeSymlink {
			t.Fatalf("round %d: the server stages in %v (%v), want one link", round, links, err)
		}
		to, err := os.Readlink(filepath.Join(batches, links[0].Name()))
		check(t, err)
		if blocks, err := filepath.Glob(filepath.Join(to, "msgs", "*.blk")); err != nil || len(blocks) != 1 {
			t.Errorf("round %d: %s holds %v (%v), want what is staged", round, to, blocks, err)
		}
		memory = filepath.Dir(to)
		if all, err := os.ReadDir(memory); err != nil || len(all) != 1 {
			t.Errorf("round %d: %s holds %v (%v), want one batch", round, memory, all, err)
		}
		check(t, sendBatch(nc, batch, 6, 6, true, []byte(`{}`)))
		stream, err := js.Stream(t.Context(), log)
		check(t, err)
		if last := stream.CachedInfo().State.LastSeq; last != uint64(6*(round+1)) {
			t.Errorf("round %d: the log ends at %d", round, last)
		}
		eventually(t, "the end of the batch", func() bool { entries, err := os.ReadDir(batches); return err == nil && len(entries) == 0 })
	}
	if batch := stage(9 << 20); batch != "" {
		t.Error("9 MiB are staged in memory")
	}
	nc.Close()
	s.Shutdown()
	if _, err := os.Stat(memory); !os.IsNotExist(err) {
		t.Errorf("%s is still there after the shutdown (%v)", memory, err)
	}
	check(t, os.MkdirAll(filepath.Join(memory, "left by a kill"), 0o700))
	startLog(t, options)
	if all, err := os.ReadDir(memory); err != nil || len(all) != 0 {
		t.Errorf("after a start %s holds %v (%v)", memory, all, err)
	}
}
