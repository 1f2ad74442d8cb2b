package eventlog

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// ErrNotWhole: a log does not begin with its first event.
var ErrNotWhole = errors.New("load the whole log from its beginning")

// Fill appends the events of an exported log to this one, which is empty. They keep their
// sequences: between them, where internal events were left out of the export, are new ones.
// The error of a log that lacks its beginning, as far as it can be told by the first event,
// wraps ErrNotWhole. Nobody else may write.
func (l *Log) Fill(ctx context.Context, events iter.Seq2[schema.Line, error]) error {
	if err := l.Listen(); err != nil {
		return err
	}
	defer func() { _ = l.unlisten() }()
	last, at := uint64(0), int64(0)
	var facts []projections.Fact
	bytes := 0
	add := func(e *schema.Event) error {
		facts, bytes = append(facts, projections.Fact{Event: e}), bytes+len(e.Body)
		last, at = e.Seq, e.Time
		if len(facts) < fillEvents && bytes < fillBytes {
			return nil
		}
		defer func() { facts, bytes = facts[:0], 0 }()
		return l.appendWait(ctx, facts)
	}
	for line, err := range events {
		switch {
		case err != nil:
			return err
		case line.Seq <= last:
			return fmt.Errorf("line %d: event %d comes after event %d", line.Number, line.Seq, last)
		case last == 0 && line.Event.Type != schema.CollectionCreated && line.Event.Type != schema.MutationRejected:
			return fmt.Errorf("line %d: %s %d is not the first event of a log: %w", line.Number, line.Event.Type, line.Seq, ErrNotWhole)
		}
		if last == 0 {
			at = line.Event.Time
		}
		// The export leaves internal events out. A log without these sequences would have
		// gaps.
		for last+1 < line.Seq {
			if err := add(&schema.Event{Seq: last + 1, Time: at, Type: schema.LogPadded, Collection: schema.InternalCollection}); err != nil {
				return err
			}
		}
		if err := add(line.Event); err != nil {
			return err
		}
	}
	if last == 0 {
		return errors.New("there is no event: give the output of `lapse export`")
	}
	return l.appendWait(ctx, facts)
}

// Limits of what Fill appends before it waits for an acknowledgement.
const (
	fillEvents  = 1000
	fillBytes   = 4 << 20
	fillTimeout = time.Minute
)

// appendWait appends events and waits until the log has them.
func (l *Log) appendWait(ctx context.Context, facts []projections.Fact) error {
	if len(facts) == 0 {
		return nil
	}
	if err := l.Append(facts, Single); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, fillTimeout)
	defer cancel()
	select {
	case a := <-l.Acks:
		return a.Err
	case <-ctx.Done():
		return fmt.Errorf("append %d: %w", facts[len(facts)-1].Seq, ctx.Err())
	}
}
