package main

import (
	"io"

	"github.com/lapsedb/lapse/schema"
)

// eventWriter writes events as JSON lines, in a goroutine that encodes and writes.
type eventWriter struct {
	batch   []*schema.Event
	batches chan []*schema.Event
	done    chan struct{} // closed when the goroutine has ended
	err     error         // first write error; valid once done is closed
}

// eventBatch is the size of a batch in events, eventWriteBytes the rough size of a write.
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

// Event queues an event, which the caller must not change afterwards. Close writes it at
// the latest. An error is that of an earlier write.
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

// Close writes the queued events and returns the first error of writing.
func (w *eventWriter) Close() error {
	_ = w.send() // its error is returned below
	close(w.batches)
	<-w.done
	return w.err
}
