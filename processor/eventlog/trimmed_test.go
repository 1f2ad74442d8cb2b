package eventlog_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/processortest"
	"github.com/lapsedb/lapse/processor/snapshot"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// TestTrimmedWhileRead: events trimmed during a read are no gap. The reader gets
// ErrTrimmed, upon which a start begins again and a standby has to be restarted.
func TestTrimmedWhileRead(t *testing.T) {
	processortest.Bubble(t, func(w *processortest.Wire) {
		w.Want(201, "collection.create.c", `{}`)
		for i := range 10 {
			w.Want(201, fmt.Sprintf("document.create.c.%d", i), `{}`)
		}
		log, cursor := w.Inside().Log, w.Inside().Store.Cursor()
		s, err := eventlog.NewScrub(w.Ctx(), log, cursor) // before the trim
		w.Check(err)
		w.Check(w.Stream("LAPSE_main").Purge(w.Ctx(), jetstream.WithPurgeSequence(6)))
		w.Check(s.Newest(w.Ctx()))
		for what, read := range map[string]func(uint64, uint64, func(*schema.Event) error) error{
			"at once": func(from, through uint64, visit func(*schema.Event) error) error {
				return log.Read(w.Ctx(), from, through, visit)
			},
			"patiently": func(from, through uint64, visit func(*schema.Event) error) error {
				return log.ReadPatiently(w.Ctx(), from, through, visit)
			},
		} {
			if err := read(2, cursor.Seq, func(*schema.Event) error { return nil }); !errors.Is(err, eventlog.ErrTrimmed) || errors.Is(err, eventlog.ErrGap) || !strings.Contains(err.Error(), "restart to restore") {
				t.Errorf("%s: %v", what, err)
			}
			if err := read(6, cursor.Seq, func(*schema.Event) error { return nil }); err != nil {
				t.Errorf("%s, what is left: %v", what, err)
			}
		}
		if why, err := snapshot.Mismatch(w.Ctx(), log, projections.Cursor{Seq: 3, Stream: log.Identity()}); err != nil || !strings.Contains(why, "begins at 6") {
			t.Errorf("a projection of before: %q %v", why, err)
		}
	})
}

// TestGapsAtStart: a gap is found before anything is read. If nothing follows the gap,
// the log ends before it.
func TestGapsAtStart(t *testing.T) {
	processortest.Bubble(t, func(w *processortest.Wire) {
		js := w.JS()
		config := eventlog.LogConfig("other", schema.DatabaseName("other").Append()+"x.")
		config.DenyDelete = false
		stream, err := js.CreateStream(w.Ctx(), config)
		w.Check(err)
		for range 5 {
			_, err := js.Publish(w.Ctx(), strings.TrimSuffix(config.Subjects[0], ">")+"c.Any", nil)
			w.Check(err)
		}
		log, err := eventlog.Open(w.Ctx(), w.Connections(), eventlog.Config{Database: "other"})
		w.Check(err)
		defer log.Close()
		w.Check(log.Check(w.Ctx()))
		w.Check(stream.DeleteMsg(w.Ctx(), 3))
		if err := log.Check(w.Ctx()); !errors.Is(err, eventlog.ErrGap) {
			t.Errorf("of a hole with events behind it is said: %v", err)
		}
		w.Check(stream.DeleteMsg(w.Ctx(), 4))
		w.Check(stream.DeleteMsg(w.Ctx(), 5))
		w.Check(log.Check(w.Ctx()))
		if _, last, err := log.Bounds(w.Ctx()); err != nil || last != 2 {
			t.Errorf("the log ends at %d, want 2 (%v)", last, err)
		}
	})
}

// TestFirstSince: FirstSince searches correctly over foreign messages.
func TestFirstSince(t *testing.T) {
	processortest.Bubble(t, func(w *processortest.Wire) {
		w.Want(201, "collection.create.c", "")
		for i := range 20 {
			time.Sleep(time.Second)
			w.Want(201, fmt.Sprintf("document.create.c.d%d", i), "{}")
			if i%3 == 0 {
				w.Intrude("c.Strange", "foreign")
			}
		}
		events := w.Everything()
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
			got, err := w.Inside().Log.FirstSince(w.Ctx(), at)
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

// TestLeaderIsRead: history, a restore and the start read single messages from the leader
// of the log, also if an operator allows direct gets: a replica that answers those may lag.
func TestLeaderIsRead(t *testing.T) {
	w := processortest.New(t)
	w.Want(201, "collection.create.c", "")
	w.Want(201, "document.create.c.a", `{}`)
	w.Want(204, "document.delete.c.a", "")
	w.Trim(2)
	config := w.Stream("LAPSE_main").CachedInfo().Config
	config.AllowDirect = true
	_, err := w.JS().UpdateStream(w.Ctx(), config)
	w.Check(err)
	direct, err := w.Log.SubscribeSync("$JS.API.DIRECT.GET.LAPSE_main.>")
	w.Check(err)
	whole, err := w.Log.SubscribeSync("$JS.API.DIRECT.GET.LAPSE_main")
	w.Check(err)
	w.Stop()
	w.Start()
	if history := w.Want(200, "history.c.a", ""); strings.Count(string(history.Body), `"seq"`) != 2 {
		t.Errorf("the history is %s", history.Body)
	}
	w.Want(201, "document.restore.c.a", "")
	w.Check(w.Log.Flush())
	for _, sub := range []*nats.Subscription{direct, whole} {
		if n, _, err := sub.Pending(); n != 0 || err != nil {
			t.Errorf("%d direct gets at %s, %v", n, sub.Subject, err)
		}
	}
}
