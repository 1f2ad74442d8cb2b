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

// TestUnreachable: a process is not ready while it cannot read the log or, as the writer, the
// published mutations, until it can or its role ends, or an attempt at one.
func TestUnreachable(t *testing.T) {
	processortest.Bubble(t, func(w *processortest.Wire) {
		say, err, since := w.Monitor.Listener(), nats.ErrPermissionViolation, time.Now()
		mutations, log := observe.MutationsUnreachable{Err: err, Since: since}, observe.LogUnreachable{Err: err, Since: since}
		for _, test := range []struct {
			unreachable, end observe.Event
			reason           string
		}{
			{mutations, observe.MutationsReachable{}, "published mutations are not read since"},
			{mutations, observe.RoleChanged{From: observe.Writer, To: observe.Standby}, "published mutations are not read since"},
			{mutations, observe.TakeoverFailed{Err: err}, "published mutations are not read since"},
			{log, observe.LogReachable{}, "the log is unreachable since"},
			{log, observe.RoleChanged{From: observe.Writer, To: observe.Standby}, "the log is unreachable since"},
			{log, observe.TakeoverFailed{Err: err}, "the log is unreachable since"},
		} {
			say(test.unreachable)
			if reasons := w.Monitor.Ready(); len(reasons) != 1 || !strings.HasPrefix(reasons[0], test.reason) || !strings.HasSuffix(reasons[0], err.Error()) {
				t.Errorf("unreachable: %q", reasons)
			}
			say(test.end)
			if reasons := w.Monitor.Ready(); len(reasons) != 0 {
				t.Errorf("after %T: %q", test.end, reasons)
			}
		}
	})
}
