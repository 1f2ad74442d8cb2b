package answer

import (
	"fmt"
	"math"
	"slices"

	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/projections/query"
	"github.com/lapsedb/lapse/schema"
)

// The history of a document is linked by its events: Previous names the event before. The
// projection only knows where chains begin: the last event of each life, and deletions of
// the collection. So a page starts from these (starts), always takes the event with the
// highest sequence, and adds its Previous to the candidates: newest first, without an index
// of all events.
//
// A page reads the events that it returns from the log, one request each. A cursor is the
// sequence of the next event, sealed with the document's name, so that it works for no
// other.

// Limits of a history request.
const (
	defaultHistory = 100
	MaxHistory     = 1000
)

// History is a request for a page of the history of a document.
type History struct {
	Name schema.CollectionName
	ID   schema.DocumentID
	// From is the sequence of the page's first event, which a store must have folded to
	// answer; 0 for the newest.
	From   uint64
	limit  int
	engine *query.Engine
}

// ParseHistory returns the history request for a document; engine makes and checks cursors.
func ParseHistory(engine *query.Engine, tail string, data []byte) (*History, *schema.Error) {
	name, id, fault := DocumentName(tail)
	if fault != nil {
		return nil, fault
	}
	h := &History{Name: name, ID: id, limit: defaultHistory, engine: engine}
	cursor := ""
	if fault := schema.ReadObject("the body of history", data, schema.Whole("limit", &h.limit, MaxHistory), schema.Text("cursor", &cursor)); fault != nil || cursor == "" {
		return h, fault
	}
	from, ok := engine.OpenSequence(h.context(), cursor)
	if !ok {
		return nil, schema.ErrBadRequest.With("the cursor does not belong to this history: send it with the collection and the id of the page that it came with")
	}
	h.From = from
	return h, nil
}

// context is what a cursor is valid for. The name of a collection has no dot.
func (h *History) context() string { return string(h.Name) + "." + string(h.ID) }

// EventFunc returns the event of a sequence, nil if it was trimmed from the log.
type EventFunc = func(seq uint64) (*schema.Event, error)

// Reply returns the page, in at most room bytes, and whether it has events. It reads only
// the events that it returns, and the one that does not fit. An event that is trimmed ends
// the history: all older ones are trimmed, too.
//
// It returns schema.ErrTooLarge if the first event alone does not fit.
func (h *History) Reply(store *projections.Store, room int, event EventFunc) (body []byte, found bool, err error) {
	next, err := h.starts(store)
	if err != nil {
		return nil, false, err
	}
	body = []byte(`{"events":[`)
	for n := 0; len(next) > 0; n++ {
		last := len(next) - 1
		if n == h.limit {
			return h.end(body, next[last]), true, nil
		}
		e, err := event(next[last])
		if err != nil || e == nil { // if it is trimmed, all older ones are
			return append(body, `]}`...), n > 0, err
		}
		size := len(body)
		if n > 0 {
			body = append(body, ',')
		}
		body = e.AppendJSON(body)
		switch full := len(body)+endBytes > room; {
		case full && n == 0:
			return nil, false, schema.ErrTooLarge.With("event %d alone makes a reply of %d bytes and a message has at most %d: lapse export prints it", e.Seq, len(body), room)
		case full:
			return h.end(body[:size], next[last]), true, nil
		}
		next = next[:last]
		if at, known := slices.BinarySearch(next, uint64(e.Previous)); e.Previous != 0 && !known {
			next = slices.Insert(next, at, uint64(e.Previous))
		}
	}
	return append(body, `]}`...), len(body) > len(`{"events":[`), nil
}

// endBytes is the maximum size of what end appends.
const endBytes = 50

// end ends a page that is not the last; the next begins with seq.
func (h *History) end(body []byte, seq uint64) []byte {
	return fmt.Appendf(body, `],"cursor":%q}`, h.engine.SealSequence(h.context(), seq))
}

// starts returns, oldest first, the sequences from which Lapse-Previous leads to all events
// of the page. Those of From and before need no more than From and the lives before it: an
// event after From refers to none before it, since From then is about the same version.
func (h *History) starts(store *projections.Store) ([]uint64, error) {
	last := h.From
	if last == 0 {
		last = math.MaxUint64
	}
	starts, err := store.LivesAndDeletions(h.Name, h.ID, last, h.limit+1)
	slices.Reverse(starts)
	if n := len(starts); h.From != 0 && (n == 0 || starts[n-1] != h.From) {
		starts = append(starts, h.From)
	}
	return starts, err
}

// NeverWas returns the error for a history without events.
func NeverWas(name schema.CollectionName, id schema.DocumentID) *schema.Error {
	return schema.ErrDocumentNotFound.With("the log knows of no document %q in %s", string(id), name)
}
