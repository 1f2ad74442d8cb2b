package main

import (
	"io"

	"github.com/lapsedb/lapse/schema"
)

// eventWriter writes events as JSON, one a line. They are encoded and written
// while others come in.
type eventWriter struct {
	batch   []*schema.Event
	batches chan []*schema.Event
	done    chan struct{} // closed when nothing is written any more
	err     error         // of writing, to be looked at then
}

// eventBatch is how many events are encoded at a time, and eventWriteBytes about
// how much is written at a time.
const (
	eventBatch      = 512
	eventWriteBytes = 64 << 10
)

func newEventWriter(out io.Writer) *eventWriter {
	w := &eventWriter{batches: make(chan []*schema.Event, 2), done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.err = w.run(out)
	}()
	return w
}

func (w *eventWriter) run(out io.Writer) error {
	var lines []byte
	for batch := range w.batches {
		for _, e := range batch {
			lines = append(e.AppendJSON(lines), '\n')
			if len(lines) >= eventWriteBytes {
				if _, err := out.Write(lines); err != nil {
					return err
				}
				lines = lines[:0]
			}
		}
	}
	_, err := out.Write(lines)
	return err
}

// Event writes an event some time later, at the latest in Close. It must not be
// changed any more. An error is one of writing those before.
func (w *eventWriter) Event(e *schema.Event) error {
	if w.batch == nil {
		w.batch = make([]*schema.Event, 0, eventBatch)
	}
	if w.batch = append(w.batch, e); len(w.batch) < eventBatch {
		return nil
	}
	return w.send()
}

func (w *eventWriter) send() error {
	batch := w.batch
	w.batch = nil
	select {
	case w.batches <- batch:
		return nil
	case <-w.done:
		return w.err
	}
}

// Close writes what was not yet written and returns the first error of writing.
func (w *eventWriter) Close() error {
	_ = w.send() // which returns the error that is told below
	close(w.batches)
	<-w.done
	return w.err
}
