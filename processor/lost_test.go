package processor

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// cutLog stops the processor and replaces the log by its events up to sequence last.
func (w *wire) cutLog(last uint64) {
	w.t.Helper()
	events := w.everything()
	w.stop()
	config := w.stream("LAPSE_main").CachedInfo().Config
	js, err := jetstream.New(w.log)
	w.check(err)
	w.check(js.DeleteStream(w.ctx(), "LAPSE_main"))
	_, err = js.CreateStream(w.ctx(), config)
	w.check(err)
	log, err := eventlog.Open(w.ctx(), w.connections(), eventlog.Config{Database: "main"})
	w.check(err)
	defer log.Close()
	w.check(log.Listen())
	for _, e := range events {
		if e.Seq > last {
			return
		}
		w.check(log.Append([]projections.Fact{{Event: e}}, eventlog.Single))
		if a := <-log.Acks; a.Err != nil {
			w.t.Fatal(a.Err)
		}
	}
}

// refuses checks that a start fails, and returns its error.
func (w *wire) refuses() string {
	w.t.Helper()
	p, err := Start(w.ctx(), w.connections(), w.options)
	if err == nil {
		w.processor = p
		w.t.Fatal("it starts")
	}
	return err.Error()
}

// TestLostEnd: a log that ends before an acknowledged event is refused, with or without
// the projection, until the operator accepts it. Then the log records which sequences are
// reused, and a log line tells how many mutations are judged again.
func TestLostEnd(t *testing.T) {
	for _, projection := range []bool{true, false} {
		t.Run(fmt.Sprintf("projection %t", projection), func(t *testing.T) {
			w := newWire(t)
			w.want(201, "collection.create.c", `{}`)
			kept := w.processor.Seq()
			for i := range 3 {
				w.judged(w.publish(fmt.Sprintf("document.create.c.%d", i), `{}`))
			}
			lost := w.processor.Seq()
			w.cutLog(kept)
			if !projection {
				w.removeProjection()
			}
			if why := w.refuses(); !strings.Contains(why, fmt.Sprintf("ends at %d, and went to %d", kept, lost)) || !strings.Contains(why, "--accept-lost-end") {
				t.Fatalf("it says %s", why)
			}
			w.options.AcceptLostEnd = true
			w.start()
			if logs := w.logs.String(); !strings.Contains(logs, "the log has lost its end") || !strings.Contains(logs, "3 mutations that were judged there are judged again") {
				t.Errorf("it says\n%s", logs)
			}
			found := uint64(0)
			for _, e := range w.everything() {
				if e.Type == schema.WriterStarted && e.Seq > kept {
					var started eventlog.Started
					w.check(json.Unmarshal(e.Body, &started))
					found = started.Reused
				}
			}
			if found != lost {
				t.Errorf("the log says that sequences up to %d are used again, want %d", found, lost)
			}
			w.judged(3)
			w.stop()
			w.options.AcceptLostEnd = false
			w.start() // the loss stays accepted
		})
	}
}

// TestLostBeginning: a log that begins later than retention has trimmed it is refused.
func TestLostBeginning(t *testing.T) {
	w := newWire(t)
	w.want(201, "collection.create.c", `{}`)
	w.judged(w.publish("document.create.c.a", `{}`))
	w.trim(2)
	w.stop()
	w.start()
	w.check(w.stream("LAPSE_main").Purge(w.ctx(), jetstream.WithPurgeSequence(3)))
	w.stop()
	if why := w.refuses(); !strings.Contains(why, "has lost its beginning: it begins at 3, and retention has trimmed it up to 1") {
		t.Errorf("it says %s", why)
	}
}

// TestLostMutations: a start is refused if mutations were lost before they were judged.
func TestLostMutations(t *testing.T) {
	w := newWire(t)
	w.want(201, "collection.create.c", `{}`)
	w.judged(w.publish("document.create.c.a", `{}`))
	w.stop()
	for i := range 3 {
		w.publish(fmt.Sprintf("document.create.c.%d", i), `{}`)
	}
	w.check(w.stream("LAPSE_main_MUTATIONS").Purge(w.ctx(), jetstream.WithPurgeSequence(3)))
	if why := w.refuses(); !strings.Contains(why, "begins at 3, and the log has judged it up to 1") {
		t.Errorf("it says %s", why)
	}
}
