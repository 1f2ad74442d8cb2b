package writer

import (
	"context"
	"math"
	"sync"

	"github.com/lapsedb/lapse/processor/machine"
	"github.com/lapsedb/lapse/schema"
)

// Renewals are the documents that were written before their deadline and whose
// new version is not folded yet. When the old deadline passes meanwhile they
// are not gone, although the projection has nothing else: who reads one has to
// wait for the new version, and nobody else has to wait for anything.
//
// A change of policy that gives documents longer to live renews all those of
// its collection.
//
// The writer holds mu from before it reads the clock until what it decided by
// it is noted. So a reader whose clock says that a deadline has passed, and who
// finds no renewal, knows that there is none: later ones come too late.
type Renewals struct {
	mu      sync.Mutex
	Last    map[machine.DocumentKey]uint64 // sequence of the newest one
	All     []renewal                      // by sequence
	changed chan struct{}                  // closed when there are fewer, nil if nobody waits

	// recent are those folded lately whose old deadline may pass while a query
	// looks at what was there before them.
	recent []renewal
}

type renewal struct {
	key machine.DocumentKey // without an id for a whole collection
	seq uint64
	at  int64 // the old deadline, a second; of a whole collection, math.MinInt64

	until int64 // second until which it is kept as recent
}

// OfCollection is the key of a renewal of all documents of a collection.
func OfCollection(incarnation uint64) machine.DocumentKey {
	return machine.DocumentKey{Incarnation: incarnation}
}

// note keeps the renewals among what m has pending from index first on; mu is
// held.
func (r *Renewals) note(m *machine.Machine, first int) {
	pending := m.PendingFacts()
	for i := first; i < len(pending); i++ {
		fact := &pending[i]
		c := m.Collection(fact.Collection)
		if c == nil {
			continue
		}
		one := renewal{machine.DocumentKey{Incarnation: c.Incarnation, ID: fact.ID}, fact.Seq, math.MinInt64, 0}
		switch fact.Type {
		case schema.DocumentReplaced:
			deadline := fact.Prior.Deadline(c)
			if deadline.Rule == schema.NoRule {
				continue
			}
			one.at = deadline.At
		case schema.CollectionReplaced:
			// Nothing is decided on top of one before it is folded.
			if before, ok := m.Store.Collection(c.Name); !ok || !before.DefaultTTL.Prolonged(c.DefaultTTL) {
				continue
			}
		default:
			continue
		}
		if r.Last == nil {
			r.Last = make(map[machine.DocumentKey]uint64)
		}
		r.Last[one.key] = one.seq
		r.All = append(r.All, one)
	}
}

// folded forgets the renewals up to sequence seq at a second now, but keeps
// those that matter to queries which began before and may take some seconds.
func (r *Renewals) folded(seq uint64, now, seconds int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.recent) > 0 && r.recent[0].until < now {
		r.recent = r.recent[1:]
	}
	if len(r.recent) == 0 {
		r.recent = nil
	}
	n := 0
	for ; n < len(r.All) && r.All[n].seq <= seq; n++ {
		one := r.All[n]
		if r.Last[one.key] == one.seq {
			delete(r.Last, one.key)
		}
		if one.until = now + seconds; one.at <= one.until && one.key.ID != "" {
			r.recent = append(r.recent, one)
		}
	}
	if n == 0 {
		return
	}
	if r.All = r.All[n:]; len(r.All) == 0 {
		r.All = nil
	}
	r.wake()
}

// clear forgets all renewals: what the log has of them is folded, the rest is
// not done.
func (r *Renewals) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.Last)
	r.All, r.recent = nil, nil
	r.wake()
}

// wake has those who wait look again; mu is held.
func (r *Renewals) wake() {
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
}

// UnderWay tells whether a document, or its whole collection, has a renewal that
// is not folded, and which of them.
func (r *Renewals) UnderWay(key machine.DocumentKey) (of machine.DocumentKey, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, of := range [...]machine.DocumentKey{key, OfCollection(key.Incarnation)} {
		if _, ok := r.Last[of]; ok {
			return of, true
		}
	}
	return machine.DocumentKey{}, false
}

// Wait returns when key has no renewal under way, or with ctx's error.
func (r *Renewals) Wait(ctx context.Context, key machine.DocumentKey) error {
	return r.until(ctx, func() bool { return r.Last[key] == 0 })
}

// Settle returns when no document of a collection, of any if incarnation is 0,
// has a renewal under way whose old deadline has passed at a second, or with
// ctx's error.
func (r *Renewals) Settle(ctx context.Context, incarnation uint64, now int64) error {
	return r.until(ctx, func() bool { return !lapsed(r.All, incarnation, 0, now) })
}

// Missed tells whether a document of a collection has a renewal beyond sequence
// seq, folded or not, whose old deadline has passed at a second. Of those folded
// it knows as many as a query has to.
func (r *Renewals) Missed(incarnation, seq uint64, now int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return lapsed(r.All, incarnation, seq, now) || lapsed(r.recent, incarnation, seq, now)
}

// lapsed tells whether the old deadline of one of all, of a collection or of any,
// and beyond sequence seq, has passed at now.
func lapsed(all []renewal, incarnation, seq uint64, now int64) bool {
	for i := len(all) - 1; i >= 0 && all[i].seq > seq; i-- {
		if one := &all[i]; one.at <= now && (incarnation == 0 || one.key.Incarnation == incarnation) {
			return true
		}
	}
	return false
}

// until returns when done, which is called with mu held, or with ctx's error.
func (r *Renewals) until(ctx context.Context, done func() bool) error {
	for {
		r.mu.Lock()
		if done() {
			r.mu.Unlock()
			return nil
		}
		if r.changed == nil {
			r.changed = make(chan struct{})
		}
		changed := r.changed
		r.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
