package processor

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lapsedb/lapse/processor/clock"
	"github.com/lapsedb/lapse/processor/observe"
)

// TestFrozenWriterRefuses: a process that was frozen for longer than its lease refuses what it had
// taken in: its successor may have created or renewed what it does not find.
func TestFrozenWriterRefuses(t *testing.T) {
	inCrew(t, 2, func(c *crew) {
		a, b := c.members[0], c.members[1]
		gate, clock := newGate(), clock.GoClock()
		a.options.Clock = func() (time.Time, time.Duration) {
			gate.pass()
			return clock()
		}
		c.start()
		a.want(201, "collection.create.c", `{}`)
		b.has(a)
		release := a.holdWriter()
		var asking sync.WaitGroup
		for tail, body := range map[string]string{
			"document.delete.c.new": ``,
			"batch.c":               `{"operations":[{"op":"touch","id":"new"}]}`,
		} {
			asking.Go(func() {
				m, err := a.client.Request("lapse.main.api."+tail, []byte(body), patience)
				if err != nil || m.Header.Get("Lapse-Status") != "503" {
					t.Errorf("%s: %v, %+v", tail, err, m)
				}
			})
		}
		synctest.Wait() // until they are in the queue
		gate.shut()
		release()
		b.becomes(observe.Writer)
		b.want(201, "document.create.c.new", `{}`)
		gate.open()
		asking.Wait()
		a.becomes(observe.Standby)
		c.agree()
	})
}

// gate holds up who passes it while it is shut.
type gate struct {
	mu  sync.Mutex
	way chan struct{} // closed while the gate is open
}

func newGate() *gate {
	g := &gate{way: make(chan struct{})}
	close(g.way)
	return g
}

func (g *gate) pass() {
	g.mu.Lock()
	way := g.way
	g.mu.Unlock()
	<-way
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.way = make(chan struct{})
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.way)
}

// TestLeaseBucketOfLaterVersion: keys of the lease bucket that this version does not know are
// left alone, at a start and later.
func TestLeaseBucketOfLaterVersion(t *testing.T) {
	inCrew(t, 2, func(c *crew) {
		a, b := c.members[0], c.members[1]
		a.start()
		before, err := a.leases().PutString(a.ctx(), "process.x", "later")
		a.check(err)
		b.start()
		a.stop()
		b.becomes(observe.Writer)
		if e, err := b.leases().Get(b.ctx(), "process.x"); err != nil || e.Revision() != before {
			t.Errorf("%v, %v", e, err)
		}
	})
}
