package processor

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/snapshot"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// TestFenceOfFirstAppend: an append that cannot name an earlier event of its epoch, the first
// one or an atomic batch, names a sequence, and is refused behind a foreign message.
func TestFenceOfFirstAppend(t *testing.T) {
	for _, as := range []eventlog.As{eventlog.Single, eventlog.Group, eventlog.Atomic} {
		w := newWire(t)
		w.stop()
		log := w.listening()
		w.intrude("c.Foreign", "")
		w.check(log.Append([]projections.Fact{event(2), event(3)}, as))
		if a := <-log.Acks; a.Err == nil {
			t.Errorf("%d: event %d came into the log behind a foreign message", as, a.Seq)
		}
		if end := w.end(); end != 2 {
			t.Errorf("%d: the log ends at %d, want the foreign message at 2", as, end)
		}
	}
}

// TestTrimKeepsWhatSnapshotsNeed: the log is trimmed up to the oldest sound snapshot and
// no further, however old the later events are. A damaged snapshot holds nothing back.
func TestTrimKeepsWhatSnapshotsNeed(t *testing.T) {
	inBubble(t, func(w *wire) {
		w.want(201, "collection.create.c", `{}`)
		for _, id := range []string{"a", "b"} {
			w.want(201, "document.create.c."+id, `{}`)
			w.want(201, "snapshot.create", "")
		}
		w.want(201, "document.create.c.last", `{}`)
		time.Sleep(2 * time.Hour)
		list, k := w.snapshotList(), w.processor.retention
		trim := func(sound []schema.Snapshot, want uint64) {
			t.Helper()
			w.check(k.Trim(w.ctx(), sound))
			if first := w.stream("LAPSE_main").CachedInfo().State.FirstSeq; first != want {
				t.Errorf("with %d snapshots the log begins at %d, want %d", len(sound), first, want)
			}
		}
		trim(nil, 1)
		trim(list, list[1].Seq)
		w.damageObject(list[0].Seq, func(s jetstream.ObjectStore) {
			info, err := s.GetInfo(w.ctx(), snapshot.ObjectName)
			w.check(err)
			info.Metadata[snapshot.MetaSnapshot] = strings.Replace(info.Metadata[snapshot.MetaSnapshot], `"sound":true`, `"sound":false`, 1)
			w.check(s.UpdateMeta(w.ctx(), snapshot.ObjectName, info.ObjectMeta))
		})
		if kept, err := k.Drop(w.ctx(), schema.Snapshot{}); err != nil || len(kept) != 1 || kept[0].Seq != list[1].Seq {
			t.Errorf("of %v, the first not sound, %v are kept (%v)", list, kept, err)
		}
		trim(list[:1], list[0].Seq)
	}, retaining(time.Hour, 1000*time.Hour))
}

// TestNoSnapshotOfCorruptProjection: no snapshot is made of a projection whose documents
// do not match its digest.
func TestNoSnapshotOfCorruptProjection(t *testing.T) {
	inBubble(t, func(w *wire) {
		w.want(201, "collection.create.c", `{}`)
		w.want(201, "document.create.c.a", `{}`)
		store := w.processor.store
		c, _ := store.Collection("c")
		before, _, err := store.Meta(c, "a")
		w.check(err)
		e := &schema.Event{Seq: store.Cursor().Seq + 1, Time: store.Cursor().Time, Type: schema.DocumentReplaced,
			Collection: "c", ID: "a", Previous: before.Version, Body: []byte(`{"id":"a","n":1}`)}
		before.Size++ // wrong metadata
		w.check(store.Fold([]projections.Fact{{Event: e, Known: true, Incarnation: c.Incarnation, Prior: before, Sum: projections.SumOf(e.Body)}}))
		if made, err := w.processor.retention.Snapshots.Create(w.ctx()); err == nil || !strings.Contains(err.Error(), "not sound") {
			t.Errorf("made was %+v (%v)", made, err)
		}
		if list := w.snapshotList(); len(list) > 0 {
			t.Errorf("there are %v", list)
		}
	})
}

// TestSnapshotBelowTheLog: a start refuses a snapshot that ends before the log begins.
func TestSnapshotBelowTheLog(t *testing.T) {
	w := newWire(t)
	w.want(201, "collection.create.c", `{}`)
	w.want(201, "snapshot.create", "")
	for _, id := range []string{"a", "b", "d"} {
		w.want(201, "document.create.c."+id, `{}`)
	}
	w.trim(w.snapshotList()[0].Seq + 2)
	w.stop()
	w.removeProjection()
	if _, err := Start(w.ctx(), w.connections(), w.options); err == nil || !strings.Contains(err.Error(), "no snapshot reaches up to there") {
		t.Errorf("it starts with %v", err)
	}
}

// TestTrimKeepsMutations: only judged mutations are trimmed.
func TestTrimKeepsMutations(t *testing.T) {
	inBubble(t, func(w *wire) {
		for range 3 {
			w.judged(w.publish("collection.create.c", `{}`))
		}
		r, done, ctx := w.processor.retention, make(chan error), w.ctx()
		r.Snapshots.Making.Lock() // a round waits here after it has asked the writer for all it needs
		go func() { done <- r.Round(ctx) }()
		time.Sleep(time.Second)
		release := w.holdWriter()
		defer release()
		unjudged := w.publish("document.create.c.a", `{}`)
		r.Snapshots.Making.Unlock()
		w.check(<-done)
		info, err := r.Mutations.Stream.Info(ctx)
		w.check(err)
		if state := info.State; state.FirstSeq != unjudged || state.LastSeq != unjudged {
			t.Errorf("mutations %d to %d are left, want %d", state.FirstSeq, state.LastSeq, unjudged)
		}
		release()
		w.judged(unjudged)
		w.want(200, "document.get.c.a", "")
	}, retaining(time.Hour, time.Hour))
}

// TestAtomicBatchIsOne: the log stores the events of an atomic batch all or none, and
// those of another batch one by one.
func TestAtomicBatchIsOne(t *testing.T) {
	inBubble(t, func(w *wire) {
		w.want(201, "collection.create.c", `{}`)
		for _, atomic := range []bool{true, false} {
			before := w.end()
			w.want(200, "batch.c", fmt.Sprintf(`{"atomic":%t,"operations":[{"op":"upsert","id":"a","body":{}},{"op":"upsert","id":"b","body":{}},{"op":"delete","id":"a"}]}`, atomic))
			batches := make(map[string]int)
			for seq := before + 1; seq <= before+3; seq++ {
				m, err := w.stream("LAPSE_main").GetMsg(w.ctx(), seq)
				w.check(err)
				batches[m.Header.Get(jetstreamext.BatchIDHeader)]++
			}
			if one := len(batches) == 1 && batches[""] == 0; one != atomic {
				t.Errorf("atomic=%t: events by their batches are %v", atomic, batches)
			}
		}
	})
}

// TestMutationStreamRecreated: if the stream of mutations was removed, the new one continues
// behind the last judged sequence.
func TestMutationStreamRecreated(t *testing.T) {
	inBubble(t, func(w *wire) {
		w.judged(w.publish("collection.create.c", `{}`))
		w.judged(w.publish("document.create.c.a", `{}`))
		s := w.processor.retention.Mutations
		w.stop()
		w.check(s.Bulk.DeleteStream(w.ctx(), s.DB.MutationStream()))
		w.start()
		if seq := w.publish("document.create.c.b", `{}`); seq != 3 {
			t.Errorf("the next mutation is %d, want 3", seq)
		}
		w.judged(3)
		w.want(200, "document.get.c.b", "")
	})
}

// TestScrubComparesLogHash: a scrub compares the hash of the whole log, since a log with
// the same last event may differ before it.
func TestScrubComparesLogHash(t *testing.T) {
	inBubble(t, func(w *wire) {
		w.want(201, "collection.create.c", `{}`)
		cursor := w.processor.store.Cursor()
		for _, right := range []bool{true, false} {
			if !right {
				cursor.Hash++
			}
			s, err := eventlog.NewScrub(w.ctx(), w.processor.log, cursor)
			w.check(err)
			if err := s.Newest(w.ctx()); (err == nil) != right || !right && !errors.Is(err, eventlog.ErrGap) {
				t.Errorf("right=%t: %v", right, err)
			}
		}
	})
}

// TestTrimmedWhileRead: events trimmed during a read are no gap. The reader gets
// ErrTrimmed, upon which a start begins again and a standby has to be restarted.
func TestTrimmedWhileRead(t *testing.T) {
	inBubble(t, func(w *wire) {
		w.want(201, "collection.create.c", `{}`)
		for i := range 10 {
			w.want(201, fmt.Sprintf("document.create.c.%d", i), `{}`)
		}
		log, cursor := w.processor.log, w.processor.store.Cursor()
		s, err := eventlog.NewScrub(w.ctx(), log, cursor) // before the trim
		w.check(err)
		w.check(w.stream("LAPSE_main").Purge(w.ctx(), jetstream.WithPurgeSequence(6)))
		w.check(s.Newest(w.ctx()))
		for what, read := range map[string]func(uint64, uint64, func(*schema.Event) error) error{
			"at once": func(from, through uint64, visit func(*schema.Event) error) error {
				return log.Read(w.ctx(), from, through, visit)
			},
			"patiently": func(from, through uint64, visit func(*schema.Event) error) error {
				return log.ReadPatiently(w.ctx(), from, through, visit)
			},
		} {
			if err := read(2, cursor.Seq, func(*schema.Event) error { return nil }); !errors.Is(err, eventlog.ErrTrimmed) || errors.Is(err, eventlog.ErrGap) || !strings.Contains(err.Error(), "restart to restore") {
				t.Errorf("%s: %v", what, err)
			}
			if err := read(6, cursor.Seq, func(*schema.Event) error { return nil }); err != nil {
				t.Errorf("%s, what is left: %v", what, err)
			}
		}
		if why, err := snapshot.Mismatch(w.ctx(), log, projections.Cursor{Seq: 3, Stream: log.Identity()}); err != nil || !strings.Contains(why, "begins at 6") {
			t.Errorf("a projection of before: %q %v", why, err)
		}
	})
}

// TestGapsAtStart: a gap is found before anything is read. If nothing follows the gap,
// the log ends before it.
func TestGapsAtStart(t *testing.T) {
	inBubble(t, func(w *wire) {
		js, err := jetstream.New(w.log)
		w.check(err)
		config := eventlog.LogConfig("other", schema.DatabaseName("other").Append()+"x.")
		config.DenyDelete = false
		stream, err := js.CreateStream(w.ctx(), config)
		w.check(err)
		for range 5 {
			_, err := js.Publish(w.ctx(), strings.TrimSuffix(config.Subjects[0], ">")+"c.Any", nil)
			w.check(err)
		}
		log, err := eventlog.Open(w.ctx(), w.connections(), eventlog.Config{Database: "other"})
		w.check(err)
		defer log.Close()
		w.check(log.Check(w.ctx()))
		w.check(stream.DeleteMsg(w.ctx(), 3))
		if err := log.Check(w.ctx()); !errors.Is(err, eventlog.ErrGap) {
			t.Errorf("of a hole with events behind it is said: %v", err)
		}
		w.check(stream.DeleteMsg(w.ctx(), 4))
		w.check(stream.DeleteMsg(w.ctx(), 5))
		w.check(log.Check(w.ctx()))
		if _, last, err := log.Bounds(w.ctx()); err != nil || last != 2 {
			t.Errorf("the log ends at %d, want 2 (%v)", last, err)
		}
	})
}

// TestOldPartIsScrubbed: the part of a long log that is not read before lapse serves is
// read while it does.
func TestOldPartIsScrubbed(t *testing.T) {
	t.Run("an old part", func(t *testing.T) { scrubbed(t, false) })
	t.Run("a new part, of checked files", func(t *testing.T) { scrubbed(t, true) })
}

// scrubbed damages one of the first events of a long log or, if its files were checked,
// one of the last.
func scrubbed(t *testing.T, checked bool) {
	w := newWire(t)
	w.checked = checked
	something := func() { w.want(201, "document.create.c.found", `{"x":"something to find"}`) }
	w.want(201, "collection.create.c", "")
	if !checked {
		something()
	}
	large := fmt.Sprintf(`{"x":%q}`, strings.Repeat("x", schema.MaxDocumentBytes-100))
	for range eventlog.ScrubBytes/schema.MaxDocumentBytes + 6 {
		w.ask("document.upsert.c.large", large)
	}
	if checked {
		something()
		w.ask("document.upsert.c.large", large) // the last folded event is read anyway
	}
	w.stop()
	w.client.Close()
	w.service.Close()
	w.log.Close()
	w.shutdown()
	blocks, err := filepath.Glob(filepath.Join(w.dir, "jetstream/*/streams/LAPSE_main/msgs/*.blk"))
	w.check(err)
	damaged := 0
	for _, path := range blocks {
		b, err := os.ReadFile(path)
		w.check(err)
		if at := bytes.Index(b, []byte("something to find")); at >= 0 {
			b[at] ^= 1
			w.check(os.WriteFile(path, b, 0o600))
			damaged++
		}
	}
	if damaged != 1 || len(blocks) < 2 {
		t.Fatalf("the document is in %d of %v", damaged, blocks)
	}
	w.unchecked = true // as if damaged after the server's check
	w.startServer()
	w.start()
	told := func() bool { return strings.Contains(w.logs.String(), "an old part of the log cannot be read") }
	if await(told); !told() {
		t.Errorf("nobody was told:\n%s", w.logs)
	}
	w.want(200, "document.get.c.found", "")
}
