package writer

import (
	"context"
	"math"
	"sync"

	"github.com/lapsedb/lapse/processor/machine"
	"github.com/lapsedb/lapse/schema"
)

// Renewals is the table of renewals in flight: writes before the deadline of a
// document whose new version is not folded yet. Once that deadline passes, the document
// is expired in the projection but not in fact. A new policy that prolongs the documents
// of a collection renews them all.
//
// peers.Liveness describes the protocol by which readers use the table.
//
// mu is held from before the writer reads the clock until the renewals of its
// decision are in the table. So a reader whose clock has reached a deadline and who
// finds no renewal of it can rely on that: any later write finds the document expired.
type Renewals struct {
	mu      sync.Mutex
	last    map[machine.DocumentKey]uint64 // sequence of the newest one in flight
	all     []renewal                      // in flight, by sequence
	changed chan struct{}                  // closed when renewals are removed; nil if nobody waits

	// recent has folded renewals whose old deadline may pass during a query that reads
	// an earlier state.
	recent []renewal
}

type renewal struct {
	key      machine.DocumentKey // without an id: the whole collection
	seq      uint64
	deadline int64 // the old deadline, unix seconds; math.MinInt64 for a whole collection

	until int64 // unix second until which it stays in recent
}

// OfCollection returns the key of a renewal of a whole collection.
func OfCollection(incarnation uint64) machine.DocumentKey {
	return machine.DocumentKey{Incarnation: incarnation}
}

// note adds the renewals among m's pending events from index first on; mu is held.
func (r *Renewals) note(m *machine.Machine, first int) {
	pending := m.PendingFacts()
	for i := first; i < len(pending); i++ {
		fact := &pending[i]
		c := m.Collection(fact.Collection)
		if c == nil {
			continue
		}
		renewed := renewal{machine.DocumentKey{Incarnation: c.Incarnation, ID: fact.ID}, fact.Seq, math.MinInt64, 0}
		switch {
		case fact.Type.Renews():
			deadline := fact.Prior.Deadline(c)
			if deadline.Rule == schema.NoRule {
				continue
			}
			renewed.deadline = deadline.At
		case fact.Type == schema.CollectionReplaced:
			// The term drains after it, so the projection has the previous policy.
			if before, ok := m.Store.Collection(c.Name); !ok || !before.DefaultTTL.Prolonged(c.DefaultTTL) {
				continue
			}
		default:
			continue
		}
		if r.last == nil {
			r.last = make(map[machine.DocumentKey]uint64)
		}
		r.last[renewed.key] = renewed.seq
		r.all = append(r.all, renewed)
	}
}

// folded removes the renewals up to sequence seq. Those whose old deadline passes
// before now plus seconds, the time limit of a query, stay in recent until then.
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
	for ; n < len(r.all) && r.all[n].seq <= seq; n++ {
		renewed := r.all[n]
		if r.last[renewed.key] == renewed.seq {
			delete(r.last, renewed.key)
		}
		if renewed.until = now + seconds; renewed.deadline <= renewed.until && renewed.key.ID != "" {
			r.recent = append(r.recent, renewed)
		}
	}
	if n == 0 {
		return
	}
	if r.all = r.all[n:]; len(r.all) == 0 {
		r.all = nil
	}
	r.wake()
}

// Clear empties the table after the fence has moved, since renewals are then folded or
// did not happen, or when readers no longer treat this process as the writer.
func (r *Renewals) Clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.last)
	r.all, r.recent = nil, nil
	r.wake()
}

// wake makes waiting readers check again; mu is held.
func (r *Renewals) wake() {
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
}

// Find returns the key of the renewal in flight of a document or of its collection.
func (r *Renewals) Find(key machine.DocumentKey) (of machine.DocumentKey, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, of := range [...]machine.DocumentKey{key, OfCollection(key.Incarnation)} {
		if _, ok := r.last[of]; ok {
			return of, true
		}
	}
	return machine.DocumentKey{}, false
}

// Wait waits until key has no renewal in flight. The error is that of ctx.
func (r *Renewals) Wait(ctx context.Context, key machine.DocumentKey) error {
	return r.until(ctx, func() bool { return r.last[key] == 0 })
}

// Settle waits until no renewal is in flight whose old deadline has passed at second
// now, in a collection, or in any if incarnation is 0. The error is that of ctx.
func (r *Renewals) Settle(ctx context.Context, incarnation uint64, now int64) error {
	return r.until(ctx, func() bool { return !lapsed(r.all, incarnation, 0, now) })
}

// Settled returns the latest second, at most now, before every old deadline of a
// renewal in flight.
func (r *Renewals) Settled(now int64) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.all {
		if at := r.all[i].deadline; at <= now {
			now = max(at, math.MinInt64+1) - 1
		}
	}
	return now
}

// Missed reports whether a state at sequence seq, judged by second now, lacks a renewal
// in a collection: one beyond seq, folded or not, whose old deadline has passed. It
// knows folded ones for the time limit of a query.
func (r *Renewals) Missed(incarnation, seq uint64, now int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return lapsed(r.all, incarnation, seq, now) || lapsed(r.recent, incarnation, seq, now)
}

// lapsed reports whether the old deadline of any renewal beyond sequence seq has
// passed at now; incarnation is as in Settle.
func lapsed(all []renewal, incarnation, seq uint64, now int64) bool {
	for i := len(all) - 1; i >= 0 && all[i].seq > seq; i-- {
		if renewed := &all[i]; renewed.deadline <= now && (incarnation == 0 || renewed.key.Incarnation == incarnation) {
			return true
		}
	}
	return false
}

// until waits until done, which runs with mu held, is true. The error is that of ctx.
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
