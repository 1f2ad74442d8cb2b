package processor_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/processor/processortest"
	"github.com/lapsedb/lapse/schema"
)

// TestHandOverTo: a hand-over ends with the other process as the writer, within a moment,
// and not with a third one; without a process of that name another one writes soon.
func TestHandOverTo(t *testing.T) {
	processortest.InCrew(t, 4, func(c *processortest.Crew) {
		c.Members[3].Options.ReadOnly = true
		c.Start()
		a, b, d, reader := c.Members[0], c.Members[1], c.Members[2], c.Members[3]
		a.Want(201, "collection.create.c", `{"defaultTtl":60}`)
		for range 3 {
			for from, to := range map[*processortest.Member]*processortest.Member{a: d, d: b, b: a} {
				if from.Processor.Role() != observe.Writer {
					continue
				}
				r := from.Ask("document.upsert.c.a", `{}`)
				from.Check(from.Processor.HandOver(c.T.Context(), to.Options.Node))
				if took := to.Becomes(observe.Writer); took > time.Second {
					t.Errorf("it takes over after %s", took)
				}
				to.Want(200, "document.patch.c.a", `{"n":1}`, schema.HeaderIfMatch, fmt.Sprint(r.Seq))
				from.Becomes(observe.Standby)
			}
		}
		writer := a
		for _, m := range c.Members {
			if m.Processor.Role() == observe.Writer {
				writer = m
			} else if err := m.Processor.HandOver(c.T.Context(), a.Options.Node); !errors.Is(err, processor.ErrNotWriter) {
				t.Errorf("a standby hands over: %v", err)
			}
		}
		writer.Check(writer.Processor.HandOver(c.T.Context(), "nobody"))
		processortest.Await(func() bool {
			for _, m := range []*processortest.Member{a, b, d} {
				if m.Processor.Role() == observe.Writer {
					return true
				}
			}
			return false
		})
		ctx, cancel := context.WithCancel(c.T.Context())
		cancel()
		if err := a.Processor.HandOver(ctx, "nobody"); err == nil {
			t.Error("a hand-over without time succeeds")
		}
		if reader.Processor.Role() != observe.Standby {
			t.Error("a process that only reads writes")
		}
		for _, m := range []*processortest.Member{a, b, d} {
			m.Stop()
		}
		time.Sleep(time.Minute)
		if reader.Processor.Role() != observe.Standby {
			t.Error("a process that only reads takes over")
		}
	})
}
