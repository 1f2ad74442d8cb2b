package writer_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lapsedb/lapse/audit"
	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/processor/processortest"
	"github.com/lapsedb/lapse/processor/writer"
	"github.com/lapsedb/lapse/schema"
)

// TestIdleIsNoDowntime: a database that was idle for longer than MaxDowntime accepts
// writes after a restart, whether the stop was in order or not.
func TestIdleIsNoDowntime(t *testing.T) {
	processortest.Bubble(t, func(w *processortest.Wire) {
		w.Want(201, "collection.create.c", "")
		w.Want(201, "document.create.c.a", `{}`)
		for i, inOrder := range []bool{true, true, false} {
			before := w.Count(schema.WriterPresent)
			time.Sleep(time.Hour)
			if n := w.Count(schema.WriterPresent) - before; n < 19 || n > 20 {
				t.Errorf("in an hour it says %d times that it is there", n)
			}
			if inOrder {
				time.Sleep(time.Minute)
				w.Stop()
				time.Sleep(time.Duration(i) * 10 * time.Minute)
				w.Start()
			} else {
				w.Log.Close() // so that it can append nothing more
				_ = w.Processor.Stop()
				w.Processor = nil
				w.RestartInside(4 << 20)
			}
			w.Want(201, fmt.Sprintf("document.create.c.%d", i), `{}`)
		}
	}, func(o *processor.Options) { o.MaxDowntime, o.SameClock = 12*time.Minute, true })
}

// TestResumed: a writer that could not expire for a while appends WriterResumed before it
// continues, so that an audit at that point knows the reason.
func TestResumed(t *testing.T) {
	var c *processortest.Clock
	processortest.Bubble(t, func(w *processortest.Wire) {
		w.Want(201, "collection.create.c", `{"defaultTtl":10}`)
		for i := range 3 {
			w.Want(201, fmt.Sprintf("document.create.c.%d", i), `{}`)
		}
		c.Set(10 * processortest.Year)
		time.Sleep(3 * time.Minute)
		c.Set(0)
		time.Sleep(2 * time.Second)
		log := w.Everything()
		resumed := slices.IndexFunc(log, func(e *schema.Event) bool { return e.Type == schema.WriterResumed })
		if resumed < 0 || resumed > len(log)-4 || log[resumed+1].Type != schema.DocumentExpired {
			t.Fatalf("it goes on at %d of %d events", resumed, len(log))
		}
		for end := resumed + 1; end <= len(log); end++ {
			a, err := audit.New(audit.Options{Stream: true, FS: vfs.NewMem()})
			w.Check(err)
			for _, e := range log[:end] {
				w.Check(a.Event(e))
			}
			report, err := a.Finish()
			w.Check(err)
			w.Check(a.Close())
			if report.Count() != 0 || report.Due != 3 {
				t.Errorf("with %d events: %+v", end, report)
			}
		}
		// A short doubt, and a long time with nothing due, append none.
		c.Set(10 * processortest.Year)
		time.Sleep(writer.ResumedAfter - 5*time.Second)
		c.Set(0)
		time.Sleep(time.Hour)
		if n := w.Count(schema.WriterResumed); n != 1 {
			t.Errorf("it went on %d times", n)
		}
	}, processortest.WithClock(&c))
}
