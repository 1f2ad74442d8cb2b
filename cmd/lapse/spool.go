package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/lapsedb/lapse/schema"
)

// spool keeps the log of a simulation in a temporary file, for restores. It is machine.Log:
// a restore looks up the last event of a document and walks back to the one with its
// content.
//
// The file has the events as JSON lines without line ends, one after the other; ends says
// where each begins and ends, since sequences of a simulation count from 1 without gaps.
// Memory grows by 8 bytes an event and an entry of last for each id that ever was, disk by
// the whole log. So simulate makes one only for input that may restore. It is not safe for
// concurrent use.
type spool struct {
	file    *os.File
	out     *bufio.Writer
	next    func(*schema.Event) error
	ends    []int64           // end offsets of the events in the file, by sequence
	last    map[string]uint64 // by collection, 00 and id
	scratch []byte
}

// newSpool returns a spool that passes events on to next, after it has stored them. close
// removes the file.
func newSpool(next func(*schema.Event) error) (*spool, error) {
	file, err := os.CreateTemp("", "lapse-simulate-")
	if err != nil {
		return nil, fmt.Errorf("the log cannot be kept for restores: %w", err)
	}
	return &spool{file: file, out: bufio.NewWriterSize(file, 256<<10), next: next, last: make(map[string]uint64)}, nil
}

func (s *spool) close() error { return errors.Join(s.file.Close(), os.Remove(s.file.Name())) }

// add stores an event and passes it on. It has the type of the emit function of a
// simulation.
func (s *spool) add(e *schema.Event) error {
	s.scratch = e.AppendJSON(s.scratch[:0])
	if _, err := s.out.Write(s.scratch); err != nil {
		return fmt.Errorf("the log cannot be kept for restores: %w", err)
	}
	s.ends = append(s.ends, s.start(len(s.ends))+int64(len(s.scratch)))
	if e.Type.OnDocument() {
		s.last[string(e.Collection)+"\x00"+string(e.ID)] = e.Seq
	}
	return s.next(e)
}

func (s *spool) start(i int) int64 {
	if i == 0 {
		return 0
	}
	return s.ends[i-1]
}

// Last returns the sequence of the last event of a document, 0 if there is none.
// CollectionDeleted does not count: the last event of each document has what a restore
// needs.
func (s *spool) Last(name schema.CollectionName, id schema.DocumentID) (uint64, error) {
	return s.last[string(name)+"\x00"+string(id)], nil
}

// Event reads an event back; nil if the sequence is beyond the log.
func (s *spool) Event(seq uint64) (*schema.Event, error) {
	if seq == 0 || seq > uint64(len(s.ends)) {
		return nil, nil
	}
	// The event may still be in the buffer.
	if err := s.out.Flush(); err != nil {
		return nil, err
	}
	start := s.start(int(seq - 1))
	line := make([]byte, s.ends[seq-1]-start)
	if _, err := s.file.ReadAt(line, start); err != nil {
		return nil, err
	}
	_, e, err := schema.ParseEventLine(line)
	return e, err
}

// mentions reports whether a file has a text, and rewinds it. It reads 1 MiB at a time and
// keeps the last len(text) bytes of each block, since the text may lie across two.
func mentions(file *os.File, text string) (bool, error) {
	found := false
	block := make([]byte, 1<<20)
	for kept := 0; !found; {
		n, err := io.ReadFull(file, block[kept:])
		found = bytes.Contains(block[:kept+n], []byte(text))
		if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
			return false, err
		}
		if err != nil {
			break
		}
		kept = copy(block, block[len(block)-len(text):])
	}
	_, err := file.Seek(0, io.SeekStart)
	return found, err
}
