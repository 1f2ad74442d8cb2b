package processor

import (
	"context"
	"math"
	"sync"

	"github.com/lapsedb/lapse/schema"
)

// renewals are the documents that were written before their deadline and whose
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
type renewals struct {
	mu      sync.Mutex
	last    map[documentKey]uint64 // sequence of the newest one
	all     []renewal              // by sequence
	changed chan struct{}          // closed when there are fewer, nil if nobody waits

	// recent are those folded lately whose old deadline may pass while a query
	// looks at what was there before them.
	recent []renewal
}

type renewal struct {
	key documentKey // without an id for a whole collection
	seq uint64
	at  int64 // the old deadline, a second; of a whole collection, math.MinInt64

	until int64 // second until which it is kept as recent
}

// ofCollection is the key of a renewal of all documents of a collection.
func ofCollection(incarnation uint64) documentKey { return documentKey{incarnation: incarnation} }

// note keeps the renewals among what m has pending from index first on; mu is
// held.
func (r *renewals) note(m *Machine, first int) {
	pending := m.PendingFacts()
	for i := first; i < len(pending); i++ {
		fact := &pending[i]
		c := m.collection(fact.Collection)
		if c == nil {
			continue
		}
		one := renewal{documentKey{c.Incarnation, fact.ID}, fact.Seq, math.MinInt64, 0}
		switch fact.Type {
		case schema.DocumentReplaced:
			deadline := fact.Prior.Deadline(c)
			if deadline.Rule == schema.NoRule {
				continue
			}
			one.at = deadline.At
		case schema.CollectionReplaced:
			// Nothing is decided on top of one before it is folded.
			if before, ok := m.store.Collection(c.Name); !ok || !before.DefaultTTL.Prolonged(c.DefaultTTL) {
				continue
			}
		default:
			continue
		}
		if r.last == nil {
			r.last = make(map[documentKey]uint64)
		}
		r.last[one.key] = one.seq
		r.all = append(r.all, one)
	}
}

// folded forgets the renewals up to sequence seq at a second now, but keeps
// those that matter to queries which began before and may take some seconds.
func (r *renewals) folded(seq uint64, now, seconds int64) {
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
		one := r.all[n]
		if r.last[one.key] == one.seq {
			delete(r.last, one.key)
		}
		if one.until = now + seconds; one.at <= one.until && one.key.id != "" {
			r.recent = append(r.recent, one)
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

// clear forgets all renewals: what the log has of them is folded, the rest is
// not done.
func (r *renewals) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.last)
	r.all, r.recent = nil, nil
	r.wake()
}

// wake has those who wait look again; mu is held.
func (r *renewals) wake() {
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
}

// underWay tells whether a document, or its whole collection, has a renewal that
// is not folded, and which of them.
func (r *renewals) underWay(key documentKey) (of documentKey, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, of := range [...]documentKey{key, ofCollection(key.incarnation)} {
		if _, ok := r.last[of]; ok {
			return of, true
		}
	}
	return documentKey{}, false
}

// wait returns when key has no renewal under way, or with ctx's error.
func (r *renewals) wait(ctx context.Context, key documentKey) error {
	return r.until(ctx, func() bool { return r.last[key] == 0 })
}

// settle returns when no document of a collection, of any if incarnation is 0,
// has a renewal under way whose old deadline has passed at a second, or with
// ctx's error.
func (r *renewals) settle(ctx context.Context, incarnation uint64, now int64) error {
	return r.until(ctx, func() bool { return !lapsed(r.all, incarnation, 0, now) })
}

// missed tells whether a document of a collection has a renewal beyond sequence
// seq, folded or not, whose old deadline has passed at a second. Of those folded
// it knows as many as a query has to.
func (r *renewals) missed(incarnation, seq uint64, now int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return lapsed(r.all, incarnation, seq, now) || lapsed(r.recent, incarnation, seq, now)
}

// lapsed tells whether the old deadline of one of all, of a collection or of any,
// and beyond sequence seq, has passed at now.
func lapsed(all []renewal, incarnation, seq uint64, now int64) bool {
	for i := len(all) - 1; i >= 0 && all[i].seq > seq; i-- {
		if one := &all[i]; one.at <= now && (incarnation == 0 || one.key.incarnation == incarnation) {
			return true
		}
	}
	return false
}

// until returns when done, which is called with mu held, or with ctx's error.
func (r *renewals) until(ctx context.Context, done func() bool) error {
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
