package projections

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/lapsedb/lapse/schema"
)

// warnings are the deadlines that a version was warned of. A deadline may move away and
// come back with the policy, so all are kept: in the entry of the expiry order, and in that
// of a hold while the document is held.
type warnings struct {
	version   schema.Version
	deadlines []int64
}

// appendWarned appends deadlines as they are in E and G. Their number is not written: the
// caller knows where they end.
func appendWarned(dst []byte, deadlines []int64) []byte {
	for _, at := range deadlines {
		dst = binary.AppendVarint(dst, at)
	}
	return dst
}

// readWarned is the inverse of appendWarned; it ends at a malformed number.
func readWarned(value []byte) (deadlines []int64) {
	for len(value) > 0 {
		at, size := binary.Varint(value)
		if size <= 0 {
			break
		}
		deadlines, value = append(deadlines, at), value[size:]
	}
	return deadlines
}

// warnedMark begins the value of a hold with warnings. No reason begins with it, since
// it is not UTF-8.
const warnedMark = 0xff

// appendHold appends the value of a key G: the reason alone, or, after warnings,
//
//	ff | version uvarint | length uvarint | deadline varint… | reason
func appendHold(dst []byte, w warnings, reason string) []byte {
	if len(w.deadlines) > 0 {
		list := appendWarned(nil, w.deadlines)
		dst = binary.AppendUvarint(append(dst, warnedMark), uint64(w.version))
		dst = append(binary.AppendUvarint(dst, uint64(len(list))), list...)
	}
	return append(dst, reason...)
}

// decodeHold reads what appendHold wrote.
func decodeHold(value []byte) (version schema.Version, deadlines []int64, reason string, err error) {
	if len(value) == 0 || value[0] != warnedMark {
		return 0, nil, string(value), nil
	}
	v, a := binary.Uvarint(value[1:])
	size, b := binary.Uvarint(value[1+max(a, 0):])
	rest := value[1+max(a, 0)+max(b, 0):]
	if a <= 0 || b <= 0 || size > uint64(len(rest)) {
		return 0, nil, "", fmt.Errorf("projection: malformed hold %x", value[:min(len(value), 32)])
	}
	return schema.Version(v), readWarned(rest[:size]), string(rest[size:]), nil
}

// warn folds a DocumentExpiring. The document stays as it is. It counts as foreign if the
// version has ended, does not expire, or was warned of this deadline already: each
// deadline of a version gives one warning.
func (f *fold) warn(c *schema.Collection, fact *Fact) (fits bool, err error) {
	e := fact.Event
	f.key = documentKey(f.key[:0], c.Incarnation, e.ID)
	prior, err := f.prior(fact)
	if err != nil {
		return false, err
	}
	queue, second, waits := QueueOf(c, prior)
	if prior.Version == 0 || prior.Version != e.Previous || !waits {
		return false, nil
	}
	warned := fact.Warned
	if !fact.Known {
		if warned, err = f.warnedOf(c, e.ID, prior); err != nil {
			return false, err
		}
	}
	if slices.Contains(warned, e.Deadline.At) {
		return false, nil
	}
	warned = append(slices.Clip(warned), e.Deadline.At)
	f.setWarned(prior.Version, warned)
	f.key2 = expiryKey(f.key2[:0], queue, second, e.ID)
	f.value = appendEntryValue(f.value[:0], prior, warned)
	err = f.queues.Set(f.key2, f.value, nil)
	f.key2 = historyKey(f.key2[:0], c.Name, e.ID, e.Seq)
	return true, errors.Join(err, f.history.Set(f.key2, nil, nil))
}

// setWarned records the deadlines that a version was warned of after the facts so far;
// f.key is the document's key.
func (f *fold) setWarned(version schema.Version, deadlines []int64) {
	if f.warned == nil {
		f.warned = make(map[string]warnings)
	}
	f.warned[string(f.key)] = warnings{version, deadlines}
}

// warnedOf returns the deadlines that a version was warned of before a fact; f.key is the
// document's key.
func (f *fold) warnedOf(c *schema.Collection, id schema.DocumentID, prior Meta) (deadlines []int64, err error) {
	if w, ok := f.warned[string(f.key)]; ok && w.version == prior.Version {
		return w.deadlines, nil
	}
	return f.store.Warned(c, id, prior)
}

// Warned returns the deadlines that a document was warned of; m is its Meta. It ignores
// stored deadlines of an earlier version, which a write has replaced.
func (s *Store) Warned(c *schema.Collection, id schema.DocumentID, m Meta) (deadlines []int64, err error) {
	if m.Held {
		err = s.document(holdKey(nil, c.Incarnation, id), func(value []byte) error {
			version, warned, _, err := decodeHold(value)
			if version == m.Version {
				deadlines = warned
			}
			return err
		})
		return deadlines, err
	}
	queue, second, waits := QueueOf(c, m)
	if !waits {
		return nil, nil
	}
	key := expiryKey(nil, queue, second, id)
	err = s.document(key, func(value []byte) error {
		if e := decodeEntry(queue.Order, key, value); e.Meta.Version == m.Version {
			deadlines = e.Warned
		}
		return nil
	})
	return deadlines, err
}
