package processor

import (
	"context"
	"sync"

	"github.com/lapsedb/lapse/schema"
)

// renewals are the documents that were written before their deadline and whose
// new version is not folded yet. When the old deadline passes meanwhile they
// are not gone, although the projection has nothing else: who reads one has to
// wait for the new version, and nobody else has to wait for anything.
//
// The writer holds mu from before it reads the clock until what it decided by
// it is noted. So a reader whose clock says that a deadline has passed, and who
// finds no renewal, knows that there is none: later ones come too late.
type renewals struct {
	mu      sync.Mutex
	last    map[documentKey]uint64 // sequence of the newest one
	all     []renewal              // by sequence
	changed chan struct{}          // closed when there are fewer, nil if nobody waits
}

type renewal struct {
	key documentKey
	seq uint64
}

// note keeps the renewals among what m has pending from index first on; mu is
// held.
func (r *renewals) note(m *Machine, first int) {
	for i := first; i < len(m.pending); i++ {
		fact := &m.pending[i]
		if fact.Type != schema.DocumentReplaced {
			continue
		}
		if c := m.collection(fact.Collection); c == nil || fact.Prior.Deadline(c).Rule == schema.NoRule {
			continue
		}
		if r.last == nil {
			r.last = make(map[documentKey]uint64)
		}
		one := renewal{documentKey{fact.Incarnation, fact.ID}, fact.Seq}
		r.last[one.key] = one.seq
		r.all = append(r.all, one)
	}
}

// folded forgets the renewals up to sequence seq.
func (r *renewals) folded(seq uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for ; n < len(r.all) && r.all[n].seq <= seq; n++ {
		if one := r.all[n]; r.last[one.key] == one.seq {
			delete(r.last, one.key)
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
	r.all = nil
	r.wake()
}

// wake has those who wait look again; mu is held.
func (r *renewals) wake() {
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
}

// underWay tells whether a document has a renewal that is not folded.
func (r *renewals) underWay(key documentKey) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.last[key]
	return ok
}

// wait returns when the document has no renewal under way, or with ctx's error.
func (r *renewals) wait(ctx context.Context, key documentKey) error {
	for {
		r.mu.Lock()
		if _, ok := r.last[key]; !ok {
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
