package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/lapsedb/lapse/schema"
)

// eventFile is an exported log: one event as JSON a line, in order.
type eventFile struct {
	in   io.Reader
	size int64 // bytes, -1 if unknown
	file *os.File
}

// openEvents opens a file, or standard input for "-".
func (a *app) openEvents(name string) (*eventFile, error) {
	if name == "-" {
		return &eventFile{in: a.stdin, size: -1}, nil
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("%w: give an existing FILE, or - for standard input", err)
	}
	f := &eventFile{in: file, size: -1, file: file}
	if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
		f.size = info.Size()
	}
	return f, nil
}

// Close closes the file, if it is one.
func (f *eventFile) Close() error {
	if f.file == nil {
		return nil
	}
	return f.file.Close()
}

// eventChunk is the size of a chunk that is read ahead, in events; eventChunkBytes is
// its limit in bytes.
const (
	eventChunk      = 512
	eventChunkBytes = 4 << 20
)

// events visits each event of the file in order, with the length of its line, until
// visit returns false or an error, the file ends, or ctx is done. It fails with the
// line number if a line is no event or its sequence does not rise.
//
// Lines are read and parsed ahead. A read of standard input cannot be cancelled: its
// goroutine may outlive ctx.
func (f *eventFile) events(ctx context.Context, visit func(e *schema.Event, bytes int) (more bool, err error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	chunks := make(chan *eventLines, 2)
	go func() {
		defer close(chunks)
		lines := bufio.NewScanner(f.in)
		lines.Buffer(make([]byte, 1<<16), schema.MaxLineBytes)
		for c := (&eventLines{}); c != nil; {
			var next *eventLines
			if c.read(lines) {
				next = &eventLines{line: c.line, last: c.last}
			}
			select {
			case chunks <- c:
			case <-ctx.Done():
				return
			}
			c = next
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case c, ok := <-chunks:
			if !ok {
				return nil
			}
			for i, e := range c.events {
				if more, err := visit(e, c.bytes[i]); err != nil || !more {
					return err
				}
			}
			if c.err != nil {
				return c.err
			}
		}
	}
}

var errNoObject = errors.New("it is no JSON object")

// eventLines is a chunk of parsed lines.
type eventLines struct {
	line   int    // number of the last line
	last   uint64 // sequence of its event
	events []*schema.Event
	bytes  []int
	err    error // that follows the events
}

// read fills the chunk and reports whether more may follow.
func (c *eventLines) read(lines *bufio.Scanner) (more bool) {
	for size := 0; len(c.events) < eventChunk && size < eventChunkBytes; {
		if !lines.Scan() {
			c.err = lines.Err()
			if errors.Is(c.err, bufio.ErrTooLong) {
				c.err = fmt.Errorf("line %d is longer than %d bytes, which no event is: give what `lapse export` prints", c.line+1, schema.MaxLineBytes)
			}
			return false
		}
		c.line++
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		e := &schema.Event{}
		err := errNoObject
		if line[0] == '{' {
			err = e.UnmarshalJSON(line)
		}
		if err != nil {
			c.err = fmt.Errorf("line %d is no event: %w: give what `lapse export` prints", c.line, err)
			return false
		}
		if e.Seq <= c.last {
			c.err = fmt.Errorf("line %d: event %d comes after event %d: give a log in the order of its sequences, as `lapse export` prints it", c.line, e.Seq, c.last)
			return false
		}
		c.last = e.Seq
		c.events, c.bytes = append(c.events, e), append(c.bytes, len(lines.Bytes())+1)
		size += len(line)
	}
	return true
}
