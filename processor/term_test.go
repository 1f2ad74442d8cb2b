package processor

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/lease"
	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/processor/peers"
	"github.com/lapsedb/lapse/processor/writer"
	"github.com/lapsedb/lapse/schema"
)

// TestTermFailsToBegin: a process that took the lease but could not begin its term
// stays a standby, and blocks nobody.
func TestTermFailsToBegin(t *testing.T) {
	inCrew(t, 2, func(c *crew) {
		c.start()
		b := c.members[1]
		ended, end := context.WithCancel(b.ctx())
		end()
		if _, err := b.processor.lead(ended); err == nil {
			t.Fatal("it begins")
		}
		waiting, cancel := context.WithTimeout(b.ctx(), time.Second)
		defer cancel()
		if err := b.processor.retention.Noter.Note(waiting, schema.LogPadded, []byte(`{}`)); !errors.Is(err, writer.NotWriter) {
			t.Errorf("who wants something written is told %v", err)
		}
	})
}

// TestStartFails: a processor that cannot serve leaves nothing behind and releases the
// lease.
func TestStartFails(t *testing.T) {
	inCrew(t, 1, func(c *crew) {
		a := c.members[0]
		o := a.options
		o.Events = func(e observe.Event) {
			if _, ok := e.(observe.FenceMoved); ok {
				a.service.Close()
			}
		}
		p, err := Start(a.ctx(), a.connections(), o)
		if err == nil {
			_ = p.Stop()
			t.Fatal("it starts")
		}
		t.Log(err)
		a.gaveLeaseUp()
	})
}

// TestRoleAfterStop: a role change during a stop subscribes nothing.
func TestRoleAfterStop(t *testing.T) {
	inCrew(t, 1, func(c *crew) {
		a := c.members[0]
		a.start()
		s := a.processor.service
		a.check(s.Stop())
		a.check(s.Become(observe.Standby))
		if n := a.service.NumSubscriptions(); n != 0 {
			t.Errorf("%d subscriptions are there after the end", n)
		}
	})
}

// TestForgetReconnectsOnce: Forget reconnects once, even if something else reconnects after each
// time.
func TestForgetReconnectsOnce(t *testing.T) {
	inCrew(t, 1, func(c *crew) {
		a := c.members[0]
		a.start()
		s := a.processor.service
		changes := a.service.StatusChanged(nats.CONNECTED)
		defer a.service.RemoveStatusListener(changes)
		go func() {
			for mine := false; ; mine = !mine {
				if _, ok := <-changes; !ok {
					return
				}
				if !mine {
					_ = a.service.ForceReconnect()
				}
			}
		}()
		before := a.service.Stats().Reconnects
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.Forget(before + 7) // as if it had reconnected during the drain
		}()
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Fatal("it does not end")
		}
		time.Sleep(5 * time.Second)
		if n := a.service.Stats().Reconnects - before; n == 0 || n > 4 {
			t.Errorf("the connection was made %d times", n)
		}
		a.want(404, "collection.get.c", "")
	})
}

// TestStopReportsUnfinishedWork: a stop that leaves work undone returns an error.
func TestStopReportsUnfinishedWork(t *testing.T) {
	inCrew(t, 1, func(c *crew) {
		a := c.members[0]
		a.start()
		a.want(201, "collection.create.c", `{}`)
		a.cut()
		go a.client.Request("lapse.main.api.document.create.c.a", []byte(`{}`), time.Second)
		time.Sleep(100 * time.Millisecond)
		p := a.processor
		a.processor = nil
		if err := p.Stop(); err == nil {
			t.Error("it says nothing")
		} else {
			t.Log(err)
		}
	})
}

// TestReleaseAfterRenewal: the lease is released even if the last renewal got no reply.
func TestReleaseAfterRenewal(t *testing.T) {
	inCrew(t, 1, func(c *crew) {
		a := c.members[0]
		a.start()
		time.Sleep(testLease)
		synctest.Wait()
		a.processor.lease.Revision-- // as before the last renewal
		a.stop()
		a.gaveLeaseUp()
	})
}

// TestLeaseTimeoutIsTransient: a timeout of the lease bucket is transient, and does not mean that
// the bucket belongs to something else.
func TestLeaseTimeoutIsTransient(t *testing.T) {
	inCrew(t, 1, func(c *crew) {
		a := c.members[0]
		a.start()
		late, cancel := context.WithTimeout(a.ctx(), time.Nanosecond)
		defer cancel()
		<-late.Done()
		if err := lease.Check(late, a.log, "main", 0); !eventlog.Transient(err) {
			t.Errorf("%v does not pass", err)
		}
	})
}

// TestQueryAcrossDemotion: a query that began at the only writer, without a standby's checks,
// runs again with them if the process has become a standby.
func TestQueryAcrossDemotion(t *testing.T) {
	inCrew(t, 1, func(c *crew) {
		a := c.members[0]
		a.start()
		a.want(201, "collection.create.c", `{}`)
		s := a.processor.service
		var q peers.Attempt
		_, confirm, err := s.Live.Begin("c", &q)
		a.check(err)
		a.check(s.Become(observe.Standby))
		defer func() { a.check(s.Become(observe.Writer)) }()
		if err := confirm(a.processor.Seq()); err == nil {
			t.Error("it takes the answer for one of a writer")
		}
		asked := s.Live.Now()
		time.Sleep(3 * time.Second)
		second, _, err := s.Live.Begin("c", &q)
		a.check(err)
		if now := second(0); now != asked {
			t.Errorf("it waited for second %d, and is judged by %d", asked, now)
		}
	})
}

// TestLogConnectionClosed: a process that cannot read the lease any more fails, rather
// than stay a standby for ever.
func TestLogConnectionClosed(t *testing.T) {
	inCrew(t, 1, func(c *crew) {
		a := c.members[0]
		a.start()
		p := a.processor
		a.processor = nil
		a.log.Close()
		select {
		case err := <-p.Failed():
			t.Log(err)
		case <-time.After(patience):
			t.Error("it says nothing")
		}
		_ = p.Stop()
	})
}

// gaveLeaseUp checks that nobody holds the lease.
func (m *member) gaveLeaseUp() {
	m.t.Helper()
	if e, err := m.leases().Get(m.ctx(), lease.Key); !errors.Is(err, jetstream.ErrKeyNotFound) {
		m.t.Errorf("the lease stays: %v %v", e, err)
	}
}
