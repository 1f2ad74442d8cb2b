package answer

import (
	"slices"

	"github.com/lapsedb/lapse/schema"
)

// Limits of a history request.
const (
	defaultHistory = 100
	MaxHistory     = 1000
)

// AppendHistory appends the reply to a history request.
func AppendHistory(dst []byte, events []*schema.Event) []byte {
	dst = append(dst, `{"events":[`...)
	for i, e := range events {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = e.AppendJSON(dst)
	}
	return append(dst, ']', '}')
}

// ParseHistory returns the limit of a history request.
func ParseHistory(data []byte) (limit int, fault *schema.Error) {
	limit = defaultHistory
	fault = schema.ReadObject("the body of history", data, schema.Whole("limit", &limit, MaxHistory))
	return limit, fault
}

// FollowLives visits the events of an id, newest first and at most limit, until visit
// returns an error; lives are the sequences from which Previous leads to all of them.
func FollowLives(lives []uint64, limit int, visit func(seq uint64) (*schema.Event, error)) error {
	next := slices.Clone(lives)
	slices.Sort(next)
	for ; len(next) > 0 && limit > 0; limit-- {
		last := len(next) - 1
		e, err := visit(next[last])
		if err != nil {
			return err
		}
		next = next[:last]
		if at, known := slices.BinarySearch(next, uint64(e.Previous)); e.Previous != 0 && !known {
			next = slices.Insert(next, at, uint64(e.Previous))
		}
	}
	return nil
}

// NeverWas returns the error for a history without events.
func NeverWas(name schema.CollectionName, id schema.DocumentID) *schema.Error {
	return schema.ErrDocumentNotFound.With("the log knows of no document %q in %s", string(id), name)
}
