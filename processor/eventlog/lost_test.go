package eventlog_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/processortest"
	"github.com/lapsedb/lapse/schema"
)

// TestLostEnd: a log that ends before an acknowledged event is refused, with or without
// the projection, until the operator accepts it. Then the log records which sequences are
// reused, and a log line tells how many mutations are judged again.
func TestLostEnd(t *testing.T) {
	for _, projection := range []bool{true, false} {
		t.Run(fmt.Sprintf("projection %t", projection), func(t *testing.T) {
			w := processortest.New(t)
			w.Want(201, "collection.create.c", `{}`)
			kept := w.Processor.Seq()
			for i := range 3 {
				w.Judged(w.Publish(fmt.Sprintf("document.create.c.%d", i), `{}`))
			}
			lost := w.Processor.Seq()
			events := w.Everything()
			w.Stop()
			w.ReplaceLog(events[:kept])
			if !projection {
				w.RemoveProjection()
			}
			w.NoStart(fmt.Sprintf("ends at %d but had reached %d", kept, lost), "--accept-lost-end; if it is restored from a backup, delete projection")
			w.Options.AcceptLostEnd = true
			w.Start()
			if logs := w.Logs.String(); !strings.Contains(logs, "the log has lost its end") || !strings.Contains(logs, "3 mutations that were judged there are judged again") {
				t.Errorf("it says\n%s", logs)
			}
			found := uint64(0)
			for _, e := range w.Everything() {
				if e.Type == schema.WriterStarted && e.Seq > kept {
					var started eventlog.Started
					w.Check(json.Unmarshal(e.Body, &started))
					found = started.Reused
				}
			}
			if found != lost {
				t.Errorf("the log says that sequences up to %d are used again, want %d", found, lost)
			}
			w.Judged(3)
			w.Stop()
			w.Options.AcceptLostEnd = false
			w.Start() // the loss stays accepted
		})
	}
}

// TestLostBeginning: a log that begins later than retention has trimmed it is refused.
func TestLostBeginning(t *testing.T) {
	w := processortest.New(t)
	w.Want(201, "collection.create.c", `{}`)
	w.Judged(w.Publish("document.create.c.a", `{}`))
	w.Trim(2)
	w.Restart()
	w.Check(w.Stream("LAPSE_main").Purge(w.Ctx(), jetstream.WithPurgeSequence(3)))
	w.Stop()
	w.NoStart("has lost its beginning: it begins at 3, and retention has trimmed it up to 1")
}

// TestLostMutations: a start is refused if the mutations stream has lost its end, or
// mutations that were not judged, until the operator accepts it. A sequence that was
// judged is not used again.
func TestLostMutations(t *testing.T) {
	const stream = "LAPSE_main_MUTATIONS"
	for _, test := range []struct {
		name, why string
		lose      func(w *processortest.Wire)
		next      uint64
	}{
		{"end", "ends at 0 but had reached 1", func(w *processortest.Wire) {
			config := w.Stream(stream).CachedInfo().Config
			config.FirstSeq = 0
			js := w.JS()
			w.Check(js.DeleteStream(w.Ctx(), stream))
			_, err := js.CreateStream(w.Ctx(), config)
			w.Check(err)
		}, 2},
		{"beginning", "begins at 3, and the log has judged it up to 1", func(w *processortest.Wire) {
			for i := range 3 {
				w.Publish(fmt.Sprintf("document.create.c.%d", i), `{}`)
			}
			w.Check(w.Stream(stream).Purge(w.Ctx(), jetstream.WithPurgeSequence(3)))
		}, 5},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := processortest.New(t)
			w.Want(201, "collection.create.c", `{}`)
			w.Judged(w.Publish("document.create.c.a", `{}`))
			w.Stop()
			test.lose(w)
			w.NoStart(test.why, "--accept-lost-end")
			w.Options.AcceptLostEnd = true
			w.Start()
			if logs := w.Logs.String(); !strings.Contains(logs, "mutations are lost") {
				t.Errorf("it says\n%s", logs)
			}
			seq := w.Publish("document.create.c.b", `{}`)
			if w.Judged(seq); seq != test.next {
				t.Errorf("the next mutation has sequence %d, want %d", seq, test.next)
			}
			w.Want(200, "document.get.c.b", "")
		})
	}
}

// TestLogTruncatedWhileRunning: a log that comes back shorter ends the processor, which
// would serve events that the log lacks. Another processor starts on the rest.
func TestLogTruncatedWhileRunning(t *testing.T) {
	processortest.Bubble(t, func(w *processortest.Wire) {
		w.Want(201, "collection.create.c", `{}`)
		w.Want(201, "document.create.c.a", `{}`)
		w.ReplaceLog(w.Everything()[:2])
		w.Want(504, "document.create.c.b", `{}`) // the outcome is unknown
		if err := w.Processor.Stop(); err == nil || !strings.Contains(err.Error(), "ends at 2 but had reached 3") {
			t.Errorf("it ended with %v", err)
		}
		w.Options.AcceptLostEnd = true
		w.Start()
		w.Want(404, "document.get.c.a", "")
		w.Want(201, "document.create.c.a", `{}`)
	})
}

// TestProjectionOfAnotherLog: a start detects a projection of another log, or of a log
// that went back.
func TestProjectionOfAnotherLog(t *testing.T) {
	w := processortest.New(t)
	w.Want(201, "collection.create.c", `{}`)
	w.Want(201, "document.create.c.old", `{}`)
	w.Want(204, "collection.delete.c", "")

	// The log is gone: the projection may be its only trace.
	w.Stop()
	w.Check(w.JS().DeleteStream(w.Ctx(), "LAPSE_main"))
	for range 2 {
		w.NoStart("belongs to a deleted log: restore the stream")
	}
	// Another log takes its place.
	disk := w.Options.Projection.FS
	w.Check(disk.Rename(w.Options.Dir, "kept"))
	w.Start()
	w.Stop()
	w.RemoveProjection()
	w.Check(disk.Rename("kept", w.Options.Dir))
	w.Start()
	if !strings.Contains(w.Logs.String(), "another stream") {
		t.Errorf("nobody was told:\n%s", w.Logs)
	}
	w.Refused(404, "collection_not_found", "document.get.c.old", "")
	w.Refused(404, "collection_not_found", "history.c.old", "")
	w.Want(201, "collection.create.c", `{}`)
	w.Want(201, "document.create.c.new", `{}`)

	// The log lost its end and continued with other events.
	w.Logs.Reset()
	w.Stop()
	w.ReplaceLog(w.Everything()[:3])
	w.Options.AcceptLostEnd = true
	w.Start()
	if !strings.Contains(w.Logs.String(), "the log ends at 3") {
		t.Errorf("nobody was told:\n%s", w.Logs)
	}
	w.Want(404, "document.get.c.new", "")
	w.Want(201, "document.create.c.other", `{}`)

	w.Logs.Reset()
	w.Stop()
	events := w.Everything()
	for _, e := range events {
		if e.ID == "other" {
			e.ID, e.Body = "another", []byte(`{"id":"another"}`)
		}
	}
	w.ReplaceLog(events)
	w.Start()
	w.Want(404, "document.get.c.other", "")
	w.Want(200, "document.get.c.another", "")
	w.Stop()
}
