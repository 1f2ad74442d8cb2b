package machine

import (
	"fmt"
	"math"

	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// Simulation drives the machine with a simulated clock. Everything due at a time expires at
// that time, before any mutation at or after it. The same calls give the same events.
//
// It is the writer without a log: what is decided is emitted and folded at once, in groups.
// The clock jumps from due second to due second; between them nothing can happen. It folds
// before a second at which a pending document may be due (soonest), since the sweep knows
// only folded ones.
type Simulation struct {
	Machine *Machine
	emit    func(*schema.Event) error

	// soonest is the earliest second at which a pending document may be due, or its warning;
	// the machine knows the folded ones.
	soonest int64
	seen    int // pending events that are in soonest
}

// SimulationPending and simulationBytes limit the number and the body bytes of pending
// events: at either limit they are folded although nothing is due.
const (
	SimulationPending = 1024
	simulationBytes   = 16 << 20
)

// NewSimulation returns an empty database in memory at time 0. emit is called with each
// event in log order, at the latest in Flush; the event may be kept and must not be
// changed.
func NewSimulation(emit func(*schema.Event) error) (*Simulation, error) {
	return NewSimulationOver(projections.NewMemory(), emit)
}

// NewSimulationOver is NewSimulation over another empty projection.
func NewSimulationOver(p Projection, emit func(*schema.Event) error) (*Simulation, error) {
	machine, err := NewMachine(p)
	if err != nil {
		return nil, err
	}
	return &Simulation{Machine: machine, emit: emit, soonest: math.MaxInt64}, nil
}

// Time returns the simulated time in ms.
func (s *Simulation) Time() int64 { return s.Machine.Time() }

// Mutate moves the clock to at, in ms, and judges a mutation there.
func (s *Simulation) Mutate(at int64, mutation *schema.Mutation) (Outcome, error) {
	return s.judge(at, func() (Outcome, error) { return s.Machine.Decide(at, mutation) })
}

// MutateBatch moves the clock to at, in ms, and judges a batch there; size is the maximum
// reply in bytes.
func (s *Simulation) MutateBatch(at int64, b *schema.Batch, size int) (Outcome, error) {
	run := NewBatchRun(b, size)
	return s.judge(at, func() (Outcome, error) { return s.Machine.DecideBatch(at, run, math.MaxInt) })
}

func (s *Simulation) judge(at int64, decide func() (Outcome, error)) (Outcome, error) {
	if at < s.Time() {
		return Outcome{}, fmt.Errorf("the time goes back by %d ms", s.Time()-at)
	}
	if err := s.Advance(at); err != nil {
		return Outcome{}, err
	}
	for {
		o, err := decide()
		if err != nil {
			return Outcome{}, err
		}
		s.Schedule()
		if o.Need == NeedCommit || s.Machine.Pending() >= SimulationPending || s.Machine.PendingBytes() >= simulationBytes {
			if err := s.Flush(); err != nil {
				return Outcome{}, err
			}
		}
		if o.Need != NeedCommit {
			return o, nil
		}
	}
}

// Adopt folds events of another log after those so far, without emitting them. The clock
// moves to the last of them, unless it is later.
func (s *Simulation) Adopt(events []*schema.Event) error {
	if err := s.Flush(); err != nil {
		return err
	}
	facts := make([]projections.Fact, len(events))
	for i, e := range events {
		facts[i].Event = e
	}
	now := s.Time()
	if err := s.Machine.adopt(facts); err != nil {
		return err
	}
	s.Machine.stamp(now)
	return nil
}

// Advance moves the clock to a time, in ms, and expires everything due on the way.
func (s *Simulation) Advance(to int64) error {
	if to > schema.MaxTime {
		return fmt.Errorf("the time is after the year 9999, and no event can be: use an earlier one")
	}
	if err := s.expireUntil(to / 1000); err != nil {
		return err
	}
	s.Machine.stamp(to)
	return nil
}

// Finish advances the clock until nothing is pending, or to the end of the year 9999.
func (s *Simulation) Finish() error {
	if err := s.expireUntil(schema.MaxTime / 1000); err != nil {
		return err
	}
	return s.Flush()
}

// expireUntil expires everything due up to a second, each at its own.
func (s *Simulation) expireUntil(last int64) error {
	for {
		due, ok, err := s.nextDue(last)
		if err != nil || !ok || due > last {
			return err
		}
		if err := s.expire(max(due*1000, s.Time())); err != nil {
			return err
		}
	}
}

// nextDue returns the second of the next deadline, exactly if it is no later than before.
func (s *Simulation) nextDue(before int64) (second int64, ok bool, err error) {
	if s.soonest <= before {
		if err := s.Flush(); err != nil {
			return 0, false, err
		}
	}
	second, ok = s.Machine.NextDue()
	return second, ok, nil
}

// expire expires everything due at now, in ms.
func (s *Simulation) expire(now int64) error {
	for more := true; more; {
		var err error
		if more, err = s.Machine.Expire(now, SimulationPending); err != nil {
			return err
		}
		if err := s.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// Schedule updates soonest for new pending events. A caller that decides through Machine has
// to call it.
func (s *Simulation) Schedule() {
	s.soonest = min(s.soonest, s.Machine.SoonestDue(s.seen))
	s.seen = s.Machine.Pending()
}

// Flush emits and folds all pending events.
func (s *Simulation) Flush() error {
	for _, fact := range s.Machine.Take() {
		if err := s.emit(fact.Event); err != nil {
			return err
		}
	}
	s.seen, s.soonest = 0, math.MaxInt64
	return s.Machine.Commit(s.Machine.Seq())
}
