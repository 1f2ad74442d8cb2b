package snapshot_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
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

// files returns all files of JetStream, the projection and the archives of snapshots.
func files(w *processortest.Wire) map[string][]byte {
	w.T.Helper()
	all := make(map[string][]byte)
	w.Check(filepath.WalkDir(w.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return ignoreGone(err)
		}
		content, err := os.ReadFile(path)
		all[path] = content
		return ignoreGone(err)
	}))
	filesOf(w, w.Options.Projection.FS, w.Options.Dir, all)
	list, err := w.Inside().Retention.Snapshots.List(w.Ctx())
	w.Check(err)
	for _, snap := range list {
		mem := vfs.NewMem()
		var object jetstream.ObjectResult
		withObject(w, snap.Seq, func(s jetstream.ObjectStore) {
			object, err = s.Get(w.Ctx(), snapshot.ObjectName)
			w.Check(err)
		})
		dir := fmt.Sprintf("snapshot%d", snap.Seq)
		w.Check(projections.ReadArchive(object, mem, dir))
		filesOf(w, mem, dir, all)
	}
	return all
}

func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func filesOf(w *processortest.Wire, from vfs.FS, dir string, all map[string][]byte) {
	w.T.Helper()
	names, err := from.List(dir)
	w.Check(ignoreGone(err))
	for _, name := range names {
		path := from.PathJoin(dir, name)
		info, err := from.Stat(path)
		if err != nil || info.IsDir() {
			w.Check(ignoreGone(err))
			continue
		}
		file, err := from.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // Pebble removes replaced files in the background
		}
		w.Check(err)
		content, err := io.ReadAll(file)
		w.Check(err)
		w.Check(file.Close())
		all[path] = content
	}
}

// holding returns the files that contain a text.
func holding(w *processortest.Wire, text string) (paths []string) {
	w.T.Helper()
	for path, content := range files(w) {
		if bytes.Contains(content, []byte(text)) {
			paths = append(paths, path)
		}
	}
	return paths
}

// TestRetention: content that expired, was deleted, replaced or rejected is in no file
// after the retention, on a busy database and an idle one. Live documents stay, even for
// a start with an empty disk, also one on hold that was due before the log begins.
func TestRetention(t *testing.T) {
	for _, busy := range []bool{true, false} {
		t.Run(fmt.Sprintf("busy=%t", busy), func(t *testing.T) {
			processortest.Bubble(t, func(w *processortest.Wire) {
				const secret = "b3JkZXJzIG9mIGEgc2VjcmV0"
				body := func(ttl string) string { return fmt.Sprintf(`{"ttl":%s,"secret":%q}`, ttl, secret) }
				w.Want(201, "collection.create.c", `{"defaultTtl":-1,"indexingPolicy":{"includedPaths":[{"path":"/secret"}]}}`)
				w.Want(201, "collection.create.gone", `{}`)
				w.Want(201, "document.create.c.expires", body("60"))
				w.Want(201, "document.create.c.deleted", body("-1"))
				w.Want(201, "document.create.c.replaced", body("-1"))
				w.Want(201, "document.create.gone.buried", body("-1"))
				w.Want(201, "document.create.c.keeps", `{"ttl":-1,"n":1}`)
				w.Want(201, "document.create.c.held", `{"ttl":1}`)
				w.Want(200, "document.hold.c.held", "")
				w.Judged(w.Publish("document.create.c.published", body("60")))
				w.Judged(w.Publish("document.replace.c.refused", body("60")))
				w.Want(204, "document.delete.c.deleted", "")
				w.Want(200, "document.replace.c.replaced", `{"ttl":-1}`)
				w.Want(204, "collection.delete.gone", "")
				if len(holding(w, secret)) == 0 {
					t.Fatal("there is nothing to find before either")
				}
				n := 0
				pass := func(d time.Duration) {
					for end := time.Now().Add(d); time.Now().Before(end); {
						time.Sleep(time.Minute)
						if n++; busy {
							w.Want(200+1-min(n-1, 1), "document.upsert.c.busy", fmt.Sprintf(`{"ttl":-1,"n":%d}`, n))
						}
					}
				}
				pass(18 * time.Minute)
				if len(history(w, "c", "expires")) != 2 {
					t.Error("history has ended before the retention")
				}
				// The retention, a quarter of it until the next file, and two rounds.
				pass(18 * time.Minute)
				if where := holding(w, secret); len(where) > 0 {
					t.Fatalf("the secret is in %v\n%s", where, w.Logs)
				}
				for _, id := range []string{"expires", "deleted", "published"} {
					w.Refused(404, "document_not_found", "history.c."+id, "")
				}
				w.Want(200, "document.get.c.keeps", "")
				w.Want(200, "document.get.c.replaced", "")
				if got := string(w.Want(200, "history.c.keeps", "").Body); got != `{"events":[]}` {
					t.Errorf("the history of what lives is %s", got)
				}
				content, digest := w.Content(), w.Inside().Store.Digest()
				w.Stop()
				w.RemoveProjection()
				w.Logs.Reset()
				w.Start()
				if got := w.Content(); got != content || w.Inside().Store.Digest() != digest {
					t.Errorf("from the snapshot it is\n%s %s, was\n%s %s", got, w.Inside().Store.Digest(), content, digest)
				}
				if !strings.Contains(w.Logs.String(), "restored from a snapshot") {
					t.Errorf("nobody said that there was a snapshot:\n%s", w.Logs)
				}
				w.Want(201, "document.create.c.new", "{}")
				w.Want(423, "document.delete.c.held", "")
				w.Want(200, "document.release.c.held", "")
				w.Want(404, "document.get.c.held", "")
				w.Eventually("the released document expires", func() bool {
					events := history(w, "c", "held")
					return events[0].Type == schema.DocumentExpired
				})
			}, processortest.Retaining(20*time.Minute, 2*time.Minute))
		})
	}
}

// history returns the events of one id.
func history(w *processortest.Wire, collection, id string) []*schema.Event {
	w.T.Helper()
	var history struct{ Events []*schema.Event }
	w.Check(json.Unmarshal(w.Want(200, "history."+collection+"."+id, "").Body, &history))
	return history.Events
}

// TestIdleLogIsTrimmedOnce: an idle log is trimmed once, and nothing more is appended.
func TestIdleLogIsTrimmedOnce(t *testing.T) {
	processortest.Bubble(t, func(w *processortest.Wire) {
		w.Want(201, "collection.create.c", `{"defaultTtl":60}`)
		w.Want(201, "document.create.c.a", "{}")
		time.Sleep(time.Hour)
		seq, made := w.End(), w.Inside().Retention.Made.Load()
		time.Sleep(time.Hour)
		if now := w.End(); now != seq || w.Inside().Retention.Made.Load() != made {
			t.Errorf("the log went from %d to %d and %d snapshots to %d", seq, now, made, w.Inside().Retention.Made.Load())
		}
		if state := w.Stream("LAPSE_main").CachedInfo().State; state.Bytes > snapshot.PadBytes/4 {
			t.Errorf("the log keeps %d bytes in %d messages", state.Bytes, state.Msgs)
		}
		if n := len(w.SnapshotList()); n != 1 {
			t.Errorf("%d snapshots are kept", n)
		}
	}, processortest.Retaining(20*time.Minute, 0))
}

// TestNoTrimmingWithoutSnapshot: the log is not trimmed while no snapshot can be
// verified.
func TestNoTrimmingWithoutSnapshot(t *testing.T) {
	full := errors.New("no space for that")
	var failing atomic.Bool
	failing.Store(true)
	processortest.Bubble(t, func(w *processortest.Wire) {
		w.Want(201, "collection.create.c", `{"defaultTtl":1}`)
		w.Want(201, "document.create.c.a", "{}")
		time.Sleep(4 * time.Minute)
		if begins := w.Stream("LAPSE_main").CachedInfo().State.FirstSeq; begins != 1 || len(w.SnapshotList()) > 0 {
			t.Errorf("the log begins at %d, with snapshots %v", begins, w.SnapshotList())
		}
		if !strings.Contains(w.Logs.String(), full.Error()) || w.Inside().Retention.Failed.Load() == 0 {
			t.Errorf("nobody was told:\n%s", w.Logs)
		}
		w.Want(201, "document.create.c.b", "{}")
		failing.Store(false)
		time.Sleep(4 * time.Minute)
		if begins := w.Stream("LAPSE_main").CachedInfo().State.FirstSeq; begins == 1 || len(w.SnapshotList()) == 0 {
			t.Errorf("it did not go on: the log begins at %d, with snapshots %v", begins, w.SnapshotList())
		}
	}, processortest.Retaining(time.Minute, 30*time.Second), func(o *processor.Options) {
		o.Projection.FS = errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if failing.Load() && strings.Contains(op.Path, ".verify") && op.Kind == errorfs.OpFileWrite {
				return full
			}
			return nil
		}))
	})
}

// TestStopWhileVerifying: a stop does not wait until all documents are counted.
func TestStopWhileVerifying(t *testing.T) {
	var slow atomic.Bool
	processortest.Bubble(t, func(w *processortest.Wire) {
		w.Want(201, "collection.create.c", `{}`)
		for i := range 50 {
			w.Want(201, fmt.Sprintf("document.create.c.d%d", i), fmt.Sprintf(`{"x":%q}`, strings.Repeat(fmt.Sprint(i), 10_000)))
		}
		slow.Store(true)
		time.Sleep(11 * time.Minute) // the round has begun
		began := time.Now()
		w.Stop()
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("the stop took %s", took)
		}
	}, processortest.Retaining(24*time.Hour, 10*time.Minute), func(o *processor.Options) {
		o.Projection.FS = errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if slow.Load() && strings.Contains(op.Path, ".checkpoint") && op.Kind == errorfs.OpFileReadAt {
				time.Sleep(10 * time.Second)
			}
			return nil
		}))
	})
}

// amid calls do before the n-th note of retention.
type amid struct {
	noter
	n  int
	do func()
}

type noter interface {
	Note(ctx context.Context, t schema.EventType, body []byte) error
	Writing() bool
}

func (a *amid) Note(ctx context.Context, t schema.EventType, body []byte) error {
	if a.n--; a.n == 0 {
		a.do()
	}
	return a.noter.Note(ctx, t, body)
}

// TestPadding: the padding of an almost empty file begins another one, with an event that
// is small, since each round reads the event at the end of a snapshot.
func TestPadding(t *testing.T) {
	processortest.Bubble(t, func(w *processortest.Wire) {
		w.Want(201, "collection.create.c", "")
		w.Check(w.Inside().Retention.Pad(w.Ctx()))
		files, err := filepath.Glob(filepath.Join(w.Dir, "jetstream/*/streams/LAPSE_main/msgs/*.blk"))
		w.Check(err)
		if len(files) != 2 {
			t.Errorf("the log has the files %v, want 2", files)
		}
		last, err := w.Stream("LAPSE_main").GetMsg(w.Ctx(), w.End())
		w.Check(err)
		if len(last.Data) > snapshot.PadBytes/64 {
			t.Errorf("the padding ends with %d bytes", len(last.Data))
		}
	}, processortest.Retaining(time.Hour, time.Hour))
}

// TestFactDuringPadding: a fact appended during the padding may be in the file that the
// padding begins, so the log is padded once more.
func TestFactDuringPadding(t *testing.T) {
	for name, n := range map[string]int{"in the middle": 10, "before the last note": 18} {
		t.Run(name, func(t *testing.T) {
			processortest.Bubble(t, func(w *processortest.Wire) {
				r := w.Inside().Retention
				r.Noter = &amid{r.Noter, n, func() { w.Want(201, "document.create.c.a", "{}") }}
				w.Want(201, "collection.create.c", "")
				for round, padded := range []bool{true, true, false} {
					before := w.End()
					w.Check(r.Pad(w.Ctx()))
					if end := w.End(); (end > before) != padded {
						t.Errorf("round %d appends %d events", round, end-before)
					}
					time.Sleep(time.Minute)
				}
				if cursor := w.Inside().Store.Cursor(); cursor.Padded != cursor.Seq || cursor.Last > cursor.Seq-18 {
					t.Errorf("the padding ends at %d, after the fact at %d: %+v", cursor.Padded, cursor.Last, cursor)
				}
			}, processortest.Retaining(4*time.Minute, 24*time.Hour))
		})
	}
}

// TestUnfinishedSnapshotHasNoAge: an unfinished snapshot does not count for the time of
// the next round.
func TestUnfinishedSnapshotHasNoAge(t *testing.T) {
	processortest.Bubble(t, func(w *processortest.Wire) {
		w.Want(201, "collection.create.c", "")
		w.Want(201, "snapshot.create", "")
		js := w.JS()
		_, err := js.CreateObjectStore(w.Ctx(), jetstream.ObjectStoreConfig{Bucket: "LAPSE_main_SNAPSHOT_1000"})
		w.Check(err)
		time.Sleep(100 * time.Second)
		w.Want(201, "document.create.c.a", "{}")
		w.Restart()
		for _, made := range []int64{0, 1} {
			time.Sleep(150 * time.Second)
			if n := w.Inside().Retention.Made.Load(); n != made {
				t.Errorf("%d snapshots are made, want %d", n, made)
			}
		}
	}, processortest.Retaining(0, 5*time.Minute))
}

// TestTrimKeepsWhatSnapshotsNeed: the log is trimmed up to the oldest sound snapshot and
// no further, however old the later events are. A damaged snapshot holds nothing back.
func TestTrimKeepsWhatSnapshotsNeed(t *testing.T) {
	processortest.Bubble(t, func(w *processortest.Wire) {
		w.Want(201, "collection.create.c", `{}`)
		for _, id := range []string{"a", "b"} {
			w.Want(201, "document.create.c."+id, `{}`)
			w.Want(201, "snapshot.create", "")
		}
		w.Want(201, "document.create.c.last", `{}`)
		time.Sleep(2 * time.Hour)
		list, k := w.SnapshotList(), w.Inside().Retention
		trim := func(sound []schema.Snapshot, want uint64) {
			t.Helper()
			w.Check(k.Trim(w.Ctx(), sound))
			if first := w.Stream("LAPSE_main").CachedInfo().State.FirstSeq; first != want {
				t.Errorf("with %d snapshots the log begins at %d, want %d", len(sound), first, want)
			}
		}
		trim(nil, 1)
		trim(list, list[1].Seq)
		withObject(w, list[0].Seq, func(s jetstream.ObjectStore) {
			info, err := s.GetInfo(w.Ctx(), snapshot.ObjectName)
			w.Check(err)
			info.Metadata[snapshot.MetaSnapshot] = strings.Replace(info.Metadata[snapshot.MetaSnapshot], `"sound":true`, `"sound":false`, 1)
			w.Check(s.UpdateMeta(w.Ctx(), snapshot.ObjectName, info.ObjectMeta))
		})
		if kept, err := k.Drop(w.Ctx(), schema.Snapshot{}); err != nil || len(kept) != 1 || kept[0].Seq != list[1].Seq {
			t.Errorf("of %v, the first not sound, %v are kept (%v)", list, kept, err)
		}
		trim(list[:1], list[0].Seq)
	}, processortest.Retaining(time.Hour, 1000*time.Hour))
}

// TestTrimKeepsMutations: only judged mutations are trimmed.
func TestTrimKeepsMutations(t *testing.T) {
	processortest.Bubble(t, func(w *processortest.Wire) {
		for range 3 {
			w.Judged(w.Publish("collection.create.c", `{}`))
		}
		r, done, ctx := w.Inside().Retention, make(chan error), w.Ctx()
		r.Snapshots.Making.Lock() // a round waits here after it has asked the writer for all it needs
		go func() { done <- r.Round(ctx) }()
		time.Sleep(time.Second)
		release := w.HoldWriter()
		defer release()
		unjudged := w.Publish("document.create.c.a", `{}`)
		r.Snapshots.Making.Unlock()
		w.Check(<-done)
		if state := w.Stream("LAPSE_main_MUTATIONS").CachedInfo().State; state.FirstSeq != unjudged || state.LastSeq != unjudged {
			t.Errorf("mutations %d to %d are left, want %d", state.FirstSeq, state.LastSeq, unjudged)
		}
		release()
		w.Judged(unjudged)
		w.Want(200, "document.get.c.a", "")
	}, processortest.Retaining(time.Hour, time.Hour))
}
