package projections

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"

	"github.com/cockroachdb/pebble/v2"
	"github.com/lapsedb/lapse/schema"
)

// Fold turns events into state. What each event changes, by the keys of KEYS.md:
//
//	CollectionCreated, Replaced  C, P if the indexes change; deletes V of dropped indexes
//	CollectionDeleted            deletes C, S, G, E, P, V, L, R; X if it has documents
//	DocumentCreated, Replaced    D, E, V or L
//	DocumentTouched              D (often as a merge operand), E, V or L
//	DocumentHeld, Released       as touched, G, H
//	DocumentExpiring             E, H
//	DocumentDeleted, Expired     deletes D, E, G, V (or sets L); H
//	every event                  M, and I and J if it has a Nats-Msg-Id
//
// S follows at the end of a step, once for each collection that changed.
//
// Who may change what: one fold or slice of index work at a time, under Store.folding. A
// fold works on copies in type fold and touches the store's memory only in publish. So a
// fold that fails halfway leaves nothing behind, neither in Pebble nor in memory.
//
// Why a crash is safe: a step is one Pebble batch with its cursor, and Pebble's memtables
// reach the disk in order. What the disk has after a crash is the state after some step.
// The start reads the cursor there and folds the log from it on.

// lastPad is the prefix of the body of the last LogPadded that fills a file.
var lastPad = []byte(`{"left":0,`)

// Fact is an event to fold.
type Fact struct {
	*schema.Event // of type NoEvent for a foreign message: only the cursor moves

	// Known means that the fields below are set, since this process decided the event:
	// the collection's incarnation, the document's Meta before, with Version 0 for
	// none, and ttl and SumOf of the new content. Fold then skips a read, a parse and a
	// hash.
	Known       bool
	Incarnation uint64
	Prior       Meta
	TTL         schema.TTL
	Sum         uint64
	Warned      []int64 // of a DocumentExpiring: the deadlines it was warned of before
	Work        int     // of folding it, as the machine counts work
}

// stepBytes is about how many bytes a fold writes in one step. Index entries may be
// many times as large as their event.
const stepBytes = 64 << 20

// Fold applies facts, in log order and after the cursor, in one atomic step: a read
// sees all of it or nothing. Beyond stepBytes it takes several steps, each up to an
// event. The result depends only on the log: Fold uses no clock, and counts events
// that contradict earlier ones without applying them. An error leaves the state
// before the step that failed.
func (s *Store) Fold(facts []Fact) error {
	s.folding.Lock()
	defer s.folding.Unlock()
	for len(facts) > 0 {
		if err := s.Failure(); err != nil {
			return err
		}
		folded, err := s.fold(facts)
		if err != nil {
			return err
		}
		facts = facts[folded:]
	}
	s.announce()
	return nil
}

// fold does one step and returns how many facts it took. The queues and history batches
// are appended to the first one in finish; only that is committed. Fold rereads the cursor
// for each step, since each step begins where the last ended.
func (s *Store) fold(facts []Fact) (folded int, err error) {
	f := &fold{
		store:       s,
		batch:       s.db.NewBatch(),
		queues:      s.db.NewBatch(),
		history:     s.db.NewBatch(),
		cursor:      s.Cursor(),
		collections: make(map[schema.CollectionName]*schema.Collection),
		stats:       make(map[uint64]stats),
		documents:   make(map[string]Record, len(facts)),
		indexes:     make(map[uint64]*indexSet),
		marked:      make(map[uint64]bool),
	}
	defer f.batch.Close()
	defer f.queues.Close()
	defer f.history.Close()
	defer s.indexer.clear()
	defer f.lookups.close()
	if err := f.dropMessageIDs(2 * len(facts)); err != nil {
		return 0, err
	}
	for folded < len(facts) && f.batch.Len() < stepBytes {
		if err := f.event(&facts[folded]); err != nil {
			return 0, err
		}
		folded++
	}
	if err := f.finish(); err != nil {
		return 0, err
	}
	return folded, s.write(f.commit, f.publish)
}

// commit writes the batch. Meanwhile the documents that change are not in the cache:
// reads get them from Pebble, where all change at once. A failed commit leaves them out of
// the cache, too: then the cache is colder, not wrong.
func (f *fold) commit() error {
	f.store.cache.evict(f.documents)
	if err := f.batch.Commit(pebble.NoSync); err != nil {
		return err
	}
	f.store.cache.put(f.documents)
	return nil
}

// publish updates the store's memory after the commit; the caller holds mu.
func (f *fold) publish() {
	s := f.store
	s.cursor = f.cursor
	for name, c := range f.collections {
		if c == nil {
			delete(s.collections, name)
		} else {
			s.collections[name] = c
		}
	}
	maps.Copy(s.stats, f.stats)
	f.publishIndexes()
	for _, incarnation := range f.buried {
		delete(s.stats, incarnation)
		delete(s.indexes, incarnation)
		delete(s.settled, incarnation)
		delete(s.busy, incarnation)
	}
	if s.folded != nil {
		close(s.folded)
		s.folded = nil
	}
}

// fold is one step of Fold.
type fold struct {
	store *Store
	batch *pebble.Batch
	// The keys of queues and history come in order more often than not, which a memtable
	// takes at half the cost while no other keys are between them. They are appended to
	// batch.
	queues, history *pebble.Batch
	cursor          Cursor

	// Changes by the facts so far; they take precedence over the store.
	collections map[schema.CollectionName]*schema.Collection // nil: deleted
	stats       map[uint64]stats
	documents   map[string]Record   // by document key, Version 0: ended
	warned      map[string]warnings // by document key, of held, released and warned ones
	indexes     map[uint64]*indexSet
	marked      map[uint64]bool // incarnations with marks of this fold
	buried      []uint64

	lookups          lookups
	key, key2, value []byte // scratch
}

// finish adds the other batches, cursor and counts to the batch. S is written here rather
// than with each event: a step of many events writes the counts of a collection once.
func (f *fold) finish() error {
	if err := errors.Join(f.batch.Apply(f.queues, nil), f.batch.Apply(f.history, nil), f.store.indexer.flush(f.batch)); err != nil {
		return err
	}
	for incarnation, st := range f.stats {
		if err := f.batch.Set(statsKey(f.key[:0], incarnation), st.encode(), nil); err != nil {
			return err
		}
	}
	for _, incarnation := range f.buried {
		if err := f.batch.Delete(statsKey(f.key[:0], incarnation), nil); err != nil {
			return err
		}
	}
	return f.batch.Set([]byte{keyCursor}, f.cursor.encode(), nil)
}

// event applies one event and moves the cursor over it. An event that contradicts earlier
// ones moves the sequence and the hash, but not time, mutations and message ids.
func (f *fold) event(fact *Fact) error {
	e := fact.Event
	if e.Seq <= f.cursor.Seq {
		return fmt.Errorf("projection: event %d is not after the cursor at %d", e.Seq, f.cursor.Seq)
	}
	f.cursor.Before, f.cursor.Hash = f.cursor.Hash, Chain(f.cursor.Hash, e)
	f.cursor.Seq = e.Seq
	if e.Type == schema.NoEvent {
		f.cursor.Foreign++
		return nil
	}
	switch {
	case e.Type == schema.LogPadded:
		if bytes.HasPrefix(e.Body, lastPad) {
			f.cursor.Padded = e.Seq
		}
	case !e.Type.Internal():
		f.cursor.Last = e.Seq
	}
	fits, err := f.apply(fact)
	if err != nil {
		return err
	}
	if !fits {
		f.cursor.Foreign++
		return nil
	}
	f.cursor.Time = max(f.cursor.Time, e.Time)
	f.cursor.Mutations = max(f.cursor.Mutations, e.Cause)
	if e.MsgID != "" && e.Type != schema.MutationRejected {
		return f.remember(e)
	}
	return nil
}

// apply applies one event; fits is false if it contradicts earlier ones, and then it
// changes nothing.
func (f *fold) apply(fact *Fact) (fits bool, err error) {
	e := fact.Event
	if !e.Type.OnCollection() && !e.Type.OnDocument() {
		return true, nil // MutationRejected and internal events move the cursor only
	}
	c := f.collection(e.Collection)
	if (c == nil) != (e.Type == schema.CollectionCreated) {
		return false, nil
	}
	switch e.Type {
	case schema.CollectionCreated:
		return f.setCollection(e, e.Seq)
	case schema.CollectionReplaced:
		return f.setCollection(e, c.Incarnation)
	case schema.CollectionDeleted:
		return true, f.bury(c)
	case schema.DocumentExpiring:
		return f.warn(c, fact)
	}
	return f.document(c, fact)
}

// collection returns the collection after the facts so far, nil if it does not exist.
func (f *fold) collection(name schema.CollectionName) *schema.Collection {
	if c, ok := f.collections[name]; ok {
		return c
	}
	c, ok := f.store.Collection(name)
	if ok {
		f.collections[name] = c
	}
	return c
}

// setCollection creates a collection, if its incarnation is the event's sequence, or
// replaces its properties. fits is false if the properties are illegal, which a writer
// does not log.
func (f *fold) setCollection(e *schema.Event, incarnation uint64) (fits bool, err error) {
	p, fault := schema.ReadProperties(e.Collection, e.Body)
	if fault != nil {
		return false, nil
	}
	c := &schema.Collection{Name: e.Collection, Incarnation: incarnation, Version: schema.Version(e.Seq), Time: e.Time, Properties: p}
	f.collections[c.Name] = c
	if incarnation == e.Seq {
		f.stats[incarnation] = stats{}
	}
	if err := f.setIndexes(c); err != nil {
		return false, err
	}
	f.key = collectionKey(f.key[:0], c.Name)
	return true, f.batch.Set(f.key, encodeCollection(c), nil)
}

// bury deletes a collection and the range of its expiry orders. Its documents stay
// for history only, as long as the log keeps their events. The range deletion covers both
// orders: they differ in the byte after the incarnation.
func (f *fold) bury(c *schema.Collection) error {
	st := f.statsOf(c.Incarnation)
	f.collections[c.Name] = nil
	delete(f.stats, c.Incarnation)
	f.buried = append(f.buried, c.Incarnation)
	f.key = collectionKey(f.key[:0], c.Name)
	if err := f.batch.Delete(f.key, nil); err != nil {
		return err
	}
	if err := f.buryIndexes(c.Incarnation); err != nil {
		return err
	}
	if st.documents == 0 {
		return nil
	}
	if st.held > 0 { // a writer refuses to delete such a collection
		if err := f.deletePrefix(holdKey(nil, c.Incarnation, "")); err != nil {
			return err
		}
	}
	f.key = queueKey(f.key[:0], Queue{Incarnation: c.Incarnation, Order: ByDeadline})
	prefix := f.key[:len(f.key)-1]
	if err := f.queues.DeleteRange(prefix, successor(prefix), nil); err != nil {
		return err
	}
	f.key = binary.BigEndian.AppendUint64(buriedPrefix(f.key[:0], c.Name), c.Incarnation)
	return f.batch.Set(f.key, binary.BigEndian.AppendUint64(nil, f.cursor.Seq), nil)
}

// statsOf returns the counts after the facts so far.
func (f *fold) statsOf(incarnation uint64) stats {
	if st, ok := f.stats[incarnation]; ok {
		return st
	}
	f.store.mu.RLock()
	defer f.store.mu.RUnlock()
	return f.store.stats[incarnation]
}

// document applies an event on a document in five parts: its queue, its indexes, its hold,
// its content, its counts. The map documents gets the result last: index and put read from
// it what the document was before.
func (f *fold) document(c *schema.Collection, fact *Fact) (fits bool, err error) {
	e := fact.Event
	f.key = documentKey(f.key[:0], c.Incarnation, e.ID)
	prior, err := f.prior(fact)
	if err != nil {
		return false, err
	}
	// A version ends once: a second expiry, or one of a replaced version, changes
	// nothing.
	exists := prior.Version != 0
	if exists == (e.Type == schema.DocumentCreated) || exists && prior.Version != e.Previous {
		return false, nil
	}
	now, fits := after(fact, prior)
	if !fits || e.Type == schema.DocumentReleased && !prior.Held {
		return false, nil
	}
	var warned []int64
	if e.Type == schema.DocumentHeld || e.Type == schema.DocumentReleased {
		if warned, err = f.warnedOf(c, e.ID, prior); err != nil {
			return false, err
		}
		f.setWarned(prior.Version, warned)
	}
	if err := f.setQueue(c, e.ID, prior, now, warned); err != nil {
		return false, err
	}
	if set := f.indexesOf(c.Incarnation); len(set.Indexes) > 0 {
		if err := f.index(c.Incarnation, set, fact, prior, now); err != nil {
			return false, err
		}
	}
	st := f.statsOf(c.Incarnation)
	if exists {
		st.add(c.Incarnation, e.ID, prior, -1)
	}
	if err := f.setHold(c, e, prior, now, warned); err != nil {
		return false, err
	}
	record := Record{Meta: now}
	if now.Version != 0 {
		st.add(c.Incarnation, e.ID, now, 1)
		record.Body, err = f.put(fact, prior, now)
	} else {
		f.key2 = historyKey(f.key2[:0], c.Name, e.ID, e.Seq)
		err = errors.Join(f.batch.Delete(f.key, nil), f.history.Set(f.key2, nil, nil))
	}
	if err != nil {
		return false, err
	}
	f.stats[c.Incarnation] = st
	f.documents[string(f.key)] = record
	return true, nil
}

// put writes a document after the fact, and returns its content: nil if that stays and is
// only in Pebble. f.key is its key. A small content is cheaper to write again than to
// merge later, see touch.go.
func (f *fold) put(fact *Fact, prior, now Meta) (body []byte, err error) {
	if !fact.Type.KeepsContent() {
		body = bytes.Clone(fact.Body) // Body may be a small part of a large message
	} else {
		if body, err = f.keptBody(fact, prior); err != nil {
			return nil, err
		}
		if body == nil || len(body) > headWhole && !writesWhole(fact.Seq, prior.Size) {
			f.value = appendOperand(f.value[:0], now)
			return body, f.batch.Merge(f.key, f.value, nil)
		}
	}
	f.value = appendRecord(f.value[:0], now, body)
	return body, f.batch.Set(f.key, f.value, nil)
}

// setHold writes or deletes the reason of a hold, and adds the event to the history. A
// replaced document keeps its hold, so its key G stays. The warnings there become stale,
// and Warned ignores them by their version.
func (f *fold) setHold(c *schema.Collection, e *schema.Event, prior, now Meta, warned []int64) error {
	if e.Type == schema.DocumentHeld || e.Type == schema.DocumentReleased {
		f.key2 = historyKey(f.key2[:0], c.Name, e.ID, e.Seq)
		if err := f.history.Set(f.key2, nil, nil); err != nil {
			return err
		}
	}
	f.key2 = holdKey(f.key2[:0], c.Incarnation, e.ID)
	switch {
	case e.Type == schema.DocumentHeld:
		f.value = appendHold(f.value[:0], warnings{prior.Version, warned}, schema.ReadReason(e.Body))
		return f.batch.Set(f.key2, f.value, nil)
	case prior.Held && !now.Held:
		return f.batch.Delete(f.key2, nil)
	}
	return nil
}

// setQueue moves a document from its old queue to its new one; warned are the deadlines
// that the new version was warned of. An entry that stays in its place is written again
// all the same: its value has the version.
func (f *fold) setQueue(c *schema.Collection, id schema.DocumentID, prior, now Meta, warned []int64) error {
	from, before, waited := QueueOf(c, prior)
	waited = waited && prior.Version != 0
	to, second, waits := QueueOf(c, now)
	waits = waits && now.Version != 0
	if waited && !(waits && from == to && before == second) {
		f.key2 = expiryKey(f.key2[:0], from, before, id)
		if err := f.queues.Delete(f.key2, nil); err != nil {
			return err
		}
	}
	if !waits {
		return nil
	}
	f.key2 = expiryKey(f.key2[:0], to, second, id)
	f.value = appendEntryValue(f.value[:0], now, warned)
	return f.queues.Set(f.key2, f.value, nil)
}

// after returns the document's Meta after the fact, Version 0 if it ended. Expired and
// Deleted give the zero Meta. fits is false for content that is no document; only a
// foreign writer could have logged that.
func after(fact *Fact, prior Meta) (now Meta, fits bool) {
	e := fact.Event
	switch e.Type {
	case schema.DocumentTouched:
		return prior.Touched(e), true
	case schema.DocumentHeld, schema.DocumentReleased:
		now, now.Held = prior, e.Type == schema.DocumentHeld
		return now, true
	}
	if e.Type.EndsDocument() {
		return Meta{}, true
	}
	ttl, sum := fact.TTL, fact.Sum
	if !fact.Known {
		d, fault := schema.ReadDocument(e.ID, e.Body)
		if fault != nil {
			return Meta{}, false
		}
		ttl, sum = d.TTL, SumOf(e.Body)
	}
	return Meta{Version: schema.Version(e.Seq), TS: e.Time / 1000, TTL: ttl, Size: int64(len(e.Body)), Sum: sum, Held: prior.Held}, true
}

// prior returns the document's Meta before the fact, Version 0 if there was
// none; f.key is its key. The order is from cheap to expensive: the machine knew it, this
// step changed it, cache, Pebble.
func (f *fold) prior(fact *Fact) (Meta, error) {
	if fact.Known {
		return fact.Prior, nil
	}
	if r, ok := f.documents[string(f.key)]; ok {
		return r.Meta, nil
	}
	if r, ok := f.store.cache.meta(f.key); ok {
		return r.Meta, nil
	}
	return f.lookups.meta(f.store, f.key)
}

// lookups reads documents for one step of a fold from the store as it is before the step.
// Pebble's Get makes an iterator for each level each time, which is most of its cost where
// filters answer that a key is nowhere: of new documents. So from the second read on one
// iterator, which uses the filters as Get does, does all of them.
type lookups struct {
	began    bool
	iterator *pebble.Iterator
}

// meta returns a document's Meta, with Version 0 for none.
func (l *lookups) meta(s *Store, key []byte) (m Meta, err error) {
	if !l.began {
		l.began = true
		m, _, err = s.stored(key)
		return m, err
	}
	if l.iterator == nil {
		if l.iterator, err = s.iterate([]byte{keyDocument}, successor([]byte{keyDocument})); err != nil {
			return Meta{}, err
		}
	}
	if !l.iterator.SeekPrefixGE(key) {
		return Meta{}, l.iterator.Error()
	}
	value, err := l.iterator.ValueAndErr()
	if err != nil {
		return Meta{}, err
	}
	r, err := decodeRecord(value)
	return r.Meta, err
}

// close releases the iterator, whose errors meta has returned.
func (l *lookups) close() {
	if l.iterator != nil {
		_ = l.iterator.Close()
	}
}
