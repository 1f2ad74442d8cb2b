package eventlog

import (
	"context"
	"fmt"
	"time"
)

// How far a log went is known from several sources: the projection, snapshots, what was
// acknowledged, what NATS's files say. If the log ends before the furthest of them,
// acknowledged events are lost, against the contract's promise that an acknowledged write
// survives. A start reports that instead of going on as if they had never been.
// --accept-lost-end goes on, and the log records the gap.

// Extent is how far a stream goes, or is known to have gone.
type Extent struct {
	Seq    uint64 // the last message
	Judged uint64 // in a log, the last mutation judged by then
	By     string // the source, for errors
}

// Further returns the extent that goes further, with the last mutation of either: a
// mutation that any source knows as judged must not be judged twice.
func (x Extent) Further(y Extent) Extent {
	judged := max(x.Judged, y.Judged)
	if y.Seq > x.Seq {
		x = y
	}
	x.Judged = judged
	return x
}

// LostEnd is the error for a stream that ends before an extent that it is known to have
// reached.
type LostEnd struct {
	Stream  string
	Last    uint64 // its last sequence
	Reached Extent
}

func (e *LostEnd) Error() string {
	text := fmt.Sprintf("stream %s ends at %d but had reached %d by %s: its tail is lost; restore it, or restart with --accept-lost-end",
		e.Stream, e.Last, e.Reached.Seq, e.Reached.By)
	if e.Reached.By == ByProjection || e.Reached.By == byAcknowledged {
		text += "; if it is restored from a backup, delete projection below the store directory instead"
	}
	return text
}

// Sources of an Extent that are below projection in the store directory. They outlive a
// restore of the stream.
const (
	ByProjection   = "the projection"
	byAcknowledged = "what was acknowledged"
)

// CheckEnd returns a LostEnd if a stream whose last sequence is last had reached the
// extent x.
func (x Extent) CheckEnd(stream string, last uint64) error {
	if last >= x.Seq {
		return nil
	}
	return &LostEnd{stream, last, x}
}

// TruncationDelay is how long a stream may end before an extent that it had reached
// until that is an error: its new leader may not have applied all that it holds.
const TruncationDelay = 15 * time.Second

// AwaitEnd is CheckEnd with the last sequence that last returns. With patient it
// reads it again for TruncationDelay before it returns a LostEnd.
func (x Extent) AwaitEnd(ctx context.Context, stream string, patient bool, last func() (uint64, error)) error {
	for began := time.Now(); ; {
		found, err := last()
		if err == nil {
			err = x.CheckEnd(stream, found)
		}
		if _, ok := err.(*LostEnd); !ok || !patient || time.Since(began) > TruncationDelay {
			return err
		}
		select {
		case <-time.After(ResumeInterval):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
