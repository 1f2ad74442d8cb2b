package processor_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/lapsedb/lapse/processor/processortest"
	"github.com/lapsedb/lapse/schema"
)

// TestTermFailsToBegin: a process that took the lease but could not begin its term
// stays a standby, and blocks nobody.
func TestTermFailsToBegin(t *testing.T) {
	processortest.InCrew(t, 2, func(c *processortest.Crew) {
		c.Start()
		b := c.Members[1]
		ended, end := context.WithCancel(b.Ctx())
		end()
		if err := b.Processor.Lead(ended); err == nil {
			t.Fatal("it begins")
		}
		waiting, cancel := context.WithTimeout(b.Ctx(), time.Second)
		defer cancel()
		if err := b.Inside().Retention.Noter.Note(waiting, schema.LogPadded, []byte(`{}`)); err == nil || !strings.Contains(err.Error(), "no longer the writer") {
			t.Errorf("who wants something written is told %v", err)
		}
	})
}

// TestStopReportsUnfinishedWork: a stop that leaves work undone returns an error.
func TestStopReportsUnfinishedWork(t *testing.T) {
	processortest.InCrew(t, 1, func(c *processortest.Crew) {
		a := c.Members[0]
		a.Start()
		a.Want(201, "collection.create.c", `{}`)
		a.Cut()
		go a.Client.Request("lapse.main.api.document.create.c.a", []byte(`{}`), time.Second)
		time.Sleep(100 * time.Millisecond)
		p := a.Processor
		a.Processor = nil
		if err := p.Stop(); err == nil {
			t.Error("it says nothing")
		} else {
			t.Log(err)
		}
	})
}

// TestLogConnectionClosed: a process that cannot read the lease any more fails, rather
// than stay a standby for ever.
func TestLogConnectionClosed(t *testing.T) {
	processortest.InCrew(t, 1, func(c *processortest.Crew) {
		a := c.Members[0]
		a.Start()
		p := a.Processor
		a.Processor = nil
		a.Log.Close()
		select {
		case err := <-p.Failed():
			t.Log(err)
		case <-time.After(processortest.Patience):
			t.Error("it says nothing")
		}
		_ = p.Stop()
	})
}
