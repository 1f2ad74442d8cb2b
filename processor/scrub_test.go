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
)

// TestScrub: damage to a folded event is found before lapse serves if it is in the newest
// part of the log, and while lapse serves if in an older part.
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
	w.unchecked = true // as if damaged after the server's check
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
