package schema

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"
)

// MaxLineBytes is the longest line of a file of mutations or events: the largest
// document, all of it escaped, and its envelope.
const MaxLineBytes = 16 << 20

// readBytes is the size of a read of lines.
const readBytes = 256 << 10

// linePause bounds how long lines wait for ErrPause: long enough to fill a request from a
// pipe, and short enough for someone who types them.
const linePause = 100 * time.Millisecond

// ErrPause comes among the lines of ReadLines when no other is ready and the first since the
// last ErrPause has waited for a tenth of a second: use what has come.
var ErrPause = errors.New("no line is ready")

// Line is a line of a file of events or mutations.
type Line struct {
	Number int // from 1
	Bytes  int // with its line feed, and the empty lines before it

	Seq   uint64 // of an event; 0 if it cannot be read
	Event *Event // nil if the line is none

	At       time.Time // of the mutation
	Mutation *Mutation

	Text []byte // of ReadLines
}

// ReadEvents reads an exported log, one event as JSON a line, until it ends or ctx is
// done, whose error comes last. Empty lines are left out. The error of a line that is no
// event names the line and wraps that of ParseEventLine: reading may go on after it.
//
// A byte order mark at the beginning is skipped. A file without lines of JSON, as a compressed
// one, has a FileError.
//
// Lines are read and parsed ahead, on a goroutine that ends with the loop, or once a
// pending read returns.
func ReadEvents(ctx context.Context, in io.Reader) iter.Seq2[Line, error] {
	return readLines(ctx, in, 0, func(l *Line, text []byte) (err error) {
		if l.Seq, l.Event, err = ParseEventLine(text); err != nil {
			err = fmt.Errorf("line %d is no event: %w: give the output of `lapse export`", l.Number, err)
		}
		return err
	})
}

// ReadMutations reads a file of mutations as ReadEvents reads events. The mutations are
// Recorded.
func ReadMutations(ctx context.Context, in io.Reader) iter.Seq2[Line, error] {
	return readLines(ctx, in, 0, func(l *Line, text []byte) (err error) {
		if l.At, l.Mutation, err = ParseMutationLine(text); err != nil {
			return fmt.Errorf("line %d: %w", l.Number, err)
		}
		l.Mutation.Recorded = true
		return nil
	})
}

// ReadLines reads lines as ReadEvents reads events, without their white space. ErrPause may
// come between them.
func ReadLines(ctx context.Context, in io.Reader) iter.Seq2[Line, error] {
	return readLines(ctx, in, linePause, func(l *Line, text []byte) error { l.Text = text; return nil })
}

// lineOrError is a line as it is yielded: Line is meaningful unless err is that of a read.
type lineOrError struct {
	Line
	err error
}

// readLines yields the lines of each read together, so that complete lines do not wait
// for more input. It yields ErrPause after a pause, unless that is 0. A line costs a
// channel operation only once per read, not by itself. Two chunks may wait, so reading and
// parsing go on while the caller works on a third.
func readLines(ctx context.Context, in io.Reader, pause time.Duration, parse func(*Line, []byte) error) iter.Seq2[Line, error] {
	return func(yield func(Line, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		r := &lineReader{ctx: ctx, in: in, chunks: make(chan []lineOrError, 2)}
		go r.run(parse)
		var waited <-chan time.Time
		for {
			select {
			case <-waited:
				waited = nil
				if len(r.chunks) == 0 && !yield(Line{}, ErrPause) {
					return
				}
			case <-ctx.Done():
				yield(Line{}, ctx.Err())
				return
			case chunk, more := <-r.chunks:
				for _, line := range chunk {
					if !yield(line.Line, line.err) {
						return
					}
				}
				if !more {
					return
				}
				if waited == nil && pause > 0 {
					waited = time.After(pause)
				}
			}
		}
	}
}

// lineReader reads and parses on its own goroutine. It is its own io.Reader: bufio asks it
// for more only when it has no complete line, and that is when the lines so far are sent.
type lineReader struct {
	ctx    context.Context
	in     io.Reader
	chunks chan []lineOrError
	chunk  []lineOrError // to be sent next
}

// Read sends the pending lines, then reads.
func (r *lineReader) Read(p []byte) (int, error) {
	if err := r.send(); err != nil {
		return 0, err
	}
	return r.in.Read(p)
}

// send hands the chunk over; it waits for the caller, or for the end of the loop.
func (r *lineReader) send() error {
	if len(r.chunk) == 0 {
		return nil
	}
	select {
	case r.chunks <- r.chunk:
		r.chunk = make([]lineOrError, 0, len(r.chunk))
		return nil
	case <-r.ctx.Done():
		return r.ctx.Err()
	}
}

// run parses lines until the input ends. A faulty line is a value like any other: reading
// goes on.
func (r *lineReader) run(parse func(*Line, []byte) error) {
	defer close(r.chunks)
	in := bufio.NewReaderSize(r, readBytes)
	next := lineOrError{Line: Line{Number: 1}}
	var end error
	if next.Bytes, end = begin(in); end != nil {
		next.err, end = end, io.EOF
		r.chunk = append(r.chunk, next)
	}
	for ; end == nil; next.Number++ {
		var text []byte
		var size int
		text, size, end = readLine(in)
		next.Bytes += size
		switch text = bytes.TrimSpace(text); {
		case size >= MaxLineBytes:
			next.err = fmt.Errorf("line %d is longer than %d bytes: a document has at most %d", next.Number, MaxLineBytes, MaxDocumentBytes)
		case len(text) > 0:
			next.err = parse(&next.Line, text)
		default:
			continue
		}
		r.chunk, next = append(r.chunk, next), lineOrError{Line: Line{Number: next.Number}}
	}
	if end != io.EOF {
		next.err = end
		r.chunk = append(r.chunk, next)
	}
	_ = r.send() // fails if nobody waits for it
}

// FileError says of a file as a whole that it is of the wrong kind, and what to do.
type FileError string

func (e FileError) Error() string { return string(e) }

// ByteOrderMark begins files of some editors. As a part of JSON it is an error.
const ByteOrderMark = "\xEF\xBB\xBF"

// fileKinds are the kinds of files without lines of JSON, by how they begin.
var fileKinds = []struct {
	begin string
	is    FileError
}{
	{"\x1F\x8B", "the file is compressed by gzip: give its content, as `gzip -dc FILE` prints it"},
	{"\x28\xB5\x2F\xFD", "the file is compressed by zstd: give its content, as `zstd -dc FILE` prints it"},
	{"\xFD7zX", "the file is compressed by xz: give its content, as `xz -dc FILE` prints it"},
	{"BZh", "the file is compressed by bzip2: give its content, as `bzip2 -dc FILE` prints it"},
	{"PK\x03\x04", "the file is a zip archive: give the content of a file in it, as `unzip -p FILE NAME` prints it"},
	{"\xFF\xFE", utf16},
	{"\xFE\xFF", utf16},
	{"{\x00", utf16},
	{"\x00{", utf16},
	{"[\x00", utf16},
	{"\x00[", utf16},
	{"[", "the file is a JSON array: give one JSON object a line, as `jq -c '.[]' FILE` prints them"},
}

const utf16 FileError = "the file is in UTF-16: give it in UTF-8, as `iconv -f UTF-16 -t UTF-8 FILE` prints it"

// begin skips a byte order mark, whose size it returns, or returns a FileError.
func begin(in *bufio.Reader) (mark int, err error) {
	head, _ := in.Peek(4) // no line with JSON is shorter; an error comes again
	if bytes.HasPrefix(head, []byte(ByteOrderMark)) {
		mark, _ = in.Discard(len(ByteOrderMark))
		head, _ = in.Peek(4)
	}
	head = bytes.TrimLeft(head, " \t\r\n")
	for _, kind := range fileKinds {
		if bytes.HasPrefix(head, []byte(kind.begin)) {
			return mark, kind.is
		}
	}
	return mark, nil
}

// readLine reads a line with its line feed, of one that is too long only the first bytes.
// The error is that of the read that ended it. It reads on to the line's end, so that the
// next line is found, and keeps no more of it than MaxLineBytes.
func readLine(in *bufio.Reader) (text []byte, bytes int, err error) {
	for {
		part, err := in.ReadSlice('\n')
		if bytes += len(part); bytes < MaxLineBytes {
			text = append(text, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return text, bytes, err
		}
	}
}
