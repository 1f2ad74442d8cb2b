package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/lapsedb/lapse/schema"
)

// mutationReadBytes is how much is read of a file of mutations at a time.
const mutationReadBytes = 256 << 10

// mutationLines are lines of a file of mutations, as many as one read gave: what
// is there does not wait for what may come.
type mutationLines struct {
	mutations []mutationLine
	bytes     int64 // of the lines
	err       error // what is wrong behind them; io.EOF for nothing
}

// mutationLine is a mutation with the time at which it happens.
type mutationLine struct {
	line int
	at   int64 // ms
	*schema.Mutation
}

// readMutations reads and parses a file of mutations, one JSON object a line, up
// to the first one after a time, if that is not zero. The last lines have an err.
//
// What reads ends there, or when done is closed; where standard input keeps
// silent it stays behind.
func readMutations(in io.Reader, until time.Time, done <-chan struct{}) <-chan *mutationLines {
	r := &mutationReader{in: in, until: until, done: done, chunks: make(chan *mutationLines, 2), chunk: &mutationLines{}}
	go func() {
		r.chunk.err = r.lines()
		r.send()
	}()
	return r.chunks
}

type mutationReader struct {
	in     io.Reader
	until  time.Time
	done   <-chan struct{}
	chunks chan *mutationLines
	chunk  *mutationLines // to be sent next
}

var errDone = errors.New("nobody wants more")

// Read reads from the file once the lines before that are sent.
func (r *mutationReader) Read(p []byte) (int, error) {
	if !r.send() {
		return 0, errDone
	}
	return r.in.Read(p)
}

// send sends the chunk, if there is something in it, and tells whether more is
// wanted.
func (r *mutationReader) send() bool {
	if r.chunk.bytes == 0 && r.chunk.err == nil {
		return true
	}
	select {
	case r.chunks <- r.chunk:
		r.chunk = &mutationLines{mutations: make([]mutationLine, 0, len(r.chunk.mutations))}
		return true
	case <-r.done:
		return false
	}
}

// lines reads lines until there are no more, which is io.EOF, or one is faulty.
func (r *mutationReader) lines() error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, mutationReadBytes), schema.MaxLineBytes)
	for n := 1; lines.Scan(); n++ {
		r.chunk.bytes += int64(len(lines.Bytes())) + 1
		if len(lines.Bytes()) == 0 {
			continue
		}
		// The mutation keeps the line, the scanner's buffer is used again.
		at, mutation, err := schema.ParseMutationLine(bytes.Clone(lines.Bytes()))
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		if !r.until.IsZero() && at.After(r.until) {
			return io.EOF
		}
		mutation.Recorded = true
		r.chunk.mutations = append(r.chunk.mutations, mutationLine{n, at.UnixMilli(), mutation})
	}
	switch err := lines.Err(); {
	case err == nil:
		return io.EOF
	case errors.Is(err, bufio.ErrTooLong):
		return fmt.Errorf("a line is longer than %d bytes: a document has at most %d", schema.MaxLineBytes, schema.MaxDocumentBytes)
	default:
		return err
	}
}
