package processor

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// errHole means that the log lacks events between others. Nothing of lapse takes
// single events out of it, so they were lost, and what comes after them cannot
// be folded: the state would be one that never was.
var errHole = errors.New("the log has a hole")

func (l *eventLog) hole(lost, first uint64) error {
	return fmt.Errorf("stream %s has lost %d of its events, from %d on (%w): restore the stream from a copy",
		l.db.LogStream(), lost, first, errHole)
}

// check looks for what NATS says of the log's files, which it reads when they do
// not end as it left them: events that could not be read are gone then. Those at
// the end leave a hole only if NATS remembers that they were there.
func (l *eventLog) check(ctx context.Context) error {
	info, err := l.stream.Info(ctx, jetstream.WithDeletedDetails(true))
	if err != nil {
		return fmt.Errorf("stream %s: %w", l.db.LogStream(), err)
	}
	state := info.State
	if state.Msgs > 0 && state.NumDeleted > 0 {
		first := state.FirstSeq
		if len(state.Deleted) > 0 {
			first = state.Deleted[0]
		}
		return l.hole(uint64(state.NumDeleted), first)
	}
	if lost := state.Lost; lost != nil && lost.Bytes > 0 {
		l.logger.Error("the log ended in what cannot be read; it was cut off. That is what a power cut leaves of writes that were not acknowledged; if more is missing, restore the stream from a copy",
			"stream", l.db.LogStream(), "bytes", lost.Bytes, "ends", state.LastSeq)
	}
	return nil
}
