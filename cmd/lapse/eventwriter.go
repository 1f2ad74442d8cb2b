package main

import (
	"io"

	"github.com/lapsedb/lapse/schema"
)

// simulate decides events on one goroutine and writes them on another, so that encoding and
// the pipe cost it nothing: a batch of eventBatch pointers is handed over through a channel
// that holds two. The writer collects lines until a write is worth its system call.
//
// Ownership: an event belongs to the writer once Event was called. err belongs to the
// goroutine until done is closed, which is what makes reading it safe.

// eventWriter writes events as JSON lines, in a goroutine that encodes and writes. One
// goroutine may call Event and Close.
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

// newEventWriter starts the goroutine. It ends with Close, or with its first error; Event
// then returns that instead of waiting for ever.
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
