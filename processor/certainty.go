package processor

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// certainty is what a standby knows about documents whose deadline has passed.
// The writer knows of each renewal that is on its way to the log. A standby does
// not: a document that is overdue here may have been renewed before, and that
// not be folded. What it has folded tells for certain which documents have gone
// up to log time there, since log time does not go back; as a rule the expiry
// follows its deadline by milliseconds. If it does not, nobody may be writing,
// and where the log ends says that there was no renewal.
type certainty struct {
	second atomic.Int64 // up to which it is known which documents have gone
	looks  shared[struct{}, struct{}]
}

// expiryGrace is how long a standby waits for an expiry to be folded before it
// asks where the log ends; longer than an append takes.
const expiryGrace = 250 * time.Millisecond

// sole tells whether nobody else can write: then what this processor knows is
// all there is.
func (s *service) sole() bool {
	return s.writes.Load() && (s.lease == nil || s.lease.held())
}

// certainUpTo is the second up to which it is known which documents have gone.
func (s *service) certainUpTo() int64 {
	return max(s.certain.second.Load(), s.store.Cursor().Time/1000)
}

// known is what a standby knew before it read: which documents have gone up to a
// second, by the state at a sequence.
type known struct {
	seq    uint64
	second int64
}

func (s *service) known() known {
	return known{s.store.Cursor().Seq, s.certainUpTo()} // in this order, so that the second holds there or later
}

// overlooked tells whether what was read, of the state at sequence seq and judged
// at a second, may have documents that look gone, were folded after somebody
// looked whether there are any, and may have been renewed.
func (k known) overlooked(seq uint64, now int64) bool { return k.second < now && k.seq != seq }

// makeCertain returns when it is known which documents have gone up to a second
// that has come, or with ctx's error.
func (s *service) makeCertain(ctx context.Context, second int64) error {
	grace, cancel := context.WithTimeout(ctx, expiryGrace)
	defer cancel()
	for s.certainUpTo() < second && grace.Err() == nil {
		_ = s.store.Wait(grace, s.store.Cursor().Seq+1)
	}
	if s.certainUpTo() >= second {
		return nil
	}
	second = max(second, s.now())
	// Once for all who ask: each asks after its second has come.
	if _, err := s.certain.looks.do(ctx, struct{}{}, func() (struct{}, error) { return struct{}{}, s.toTheEnd(ctx) }); err != nil {
		return err
	}
	for before := s.certain.second.Load(); before < second && !s.certain.second.CompareAndSwap(before, second); {
		before = s.certain.second.Load()
	}
	return nil
}

// toTheEnd returns when what the log has now is folded.
func (s *service) toTheEnd(ctx context.Context) error {
	last, err := s.log.last(ctx)
	if err != nil {
		return err
	}
	return s.store.Wait(ctx, last)
}

// overdue tells whether a collection has documents that look gone at now, and of
// which that is not certain.
func (s *service) overdue(c *schema.Collection, now int64) (found bool, err error) {
	certain := s.certainUpTo()
	if certain >= now {
		return false, nil
	}
	for _, order := range []projections.Order{projections.ByDeadline, projections.ByTimestamp} {
		last, ok := projections.LastDue(c, order, now)
		if !ok {
			continue
		}
		after, _ := projections.LastDue(c, order, certain)
		_, _, err := s.store.Scan(projections.Queue{Incarnation: c.Incarnation, Order: order},
			projections.Entry{Second: max(after+1, 0)}, last, func(projections.Entry) bool { found = true; return false })
		if found || err != nil {
			return found, err
		}
	}
	return false, nil
}
