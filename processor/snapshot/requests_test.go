package snapshot_test

import (
	"context"
	"errors"
	"fmt"
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

	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/processortest"
	"github.com/lapsedb/lapse/processor/snapshot"
	"github.com/lapsedb/lapse/test/harness"
	"github.com/lapsedb/lapse/test/stress"
)

func TestSnapshotRequests(t *testing.T) {
	w := processortest.New(t)
	if got := string(w.Want(200, "snapshot.list", "").Body); got != `{"snapshots":[]}` {
		t.Errorf("at first there are %s", got)
	}
	w.Want(201, "collection.create.c", `{}`)
	w.Want(201, "document.create.c.a", `{}`)
	made := w.Want(201, "snapshot.create", "")
	digest := w.Inside().Store.Digest().String()
	if seq := w.Inside().Store.Cursor().Seq; !strings.Contains(string(made.Body), fmt.Sprintf(`{"seq":%d,`, seq)) ||
		!strings.Contains(string(made.Body), `"digest":"`+digest+`"`) || !strings.Contains(string(made.Body), `"sound":true`) {
		t.Errorf("made was %s, the digest is %s", made.Body, digest)
	}
	if again := w.Want(201, "snapshot.create", ""); string(again.Body) != string(made.Body) {
		t.Errorf("again it is %s, was %s", again.Body, made.Body)
	}
	seq := fmt.Sprint(w.SnapshotList()[0].Seq)
	if got := w.Want(200, "snapshot.verify."+seq, ""); string(got.Body) != string(made.Body) {
		t.Errorf("verified it is %s, was %s", got.Body, made.Body)
	}
	w.Refused(404, "snapshot_not_found", "snapshot.verify.99", "")
	for _, tail := range []string{"snapshot.verify", "snapshot.verify.x", "snapshot.verify.1.2", "snapshot.verify.-1", "snapshot.create.x", "snapshot.list.x", "snapshot", "snapshot.remove"} {
		w.Refused(400, "bad_request", tail, "")
	}
	putObject(w, w.SnapshotList()[0].Seq, []byte("poison"))
	if got := w.Want(200, "snapshot.verify."+seq, ""); !strings.Contains(string(got.Body), `"sound":false,"fault":"`) {
		t.Errorf("poison is %s", got.Body)
	}
	if snap := w.SnapshotList()[0]; snap.Sound || snap.Fault == "" {
		t.Errorf("afterwards it is listed as %+v", snap)
	}
	// Two are kept.
	for i := range 3 {
		w.Want(201, fmt.Sprintf("document.create.c.more%d", i), `{}`)
		w.Want(201, "snapshot.create", "")
	}
	if list := w.SnapshotList(); len(list) != snapshot.KeepSnapshots || list[0].Seq != w.End() || !list[1].Sound {
		t.Errorf("%v are kept, the log ends at %d", list, w.End())
	}
	seq = fmt.Sprint(w.SnapshotList()[0].Seq)
	// Only one is made or verified at a time.
	w.Inside().Retention.Snapshots.Making.Lock()
	w.Refused(429, "overloaded", "snapshot.create", "")
	w.Refused(429, "overloaded", "snapshot.verify."+seq, "")
	w.Inside().Retention.Snapshots.Making.Unlock()
	// Clients reach the object stores only through these requests.
	js, err := jetstream.New(w.Client)
	w.Check(err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := js.ObjectStore(ctx, fmt.Sprintf("LAPSE_main_SNAPSHOT_%d", w.SnapshotList()[0].Seq)); err == nil {
		t.Error("a client opened a snapshot")
	}
}

// TestSnapshotCancelled: wherever a snapshot is cancelled, all its goroutines end, or the
// bubble would not.
func TestSnapshotCancelled(t *testing.T) {
	processortest.Bubble(t, func(w *processortest.Wire) {
		w.Want(201, "collection.create.c", `{}`)
		for moment := range stress.Pick(60, 600) {
			w.Want(201, "document.create.c."+strconv.Itoa(moment), `{}`)
			ctx, cancel := context.WithCancel(w.Ctx())
			done := make(chan error)
			go func() {
				_, err := w.Inside().Retention.Snapshots.Create(ctx)
				done <- err
			}()
			for range moment * 4 * 600 / stress.Pick(60, 600) {
				runtime.Gosched()
			}
			cancel()
			if <-done == nil {
				t.Fatal("it was made all the same")
			}
		}
		w.Want(201, "snapshot.create", "")
	})
}

// TestSlowSnapshot: a snapshot is made and restored, however slow the disk is that it is
// read back to.
func TestSlowSnapshot(t *testing.T) {
	var slow atomic.Bool
	mem := vfs.NewMem()
	processortest.Bubble(t, func(w *processortest.Wire) {
		w.Want(201, "collection.create.c", `{}`)
		for i := range 20 {
			w.Want(201, fmt.Sprintf("document.create.c.d%d", i), fmt.Sprintf(`{"x":%q}`, strings.Repeat(fmt.Sprint(i), 100_000)))
		}
		slow.Store(true)
		list := w.SnapshotList
		time.Sleep(time.Hour)
		if all := list(); len(all) == 0 || !all[0].Sound {
			t.Fatalf("there are %v\n%s", all, w.Logs)
		}
		slow.Store(false)
		w.Stop()
		w.Check(mem.RemoveAll(w.Options.Dir))
		slow.Store(true)
		var err error
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		w.Processor, err = processor.Start(ctx, w.Connections(), w.Options)
		w.Check(err)
		slow.Store(false)
		if !strings.Contains(w.Logs.String(), "restored from a snapshot") {
			t.Errorf("it did not begin with one:\n%s", w.Logs)
		}
		w.Want(200, "document.get.c.d0", "")
	}, processortest.Retaining(24*time.Hour, 20*time.Minute), func(o *processor.Options) {
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
	w := processortest.New(t, processortest.Retaining(time.Hour, time.Hour))
	w.Want(201, "collection.create.c", `{}`)
	w.Want(201, "snapshot.create", "")
	readable := failObjectInfo(w, nats.ErrTimeout)
	if err := w.Inside().Retention.Round(w.Ctx()); !errors.Is(err, nats.ErrTimeout) {
		t.Errorf("the round ends with %v", err)
	}
	readable()
	if list := w.SnapshotList(); len(list) != 1 || !list[0].Sound {
		t.Errorf("there are %v", list)
	}
}

// TestSnapshotBehindReplica: a snapshot just made stays, although a replica of its stream
// that lags behind does not know that it is finished.
func TestSnapshotBehindReplica(t *testing.T) {
	w := processortest.New(t, processortest.Retaining(time.Hour, time.Hour))
	w.Want(201, "collection.create.c", `{}`)
	w.Want(201, "snapshot.create", "")
	for range 3 {
		latest := failObjectInfo(w, jetstream.ErrObjectNotFound)
		w.Want(201, "snapshot.create", "")
		latest()
		if list := w.SnapshotList(); len(list) != 1 || !list[0].Sound {
			t.Errorf("there are %v", list)
		}
	}
}

// failObjectInfo makes reads of the metadata of snapshots fail, until succeed.
func failObjectInfo(w *processortest.Wire, err error) (succeed func()) {
	store := w.Inside().Retention.Snapshots
	js := store.SwapJS(unreadable{w.JS(), err})
	return func() { store.SwapJS(js) }
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

// TestListWithoutReply: a list that NATS does not answer ends, so that a start asks again.
func TestListWithoutReply(t *testing.T) {
	o := harness.NATSOptions(t.TempDir())
	o.JetStream = false
	nc := harness.Dial(t, harness.StartNATS(t, o).ClientURL())
	if _, err := nc.Subscribe("$JS.API.STREAM.NAMES", func(*nats.Msg) {}); err != nil {
		t.Fatal(err)
	}
	_, err := snapshot.Newest(t.Context(), harness.JetStream(t, nc, jetstream.WithDefaultTimeout(10*time.Millisecond)), "main")
	if !eventlog.Transient(err) {
		t.Errorf("it ends with %v", err)
	}
}
