package processor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/processor/snapshot"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/stress"
)

// retaining sets the retention and the interval of snapshots.
func retaining(retain, every time.Duration) func(*Options) {
	return func(o *Options) { o.Retain, o.SnapshotEvery = retain, every }
}

// files returns all files of JetStream, the projection and the archives of snapshots.
func (w *wire) files() map[string][]byte {
	w.t.Helper()
	all := make(map[string][]byte)
	w.check(filepath.WalkDir(w.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return ignoreGone(err)
		}
		content, err := os.ReadFile(path)
		all[path] = content
		return ignoreGone(err)
	}))
	w.filesOf(w.options.Projection.FS, w.options.Dir, all)
	list, err := w.processor.retention.Snapshots.List(w.ctx())
	w.check(err)
	for _, one := range list {
		mem := vfs.NewMem()
		store, err := w.processor.retention.Snapshots.JS.ObjectStore(w.ctx(), w.processor.retention.Snapshots.Bucket(one.Seq))
		w.check(err)
		object, err := store.Get(w.ctx(), snapshot.ObjectName)
		w.check(err)
		dir := fmt.Sprintf("snapshot%d", one.Seq)
		w.check(projections.ReadArchive(object, mem, dir))
		w.filesOf(mem, dir, all)
	}
	return all
}

func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (w *wire) filesOf(from vfs.FS, dir string, all map[string][]byte) {
	w.t.Helper()
	names, err := from.List(dir)
	w.check(ignoreGone(err))
	for _, name := range names {
		path := from.PathJoin(dir, name)
		info, err := from.Stat(path)
		if err != nil || info.IsDir() {
			w.check(ignoreGone(err))
			continue
		}
		file, err := from.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // Pebble removes replaced files in the background
		}
		w.check(err)
		content, err := io.ReadAll(file)
		w.check(err)
		w.check(file.Close())
		all[path] = content
	}
}

// holding returns the files that contain a text.
func (w *wire) holding(text string) (paths []string) {
	w.t.Helper()
	for path, content := range w.files() {
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
			inBubble(t, func(w *wire) {
				const secret = "b3JkZXJzIG9mIGEgc2VjcmV0"
				body := func(ttl string) string { return fmt.Sprintf(`{"ttl":%s,"secret":%q}`, ttl, secret) }
				w.want(201, "collection.create.c", `{"defaultTtl":-1,"indexingPolicy":{"includedPaths":[{"path":"/secret"}]}}`)
				w.want(201, "collection.create.gone", `{}`)
				w.want(201, "document.create.c.expires", body("60"))
				w.want(201, "document.create.c.deleted", body("-1"))
				w.want(201, "document.create.c.replaced", body("-1"))
				w.want(201, "document.create.gone.buried", body("-1"))
				w.want(201, "document.create.c.keeps", `{"ttl":-1,"n":1}`)
				w.want(201, "document.create.c.held", `{"ttl":1}`)
				w.want(200, "document.hold.c.held", "")
				w.judged(w.publish("document.create.c.published", body("60")))
				w.judged(w.publish("document.replace.c.refused", body("60")))
				w.want(204, "document.delete.c.deleted", "")
				w.want(200, "document.replace.c.replaced", `{"ttl":-1}`)
				w.want(204, "collection.delete.gone", "")
				if len(w.holding(secret)) == 0 {
					t.Fatal("there is nothing to find before either")
				}
				n := 0
				pass := func(d time.Duration) {
					for end := time.Now().Add(d); time.Now().Before(end); {
						time.Sleep(time.Minute)
						if n++; busy {
							w.want(200+1-min(n-1, 1), "document.upsert.c.busy", fmt.Sprintf(`{"ttl":-1,"n":%d}`, n))
						}
					}
				}
				pass(55 * time.Minute)
				if len(w.history("c", "expires")) != 2 {
					t.Error("history has ended before the retention")
				}
				// The retention, a quarter of it until the next file, and two rounds.
				pass(70 * time.Minute)
				if where := w.holding(secret); len(where) > 0 {
					t.Fatalf("the secret is in %v\n%s", where, w.logs)
				}
				for _, id := range []string{"expires", "deleted", "published"} {
					w.refused(404, "document_not_found", "history.c."+id, "")
				}
				w.want(200, "document.get.c.keeps", "")
				w.want(200, "document.get.c.replaced", "")
				if got := string(w.want(200, "history.c.keeps", "").body); got != `{"events":[]}` {
					t.Errorf("the history of what lives is %s", got)
				}
				content, digest := w.content(), w.processor.store.Digest()
				w.stop()
				w.check(w.options.Projection.FS.RemoveAll(w.options.Dir))
				w.logs.reset()
				w.start()
				if got := w.content(); got != content || w.processor.store.Digest() != digest {
					t.Errorf("from the snapshot it is\n%s %s, was\n%s %s", got, w.processor.store.Digest(), content, digest)
				}
				if !strings.Contains(w.logs.String(), "restored from a snapshot") {
					t.Errorf("nobody said that there was a snapshot:\n%s", w.logs)
				}
				w.want(201, "document.create.c.new", "{}")
				w.want(423, "document.delete.c.held", "")
				w.want(200, "document.release.c.held", "")
				w.want(404, "document.get.c.held", "")
				w.eventually("the released document expires", func() bool {
					events := w.history("c", "held")
					return events[0].Type == schema.DocumentExpired
				})
			}, retaining(time.Hour, 5*time.Minute))
		})
	}
}

// history returns the events of one id.
func (w *wire) history(collection, id string) []*schema.Event {
	w.t.Helper()
	events, err := w.processor.service.History(w.ctx(), schema.CollectionName(collection), schema.DocumentID(id), 100)
	w.check(err)
	return events
}

// TestIdleLogIsTrimmedOnce: an idle log is trimmed once, and nothing more is appended.
func TestIdleLogIsTrimmedOnce(t *testing.T) {
	inBubble(t, func(w *wire) {
		w.want(201, "collection.create.c", `{"defaultTtl":60}`)
		w.want(201, "document.create.c.a", "{}")
		time.Sleep(3 * time.Hour)
		seq, made := w.end(), w.processor.retention.Made.Load()
		time.Sleep(4 * time.Hour)
		if now := w.end(); now != seq || w.processor.retention.Made.Load() != made {
			t.Errorf("the log went from %d to %d and %d snapshots to %d", seq, now, made, w.processor.retention.Made.Load())
		}
		if state := w.stream("LAPSE_main").CachedInfo().State; state.Bytes > snapshot.PadBytes/4 {
			t.Errorf("the log keeps %d bytes in %d messages", state.Bytes, state.Msgs)
		}
		if n := len(w.snapshotList()); n != 1 {
			t.Errorf("%d snapshots are kept", n)
		}
	}, retaining(time.Hour, 0))
}

func (w *wire) snapshotList() []schema.Snapshot {
	w.t.Helper()
	list, err := w.processor.retention.Snapshots.List(w.ctx())
	w.check(err)
	return list
}

// TestRepeatsBeyondRetention: the reply to a repeat is kept as long as the id is
// remembered.
func TestRepeatsBeyondRetention(t *testing.T) {
	inBubble(t, func(w *wire) {
		w.want(201, "collection.create.c", `{}`)
		first := w.want(201, "document.create.c.a", `{"n":1}`, "Nats-Msg-Id", "m")
		w.want(204, "document.delete.c.a", "")
		time.Sleep(110 * time.Second)
		if again := w.want(201, "document.create.c.a", `{"n":1}`, "Nats-Msg-Id", "m"); string(again.body) != string(first.body) {
			t.Errorf("the repeat got %s, want %s", again.body, first.body)
		}
		time.Sleep(40 * time.Second)
		if begins := w.stream("LAPSE_main").CachedInfo().State.FirstSeq; begins < 4 {
			t.Errorf("the log begins at %d still", begins)
		}
		w.want(201, "document.create.c.a", `{"n":1}`, "Nats-Msg-Id", "m")
	}, retaining(10*time.Second, 5*time.Second))
}

// TestNoTrimmingWithoutSnapshot: the log is not trimmed while no snapshot can be
// verified.
func TestNoTrimmingWithoutSnapshot(t *testing.T) {
	full := errors.New("no space for that")
	var failing atomic.Bool
	failing.Store(true)
	inBubble(t, func(w *wire) {
		w.want(201, "collection.create.c", `{"defaultTtl":1}`)
		w.want(201, "document.create.c.a", "{}")
		time.Sleep(15 * time.Minute)
		if begins := w.stream("LAPSE_main").CachedInfo().State.FirstSeq; begins != 1 || len(w.snapshotList()) > 0 {
			t.Errorf("the log begins at %d, with snapshots %v", begins, w.snapshotList())
		}
		if !strings.Contains(w.logs.String(), full.Error()) || w.processor.retention.Failed.Load() == 0 {
			t.Errorf("nobody was told:\n%s", w.logs)
		}
		w.want(201, "document.create.c.b", "{}")
		failing.Store(false)
		time.Sleep(15 * time.Minute)
		if begins := w.stream("LAPSE_main").CachedInfo().State.FirstSeq; begins == 1 || len(w.snapshotList()) == 0 {
			t.Errorf("it did not go on: the log begins at %d, with snapshots %v", begins, w.snapshotList())
		}
	}, retaining(time.Minute, 30*time.Second), func(o *Options) {
		o.Projection.FS = errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if failing.Load() && strings.Contains(op.Path, ".verify") && op.Kind == errorfs.OpFileWrite {
				return full
			}
			return nil
		}))
	})
}

// TestSnapshotCancelled: wherever a snapshot is cancelled, all its goroutines end, or the
// bubble would not.
func TestSnapshotCancelled(t *testing.T) {
	inBubble(t, func(w *wire) {
		w.want(201, "collection.create.c", `{}`)
		for moment := range stress.Pick(150, 600) {
			w.want(201, "document.create.c."+strconv.Itoa(moment), `{}`)
			ctx, cancel := context.WithCancel(w.ctx())
			done := make(chan error)
			go func() {
				_, err := w.processor.retention.Snapshots.Create(ctx)
				done <- err
			}()
			for range moment * 4 * 600 / stress.Pick(150, 600) {
				runtime.Gosched()
			}
			cancel()
			if <-done == nil {
				t.Fatal("it was made all the same")
			}
		}
		w.want(201, "snapshot.create", "")
	})
}

// damageObject changes the stored object of a snapshot.
func (w *wire) damageObject(seq uint64, change func(jetstream.ObjectStore)) {
	w.t.Helper()
	s := w.processor.retention.Snapshots
	store, err := s.JS.ObjectStore(w.ctx(), s.Bucket(seq))
	w.check(err)
	change(store)
}

// putObject replaces the content of a snapshot and keeps its metadata.
func (w *wire) putObject(seq uint64, content []byte) {
	w.t.Helper()
	w.damageObject(seq, func(store jetstream.ObjectStore) {
		info, err := store.GetInfo(w.ctx(), snapshot.ObjectName)
		w.check(err)
		_, err = store.Put(w.ctx(), info.ObjectMeta, &snapshot.Upload{Ctx: w.ctx(), Store: store, From: bytes.NewReader(content)})
		w.check(err)
	})
}

// trim trims the log to begin at first, as retention does.
func (w *wire) trim(first uint64) {
	w.t.Helper()
	w.check(w.processor.retention.Noter.Note(w.ctx(), schema.LogTrimmed, fmt.Appendf(nil, `{"first":%d}`, first)))
	w.check(w.stream("LAPSE_main").Purge(w.ctx(), jetstream.WithPurgeSequence(first)))
}

// TestStartFromSnapshot: a start takes the newest sound snapshot and skips damaged ones.
// Without any it folds the log from its beginning, if that is still there.
func TestStartFromSnapshot(t *testing.T) {
	const rounds = 2
	poison := func(w *wire, seq uint64) { w.putObject(seq, []byte("any bytes")) }
	meta := func(change func(map[string]string)) func(*wire, uint64) {
		return func(w *wire, seq uint64) {
			w.damageObject(seq, func(s jetstream.ObjectStore) {
				info, err := s.GetInfo(w.ctx(), snapshot.ObjectName)
				w.check(err)
				change(info.Metadata)
				w.check(s.UpdateMeta(w.ctx(), snapshot.ObjectName, info.ObjectMeta))
			})
		}
	}
	for name, c := range map[string]struct {
		damage  [rounds]func(*wire, uint64) // newest first; nil for none
		from    int                         // index of the snapshot it begins with; rounds for the log
		trimmed bool
	}{
		"all sound": {from: 0},
		"no object": {damage: [rounds]func(*wire, uint64){func(w *wire, seq uint64) {
			w.damageObject(seq, func(s jetstream.ObjectStore) { w.check(s.Delete(w.ctx(), snapshot.ObjectName)) })
		}}, from: 1},
		"another one's object": {damage: [rounds]func(*wire, uint64){func(w *wire, seq uint64) {
			var other []byte
			w.damageObject(w.snapshotList()[1].Seq, func(s jetstream.ObjectStore) {
				var err error
				other, err = s.GetBytes(w.ctx(), snapshot.ObjectName)
				w.check(err)
			})
			w.putObject(seq, other)
		}}, from: 1},
		"another log's": {damage: [rounds]func(*wire, uint64){meta(func(of map[string]string) { of[snapshot.MetaStream] = "another" })}, from: 1},
		"not verified": {damage: [rounds]func(*wire, uint64){meta(func(of map[string]string) {
			of[snapshot.MetaSnapshot] = strings.Replace(of[snapshot.MetaSnapshot], `"sound":true`, `"sound":false`, 1)
		})}, from: 1},
		"described in poison": {damage: [rounds]func(*wire, uint64){meta(func(of map[string]string) { of[snapshot.MetaSnapshot] = "{" })}, from: 1},
		"all poison":          {damage: [rounds]func(*wire, uint64){poison, poison}, from: rounds},
		"all poison, trimmed": {damage: [rounds]func(*wire, uint64){poison, poison}, from: rounds, trimmed: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWire(t)
			w.want(201, "collection.create.c", `{"defaultTtl":1000}`)
			for i := range rounds {
				w.want(201, fmt.Sprintf("document.create.c.d%d", i), "{}")
				w.want(201, "snapshot.create", "")
			}
			w.want(201, "document.create.c.last", "{}")
			list := w.snapshotList()
			if len(list) != rounds {
				t.Fatalf("there are %v", list)
			}
			if c.trimmed {
				w.trim(list[rounds-1].Seq)
			}
			content := w.content()
			for i, damage := range c.damage {
				if damage != nil {
					damage(w, list[i].Seq)
				}
			}
			w.stop()
			w.removeProjection()
			w.logs.reset()
			p, err := Start(w.ctx(), w.connections(), w.options)
			if c.trimmed {
				if err == nil || !strings.Contains(err.Error(), "restore the stream or a snapshot") || strings.Contains(err.Error(), "\n") {
					t.Errorf("it starts with %v", err)
				}
				return
			}
			w.check(err)
			w.processor = p
			want := ""
			if c.from < rounds {
				want = fmt.Sprintf("restored from a snapshot\" seq=%d\n", list[c.from].Seq)
			}
			if logs := w.logs.String(); want == "" && strings.Contains(logs, "begins with") || !strings.Contains(logs, want) {
				t.Errorf("it does not say %q:\n%s", want, logs)
			}
			if got := w.content(); got != content {
				t.Errorf("it is\n%s, was\n%s", got, content)
			}
			w.want(201, "document.create.c.another", "{}")
		})
	}
}

// TestProjectionBehindTheLog: a projection whose cursor was trimmed from the log begins
// with a snapshot, too.
func TestProjectionBehindTheLog(t *testing.T) {
	w := newWire(t)
	w.want(201, "collection.create.c", `{}`)
	w.stop()
	old := filepath.Join(w.dir, "old")
	w.check(os.CopyFS(old, os.DirFS(w.options.Dir)))
	w.start()
	for i := range 10 {
		w.want(201, fmt.Sprintf("document.create.c.d%d", i), "{}")
	}
	w.want(201, "snapshot.create", "")
	w.want(201, "document.create.c.last", "{}")
	w.trim(w.snapshotList()[0].Seq)
	content := w.content()
	w.stop()
	w.check(os.RemoveAll(w.options.Dir))
	w.check(os.Rename(old, w.options.Dir))
	w.start()
	if got := w.content(); got != content {
		t.Errorf("it is\n%s, was\n%s", got, content)
	}
}

func TestSnapshotRequests(t *testing.T) {
	w := newWire(t)
	if got := string(w.want(200, "snapshot.list", "").body); got != `{"snapshots":[]}` {
		t.Errorf("at first there are %s", got)
	}
	w.want(201, "collection.create.c", `{}`)
	w.want(201, "document.create.c.a", `{}`)
	made := w.want(201, "snapshot.create", "")
	digest := w.processor.store.Digest().String()
	if seq := w.processor.store.Cursor().Seq; !strings.Contains(string(made.body), fmt.Sprintf(`{"seq":%d,`, seq)) ||
		!strings.Contains(string(made.body), `"digest":"`+digest+`"`) || !strings.Contains(string(made.body), `"sound":true`) {
		t.Errorf("made was %s, the digest is %s", made.body, digest)
	}
	if again := w.want(201, "snapshot.create", ""); string(again.body) != string(made.body) {
		t.Errorf("again it is %s, was %s", again.body, made.body)
	}
	seq := fmt.Sprint(w.snapshotList()[0].Seq)
	if got := w.want(200, "snapshot.verify."+seq, ""); string(got.body) != string(made.body) {
		t.Errorf("verified it is %s, was %s", got.body, made.body)
	}
	w.refused(404, "snapshot_not_found", "snapshot.verify.99", "")
	for _, tail := range []string{"snapshot.verify", "snapshot.verify.x", "snapshot.verify.1.2", "snapshot.verify.-1", "snapshot.create.x", "snapshot.list.x", "snapshot", "snapshot.remove"} {
		w.refused(400, "bad_request", tail, "")
	}
	w.putObject(w.snapshotList()[0].Seq, []byte("poison"))
	if got := w.want(200, "snapshot.verify."+seq, ""); !strings.Contains(string(got.body), `"sound":false,"fault":"`) {
		t.Errorf("poison is %s", got.body)
	}
	if one := w.snapshotList()[0]; one.Sound || one.Fault == "" {
		t.Errorf("afterwards it is listed as %+v", one)
	}
	// Two are kept.
	for i := range 3 {
		w.want(201, fmt.Sprintf("document.create.c.more%d", i), `{}`)
		w.want(201, "snapshot.create", "")
	}
	if list := w.snapshotList(); len(list) != snapshot.KeepSnapshots || list[0].Seq != w.end() || !list[1].Sound {
		t.Errorf("%v are kept, the log ends at %d", list, w.end())
	}
	seq = fmt.Sprint(w.snapshotList()[0].Seq)
	// Only one is made or verified at a time.
	w.processor.retention.Snapshots.Making.Lock()
	w.refused(429, "overloaded", "snapshot.create", "")
	w.refused(429, "overloaded", "snapshot.verify."+seq, "")
	w.processor.retention.Snapshots.Making.Unlock()
	// Clients reach the object stores only through these requests.
	js, err := jetstream.New(w.client)
	w.check(err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := js.ObjectStore(ctx, w.processor.retention.Snapshots.Bucket(w.snapshotList()[0].Seq)); err == nil {
		t.Error("a client opened a snapshot")
	}
}

// TestRestoreSnapshot: an operator replaces the projection by a snapshot and, if the log
// is lost, begins a new one behind it.
func TestRestoreSnapshot(t *testing.T) {
	begin := func(t *testing.T) (w *wire, seq uint64, content string) {
		w = newWire(t)
		w.want(201, "collection.create.c", `{"defaultTtl":1000}`)
		w.want(201, "document.create.c.a", `{"n":1}`)
		w.judged(w.publish("document.create.c.b", "{}"))
		w.want(201, "snapshot.create", "")
		content = w.content()
		w.want(201, "document.create.c.later", `{"n":2}`)
		seq = w.snapshotList()[0].Seq
		return w, seq, content
	}
	restore := func(w *wire, seq uint64, newLog bool) (schema.Snapshot, error) {
		return RestoreSnapshot(w.ctx(), w.connections(), w.options, seq, newLog)
	}
	t.Run("the log is there", func(t *testing.T) {
		w, seq, _ := begin(t)
		content := w.content()
		w.stop()
		for _, which := range []uint64{0, seq} {
			if s, err := restore(w, which, false); err != nil || s.Seq != seq || !s.Sound {
				t.Fatalf("restored %+v: %v", s, err)
			}
		}
		w.start()
		w.want(201, "snapshot.create", "")
		newest := w.snapshotList()[0].Seq
		w.putObject(newest, []byte("poison"))
		w.stop()
		if s, err := restore(w, 0, false); err != nil || s.Seq != seq {
			t.Errorf("of two, the newest damaged, %+v was restored: %v", s, err)
		}
		if _, err := restore(w, newest, false); err == nil {
			t.Error("the damaged one was restored")
		}
		if _, err := restore(w, 99, false); err == nil || !strings.Contains(err.Error(), "no snapshot 99") {
			t.Errorf("99: %v", err)
		}
		w.logs.reset()
		w.start()
		if got := w.content(); got != content || strings.Contains(w.logs.String(), "folded again") {
			t.Errorf("it is\n%s, was\n%s\n%s", got, content, w.logs)
		}
	})
	t.Run("the log is lost", func(t *testing.T) {
		w, seq, content := begin(t)
		w.stop()
		js, err := jetstream.New(w.log)
		w.check(err)
		w.check(js.DeleteStream(w.ctx(), "LAPSE_main"))
		before := w.projectionFiles()
		if _, err := restore(w, 0, false); err == nil || !strings.Contains(err.Error(), "--new-log") || strings.Contains(err.Error(), "\n") {
			t.Errorf("without --new-log: %v", err)
		}
		if w.projectionFiles() != before {
			t.Error("the projection was changed all the same")
		}
		if s, err := restore(w, 0, true); err != nil || s.Seq != seq {
			t.Fatalf("restored %+v: %v", s, err)
		}
		w.start()
		if got := w.content(); got != content {
			t.Errorf("it is\n%s, was\n%s", got, content)
		}
		if r := w.want(201, "document.create.c.later", `{"n":3}`); r.seq <= seq {
			t.Errorf("the new log goes on at %d, want behind %d", r.seq, seq)
		}
		w.judged(w.publish("document.create.c.published", "{}"))
		// The new log is like any other, and has its own snapshot.
		content = w.content()
		w.stop()
		w.removeProjection()
		w.start()
		if got := w.content(); got != content {
			t.Errorf("it is\n%s, was\n%s", got, content)
		}
	})
	t.Run("the log lost its end", func(t *testing.T) {
		w, seq, _ := begin(t)
		w.stop()
		js, err := jetstream.New(w.log)
		w.check(err)
		w.check(js.DeleteStream(w.ctx(), "LAPSE_main"))
		w.removeProjection()
		if _, err := Start(w.ctx(), w.connections(), w.options); err == nil || !strings.Contains(err.Error(), "the snapshot at event") || !strings.Contains(err.Error(), "--new-log") {
			t.Fatalf("it starts with %v", err)
		}
		if _, err := restore(w, seq, false); err == nil || !strings.Contains(err.Error(), "another stream") {
			t.Errorf("without --new-log: %v", err)
		}
		if _, err := restore(w, seq, true); err != nil {
			t.Errorf("with --new-log: %v", err)
		}
		w.start()
		w.want(200, "document.get.c.a", "")
	})
	t.Run("in use", func(t *testing.T) {
		w, seq, _ := begin(t)
		if _, err := restore(w, seq, false); err == nil || !strings.Contains(err.Error(), "lock") {
			t.Errorf("while it is served: %v", err)
		}
		w.want(200, "document.get.c.a", "")
	})
	t.Run("no snapshot", func(t *testing.T) {
		w := newWire(t)
		w.stop()
		if _, err := restore(w, 0, false); err == nil || !strings.Contains(err.Error(), "no sound snapshot") {
			t.Errorf("%v", err)
		}
	})
}

// projectionFiles returns the content of the projection's directory.
func (w *wire) projectionFiles() string {
	w.t.Helper()
	all := make(map[string][]byte)
	w.filesOf(vfs.Default, w.options.Dir, all)
	return fmt.Sprint(all)
}

// TestSlowSnapshot: a snapshot is made and restored, however slow the disk is that it is
// read back to.
func TestSlowSnapshot(t *testing.T) {
	var slow atomic.Bool
	mem := vfs.NewMem()
	inBubble(t, func(w *wire) {
		w.want(201, "collection.create.c", `{}`)
		for i := range 20 {
			w.want(201, fmt.Sprintf("document.create.c.d%d", i), fmt.Sprintf(`{"x":%q}`, strings.Repeat(fmt.Sprint(i), 100_000)))
		}
		slow.Store(true)
		list := w.snapshotList
		time.Sleep(3 * time.Hour)
		if all := list(); len(all) == 0 || !all[0].Sound {
			t.Fatalf("there are %v\n%s", all, w.logs)
		}
		slow.Store(false)
		w.stop()
		w.check(mem.RemoveAll(w.options.Dir))
		slow.Store(true)
		var err error
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		w.processor, err = Start(ctx, w.connections(), w.options)
		w.check(err)
		slow.Store(false)
		if !strings.Contains(w.logs.String(), "restored from a snapshot") {
			t.Errorf("it did not begin with one:\n%s", w.logs)
		}
		w.want(200, "document.get.c.d0", "")
	}, retaining(24*time.Hour, time.Hour), func(o *Options) {
		o.Projection.FS = errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if slow.Load() && strings.Contains(op.Path, ".verify") && op.Kind == errorfs.OpFileWrite {
				time.Sleep(10 * time.Second)
			}
			return nil
		}))
	})
}

// TestSnapshotsUnreachable: a snapshot that cannot be read now is not called damaged.
func TestSnapshotsUnreachable(t *testing.T) {
	w := newWire(t, retaining(time.Hour, time.Hour))
	w.want(201, "collection.create.c", `{}`)
	w.want(201, "snapshot.create", "")
	readable := w.failObjectInfo(nats.ErrTimeout)
	if err := w.processor.retention.Round(w.ctx()); !errors.Is(err, nats.ErrTimeout) {
		t.Errorf("the round ends with %v", err)
	}
	readable()
	if list := w.snapshotList(); len(list) != 1 || !list[0].Sound {
		t.Errorf("there are %v", list)
	}
}

// TestSnapshotBehindReplica: a snapshot just made stays, although a replica of its stream
// that lags behind does not know that it is finished.
func TestSnapshotBehindReplica(t *testing.T) {
	w := newWire(t, retaining(time.Hour, time.Hour))
	w.want(201, "collection.create.c", `{}`)
	w.want(201, "snapshot.create", "")
	for range 3 {
		latest := w.failObjectInfo(jetstream.ErrObjectNotFound)
		w.want(201, "snapshot.create", "")
		latest()
		if list := w.snapshotList(); len(list) != 1 || !list[0].Sound {
			t.Errorf("there are %v", list)
		}
	}
}

// failObjectInfo makes reads of the metadata of snapshots fail, until succeed.
func (w *wire) failObjectInfo(err error) (succeed func()) {
	store := w.processor.retention.Snapshots
	js := store.JS
	set := func(js jetstream.JetStream) {
		store.Making.Lock() // a request may hold it until after its reply
		store.JS = js
		store.Making.Unlock()
	}
	set(unreadable{js, err})
	return func() { set(js) }
}

// unreadable is a JetStream whose object metadata cannot be read.
type unreadable struct {
	jetstream.JetStream
	err error
}

func (o unreadable) ObjectStore(ctx context.Context, bucket string) (jetstream.ObjectStore, error) {
	store, err := o.JetStream.ObjectStore(ctx, bucket)
	return unreadableObjects{store, o.err}, err
}

type unreadableObjects struct {
	jetstream.ObjectStore
	err error
}

func (o unreadableObjects) GetInfo(context.Context, string, ...jetstream.GetObjectInfoOpt) (*jetstream.ObjectInfo, error) {
	return nil, o.err
}

// TestSnapshotOfLostEvents: the log is not trimmed below a snapshot of events that it has
// lost, but the snapshot is kept as long as an operator may want it.
func TestSnapshotOfLostEvents(t *testing.T) {
	w := newWire(t, retaining(time.Hour, time.Hour))
	w.want(201, "collection.create.c", `{}`)
	w.want(201, "document.create.c.a", `{}`)
	w.want(201, "snapshot.create", "")
	early := w.snapshotList()[0].Seq
	end := w.processor.Seq()
	for i := range 20 {
		w.want(201, fmt.Sprintf("document.create.c.d%d", i), "{}")
	}
	w.want(201, "snapshot.create", "")
	late := w.snapshotList()[0].Seq
	w.cutLog(end) // as it was after the first snapshot
	if why := w.refuses(); !strings.Contains(why, "--accept-lost-end") {
		t.Fatalf("it says %s", why)
	}
	w.options.AcceptLostEnd = true
	w.start()
	w.options.AcceptLostEnd = false // the loss stays accepted
	if list := w.snapshotList(); len(list) != 2 || list[0].Seq != late || list[0].Sound || list[0].Fault == "" || list[1].Seq != early || !list[1].Sound {
		t.Fatalf("there are %+v", list)
	}
	w.want(201, "document.create.c.b", "{}")
	w.check(w.processor.retention.Round(w.ctx()))
	list := w.snapshotList()
	if len(list) != 2 || !list[0].Sound || !list[1].Sound || list[1].Seq != early {
		t.Errorf("after a round there are %+v", list)
	}
	content := w.content()
	w.stop()
	w.removeProjection()
	w.start()
	if got := w.content(); got != content {
		t.Errorf("it is\n%s, was\n%s", got, content)
	}
}

// TestStopWhileVerifying: a stop does not wait until all documents are counted.
func TestStopWhileVerifying(t *testing.T) {
	var slow atomic.Bool
	inBubble(t, func(w *wire) {
		w.want(201, "collection.create.c", `{}`)
		for i := range 50 {
			w.want(201, fmt.Sprintf("document.create.c.d%d", i), fmt.Sprintf(`{"x":%q}`, strings.Repeat(fmt.Sprint(i), 10_000)))
		}
		slow.Store(true)
		time.Sleep(61 * time.Minute) // the round has begun
		began := time.Now()
		w.stop()
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("the stop took %s", took)
		}
	}, retaining(24*time.Hour, time.Hour), func(o *Options) {
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

// TestFactDuringPadding: a fact appended during the padding may be in the file that the
// padding begins, so the log is padded once more.
func TestFactDuringPadding(t *testing.T) {
	for name, n := range map[string]int{"in the middle": 10, "before the last note": 18} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *wire) {
				r := w.processor.retention
				r.Noter = &amid{r.Noter, n, func() { w.want(201, "document.create.c.a", "{}") }}
				w.want(201, "collection.create.c", "")
				for round, padded := range []bool{true, true, false} {
					before := w.end()
					w.check(r.Pad(w.ctx()))
					if end := w.end(); (end > before) != padded {
						t.Errorf("round %d appends %d events", round, end-before)
					}
					time.Sleep(time.Hour)
				}
				if cursor := w.processor.store.Cursor(); cursor.Padded != cursor.Seq || cursor.Last > cursor.Seq-18 {
					t.Errorf("the padding ends at %d, after the fact at %d: %+v", cursor.Padded, cursor.Last, cursor)
				}
			}, retaining(4*time.Hour, 24*time.Hour))
		})
	}
}

// TestUnfinishedSnapshotHasNoAge: an unfinished snapshot does not count for the time of
// the next round.
func TestUnfinishedSnapshotHasNoAge(t *testing.T) {
	inBubble(t, func(w *wire) {
		w.want(201, "collection.create.c", "")
		w.want(201, "snapshot.create", "")
		js, err := jetstream.New(w.log)
		w.check(err)
		_, err = js.CreateObjectStore(w.ctx(), jetstream.ObjectStoreConfig{Bucket: "LAPSE_main_SNAPSHOT_1000"})
		w.check(err)
		time.Sleep(20 * time.Minute)
		w.want(201, "document.create.c.a", "{}")
		w.restart()
		for _, made := range []int64{0, 1} {
			time.Sleep(30 * time.Minute)
			if n := w.processor.retention.Made.Load(); n != made {
				t.Errorf("%d snapshots are made, want %d", n, made)
			}
		}
	}, retaining(0, time.Hour))
}

// TestFirstSince: FirstSince searches correctly over foreign messages.
func TestFirstSince(t *testing.T) {
	inBubble(t, func(w *wire) {
		w.want(201, "collection.create.c", "")
		for i := range 20 {
			time.Sleep(time.Second)
			w.want(201, fmt.Sprintf("document.create.c.d%d", i), "{}")
			if i%3 == 0 {
				w.intrude("c.Strange", "foreign")
			}
		}
		events := w.everything()
		end := uint64(len(events)) + 1
		for at := events[0].Time - 1000; at < time.Now().UnixMilli()+2000; at += 500 {
			want := end
			for i := len(events) - 1; i >= 0; i-- {
				if events[i].Type == schema.NoEvent {
					continue
				} else if events[i].Time < at {
					break
				}
				want = events[i].Seq
			}
			got, err := w.processor.log.FirstSince(w.ctx(), at)
			// Foreign messages just before the first event may be included.
			for got < want && events[got-1].Type == schema.NoEvent {
				got++
			}
			if got != want || err != nil {
				t.Errorf("at %d the first is %d, want %d (%v)", at, got, want, err)
			}
		}
	})
}
