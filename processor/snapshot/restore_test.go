package snapshot_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/processor/processortest"
	"github.com/lapsedb/lapse/processor/snapshot"
	"github.com/lapsedb/lapse/schema"
)

// withObject calls do with the object store of a snapshot.
func withObject(w *processortest.Wire, seq uint64, do func(jetstream.ObjectStore)) {
	w.T.Helper()
	store, err := w.JS().ObjectStore(w.Ctx(), fmt.Sprintf("LAPSE_main_SNAPSHOT_%d", seq))
	w.Check(err)
	do(store)
}

// putObject replaces the content of a snapshot and keeps its metadata.
func putObject(w *processortest.Wire, seq uint64, content []byte) {
	w.T.Helper()
	withObject(w, seq, func(store jetstream.ObjectStore) {
		info, err := store.GetInfo(w.Ctx(), snapshot.ObjectName)
		w.Check(err)
		_, err = store.Put(w.Ctx(), info.ObjectMeta, bytes.NewReader(content))
		w.Check(err)
	})
}

// TestStartFromSnapshot: a start takes the newest sound snapshot and skips damaged ones.
// Without any it folds the log from its beginning, if that is still there.
func TestStartFromSnapshot(t *testing.T) {
	const rounds = 2
	poison := func(w *processortest.Wire, seq uint64) { putObject(w, seq, []byte("any bytes")) }
	meta := func(change func(map[string]string)) func(*processortest.Wire, uint64) {
		return func(w *processortest.Wire, seq uint64) {
			withObject(w, seq, func(s jetstream.ObjectStore) {
				info, err := s.GetInfo(w.Ctx(), snapshot.ObjectName)
				w.Check(err)
				change(info.Metadata)
				w.Check(s.UpdateMeta(w.Ctx(), snapshot.ObjectName, info.ObjectMeta))
			})
		}
	}
	for name, c := range map[string]struct {
		damage [rounds]func(*processortest.Wire, uint64) // newest first; nil for none
		from   int                                       // index of the snapshot it begins with; rounds for the log
		first  func(newest, oldest uint64) uint64        // of the log, if it is trimmed so that nothing starts
		why    string
	}{
		"all sound": {from: 0},
		"no object": {damage: [rounds]func(*processortest.Wire, uint64){func(w *processortest.Wire, seq uint64) {
			withObject(w, seq, func(s jetstream.ObjectStore) { w.Check(s.Delete(w.Ctx(), snapshot.ObjectName)) })
		}}, from: 1},
		"another one's object": {damage: [rounds]func(*processortest.Wire, uint64){func(w *processortest.Wire, seq uint64) {
			var other []byte
			withObject(w, w.SnapshotList()[1].Seq, func(s jetstream.ObjectStore) {
				var err error
				other, err = s.GetBytes(w.Ctx(), snapshot.ObjectName)
				w.Check(err)
			})
			putObject(w, seq, other)
		}}, from: 1},
		"another log's": {damage: [rounds]func(*processortest.Wire, uint64){meta(func(of map[string]string) { of[snapshot.MetaStream] = "another" })}, from: 1},
		"not verified": {damage: [rounds]func(*processortest.Wire, uint64){meta(func(of map[string]string) {
			of[snapshot.MetaSnapshot] = strings.Replace(of[snapshot.MetaSnapshot], `"sound":true`, `"sound":false`, 1)
		})}, from: 1},
		"described in poison": {damage: [rounds]func(*processortest.Wire, uint64){meta(func(of map[string]string) { of[snapshot.MetaSnapshot] = "{" })}, from: 1},
		"all poison":          {damage: [rounds]func(*processortest.Wire, uint64){poison, poison}, from: rounds},
		"all poison, trimmed": {damage: [rounds]func(*processortest.Wire, uint64){poison, poison}, from: rounds, first: func(_, oldest uint64) uint64 { return oldest }, why: "restore the stream or a snapshot"},
		"all below the log":   {first: func(newest, _ uint64) uint64 { return newest + 2 }, why: "no snapshot reaches up to there"},
	} {
		t.Run(name, func(t *testing.T) {
			w := processortest.New(t)
			w.Want(201, "collection.create.c", `{"defaultTtl":1000}`)
			for i := range rounds {
				w.Want(201, fmt.Sprintf("document.create.c.d%d", i), "{}")
				w.Want(201, "snapshot.create", "")
			}
			w.Want(201, "document.create.c.last", "{}")
			list := w.SnapshotList()
			if len(list) != rounds {
				t.Fatalf("there are %v", list)
			}
			if c.first != nil {
				w.Trim(c.first(list[0].Seq, list[1].Seq))
			}
			content := w.Content()
			for i, damage := range c.damage {
				if damage != nil {
					damage(w, list[i].Seq)
				}
			}
			w.Stop()
			w.RemoveProjection()
			w.Logs.Reset()
			if c.first != nil {
				w.NoStart(c.why)
				return
			}
			w.Start()
			want := ""
			if c.from < rounds {
				want = fmt.Sprintf("restored from a snapshot\" seq=%d\n", list[c.from].Seq)
			}
			if logs := w.Logs.String(); want == "" && strings.Contains(logs, "begins with") || !strings.Contains(logs, want) {
				t.Errorf("it does not say %q:\n%s", want, logs)
			}
			if got := w.Content(); got != content {
				t.Errorf("it is\n%s, was\n%s", got, content)
			}
			w.Want(201, "document.create.c.another", "{}")
		})
	}
}

// TestProjectionBehindTheLog: a projection whose cursor was trimmed from the log begins
// with a snapshot, too.
func TestProjectionBehindTheLog(t *testing.T) {
	w := processortest.New(t)
	w.Want(201, "collection.create.c", `{}`)
	w.Stop()
	disk := w.Options.Projection.FS
	_, err := vfs.Clone(disk, disk, w.Options.Dir, "old")
	w.Check(err)
	w.Start()
	for i := range 10 {
		w.Want(201, fmt.Sprintf("document.create.c.d%d", i), "{}")
	}
	w.Want(201, "snapshot.create", "")
	w.Want(201, "document.create.c.last", "{}")
	w.Trim(w.SnapshotList()[0].Seq)
	content := w.Content()
	w.Stop()
	w.RemoveProjection()
	w.Check(disk.Rename("old", w.Options.Dir))
	w.Start()
	if got := w.Content(); got != content {
		t.Errorf("it is\n%s, was\n%s", got, content)
	}
}

// TestRestoreSnapshot: an operator replaces the projection by a snapshot and, if the log
// is lost, begins a new one behind it.
func TestRestoreSnapshot(t *testing.T) {
	begin := func(t *testing.T) (w *processortest.Wire, seq uint64, content string) {
		w = processortest.New(t)
		w.Want(201, "collection.create.c", `{"defaultTtl":1000}`)
		w.Want(201, "document.create.c.a", `{"n":1}`)
		w.Judged(w.Publish("document.create.c.b", "{}"))
		w.Want(201, "snapshot.create", "")
		content = w.Content()
		w.Want(201, "document.create.c.later", `{"n":2}`)
		seq = w.SnapshotList()[0].Seq
		return w, seq, content
	}
	restore := func(w *processortest.Wire, seq uint64, newLog bool) (schema.Snapshot, error) {
		return processor.RestoreSnapshot(w.Ctx(), w.Connections(), w.Options, seq, newLog)
	}
	t.Run("the log is there", func(t *testing.T) {
		w, seq, _ := begin(t)
		content := w.Content()
		w.Stop()
		for _, which := range []uint64{0, seq} {
			if s, err := restore(w, which, false); err != nil || s.Seq != seq || !s.Sound {
				t.Fatalf("restored %+v: %v", s, err)
			}
		}
		w.Start()
		w.Want(201, "snapshot.create", "")
		newest := w.SnapshotList()[0].Seq
		putObject(w, newest, []byte("poison"))
		w.Stop()
		if s, err := restore(w, 0, false); err != nil || s.Seq != seq {
			t.Errorf("of two, the newest damaged, %+v was restored: %v", s, err)
		}
		if _, err := restore(w, newest, false); err == nil {
			t.Error("the damaged one was restored")
		}
		if _, err := restore(w, 99, false); err == nil || !strings.Contains(err.Error(), "no snapshot 99") {
			t.Errorf("99: %v", err)
		}
		w.Logs.Reset()
		w.Start()
		if got := w.Content(); got != content || strings.Contains(w.Logs.String(), "folded again") {
			t.Errorf("it is\n%s, was\n%s\n%s", got, content, w.Logs)
		}
	})
	t.Run("the log is lost", func(t *testing.T) {
		w, seq, content := begin(t)
		w.Stop()
		js := w.JS()
		w.Check(js.DeleteStream(w.Ctx(), "LAPSE_main"))
		before := projectionFiles(w)
		if _, err := restore(w, 0, false); err == nil || !strings.Contains(err.Error(), "--new-log") || strings.Contains(err.Error(), "\n") {
			t.Errorf("without --new-log: %v", err)
		}
		if projectionFiles(w) != before {
			t.Error("the projection was changed all the same")
		}
		if s, err := restore(w, 0, true); err != nil || s.Seq != seq {
			t.Fatalf("restored %+v: %v", s, err)
		}
		w.Start()
		if got := w.Content(); got != content {
			t.Errorf("it is\n%s, was\n%s", got, content)
		}
		if r := w.Want(201, "document.create.c.later", `{"n":3}`); r.Seq <= seq {
			t.Errorf("the new log goes on at %d, want behind %d", r.Seq, seq)
		}
		w.Judged(w.Publish("document.create.c.published", "{}"))
		// The new log is like any other, and has its own snapshot.
		w.Refold()
	})
	t.Run("the log lost its end", func(t *testing.T) {
		w, seq, _ := begin(t)
		w.Stop()
		js := w.JS()
		w.Check(js.DeleteStream(w.Ctx(), "LAPSE_main"))
		w.RemoveProjection()
		w.NoStart("the snapshot at event", "--new-log")
		if _, err := restore(w, seq, false); err == nil || !strings.Contains(err.Error(), "another stream") {
			t.Errorf("without --new-log: %v", err)
		}
		if _, err := restore(w, seq, true); err != nil {
			t.Errorf("with --new-log: %v", err)
		}
		w.Start()
		w.Want(200, "document.get.c.a", "")
	})
	t.Run("in use", func(t *testing.T) {
		w, seq, _ := begin(t)
		if _, err := restore(w, seq, false); err == nil || !strings.HasPrefix(err.Error(), "projection in ") {
			t.Errorf("while it is served: %v", err)
		}
		w.Want(200, "document.get.c.a", "")
	})
	t.Run("no snapshot", func(t *testing.T) {
		w := processortest.New(t)
		w.Stop()
		if _, err := restore(w, 0, false); err == nil || !strings.Contains(err.Error(), "no sound snapshot") {
			t.Errorf("%v", err)
		}
	})
}

// projectionFiles returns the content of the projection's directory.
func projectionFiles(w *processortest.Wire) string {
	w.T.Helper()
	all := make(map[string][]byte)
	filesOf(w, w.Options.Projection.FS, w.Options.Dir, all)
	return fmt.Sprint(all)
}

// TestSnapshotOfLostEvents: the log is not trimmed below a snapshot of events that it has
// lost, but the snapshot is kept as long as an operator may want it.
func TestSnapshotOfLostEvents(t *testing.T) {
	w := processortest.New(t, processortest.Retaining(time.Hour, time.Hour))
	w.Want(201, "collection.create.c", `{}`)
	w.Want(201, "document.create.c.a", `{}`)
	w.Want(201, "snapshot.create", "")
	early := w.SnapshotList()[0].Seq
	end := w.Processor.Seq()
	for i := range 20 {
		w.Want(201, fmt.Sprintf("document.create.c.d%d", i), "{}")
	}
	w.Want(201, "snapshot.create", "")
	late := w.SnapshotList()[0].Seq
	events := w.Everything()
	w.Stop()
	w.ReplaceLog(events[:end]) // as it was after the first snapshot
	w.NoStart("--accept-lost-end")
	w.Options.AcceptLostEnd = true
	w.Start()
	w.Options.AcceptLostEnd = false // the loss stays accepted
	if list := w.SnapshotList(); len(list) != 2 || list[0].Seq != late || list[0].Sound || list[0].Fault == "" || list[1].Seq != early || !list[1].Sound {
		t.Fatalf("there are %+v", list)
	}
	w.Want(201, "document.create.c.b", "{}")
	w.Check(w.Inside().Retention.Round(w.Ctx()))
	list := w.SnapshotList()
	if len(list) != 2 || !list[0].Sound || !list[1].Sound || list[1].Seq != early {
		t.Errorf("after a round there are %+v", list)
	}
	w.Refold()
}
