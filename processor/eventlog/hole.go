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

// A hole is where the log lacks events that NATS knows it had. Nothing of lapse
// takes single events out of it, so they were lost: files were damaged, or what
// was written had not reached the disk when the power went.
//
// What comes behind a hole cannot be folded, since the state would be one that
// never was. But a log that has lost its end is only shorter. The next writer
// says in its WriterStarted that the hole is there: no event was decided on what
// it held.
type Gap struct{ First, Last uint64 }

// errHole means that the log has a hole with events behind it.
var ErrGap = errors.New("the log has a hole")

// check looks for holes. NATS reads the log's files at the start when they do
// not end as it left them, and so knows what is missing.
func (l *Log) Check(ctx context.Context) error {
	info, err := l.Stream.Info(ctx, jetstream.WithDeletedDetails(true))
	if err != nil {
		return fmt.Errorf("stream %s: %w", l.DB.LogStream(), err)
	}
	state := info.State
	if state.Msgs == 0 {
		state.Deleted = nil // NATS counts sequence 0 then
	}
	if err := l.checkBeginning(ctx, info); err != nil {
		return err
	}
	for _, h := range holes(state.Deleted) {
		if h.Last == state.LastSeq {
			l.End = h
			continue
		}
		behind, err := l.Event(ctx, h.Last+1)
		if err != nil {
			return fmt.Errorf("read event %d: %w", h.Last+1, err)
		}
		if startedBehind(behind) != h.First {
			return l.damaged(h)
		}
	}
	if lost := state.Lost; lost != nil && lost.Bytes > 0 && l.End.Last == 0 {
		text := "the log ended in what cannot be read, and that was cut off. A power cut leaves that of writes that were not acknowledged; restore the stream from a copy if that has more"
		if len(lost.Msgs) > 0 && lost.Msgs[0] < state.FirstSeq {
			text = "the log has lost its beginning; history and consumers lack it. Restore the stream from a copy if that has it"
		}
		l.events(observe.LogDamaged{What: text, Stream: l.DB.LogStream(), Bytes: lost.Bytes, First: state.FirstSeq, Last: state.LastSeq})
	}
	return nil
}

// checkBeginning tells retention, which notes in the log where it is to begin, and
// a log that was begun behind a snapshot, from a beginning that was lost.
func (l *Log) checkBeginning(ctx context.Context, info *jetstream.StreamInfo) error {
	first := info.State.FirstSeq
	if first <= max(info.Config.FirstSeq, 1) {
		return nil
	}
	var trimmed struct {
		First uint64 `json:"first"`
	}
	m, err := l.Stream.GetLastMsgForSubject(ctx, fmt.Sprintf("%s%s.%s", l.DB.Events(), schema.InternalCollection, schema.LogTrimmed))
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
	return fmt.Errorf("stream %s has lost its beginning: it begins at %d, and retention has trimmed it up to %d; restore the stream from a copy, or begin a new log behind the newest snapshot with `lapse snapshot restore --new-log`",
		l.DB.LogStream(), first, max(trimmed.First, info.Config.FirstSeq, 1)-1)
}

// tellLost says what the log has lost, and how many mutations will be judged
// again: those beyond judged that were judged before.
func (l *Log) TellLost(judged uint64) {
	if l.Lost.Last == 0 {
		return
	}
	what := "the log has lost its end; lapse goes on without. Restore the stream from a copy if that has more"
	if l.Judged > judged {
		what += fmt.Sprintf("; %d mutations that were judged there are judged again", l.Judged-judged)
	}
	l.events(observe.LogDamaged{What: what, Stream: l.DB.LogStream(), First: l.Lost.First, Last: l.Lost.Last})
}

func holes(deleted []uint64) (all []Gap) {
	for _, seq := range deleted {
		if n := len(all); n > 0 && all[n-1].Last+1 == seq {
			all[n-1].Last = seq
		} else {
			all = append(all, Gap{seq, seq})
		}
	}
	return all
}

// whole returns visit for events from a sequence on of which none is missing but
// in holes that are known.
func (l *Log) Contiguous(next uint64, visit func(*schema.Event) error) func(*schema.Event) error {
	return func(e *schema.Event) error {
		if lost := startedBehind(e); e.Seq != next && (lost == 0 || lost > next) {
			return l.damaged(Gap{next, e.Seq - 1})
		}
		next = e.Seq + 1
		return visit(e)
	}
}

// damaged says what to do about a hole with events behind it.
func (l *Log) damaged(h Gap) error { return &GapError{h, l.DB.LogStream()} }

// holeError is an errHole that says where the hole is.
type GapError struct {
	Gap
	stream string
}

func (e *GapError) Error() string {
	return fmt.Sprintf("%v: events %d to %d of stream %s are lost and later ones are not; restore the stream from a copy",
		ErrGap, e.First, e.Last, e.stream)
}

func (e *GapError) Unwrap() error { return ErrGap }

// errPast means that retention has dropped what was to be read.
var ErrPast = errors.New("the log was trimmed meanwhile")

// orTrimmed returns err, or an errPast if that is a hole which is there since
// another process, which writes, has trimmed the log meanwhile.
func (l *Log) OrTrimmed(ctx context.Context, err error) error {
	var h *GapError
	if !errors.As(err, &h) {
		return err
	}
	if first, _, boundsErr := l.Bounds(ctx); boundsErr != nil || first <= h.First {
		return err
	}
	return fmt.Errorf("%w: event %d, which comes next here, is past the retention; start again, to begin with a snapshot", ErrPast, h.First)
}

// started is the body of a WriterStarted.
type Started struct {
	Writer string `json:"writer"`
	// Lost is the first sequence of the hole before the event, if there is one.
	Lost uint64 `json:"lost,omitempty"`
	// Reused is the last sequence of the events that the log has lost, if it is
	// not before this one: from here to there sequences are used once more.
	Reused uint64 `json:"reused,omitempty"`
}

func ReadStarted(e *schema.Event) (s Started) {
	if e.Type == schema.WriterStarted {
		_ = json.Unmarshal(e.Body, &s)
	}
	return s
}

func StartedBy(e *schema.Event) string { return ReadStarted(e).Writer }

// startedBehind returns where the hole begins that ends before a WriterStarted,
// 0 if there is none.
func startedBehind(e *schema.Event) uint64 { return ReadStarted(e).Lost }
