package processor

import (
	"strings"
	"testing"
	"time"

	"github.com/lapsedb/lapse/processor/monitor"
	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/processor/writer"
)

// wantReady waits until Ready returns lines with all parts, or none if there are no
// parts.
func wantReady(w *wire, why string, parts ...string) {
	w.t.Helper()
	var said string
	w.eventually(why, func() bool {
		said = strings.Join(w.processor.options.Monitor.Ready(), "\n")
		if len(parts) == 0 {
			return said == ""
		}
		for _, part := range parts {
			if !strings.Contains(said, part) {
				return false
			}
		}
		return true
	})
	if w.t.Failed() {
		w.t.Logf("it says:\n%s", said)
	}
}

// TestReady: Ready reports what keeps requests from being served, as long as it lasts.
func TestReady(t *testing.T) {
	inOutage(t, OS, func(o *outage) {
		wantReady(o.wire, "it is ready at the start")
		o.want(201, "collection.create.c", "")
		for _, n := range []*network{&o.logs, &o.services, &o.clients} {
			n.use(nil)
		}
		o.shutdown()
		time.Sleep(10 * time.Second)
		wantReady(o.wire, "NATS is away", "NATS is away since", "the log connection is reconnecting", "the service connection is reconnecting")
		m := o.processor.options.Monitor
		if err := m.Live(); err != nil {
			t.Errorf("with NATS away it is not alive: %v", err)
		}
		gather(t, m).want(t, metrics{"lapse_ready": 0, "lapse_nats_connected{connection=log}": 0})
		o.startServer()
		wantReady(o.wire, "it is ready when NATS is back")
		gather(t, m).want(t, metrics{"lapse_ready": 1, "lapse_nats_connected{connection=log}": 1, "lapse_nats_reconnects_total{connection=log}": 1})
		for _, line := range []string{"the connection to NATS is lost", "the connection to NATS is back"} {
			if !strings.Contains(o.wire.logs.String(), line) {
				t.Errorf("the log does not say that %s", line)
			}
		}

		// Only the log is unreachable: events in flight are not acknowledged.
		ns := o.logs.server
		o.logs.use(nil)
		o.logs.each(func(c *faultyConn) { c.mute.Store(true); c.deaf.Store(true) })
		o.check(o.client.PublishRequest("lapse.main.api.document.create.c.a", o.client.NewInbox(), []byte("{}")))
		wantReady(o.wire, "the log is away", "the log is unreachable since", "the log connection is")
		gather(t, m).want(t, metrics{"lapse_ready": 0, "lapse_log_unreachable": 1, "lapse_nats_connected{connection=service}": 1})
		o.logs.use(ns)
		wantReady(o.wire, "it is ready when the log is back")
		after := gather(t, m)
		after.want(t, metrics{"lapse_log_unreachable": 0, "lapse_log_outages_total": 1})
		if after["lapse_append_failures_total"] == 0 || after["lapse_fence_moves_total"] < 2 {
			t.Errorf("after that: %v", after)
		}
	})
}

// TestLive: a writer that makes no progress is not alive.
func TestLive(t *testing.T) {
	inBubble(t, func(w *wire) {
		m := w.processor.options.Monitor
		time.Sleep(10 * time.Minute)
		if err := m.Live(); err != nil {
			t.Errorf("after a while without work: %v", err)
		}
		release := w.holdWriter()
		time.Sleep(monitor.HungAfter / 2)
		if err := m.Live(); err != nil {
			t.Errorf("after half of the time: %v", err)
		}
		time.Sleep(monitor.HungAfter)
		if err := m.Live(); err == nil || !strings.Contains(err.Error(), "the writer has done nothing for 1m") {
			t.Errorf("it hangs, and says %v", err)
		}
		if reasons := m.Ready(); len(reasons) != 1 {
			t.Errorf("it hangs, and is not ready for %q", reasons)
		}
		release()
		time.Sleep(2 * time.Second)
		if err := m.Live(); err != nil {
			t.Errorf("it goes on: %v", err)
		}
		w.processor.fail(writer.ErrSuperseded)
		if err := m.Live(); err != writer.ErrSuperseded {
			t.Errorf("it failed, and says %v", err)
		}
		<-w.processor.failed
	})
}

// TestReadyWhileFolding: Ready reports the progress of the catch-up at the start.
func TestReadyWhileFolding(t *testing.T) {
	var while []string
	var m *monitor.Monitor
	w := newWire(t, func(o *Options) {
		m = monitor.NewMonitor("main")
		o.Monitor = m
		o.Events = func(e observe.Event) {
			if _, ok := e.(observe.CatchingUp); ok {
				while = append(while, m.Ready()...)
			}
		}
	})
	w.want(201, "collection.create.c", "")
	fresh := monitor.NewMonitor("main")
	fresh.Folded(time.Hour) // is slow, which nobody listens to yet
	if before := fresh.Ready(); len(before) != 1 || !strings.HasPrefix(before[0], "starting since") {
		t.Errorf("before the start: %q", before)
	}
	w.stop()
	if after := m.Ready(); len(after) != 1 || after[0] != "stopping" {
		t.Errorf("after the end: %q", after)
	}
	w.check(w.options.Projection.EnsureDefaults().FS.RemoveAll(w.options.Dir))
	while = nil
	w.start()
	if len(while) == 0 || !strings.Contains(while[len(while)-1], "not caught up: 2 of 2 events are folded, 100 %") {
		t.Errorf("while the log is folded: %q", while)
	}
	wantReady(w, "it is ready when the log is folded")
	if status, err := m.Status(w.ctx()); err != nil || status.Seq != w.processor.Seq() {
		t.Errorf("the status is %+v, %v", status, err)
	}
}
