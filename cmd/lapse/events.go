package main

import (
	"bufio"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/lapsedb/lapse/schema"
)

// watch, export and history print events through an eventPrinter. A write for each event
// would cost a system call each, and a buffer alone would keep the last events back until
// more come. So an event starts a timer if none runs, and everything that has come by then
// goes out in one write.
//
// These commands have a consumer in NATS, which they delete at their end. Therefore they
// must not die of SIGPIPE when `| head` closes the pipe: a failed write ends the command
// instead (app.end), and the exit code is that of the signal.

// flushAfter bounds how long an event waits in the buffer: long enough to batch writes, too
// short to notice.
const flushAfter = 20 * time.Millisecond

// eventPrinter prints events, one a line: JSON as in section 5 of the contract, or text for
// people. It is safe for concurrent use; the timer flushes on a goroutine of its own. Call
// flush at the end.
type eventPrinter struct {
	out    *output
	people bool
	colour palette
	width  int // of the terminal

	mu      sync.Mutex
	w       *bufio.Writer
	line    []byte
	pending bool  // a flush is scheduled
	err     error // the first of any flush
}

func newEventPrinter(out *output) *eventPrinter {
	// By default the signal ends the process, before it has deleted its consumer.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	p := &eventPrinter{out: out, people: out.forPeople(), colour: out.palette(), w: bufio.NewWriterSize(out.stdout, 1<<16)}
	if p.people {
		p.width = out.columns()
	}
	return p
}

// print prints an event within flushAfter. The error may be that of an earlier event: the
// buffer has accepted it, and its write has failed since.
func (p *eventPrinter) print(e *schema.Event) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.people {
		p.line = p.appendText(p.line[:0], e)
	} else {
		p.line = e.AppendJSON(p.line[:0])
	}
	p.line = append(p.line, '\n')
	if p.err != nil {
		return p.err
	}
	if _, err := p.w.Write(p.line); err != nil {
		return err
	}
	if !p.pending {
		p.pending = true
		time.AfterFunc(flushAfter, func() { _ = p.flush() })
	}
	return nil
}

// flush writes the buffer and returns the first error of any flush.
func (p *eventPrinter) flush() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pending = false
	if err := p.w.Flush(); err != nil && p.err == nil {
		p.err = err
		if p.out.end != nil {
			p.out.end(err) // the next event may be far off
		}
	}
	return p.err
}

// appendText appends an event as one line for people, cut to the width of the terminal: the
// body is shortened first, and left out where fewer than 3 columns remain.
//
//	2026-11-22 07:25:09.713  3  DocumentCreated     sessions/s1  {"id":"s1","user"…
func (p *eventPrinter) appendText(dst []byte, e *schema.Event) []byte {
	head := fmt.Sprintf("%s  %d  ", time.UnixMilli(e.Time).UTC().Format("2006-01-02 15:04:05.000"), e.Seq)
	what := string(e.Collection)
	if e.Type.OnDocument() {
		what += "/" + string(e.ID)
	}
	switch e.Type {
	case schema.DocumentExpired:
		what += fmt.Sprintf("  after %s by %s", showDuration(time.Duration(e.Deadline.TTL)*time.Second), e.Deadline.Rule)
	case schema.DocumentExpiring:
		remaining := max(time.Unix(e.Deadline.At, 0).Sub(time.UnixMilli(e.Time)), 0)
		what += fmt.Sprintf("  in %s by %s", showDuration(remaining.Round(time.Second)), e.Deadline.Rule)
	}
	what, body := printable(what), printable(string(e.Body))
	if body != "" {
		body = "  " + body
	}
	if room := p.width - textWidth(head) - 20 - textWidth(what); room < 3 {
		body = ""
	} else {
		body = text.Snip(body, room, "…")
	}
	dst = append(dst, p.colour.faint(head)...)
	dst = append(dst, p.colour.eventType(e.Type)...)
	dst = append(dst, "  "+what...)
	return append(dst, p.colour.faint(strings.TrimRight(body, " "))...)
}
