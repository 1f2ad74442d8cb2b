package monitor_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/processor/monitor"
	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/processor/processortest"
	"github.com/lapsedb/lapse/processor/writer"
)

// TestReady: Ready reports what keeps requests from being served, as long as it lasts.
func TestReady(t *testing.T) {
	processortest.InOutage(t, processor.OS, func(o *processortest.Outage) {
		o.WantReady("it is ready at the start")
		o.Want(201, "collection.create.c", "")
		for _, n := range []*processortest.Network{&o.LogNet, &o.ServiceNet, &o.ClientNet} {
			n.Use(nil)
		}
		o.Shutdown()
		time.Sleep(10 * time.Second)
		o.WantReady("NATS is away", "NATS is away since", "the log connection is reconnecting", "the service connection is reconnecting")
		m := o.Monitor
		if err := m.Live(); err != nil {
			t.Errorf("with NATS away it is not alive: %v", err)
		}
		processortest.Gather(t, m).Want(t, processortest.Metrics{"lapse_ready": 0, "lapse_nats_connected{connection=log}": 0})
		o.StartServer()
		o.WantReady("it is ready when NATS is back")
		processortest.Gather(t, m).Want(t, processortest.Metrics{"lapse_ready": 1, "lapse_nats_connected{connection=log}": 1, "lapse_nats_reconnects_total{connection=log}": 1})
		for _, line := range []string{"the connection to NATS is lost", "the connection to NATS is back"} {
			if !strings.Contains(o.Logs.String(), line) {
				t.Errorf("the log does not say that %s", line)
			}
		}

		// Only the log is unreachable: events in flight are not acknowledged.
		ns := o.LogNet.Server
		o.LogNet.Use(nil)
		o.LogNet.Each(func(c *processortest.FaultyConn) { c.Mute.Store(true); c.Deaf.Store(true) })
		o.Check(o.Client.PublishRequest("lapse.main.api.document.create.c.a", o.Client.NewInbox(), []byte("{}")))
		o.WantReady("the log is away", "the log is unreachable since", "the log connection is")
		processortest.Gather(t, m).Want(t, processortest.Metrics{"lapse_ready": 0, "lapse_log_unreachable": 1, "lapse_nats_connected{connection=service}": 1})
		o.LogNet.Use(ns)
		o.WantReady("it is ready when the log is back")
		after := processortest.Gather(t, m)
		after.Want(t, processortest.Metrics{"lapse_log_unreachable": 0, "lapse_log_outages_total": 1})
		if after["lapse_append_failures_total"] == 0 || after["lapse_fence_moves_total"] < 2 {
			t.Errorf("after that: %v", after)
		}
	})
}

// TestLive: a writer that makes no progress is not alive.
func TestLive(t *testing.T) {
	processortest.Bubble(t, func(w *processortest.Wire) {
		m := w.Monitor
		time.Sleep(10 * time.Minute)
		if err := m.Live(); err != nil {
			t.Errorf("after a while without work: %v", err)
		}
		release := w.HoldWriter()
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
		m.Listener()(observe.Failed{Err: writer.ErrSuperseded})
		if err := m.Live(); err != writer.ErrSuperseded {
			t.Errorf("it failed, and says %v", err)
		}
	})
}

// TestReadyWhileFolding: Ready reports the progress of the catch-up at the start.
func TestReadyWhileFolding(t *testing.T) {
	var while []string
	var m *monitor.Monitor
	w := processortest.New(t, func(o *processor.Options) {
		m = monitor.NewMonitor("main")
		o.Monitor = m
		o.Events = func(e observe.Event) {
			if _, ok := e.(observe.CatchingUp); ok {
				while = append(while, m.Ready()...)
			}
		}
	})
	w.Want(201, "collection.create.c", "")
	fresh := monitor.NewMonitor("main")
	fresh.Folded(time.Hour) // is slow, which nobody listens to yet
	if before := fresh.Ready(); len(before) != 1 || !strings.HasPrefix(before[0], "starting since") {
		t.Errorf("before the start: %q", before)
	}
	w.Stop()
	if after := m.Ready(); len(after) != 1 || after[0] != "stopping" {
		t.Errorf("after the end: %q", after)
	}
	w.RemoveProjection()
	while = nil
	w.Start()
	if len(while) == 0 || !strings.Contains(while[len(while)-1], "not caught up: 2 of 2 events are folded, 100 %") {
		t.Errorf("while the log is folded: %q", while)
	}
	w.WantReady("it is ready when the log is folded")
	if status, err := m.Status(w.Ctx()); err != nil || status.Seq != w.Processor.Seq() {
		t.Errorf("the status is %+v, %v", status, err)
	}
}

// TestReadyReadsMutations: a writer that cannot read the published mutations is not ready, a
// standby is.
func TestReadyReadsMutations(t *testing.T) {
	processortest.Bubble(t, func(w *processortest.Wire) {
		say := w.Monitor.Listener()
		unreachable := observe.MutationsUnreachable{Err: nats.ErrPermissionViolation, Since: time.Now()}
		say(unreachable)
		if reasons := w.Monitor.Ready(); len(reasons) != 1 || !strings.HasPrefix(reasons[0], "published mutations are not read since") || !strings.HasSuffix(reasons[0], unreachable.Err.Error()) {
			t.Errorf("unreachable: %q", reasons)
		}
		for _, e := range []observe.Event{observe.MutationsReachable{}, unreachable, observe.RoleChanged{From: observe.Writer, To: observe.Standby}} {
			say(e)
		}
		if reasons := w.Monitor.Ready(); len(reasons) != 0 {
			t.Errorf("afterwards: %q", reasons)
		}
	})
}
