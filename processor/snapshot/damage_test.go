package snapshot_test

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

	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/processor/processortest"
	"github.com/lapsedb/lapse/processor/snapshot"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// damages are kinds of damage to a file of a snapshot's stream. Its messages begin with the
// archive and end with the metadata; without meta.inf, the server skips the stream.
var damages = map[string]struct {
	file string
	do   func([]byte) []byte // nil removes it
}{
	"a bit of the archive":     {"msgs/1.blk", flipAt(func(n int) int { return n / 4 })},
	"a bit of the description": {"msgs/1.blk", flipAt(func(n int) int { return n - 200 })},
	"nothing but zeros":        {"msgs/1.blk", func(b []byte) []byte { clear(b); return b }},
	"cut":                      {"msgs/1.blk", func(b []byte) []byte { return b[:len(b)/2] }},
	"removed":                  {"msgs/1.blk", nil},
	"a bit of meta.inf":        {"meta.inf", flipAt(func(n int) int { return n / 2 })},
}

func flipAt(place func(size int) int) func([]byte) []byte {
	return func(b []byte) []byte { b[place(len(b))] ^= 1; return b }
}

// snapshotFile returns the path of a file of a snapshot's stream; msgs/1.blk holds the
// messages.
func snapshotFile(w *processortest.Wire, seq uint64, name string) string {
	w.T.Helper()
	files, err := filepath.Glob(filepath.Join(w.Dir, "jetstream/*/streams", fmt.Sprintf("OBJ_LAPSE_main_SNAPSHOT_%d", seq), name))
	w.Check(err)
	if len(files) != 1 {
		w.T.Fatalf("files %s of snapshot %d: %v", name, seq, files)
	}
	return files[0]
}

func damageFile(w *processortest.Wire, path string, damage func([]byte) []byte) {
	w.T.Helper()
	if damage == nil {
		w.Check(os.Remove(path))
		return
	}
	b, err := os.ReadFile(path)
	w.Check(err)
	w.Check(os.WriteFile(path, damage(b), 0o600))
}

// withSnapshots makes two snapshots of several messages, and trims the log below
// the older one.
func withSnapshots(w *processortest.Wire) (newest, older uint64) {
	w.T.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	w.Want(201, "collection.create.c", `{"defaultTtl":1000000}`)
	noise := make([]byte, 200_000)
	for k := range noise {
		noise[k] = byte('!' + random.IntN(90))
	}
	body, err := json.Marshal(map[string]string{"x": string(noise)})
	w.Check(err)
	w.Want(201, "document.create.c.noise", string(body))
	for i := range 2 {
		w.Want(201, fmt.Sprintf("document.create.c.d%d", i), `{}`)
		if i > 0 { // the newest snapshot is to be of the log's end
			w.Check(w.Inside().Retention.Noter.Note(w.Ctx(), schema.LogTrimmed, fmt.Appendf(nil, `{"first":%d}`, w.SnapshotList()[0].Seq)))
		}
		w.Want(201, "snapshot.create", "")
	}
	list := w.SnapshotList()
	w.Check(w.Stream("LAPSE_main").Purge(w.Ctx(), jetstream.WithPurgeSequence(list[1].Seq)))
	return list[0].Seq, list[1].Seq
}

// TestStartWithDamagedSnapshot: if the newest snapshot is damaged, a start without a
// projection takes the older one and logs which it skips. The damaged one is listed as
// not sound and removed when another is made.
func TestStartWithDamagedSnapshot(t *testing.T) {
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			processortest.Bubble(t, func(w *processortest.Wire) {
				newest, older := withSnapshots(w)
				content := w.Content()
				w.RestartInside(4<<20, func() {
					damageFile(w, snapshotFile(w, newest, damage.file), damage.do)
					w.Check(w.Options.Projection.FS.RemoveAll(w.Options.Dir))
					w.Logs.Reset()
				})
				if got := w.Content(); got != content {
					t.Errorf("it is\n%.300s, was\n%.300s", got, content)
				}
				listed := strings.Contains(string(w.Want(200, "snapshot.list", "").Body), fmt.Sprintf(`"seq":%d,`, newest))
				if logs := w.Logs.String(); !strings.Contains(logs, fmt.Sprintf("restored from a snapshot\" seq=%d\n", older)) ||
					listed && strings.Count(logs, fmt.Sprintf("snapshot unusable\" seq=%d", newest)) != 1 {
					t.Errorf("it does not say which snapshot it takes, and which it does not:\n%s", logs)
				}
				if listed {
					verifies(w, newest, false)
				}
				w.Want(201, "snapshot.create", "")
				for _, snap := range w.SnapshotList() {
					if !snap.Sound || snap.Seq == newest {
						t.Errorf("%+v is kept", snap)
					}
				}
			})
		})
	}
}

// verifies checks the verdict of snapshot.verify.
func verifies(w *processortest.Wire, seq uint64, sound bool) {
	w.T.Helper()
	got := w.Want(200, fmt.Sprintf("snapshot.verify.%d", seq), "")
	if !strings.Contains(string(got.Body), fmt.Sprintf(`"sound":%t`, sound)) || sound == strings.Contains(string(got.Body), `"fault":"`) {
		w.T.Errorf("verified it is %s", got.Body)
	}
}

// TestDamagedSnapshotIsReplaced: verification finds a snapshot that lacks a message.
// Creating a snapshot at the same log end replaces it, verified or not. Neither blocks
// later snapshot requests, and nothing is trimmed on its account.
func TestDamagedSnapshotIsReplaced(t *testing.T) {
	// The last message is the metadata, which has replaced the one before it.
	for _, c := range []struct {
		what, found string
		messages    func(last uint64) (from, to uint64)
	}{
		{"the first chunk", "verify", func(uint64) (uint64, uint64) { return 1, 1 }},
		{"the last chunk", "create", func(last uint64) (uint64, uint64) { return last - 2, last - 2 }},
		{"all chunks", "round", func(last uint64) (uint64, uint64) { return 1, last - 2 }},
		{"the description", "create", func(last uint64) (uint64, uint64) { return last, last }},
		{"the description", "round", func(last uint64) (uint64, uint64) { return last, last }},
	} {
		t.Run(c.what+", found by "+c.found, func(t *testing.T) {
			processortest.Bubble(t, func(w *processortest.Wire) {
				newest, _ := withSnapshots(w)
				stream := w.Stream(fmt.Sprintf("OBJ_LAPSE_main_SNAPSHOT_%d", newest))
				from, to := c.messages(stream.CachedInfo().State.LastSeq)
				for seq := from; seq <= to; seq++ {
					w.Check(stream.DeleteMsg(w.Ctx(), seq))
				}
				switch c.found {
				case "verify":
					verifies(w, newest, false)
					fallthrough
				case "create":
					w.Want(201, "snapshot.create", "")
				case "round":
					_, err := w.Inside().Retention.Refresh(w.Ctx())
					w.Check(err)
				}
				if list := w.SnapshotList(); len(list) != snapshot.KeepSnapshots || list[0].Seq != newest || !list[0].Sound {
					t.Errorf("there are %+v, want one at %d", list, newest)
				}
				verifies(w, newest, true)
			}, processortest.Retaining(time.Hour*24*30, time.Hour*24))
		})
	}
}

// TestVerifySnapshotDiskFull: a snapshot is not called damaged when the disk is too full to
// unpack it.
func TestVerifySnapshotDiskFull(t *testing.T) {
	var full atomic.Bool
	processortest.Bubble(t, func(w *processortest.Wire) {
		newest, _ := withSnapshots(w)
		full.Store(true)
		w.Refused(503, "unavailable", fmt.Sprintf("snapshot.verify.%d", newest), "")
		full.Store(false)
		verifies(w, newest, true)
	}, func(o *processor.Options) {
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
	processortest.Bubble(t, func(w *processortest.Wire) {
		started := time.Now()
		newest, _ := withSnapshots(w)
		stream := w.Stream(fmt.Sprintf("OBJ_LAPSE_main_SNAPSHOT_%d", newest))
		w.Check(stream.Purge(w.Ctx(), jetstream.WithPurgeSequence(stream.CachedInfo().State.LastSeq)))
		time.Sleep(time.Until(started.Add(time.Hour - 4*time.Second)))
		w.Check(w.Client.PublishRequest(fmt.Sprintf("lapse.main.api.snapshot.verify.%d", newest), w.Client.NewInbox(), nil))
		time.Sleep(8 * time.Second) // a round has begun
		if w.Inside().Retention.Snapshots.Making.TryLock() {
			t.Fatalf("nobody reads it:\n%s", w.Logs)
		}
		began := time.Now()
		w.Stop()
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("the stop took %s", took)
		}
	}, processortest.Retaining(24*time.Hour, time.Hour))
}

// TestNoSnapshotOfCorruptProjection: no snapshot is made of a projection whose documents
// do not match its digest.
func TestNoSnapshotOfCorruptProjection(t *testing.T) {
	processortest.Bubble(t, func(w *processortest.Wire) {
		w.Want(201, "collection.create.c", `{}`)
		w.Want(201, "document.create.c.a", `{}`)
		store := w.Inside().Store
		c, _ := store.Collection("c")
		before, _, err := store.Meta(c, "a")
		w.Check(err)
		e := &schema.Event{Seq: store.Cursor().Seq + 1, Time: store.Cursor().Time, Type: schema.DocumentReplaced,
			Collection: "c", ID: "a", Previous: before.Version, Body: []byte(`{"id":"a","n":1}`)}
		before.Size++ // wrong metadata
		w.Check(store.Fold([]projections.Fact{{Event: e, Known: true, Incarnation: c.Incarnation, Prior: before, Sum: projections.SumOf(e.Body)}}))
		if made, err := w.Inside().Retention.Snapshots.Create(w.Ctx()); err == nil || !strings.Contains(err.Error(), "not sound") {
			t.Errorf("made was %+v (%v)", made, err)
		}
		if list := w.SnapshotList(); len(list) > 0 {
			t.Errorf("there are %v", list)
		}
	})
}
