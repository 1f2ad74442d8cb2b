package eventlog_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bytes"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/processortest"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// TestScrub: damage to a folded event is found before lapse serves if it is in the newest
// part of the log, and while lapse serves if in an older part.
func TestScrub(t *testing.T) {
	w := processortest.New(t)
	w.Want(201, "collection.create.c", "")
	for i := range 20 {
		w.Want(201, fmt.Sprintf("document.create.c.%d", i), fmt.Sprintf(`{"x":"%s %d"}`, strings.Repeat("x", 1000), i))
	}
	w.StopServer()
	blocks, err := filepath.Glob(filepath.Join(w.Dir, "jetstream/*/streams/LAPSE_main/msgs/*.blk"))
	w.Check(err)
	b, err := os.ReadFile(blocks[0])
	w.Check(err)
	at := strings.Index(string(b), `x 7"}`)
	if len(blocks) != 1 || at < 0 {
		t.Fatalf("document 7 is not in %v", blocks)
	}
	b[at] ^= 1
	w.Check(os.WriteFile(blocks[0], b, 0o600))
	w.Unchecked = true // as if damaged after the server's check
	w.StartServer()
	if err := w.TryStart(); !errors.Is(err, eventlog.ErrGap) || !strings.Contains(err.Error(), "restore") {
		t.Errorf("it says %v", err)
	}
	store, err := projections.Open(w.Options.Dir, w.Options.Projection)
	w.Check(err)
	cursor := store.Cursor()
	w.Check(store.Close())
	log := w.OpenLog()
	s, err := eventlog.NewScrub(w.Ctx(), log, cursor)
	w.Check(err)
	s.From = cursor.Seq - 5 // as if the log were long
	if err := s.Newest(w.Ctx()); err != nil {
		t.Errorf("the newest part is sound, and it says %v", err)
	}
	paced, never := 0, func(err error) { t.Errorf("it reads again after %v", err) }
	if err := s.Rest(w.Ctx(), func(context.Context, time.Duration) { paced++ }, never); !errors.Is(err, eventlog.ErrGap) {
		t.Errorf("of the older part it says %v", err)
	}
	s.First = 15
	if err := s.Rest(w.Ctx(), func(context.Context, time.Duration) { paced++ }, never); err != nil || paced != 1 {
		t.Errorf("of what is sound it says %v, after %d steps", err, paced)
	}
}

// TestStartReadsLittle: a start reads little of what is folded, however long the log is.
func TestStartReadsLittle(t *testing.T) {
	processortest.Bubble(t, func(w *processortest.Wire) {
		w.Want(201, "collection.create.c", `{}`)
		for range 12 {
			w.Ask("document.upsert.c.large", fmt.Sprintf(`{"x":%q}`, strings.Repeat("x", 1<<20)))
		}
		cursor := w.Inside().Store.Cursor()
		s, err := eventlog.NewScrub(w.Ctx(), w.Inside().Log, cursor)
		w.Check(err)
		if read := cursor.Seq + 1 - s.From; read == 0 || read > 6 {
			t.Errorf("it reads %d events of 1 MiB", read)
		}
	})
}

// TestScrubPaces: a check of the log leaves time for others every few milliseconds.
func TestScrubPaces(t *testing.T) {
	processortest.Bubble(t, func(w *processortest.Wire) {
		w.Want(201, "collection.create.c", `{}`)
		operations := strings.Repeat(`,{"op":"upsert","id":"a","body":{}}`, 1000)[1:]
		w.Want(200, "batch.c", `{"operations":[`+operations+`]}`)
		cursor := w.Inside().Store.Cursor()
		s, err := eventlog.NewScrub(w.Ctx(), w.Inside().Log, cursor)
		w.Check(err)
		s.From = cursor.Seq // as if the log were long
		paced := 0
		w.Check(s.Rest(w.Ctx(), func(context.Context, time.Duration) { paced++ }, func(err error) { t.Error(err) }))
		if paced < 3 {
			t.Errorf("it reads a thousand events and paces %d times", paced)
		}
	})
}

// leaderless is a JetStream that creates no consumer for a while.
type leaderless struct {
	jetstream.JetStream
	until time.Time
}

func (l leaderless) CreateConsumer(ctx context.Context, stream string, c jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	if time.Now().Before(l.until) {
		return nil, errors.New("JetStream: status 503")
	}
	return l.JetStream.CreateConsumer(ctx, stream, c)
}

// TestUnreadIsNoDamage: a part of the log that NATS does not deliver now is read again,
// however long that takes.
func TestUnreadIsNoDamage(t *testing.T) {
	for away, reports := range map[time.Duration]int{10 * time.Second: 0, 2 * time.Minute: 4} {
		processortest.Bubble(t, func(w *processortest.Wire) {
			w.Want(201, "collection.create.c", `{}`)
			log, cursor := *w.Inside().Log, w.Inside().Store.Cursor()
			log.Bulk = leaderless{log.Bulk, time.Now().Add(away)}
			s, err := eventlog.NewScrub(w.Ctx(), &log, cursor)
			w.Check(err)
			s.From = cursor.Seq // as if the log were long
			unread := 0
			w.Check(s.Rest(w.T.Context(), func(context.Context, time.Duration) {}, func(error) { unread++ }))
			if (unread > 0) != (reports > 0) || unread > reports {
				t.Errorf("without a leader for %s it reports %d times", away, unread)
			}
		})
	}
}

// TestScrubComparesLogHash: a scrub compares the hash of the whole log, since a log with
// the same last event may differ before it.
func TestScrubComparesLogHash(t *testing.T) {
	processortest.Bubble(t, func(w *processortest.Wire) {
		w.Want(201, "collection.create.c", `{}`)
		cursor := w.Inside().Store.Cursor()
		for _, right := range []bool{true, false} {
			if !right {
				cursor.Hash++
			}
			s, err := eventlog.NewScrub(w.Ctx(), w.Inside().Log, cursor)
			w.Check(err)
			if err := s.Newest(w.Ctx()); (err == nil) != right || !right && !errors.Is(err, eventlog.ErrGap) {
				t.Errorf("right=%t: %v", right, err)
			}
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
	w := processortest.New(t)
	w.Checked = checked
	something := func() { w.Want(201, "document.create.c.found", `{"x":"something to find"}`) }
	w.Want(201, "collection.create.c", "")
	if !checked {
		something()
	}
	large := fmt.Sprintf(`{"x":%q}`, strings.Repeat("x", schema.MaxDocumentBytes-100))
	for range eventlog.ScrubBytes/schema.MaxDocumentBytes + 6 {
		w.Ask("document.upsert.c.large", large)
	}
	if checked {
		something()
		w.Ask("document.upsert.c.large", large) // the last folded event is read anyway
	}
	w.StopServer()
	blocks, err := filepath.Glob(filepath.Join(w.Dir, "jetstream/*/streams/LAPSE_main/msgs/*.blk"))
	w.Check(err)
	damaged := 0
	for _, path := range blocks {
		b, err := os.ReadFile(path)
		w.Check(err)
		if at := bytes.Index(b, []byte("something to find")); at >= 0 {
			b[at] ^= 1
			w.Check(os.WriteFile(path, b, 0o600))
			damaged++
		}
	}
	if damaged != 1 || len(blocks) < 2 {
		t.Fatalf("the document is in %d of %v", damaged, blocks)
	}
	w.Unchecked = true // as if damaged after the server's check
	w.StartServer()
	w.Start()
	told := func() bool { return strings.Contains(w.Logs.String(), "an old part of the log cannot be read") }
	if processortest.Await(told); !told() {
		t.Errorf("nobody was told:\n%s", w.Logs)
	}
	w.Want(200, "document.get.c.found", "")
}
