package query

import (
	"bytes"
	"context"
	"errors"

	"github.com/lapsedb/lapse/projections"
)

// walker visits the entries of an access, span by span, in the order of the keys, or
// against it for a descending query. Ids within one key ascend in both. Descending queries
// walk keys backwards and the ids of a key forwards, since ties always ascend by id. So
// descend seeks twice for each key: to its first entry, and then before it.
//
// A position to go on after is found by seeking, which costs the same on page 1 and page
// 1000.
type walker struct {
	ctx    context.Context
	view   *projections.View
	access *access
	after  *position // in the order of the query, nil for all
}

// visitEntry gets an entry that is valid during the call.
type visitEntry func(projections.IndexEntry) (more bool, err error)

func (w *walker) entries(visit visitEntry) error {
	for i := range w.access.spans {
		s := w.access.spans[i]
		if w.access.desc && w.access.ordered {
			s = w.access.spans[len(w.access.spans)-1-i]
		}
		if err := w.ctx.Err(); err != nil {
			return err // checked per span, since spans may be many and empty
		}
		more, err := w.span(s, visit)
		if !more || err != nil {
			return err
		}
	}
	return nil
}

// span visits the entries of one span; more is false when visit wants no more.
func (w *walker) span(s span, visit visitEntry) (more bool, err error) {
	entries := w.view.Entries(w.access.index, w.access.space, s.lower, s.upper)
	defer func() { err = errors.Join(err, entries.Close()) }()
	switch {
	case w.access.desc && w.access.ordered:
		return w.descend(entries, visit)
	case w.after == nil:
		return w.ascend(entries, entries.First(), nil, visit)
	case w.access.ordered:
		return w.ascend(entries, w.beyond(entries, w.after.key), nil, visit)
	default: // one key, by id
		return w.ascend(entries, w.beyond(entries, s.lower), nil, visit)
	}
}

// beyond moves to the first entry after that of key and the id of w.after.
func (w *walker) beyond(entries *projections.Entries, key []byte) bool {
	return entries.SeekGE(cut(key), append(bytes.Clone(w.after.id), 0))
}

// descend visits keys in descending and the ids of each key in ascending order.
// SeekLT(key, nil) goes to the last entry of a lesser key: the key alone is before all its
// entries.
func (w *walker) descend(entries *projections.Entries, visit visitEntry) (more bool, err error) {
	var key []byte
	ok := false
	if w.after == nil {
		ok = entries.Last()
	} else {
		key = cut(bytes.Clone(w.after.key))
		turn(key)
		// Finish the key in which the last page ended.
		more, err := w.ascend(entries, w.beyond(entries, key), key, visit)
		if !more || err != nil {
			return false, err
		}
		ok = entries.SeekLT(key, nil)
	}
	for ok {
		entry, err := entries.Entry()
		if err != nil {
			return false, err
		}
		key = append(key[:0], entry.Key...)
		more, err := w.ascend(entries, entries.SeekGE(key, nil), key, visit)
		if !more || err != nil {
			return false, err
		}
		ok = entries.SeekLT(key, nil)
	}
	return true, nil
}

// ascend visits the entries from the iterator's position on, only those of key if it is not
// nil.
func (w *walker) ascend(entries *projections.Entries, ok bool, key []byte, visit visitEntry) (more bool, err error) {
	for ; ok; ok = entries.Next() {
		entry, err := entries.Entry()
		if err != nil {
			return false, err
		}
		if key != nil && !bytes.Equal(entry.Key, key) {
			break
		}
		if more, err := visit(entry); !more || err != nil {
			return false, err
		}
	}
	return true, nil
}
