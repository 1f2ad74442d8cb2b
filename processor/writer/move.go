package writer

import (
	"math"

	"github.com/lapsedb/lapse/processor/machine"
	"github.com/lapsedb/lapse/schema"
)

// A manual clock is moved by a proposal, and stops at each second at which something is due,
// so that events have the log time of a writer that is never late. Between moves everything
// has one log time, and what is due comes before whatever is decided next, however much it
// is: nothing depends on how fast the machine is.

// Move is a move of a manual clock.
type Move struct {
	To  int64 // Unix ms; a clock that is past that stays
	Due bool  // to the next second at which something is due instead, if anything is

	// Events is the number of expiries and warnings that it brought, once it is done.
	Events int

	begun bool
}

// begins reports whether the clock can move: the machine knows all that is due.
func (m *Move) begins(t *Term) bool { return m.begun || t.machine.Pending() == 0 }

// carry moves the clock on, as far as the limits of what is in flight allow. Nothing else is
// decided until it is done.
func (t *Term) carry() error {
	move := t.move.Move
	if !move.begins(t) {
		return nil
	}
	if !move.begun {
		if err := t.beginMove(move); err != nil {
			return err
		}
	}
	for !t.full() {
		at, ok := t.machine.NextDue()
		if !ok || at*1000 > move.To {
			t.searched = t.Clock.Set(move.To)
			seq := t.machine.Seq()
			t.pendingReplies = append(t.pendingReplies, decided{t.move, seq, machine.Outcome{Code: 200, Seq: seq}, seq})
			t.move = nil
			break
		}
		seq := t.machine.Seq()
		t.searched = t.Clock.Set(at * 1000)
		if _, err := t.machine.Expire(t.searched, mostSlice); err != nil {
			return err
		}
		move.Events += int(t.machine.Seq() - seq)
	}
	t.append()
	t.replyFolded()
	return nil
}

// beginMove finds out where a move to what is due ends.
func (t *Term) beginMove(move *Move) error {
	move.begun = true
	now := t.Clock.Millis()
	if !move.Due {
		move.To = max(move.To, now)
		return nil
	}
	move.To = now
	if err := t.machine.Rearm(now); err != nil {
		return err
	}
	if at, ok := t.machine.NextDue(); ok && at*1000 <= schema.MaxTime {
		move.To = max(now, at*1000)
	}
	return nil
}

// sweeps reports whether what is due expires now. Under a clock that stands it does so with
// the next proposal: a log that was loaded stays as it is until then. A move counts it.
func (t *Term) sweeps() bool {
	if !t.Clock.Stands() {
		return true
	}
	w := walk{Term: t, most: mostSlice}
	defer w.end()
	p := w.next()
	return p != nil && p.Move == nil
}

// holdBack holds the replies back until the expiries so far are folded, which those proposals
// may have made due. With more to come it lets nothing be decided before them, and reports
// that.
func (t *Term) holdBack(more bool) bool {
	for i := range t.pendingReplies {
		t.pendingReplies[i].after = t.machine.Seq()
	}
	if more {
		t.phase = draining
		t.append()
	}
	return more
}

// makesDue reports whether something is due under a manual clock once the pending events from
// index first on are folded.
func (t *Term) makesDue(first int) bool {
	return t.Clock.Manual() && t.machine.SoonestDue(first) <= t.Clock.Second(t.machine.Time())
}

// pieceWork returns the work of a batch in one turn. Under a manual clock it is decided whole:
// what it makes due comes after it.
func (t *Term) pieceWork() int {
	if t.Clock.Manual() {
		return math.MaxInt
	}
	return pieceWork
}
