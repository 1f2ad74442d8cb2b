package projections

import (
	"encoding/binary"
	"errors"

	"github.com/lapsedb/lapse/schema"
)

// Order is one of the two expiry orders of a collection. Both are kept
// whatever its TTL policy, so that changing the policy re-indexes nothing.
type Order byte

const (
	ByDeadline  Order = 0 // documents with a ttl of their own
	ByTimestamp Order = 1 // documents that inherit: their deadline is _ts + defaultTtl
)

// Queue is one expiry order of one collection.
type Queue struct {
	Incarnation uint64
	Order       Order
}

// QueueOf returns the queue of a document and its second there: its deadline, or
// its _ts if it inherits. ok is false if it expires under no policy.
func QueueOf(c *schema.Collection, m Meta) (q Queue, second int64, ok bool) {
	switch {
	case m.Held:
	case m.TTL > 0:
		return Queue{c.Incarnation, ByDeadline}, m.TS + int64(m.TTL), true
	case m.TTL == schema.Inherit:
		return Queue{c.Incarnation, ByTimestamp}, m.TS, true
	}
	return Queue{}, 0, false
}

// DueAt returns the second at which an entry is due under the collection's policy;
// second is the entry's second in the queue. ok is false if it does not expire.
func DueAt(c *schema.Collection, order Order, second int64) (at int64, ok bool) {
	switch {
	case c.DefaultTTL == schema.Off:
		return 0, false
	case order == ByDeadline:
		return second, true
	case c.DefaultTTL > 0:
		return second + int64(c.DefaultTTL), true
	}
	return 0, false
}

// LastDue returns the last second of a queue whose entries are due at now, in
// seconds since 1970, under the collection's policy. ok is false if none expire.
func LastDue(c *schema.Collection, order Order, now int64) (second int64, ok bool) {
	at, ok := DueAt(c, order, 0)
	return now - at, ok
}

// Entry is a document in a queue, with its Meta: without previous images, expiring
// it reads no document.
type Entry struct {
	Second int64
	ID     schema.DocumentID
	Meta   Meta
	Warned []int64 // the deadlines of this version that it was warned of
}

// Before reports whether e comes before other in their queue.
func (e Entry) Before(other Entry) bool {
	return e.Second < other.Second || e.Second == other.Second && e.ID < other.ID
}

// Scan visits the entries of a queue after the entry after, up to the second last,
// in order, until visit returns false. The zero Entry is before all others. If visit
// never returned false, next is the second of the first entry beyond last, and more
// reports whether there is one.
func (s *Store) Scan(q Queue, after Entry, last int64, visit func(Entry) bool) (next int64, more bool, err error) {
	lower := expiryKey(nil, q, after.Second, after.ID)
	if after.ID != "" {
		lower = append(lower, 0)
	}
	upper := successor(queueKey(nil, q))
	it, err := s.iterate(lower, upper)
	if err != nil {
		return 0, false, err
	}
	for ok := it.First(); ok; ok = it.Next() {
		e := decodeEntry(q.Order, it.Key(), it.Value())
		if more = e.Second > last; more {
			next = e.Second
			break
		}
		if !visit(e) {
			break
		}
	}
	return next, more, errors.Join(it.Error(), it.Close())
}

// appendEntryValue appends the value of a key E: all of a Meta that the key lacks, and the
// warnings. Its parts have these lengths; warnings end where the last 8 bytes begin:
//
//	size uvarint | version uvarint | ttl varint | deadline varint… | sum, 8 bytes big endian
func appendEntryValue(dst []byte, m Meta, warned []int64) []byte {
	dst = binary.AppendUvarint(dst, uint64(m.Size))
	dst = binary.AppendUvarint(dst, uint64(m.Version))
	dst = binary.AppendVarint(dst, int64(m.TTL))
	dst = appendWarned(dst, warned)
	return binary.BigEndian.AppendUint64(dst, m.Sum)
}

// decodeEntry reads a key E and its value. The _ts is not stored: an inheriting document
// has it as its second, and one with a ttl of its own as second minus ttl.
func decodeEntry(order Order, key, value []byte) Entry {
	second, id := key[queueKeyBytes:queueKeyBytes+8], key[queueKeyBytes+8:]
	e := Entry{Second: int64(binary.BigEndian.Uint64(second)), ID: schema.DocumentID(id)}
	size, a := binary.Uvarint(value)
	version, b := binary.Uvarint(value[a:])
	ttl, n := binary.Varint(value[a+b:])
	sum := binary.BigEndian.Uint64(value[len(value)-8:])
	e.Meta = Meta{Version: schema.Version(version), TS: e.Second, TTL: schema.TTL(ttl), Size: int64(size), Sum: sum}
	e.Warned = readWarned(value[a+b+n : len(value)-8])
	if order == ByDeadline {
		e.Meta.TS -= ttl
	}
	return e
}

// Counts describe a collection at one time.
type Counts struct {
	Documents, Bytes int64 // live
	Pending          int64 // live with a deadline
	Overdue          int64 // past their deadline and not yet expired in the log
	Held             int64 // held documents, which neither expire nor can be deleted
	Oldest           int64 // earliest deadline of an overdue document, 0 if there is none
}

// Count returns the counts of a collection at now, in seconds since 1970. It visits
// each overdue document, of which there are few while the sweep keeps up.
func (s *Store) Count(c *schema.Collection, now int64) (Counts, error) {
	// Counts and entries have to be of the same moment.
	m, err := s.moment()
	if err != nil {
		return Counts{}, err
	}
	n, err := m.count(c, now)
	return n, errors.Join(err, m.close())
}

// Count returns the counts of the collection at now, in seconds since 1970; see
// Store.Count.
func (v *View) Count(now int64) (Counts, error) { return v.moment.count(v.collection, now) }

// count subtracts overdue documents from the folded counts. A document without expiry is
// in no queue, so it is live whenever it exists; hence no document is read.
func (m moment) count(c *schema.Collection, now int64) (Counts, error) {
	var st stats
	ok, err := m.get(statsKey(nil, c.Incarnation), func(value []byte) (err error) {
		st, err = decodeStats(value)
		return err
	})
	if !ok || err != nil {
		return Counts{}, err
	}
	n := Counts{Documents: st.documents, Bytes: st.bytes, Held: st.held}
	if c.DefaultTTL == schema.Off {
		return n, nil
	}
	n.Pending = st.own
	if c.DefaultTTL > 0 {
		n.Pending += st.inherited
	}
	for _, order := range []Order{ByDeadline, ByTimestamp} {
		last, ok := LastDue(c, order, now)
		if !ok {
			continue
		}
		q := Queue{c.Incarnation, order}
		it, err := m.iterate(queueKey(nil, q), expiryKey(nil, q, max(last+1, 0), ""))
		if err != nil {
			return Counts{}, err
		}
		if it.First() {
			n.overdueSince(c, order, it.Key())
		}
		for ok := it.Valid(); ok; ok = it.Next() {
			size, _ := binary.Uvarint(it.Value())
			n.Overdue++
			n.Bytes -= int64(size)
		}
		if err := errors.Join(it.Error(), it.Close()); err != nil {
			return Counts{}, err
		}
	}
	n.Documents -= n.Overdue
	n.Pending -= n.Overdue
	return n, nil
}

// overdueSince records the first overdue entry of a queue. An entry that a new policy
// made overdue counts as overdue since that policy.
func (n *Counts) overdueSince(c *schema.Collection, order Order, key []byte) {
	second := int64(binary.BigEndian.Uint64(key[queueKeyBytes:]))
	at, _ := DueAt(c, order, second)
	at = max(at, (c.Time+999)/1000)
	if n.Oldest == 0 || at < n.Oldest {
		n.Oldest = at
	}
}
