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

// mutationReadBytes is the size of a read.
const mutationReadBytes = 256 << 10

// mutationLines are the lines of one read, so that complete lines do not wait for more
// input.
type mutationLines struct {
	mutations []mutationLine
	bytes     int64 // of the lines
	err       error // that follows the lines; io.EOF at the end
}

// mutationLine is a mutation with its line number and time.
type mutationLine struct {
	line int
	at   int64 // ms
	*schema.Mutation
}

// readMutations reads and parses a file of mutations, one JSON object a line, up to
// the first one after until, if that is not nil. The last chunk has an err.
//
// Its goroutine ends then, or once done is closed and a pending read returns.
func readMutations(in io.Reader, until *time.Time, done <-chan struct{}) <-chan *mutationLines {
	r := &mutationReader{in: in, until: until, done: done, chunks: make(chan *mutationLines, 2), chunk: &mutationLines{}}
	go func() {
		r.chunk.err = r.lines()
		r.send()
	}()
	return r.chunks
}

type mutationReader struct {
	in     io.Reader
	until  *time.Time
	done   <-chan struct{}
	chunks chan *mutationLines
	chunk  *mutationLines // to be sent next
}

var errDone = errors.New("the reader is done")

// Read sends the pending lines, then reads from the file.
func (r *mutationReader) Read(p []byte) (int, error) {
	if !r.send() {
		return 0, errDone
	}
	return r.in.Read(p)
}

// send sends the chunk unless it is empty, and reports whether to go on.
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

// lines reads lines until the end, io.EOF, or the first faulty one.
func (r *mutationReader) lines() error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, mutationReadBytes), schema.MaxLineBytes)
	for n := 1; lines.Scan(); n++ {
		r.chunk.bytes += int64(len(lines.Bytes())) + 1
		if len(lines.Bytes()) == 0 {
			continue
		}
		// The mutation keeps the line; the scanner reuses its buffer.
		at, mutation, err := schema.ParseMutationLine(bytes.Clone(lines.Bytes()))
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		if r.until != nil && at.After(*r.until) {
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
