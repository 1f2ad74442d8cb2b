package processor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// TestScrub damages an event that is folded: it is found in the newest part of
// the log before lapse serves, in an older part while it does.
func TestScrub(t *testing.T) {
	w := newWire(t)
	w.want(201, "collection.create.c", "")
	for i := range 20 {
		w.want(201, fmt.Sprintf("document.create.c.%d", i), fmt.Sprintf(`{"x":"%s %d"}`, strings.Repeat("x", 1000), i))
	}
	w.stop()
	w.client.Close()
	w.service.Close()
	w.log.Close()
	w.shutdown()
	blocks, err := filepath.Glob(filepath.Join(w.dir, "jetstream/*/streams/LAPSE_main/msgs/*.blk"))
	w.check(err)
	b, err := os.ReadFile(blocks[0])
	w.check(err)
	at := strings.Index(string(b), `x 7"}`)
	if len(blocks) != 1 || at < 0 {
		t.Fatalf("document 7 is not in %v", blocks)
	}
	b[at] ^= 1
	w.check(os.WriteFile(blocks[0], b, 0o600))
	w.unchecked = true // as if the disk had done it since
	w.startServer()
	if p, err := Start(w.ctx(), w.connections(), w.options); err == nil {
		w.check(p.Stop())
		t.Error("it starts")
	} else if !errors.Is(err, eventlog.ErrGap) || !strings.Contains(err.Error(), "restore") {
		t.Errorf("it says %v", err)
	}

	store, err := projections.Open(w.options.Dir, w.options.Projection)
	w.check(err)
	cursor := store.Cursor()
	w.check(store.Close())
	log, err := eventlog.Open(w.ctx(), w.connections(), eventlog.Config{Database: "main"})
	w.check(err)
	defer log.Close()
	s, err := eventlog.NewScrub(w.ctx(), log, cursor)
	w.check(err)
	s.From = cursor.Seq - 5 // as if the log were long
	if err := s.Newest(w.ctx()); err != nil {
		t.Errorf("the newest part is sound, and it says %v", err)
	}
	paced := 0
	if err := s.Rest(w.ctx(), func(context.Context, time.Duration) { paced++ }); !errors.Is(err, eventlog.ErrGap) {
		t.Errorf("of the older part it says %v", err)
	}
	s.First = 15
	if err := s.Rest(w.ctx(), func(context.Context, time.Duration) { paced++ }); err != nil || paced != 1 {
		t.Errorf("of what is sound it says %v, after %d steps", err, paced)
	}
}

// A hole is accepted where the writer behind it says that it is there, wherever
// reading begins in it.
func TestKnownHole(t *testing.T) {
	l := &eventlog.Log{DB: "main"}
	event := func(seq, lost uint64) *schema.Event {
		return &schema.Event{Seq: seq, Type: schema.WriterStarted, Body: fmt.Appendf(nil, `{"writer":"w","lost":%d}`, lost)}
	}
	for name, test := range map[string]struct {
		from   uint64
		events []*schema.Event
		whole  bool
	}{
		"none":               {3, []*schema.Event{{Seq: 3}, {Seq: 4}, {Seq: 5}}, true},
		"known":              {3, []*schema.Event{{Seq: 3}, event(6, 4), {Seq: 7}}, true},
		"from its first":     {4, []*schema.Event{event(6, 4), {Seq: 7}}, true},
		"from its last":      {5, []*schema.Event{event(6, 4), {Seq: 7}}, true},
		"known in part":      {3, []*schema.Event{{Seq: 3}, event(7, 5)}, false},
		"not known":          {3, []*schema.Event{{Seq: 3}, {Seq: 5}}, false},
		"behind that":        {3, []*schema.Event{{Seq: 3}, event(6, 4), {Seq: 8}}, false},
		"a writer, no hole":  {3, []*schema.Event{{Seq: 3}, event(4, 0), {Seq: 5}}, true},
		"a writer of no one": {3, []*schema.Event{{Seq: 3}, event(5, 0)}, false},
	} {
		var err error
		visit := l.Contiguous(test.from, func(*schema.Event) error { return nil })
		for _, e := range test.events {
			if err == nil {
				err = visit(e)
			}
		}
		if (err == nil) != test.whole || err != nil && !errors.Is(err, eventlog.ErrGap) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
