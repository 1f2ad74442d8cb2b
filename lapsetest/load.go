package lapsetest

import (
	"context"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/lapsedb/lapse/processor/offline"
	"github.com/lapsedb/lapse/schema"
)

// Simulate runs mutations as lapse simulate does: one JSON object per line, with times
// that do not go back.
//
//	{"at":"2026-01-01T00:00:05Z","op":"document.upsert","collection":"sessions","id":"a","body":{"user":"x"}}
//
// The clock then stands at the last of them; Finish moves it on as lapse simulate does.
func (db *DB) Simulate(in io.Reader) {
	db.t.Helper()
	db.use(func(l *offline.Local) error {
		for line, err := range schema.ReadMutations(context.Background(), in) {
			if err != nil {
				return err
			}
			if _, err := l.Apply(line.At.UnixMilli(), line.Mutation); err != nil {
				return fmt.Errorf("line %d: %w", line.Number, err)
			}
		}
		return nil
	})
}

// LoadOption limits Load.
type LoadOption func(*load)

// load is where Load ends; seq is the largest sequence without UntilSeq.
type load struct {
	seq  uint64
	time *time.Time // nil for none
}

// UntilSeq ends Load with log sequence seq; with 0 it loads nothing.
func UntilSeq(seq uint64) LoadOption { return func(l *load) { l.seq = seq } }

// UntilTime ends Load at a moment, at which the clock then stands: documents past their
// deadline do not exist, even if their expiry has no event yet.
func UntilTime(t time.Time) LoadOption { return func(l *load) { l.time = &t } }

// Load loads a log of lapse export or lapse simulate into an empty database, up to its end
// or a limit. The clock then stands at the last event. Later events follow in the log,
// expiries of overdue documents first.
func (db *DB) Load(log io.Reader, opts ...LoadOption) {
	db.t.Helper()
	until := load{seq: math.MaxUint64}
	for _, opt := range opts {
		opt(&until)
	}
	db.use(func(l *offline.Local) error {
		if len(l.Log()) > 0 {
			return fmt.Errorf("the database has events: load into a new one")
		}
		var events []*schema.Event
		last := uint64(0)
		for line, err := range schema.ReadEvents(context.Background(), log) {
			if err != nil {
				return err
			}
			if line.Seq <= last {
				return fmt.Errorf("line %d: event %d comes after event %d", line.Number, line.Seq, last)
			}
			last = line.Seq
			if last > until.seq || until.time != nil && line.Event.Time > until.time.UnixMilli() {
				break
			}
			events = append(events, line.Event)
		}
		now := int64(0)
		if until.time != nil {
			now = until.time.UnixMilli()
		}
		mismatches, err := l.Adopt(now, events)
		if err == nil && mismatches > 0 {
			err = fmt.Errorf("%d of %d events do not fit the events before them: load the whole log from its beginning", mismatches, len(events))
		}
		return err
	})
}
