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

// spool keeps the log of a simulation in a temporary file, for restores. It is
// machine.Log.
type spool struct {
	file    *os.File
	out     *bufio.Writer
	next    func(*schema.Event) error
	ends    []int64           // end offsets of the events in the file, by sequence
	last    map[string]uint64 // by collection, 00 and id
	scratch []byte
}

// newSpool returns a spool that passes events on to next.
func newSpool(next func(*schema.Event) error) (*spool, error) {
	file, err := os.CreateTemp("", "lapse-simulate-")
	if err != nil {
		return nil, fmt.Errorf("the log cannot be kept for restores: %w", err)
	}
	return &spool{file: file, out: bufio.NewWriterSize(file, 256<<10), next: next, last: make(map[string]uint64)}, nil
}

func (s *spool) close() error { return errors.Join(s.file.Close(), os.Remove(s.file.Name())) }

// add appends an event.
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

func (s *spool) Last(name schema.CollectionName, id schema.DocumentID) (uint64, error) {
	return s.last[string(name)+"\x00"+string(id)], nil
}

func (s *spool) Event(seq uint64) (*schema.Event, error) {
	if seq == 0 || seq > uint64(len(s.ends)) {
		return nil, nil
	}
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

// mentions reports whether a file has a text, and rewinds it.
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
