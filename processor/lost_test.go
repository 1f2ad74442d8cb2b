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
			if why := w.refuses(); !strings.Contains(why, fmt.Sprintf("ends at %d but had reached %d", kept, lost)) || !strings.Contains(why, "--accept-lost-end") {
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

// TestLostMutations: a start is refused if the mutations stream has lost its end, or
// mutations that were not judged, until the operator accepts it. A sequence that was
// judged is not used again.
func TestLostMutations(t *testing.T) {
	const stream = "LAPSE_main_MUTATIONS"
	for _, test := range []struct {
		name, why string
		lose      func(w *wire)
		next      uint64
	}{
		{"end", "ends at 0 but had reached 1", func(w *wire) {
			config := w.stream(stream).CachedInfo().Config
			config.FirstSeq = 0
			js, err := jetstream.New(w.log)
			w.check(err)
			w.check(js.DeleteStream(w.ctx(), stream))
			_, err = js.CreateStream(w.ctx(), config)
			w.check(err)
		}, 2},
		{"beginning", "begins at 3, and the log has judged it up to 1", func(w *wire) {
			for i := range 3 {
				w.publish(fmt.Sprintf("document.create.c.%d", i), `{}`)
			}
			w.check(w.stream(stream).Purge(w.ctx(), jetstream.WithPurgeSequence(3)))
		}, 5},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWire(t)
			w.want(201, "collection.create.c", `{}`)
			w.judged(w.publish("document.create.c.a", `{}`))
			w.stop()
			test.lose(w)
			if why := w.refuses(); !strings.Contains(why, test.why) || !strings.Contains(why, "--accept-lost-end") {
				t.Fatalf("it says %s", why)
			}
			w.options.AcceptLostEnd = true
			w.start()
			if logs := w.logs.String(); !strings.Contains(logs, "mutations are lost") {
				t.Errorf("it says\n%s", logs)
			}
			seq := w.publish("document.create.c.b", `{}`)
			if w.judged(seq); seq != test.next {
				t.Errorf("the next mutation has sequence %d, want %d", seq, test.next)
			}
			w.want(200, "document.get.c.b", "")
		})
	}
}
