package lapsetest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/lapsedb/lapse/processor/offline"
	"github.com/lapsedb/lapse/schema"
)

// eachLine visits the lines of a file that are not empty. The line is the
// visitor's.
func eachLine(in io.Reader, visit func(n int, line []byte) (more bool, err error)) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, schema.MaxLineBytes)
	for n := 1; lines.Scan(); n++ {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		more, err := visit(n, bytes.Clone(line))
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		if !more {
			return nil
		}
	}
	return lines.Err()
}

// Simulate runs mutations as lapse simulate does: one JSON object a line, with
// times that don't go back, in which nobody waits for an outcome.
//
//	{"at":"2026-01-01T00:00:05Z","op":"document.upsert","collection":"sessions","id":"a","body":{"user":"x"}}
//
// The clock then stands at the last of them; Finish lets it run on as lapse
// simulate does.
func (db *DB) Simulate(in io.Reader) {
	db.t.Helper()
	db.use(func(l *offline.Local) error {
		return eachLine(in, func(_ int, line []byte) (bool, error) {
			at, mutation, err := schema.ParseMutationLine(line)
			if err != nil {
				return false, err
			}
			mutation.Recorded = true
			_, err = l.Apply(at.UnixMilli(), mutation)
			return true, err
		})
	})
}

// LoadOption says how far Load goes.
type LoadOption func(*load)

type load struct {
	seq  uint64
	time time.Time
}

// UntilSeq ends Load with a sequence of the log.
func UntilSeq(seq uint64) LoadOption { return func(l *load) { l.seq = seq } }

// UntilTime ends Load at a moment, which the clock then stands at: documents
// whose deadline is over by then are not there, also if they had no event yet.
func UntilTime(t time.Time) LoadOption { return func(l *load) { l.time = t } }

// Load takes a log as lapse export and lapse simulate print it into an empty
// database, up to its end or where an option says. The clock then stands at the
// last event, and the database is as it was there; the test may go on, and what
// happens from now on follows in the log, beginning with what was overdue.
func (db *DB) Load(log io.Reader, opts ...LoadOption) {
	db.t.Helper()
	until := load{seq: math.MaxUint64}
	for _, opt := range opts {
		opt(&until)
	}
	db.use(func(l *offline.Local) error {
		if len(l.Log()) > 0 {
			return fmt.Errorf("load into a database that has events: take a new one")
		}
		var events []*schema.Event
		last := uint64(0)
		if err := eachLine(log, func(_ int, line []byte) (bool, error) {
			e := &schema.Event{}
			if err := e.UnmarshalJSON(line); err != nil {
				return false, err
			}
			if e.Seq <= last {
				return false, fmt.Errorf("event %d comes after event %d", e.Seq, last)
			}
			last = e.Seq
			if e.Seq > until.seq || !until.time.IsZero() && e.Time > until.time.UnixMilli() {
				return false, nil
			}
			events = append(events, e)
			return true, nil
		}); err != nil {
			return err
		}
		now := int64(0)
		if !until.time.IsZero() {
			now = until.time.UnixMilli()
		}
		misfits, err := l.Adopt(now, events)
		if err == nil && misfits > 0 {
			err = fmt.Errorf("%d of %d events do not fit what comes before them: is this the whole log from its beginning?", misfits, len(events))
		}
		return err
	})
}
