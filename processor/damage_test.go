package processor

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/processor/snapshot"
	"github.com/lapsedb/lapse/schema"
)

// damages are kinds of damage to the message file of a snapshot, which begins with the
// archive and ends with the metadata.
var damages = map[string]func([]byte) []byte{
	"a bit of the archive":     flipAt(func(n int) int { return n / 4 }),
	"a bit of a length":        flipAt(func(n int) int { return 1 }),
	"a bit of a sequence":      flipAt(func(n int) int { return 4 }),
	"a bit of a subject":       flipAt(func(n int) int { return 30 }),
	"a bit of the description": flipAt(func(n int) int { return n - 200 }),
	"zeros":                    func(b []byte) []byte { clear(b[len(b)/3 : len(b)/2]); return b },
	"nothing but zeros":        func(b []byte) []byte { clear(b); return b },
	"cut":                      func(b []byte) []byte { return b[:len(b)/2] },
	"empty":                    func(b []byte) []byte { return nil },
	"removed":                  nil,
}

func flipAt(place func(size int) int) func([]byte) []byte {
	return func(b []byte) []byte { b[place(len(b))] ^= 1; return b }
}

// snapshotFile returns the path of a file of a snapshot's stream; msgs/1.blk holds the
// messages.
func (w *wire) snapshotFile(seq uint64, name string) string {
	w.t.Helper()
	files, err := filepath.Glob(filepath.Join(w.dir, "jetstream/*/streams", fmt.Sprintf("OBJ_LAPSE_main_SNAPSHOT_%d", seq), name))
	w.check(err)
	if len(files) != 1 {
		w.t.Fatalf("files %s of snapshot %d: %v", name, seq, files)
	}
	return files[0]
}

func (w *wire) damageFile(path string, damage func([]byte) []byte) {
	w.t.Helper()
	if damage == nil {
		w.check(os.Remove(path))
		return
	}
	b, err := os.ReadFile(path)
	w.check(err)
	w.check(os.WriteFile(path, damage(b), 0o600))
}

// withSnapshots makes two snapshots of several messages, and trims the log below
// the older one.
func (w *wire) withSnapshots() (newest, older uint64) {
	w.t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	w.want(201, "collection.create.c", `{"defaultTtl":1000000}`)
	for i := range 2 {
		noise := make([]byte, 200_000)
		for k := range noise {
			noise[k] = byte('!' + random.IntN(90))
		}
		body, err := json.Marshal(map[string]string{"x": string(noise)})
		w.check(err)
		w.want(201, fmt.Sprintf("document.create.c.d%d", i), string(body))
		if i > 0 { // the newest snapshot is to be of the log's end
			w.check(w.processor.retention.Noter.Note(w.ctx(), schema.LogTrimmed, fmt.Appendf(nil, `{"first":%d}`, w.snapshotList()[0].Seq)))
		}
		w.want(201, "snapshot.create", "")
	}
	list := w.snapshotList()
	w.check(w.stream("LAPSE_main").Purge(w.ctx(), jetstream.WithPurgeSequence(list[1].Seq)))
	return list[0].Seq, list[1].Seq
}

// TestStartWithDamagedSnapshot: if the newest snapshot is damaged, a start without a
// projection takes the older one and logs which it skips. The damaged one is listed as
// not sound and removed when another is made.
func TestStartWithDamagedSnapshot(t *testing.T) {
	type file struct {
		name   string
		damage func([]byte) []byte
	}
	files := map[string]file{
		"a bit of meta.inf": {"meta.inf", flipAt(func(n int) int { return n / 2 })}, // the server skips the stream
		"no meta.inf":       {"meta.inf", nil},
	}
	for name, damage := range damages {
		files[name] = file{"msgs/1.blk", damage}
	}
	for name, file := range files {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *wire) {
				newest, older := w.withSnapshots()
				content := w.content()
				w.restartInside(4<<20, func() {
					w.damageFile(w.snapshotFile(newest, file.name), file.damage)
					w.check(w.options.Projection.FS.RemoveAll(w.options.Dir))
					w.logs.reset()
				})
				if got := w.content(); got != content {
					t.Errorf("it is\n%.300s, was\n%.300s", got, content)
				}
				listed := strings.Contains(string(w.want(200, "snapshot.list", "").body), fmt.Sprintf(`"seq":%d,`, newest))
				if logs := w.logs.String(); !strings.Contains(logs, fmt.Sprintf("restored from a snapshot\" seq=%d\n", older)) ||
					listed && strings.Count(logs, fmt.Sprintf("snapshot unusable\" seq=%d", newest)) != 1 {
					t.Errorf("it does not say which snapshot it takes, and which it does not:\n%s", logs)
				}
				if listed {
					w.verifies(newest, false)
				}
				w.want(201, "snapshot.create", "")
				for _, one := range w.snapshotList() {
					if !one.Sound || one.Seq == newest {
						t.Errorf("%+v is kept", one)
					}
				}
			})
		})
	}
}

// verifies checks the verdict of snapshot.verify.
func (w *wire) verifies(seq uint64, sound bool) {
	w.t.Helper()
	got := w.want(200, fmt.Sprintf("snapshot.verify.%d", seq), "")
	if !strings.Contains(string(got.body), fmt.Sprintf(`"sound":%t`, sound)) || sound == strings.Contains(string(got.body), `"fault":"`) {
		w.t.Errorf("verified it is %s", got.body)
	}
}

// TestDamagedSnapshotIsReplaced: verification finds a snapshot that lacks a message.
// Creating a snapshot at the same log end replaces it, verified or not. Neither blocks
// later snapshot requests, and nothing is trimmed on its account.
func TestDamagedSnapshotIsReplaced(t *testing.T) {
	// The last message is the metadata, which has replaced the one before it.
	for what, messages := range map[string]func(last uint64) (from, to uint64){
		"the first chunk": func(uint64) (uint64, uint64) { return 1, 1 },
		"the last chunk":  func(last uint64) (uint64, uint64) { return last - 2, last - 2 },
		"all chunks":      func(last uint64) (uint64, uint64) { return 1, last - 2 },
		"the description": func(last uint64) (uint64, uint64) { return last, last },
	} {
		for _, found := range []string{"verify", "create", "round"} {
			t.Run(what+", found by "+found, func(t *testing.T) {
				inBubble(t, func(w *wire) {
					newest, _ := w.withSnapshots()
					stream := w.stream(fmt.Sprintf("OBJ_LAPSE_main_SNAPSHOT_%d", newest))
					from, to := messages(stream.CachedInfo().State.LastSeq)
					for seq := from; seq <= to; seq++ {
						w.check(stream.DeleteMsg(w.ctx(), seq))
					}
					switch found {
					case "verify":
						w.verifies(newest, false)
						fallthrough
					case "create":
						w.want(201, "snapshot.create", "")
					case "round":
						_, err := w.processor.retention.Refresh(w.ctx())
						w.check(err)
					}
					if list := w.snapshotList(); len(list) != snapshot.KeepSnapshots || list[0].Seq != newest || !list[0].Sound {
						t.Errorf("there are %+v, want one at %d", list, newest)
					}
					w.verifies(newest, true)
				}, retaining(time.Hour*24*30, time.Hour*24))
			})
		}
	}
}

// TestVerifySnapshotDiskFull: a snapshot is not called damaged when the disk is too full to
// unpack it.
func TestVerifySnapshotDiskFull(t *testing.T) {
	var full atomic.Bool
	inBubble(t, func(w *wire) {
		newest, _ := w.withSnapshots()
		full.Store(true)
		w.refused(503, "unavailable", fmt.Sprintf("snapshot.verify.%d", newest), "")
		full.Store(false)
		w.verifies(newest, true)
	}, func(o *Options) {
		o.Projection.FS = errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if full.Load() && strings.Contains(op.Path, ".verify") && op.Kind == errorfs.OpFileWrite {
				return syscall.ENOSPC
			}
			return nil
		}))
	})
}

// TestStopWhileReadingStalls: a stop does not wait for an unreadable snapshot, nor for a
// round of retention that waits for a client's snapshot request.
func TestStopWhileReadingStalls(t *testing.T) {
	inBubble(t, func(w *wire) {
		started := time.Now()
		newest, _ := w.withSnapshots()
		stream := w.stream(fmt.Sprintf("OBJ_LAPSE_main_SNAPSHOT_%d", newest))
		w.check(stream.Purge(w.ctx(), jetstream.WithPurgeSequence(stream.CachedInfo().State.LastSeq)))
		time.Sleep(time.Until(started.Add(time.Hour - 4*time.Second)))
		w.check(w.client.PublishRequest(fmt.Sprintf("lapse.main.api.snapshot.verify.%d", newest), w.client.NewInbox(), nil))
		time.Sleep(8 * time.Second) // a round has begun
		if w.processor.retention.Snapshots.Making.TryLock() {
			t.Fatalf("nobody reads it:\n%s", w.logs)
		}
		began := time.Now()
		w.stop()
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("the stop took %s", took)
		}
	}, retaining(24*time.Hour, time.Hour))
}
