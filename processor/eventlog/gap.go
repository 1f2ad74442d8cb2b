package eventlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/schema"
)

// Gap is a range of sequences, both included, that the log lacks and NATS knows it
// had. lapse removes no single events, so they were lost: files were damaged, or a
// power cut lost unsynced events.
//
// Events after a gap cannot be folded: that state never existed. A gap at the end only
// shortens the log. The next writer records it in its WriterStarted, as Lost, which
// makes it accepted: no event after it was decided on the lost ones.
type Gap struct{ First, Last uint64 }

// ErrGap means that the log has a gap with events after it.
var ErrGap = errors.New("the log has a gap")

// Check checks the log for gaps and damage. It returns an ErrGap, or an error if the log
// has lost its beginning, and stores a gap at the end in End. NATS knows which messages are
// missing: it reads the log's files if they do not end as it left them. The cost is one
// request, and one more for each gap, and for a beginning above sequence 1.
func (l *Log) Check(ctx context.Context) error {
	info, err := l.Stream.Info(ctx, jetstream.WithDeletedDetails(true))
	if err != nil {
		return fmt.Errorf("stream %s: %w", l.DB.LogStream(), err)
	}
	state := info.State
	if state.Msgs == 0 {
		state.Deleted = nil // NATS lists sequence 0 for an empty stream
	}
	if err := l.checkBeginning(ctx, info); err != nil {
		return err
	}
	for _, gap := range gaps(state.Deleted) {
		if gap.Last == state.LastSeq {
			l.End = gap
			continue
		}
		next, err := l.Event(ctx, gap.Last+1)
		if err != nil {
			return fmt.Errorf("read event %d: %w", gap.Last+1, err)
		}
		if firstLost(next) != gap.First {
			return l.damaged(gap)
		}
	}
	if lost := state.Lost; lost != nil && lost.Bytes > 0 && l.End.Last == 0 {
		text := "the log's end was unreadable and is cut off. After a power cut these are writes that were not acknowledged; restore the stream from a copy if that has more"
		if len(lost.Msgs) > 0 && lost.Msgs[0] < state.FirstSeq {
			text = "the log has lost its beginning; history and consumers lack it. Restore the stream from a copy if that has it"
		}
		l.events(observe.LogDamaged{Text: text, Stream: l.DB.LogStream(), Bytes: lost.Bytes, First: state.FirstSeq, Last: state.LastSeq})
	}
	return nil
}

// checkBeginning returns an error if the log has lost its beginning. Retention notes
// each trim in the log, and a log created from a snapshot has its FirstSeq.
func (l *Log) checkBeginning(ctx context.Context, info *jetstream.StreamInfo) error {
	first := info.State.FirstSeq
	if first <= max(info.Config.FirstSeq, 1) {
		return nil
	}
	var trimmed struct {
		First uint64 `json:"first"`
	}
	m, err := l.led().Last(ctx, fmt.Sprintf("%s%s.%s", l.DB.Events(), schema.InternalCollection, schema.LogTrimmed))
	if err == nil {
		err = json.Unmarshal(m.Data, &trimmed)
	} else if errors.Is(err, jetstream.ErrMsgNotFound) {
		err = nil
	}
	if err != nil {
		return fmt.Errorf("read where the log was trimmed: %w", err)
	}
	if first <= trimmed.First {
		return nil
	}
	return fmt.Errorf("stream %s has lost its beginning: it begins at %d, and retention has trimmed it up to %d; restore the stream from a copy, or start a new log from the newest snapshot with `lapse snapshot restore --new-log`",
		l.DB.LogStream(), first, max(trimmed.First, info.Config.FirstSeq, 1)-1)
}

// ReportLost emits the range of events that the log has lost at its end, and the number
// of mutations beyond sequence judged that are judged again.
func (l *Log) ReportLost(judged uint64) {
	if l.Lost.Last == 0 {
		return
	}
	text := "the log has lost its end; lapse goes on without. Restore the stream from a copy if that has more"
	if l.Judged > judged {
		text += fmt.Sprintf("; %d mutations that were judged there are judged again", l.Judged-judged)
	}
	l.events(observe.LogDamaged{Text: text, Stream: l.DB.LogStream(), First: l.Lost.First, Last: l.Lost.Last})
}

// gaps joins ascending sequences to ranges.
func gaps(deleted []uint64) (all []Gap) {
	for _, seq := range deleted {
		if n := len(all); n > 0 && all[n-1].Last+1 == seq {
			all[n-1].Last = seq
		} else {
			all = append(all, Gap{seq, seq})
		}
	}
	return all
}

// Contiguous returns a visitor that calls visit for contiguous events from sequence
// next on, except for accepted gaps. It returns an ErrGap at any other gap.
func (l *Log) Contiguous(next uint64, visit func(*schema.Event) error) func(*schema.Event) error {
	return func(e *schema.Event) error {
		if lost := firstLost(e); e.Seq != next && (lost == 0 || lost > next) {
			return l.damaged(Gap{next, e.Seq - 1})
		}
		next = e.Seq + 1
		return visit(e)
	}
}

func (l *Log) damaged(gap Gap) error { return &gapError{gap, l.DB.LogStream()} }

// gapError is an ErrGap with the range and the stream.
type gapError struct {
	Gap
	stream string
}

func (e *gapError) Error() string {
	return fmt.Sprintf("%v: events %d to %d of stream %s are lost and later ones are not; restore the stream from a copy",
		ErrGap, e.First, e.Last, e.stream)
}

func (e *gapError) Unwrap() error { return ErrGap }

// ErrTrimmed means that retention removed events before they were read.
var ErrTrimmed = errors.New("the log was trimmed meanwhile")

// OrTrimmed returns err, or an ErrTrimmed if err is a gap because the writer, in
// another process, has trimmed the log meanwhile.
func (l *Log) OrTrimmed(ctx context.Context, err error) error {
	var gap *gapError
	if errors.As(err, &gap) {
		if trimmed := l.Trimmed(ctx, gap.First); trimmed != nil {
			return trimmed
		}
	}
	return err
}

// Trimmed returns an ErrTrimmed if the log begins after next, the next sequence to read,
// and nil if it does not, or if its bounds cannot be read.
func (l *Log) Trimmed(ctx context.Context, next uint64) error {
	if first, _, err := l.Bounds(ctx); err != nil || first <= next {
		return nil
	}
	return fmt.Errorf("%w: event %d was trimmed before it was read; restart to restore a snapshot", ErrTrimmed, next)
}

// Started is the body of a WriterStarted, the internal event with which a term begins:
// {"writer":"…","lost":41}.
type Started struct {
	Writer string `json:"writer"`
	// Lost is the first sequence of the gap before the event; 0 if there is none.
	Lost uint64 `json:"lost,omitempty"`
	// Reused is the last sequence of the lost events if it is not before this event:
	// the sequences up to it are used a second time.
	Reused uint64 `json:"reused,omitempty"`
}

func readStarted(e *schema.Event) (s Started) {
	if e.Type == schema.WriterStarted {
		_ = json.Unmarshal(e.Body, &s)
	}
	return s
}

// StartedBy returns the writer of a WriterStarted; "" for other events.
func StartedBy(e *schema.Event) string { return readStarted(e).Writer }

// firstLost returns the first sequence of the gap before a WriterStarted; 0 if
// there is none.
func firstLost(e *schema.Event) uint64 { return readStarted(e).Lost }
