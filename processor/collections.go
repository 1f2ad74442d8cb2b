package processor

import (
	"encoding/json"
	"math"
	"slices"
	"strings"

	"github.com/lapsedb/lapse/schema"
)

// maxCollections is how many collections a database may have: what goes through
// all of them (a start, status, metrics) takes milliseconds up to there.
const maxCollections = 10_000

// checkCollections returns the error of a mutation that would make one collection
// too many. A database that has more keeps them.
func (m *Machine) checkCollections() *schema.Error {
	n := len(m.sweep.queues) // as folded
	if n+len(m.overlay.collections) < maxCollections {
		return nil
	}
	for name, c := range m.overlay.collections {
		switch _, folded := m.store.Collection(name); {
		case c.Collection == nil && folded:
			n--
		case c.Collection != nil && !folded:
			n++
		}
	}
	if n < maxCollections {
		return nil
	}
	return schema.ErrTooLarge.With("the database has %d collections and may have %d: delete one first, or tell documents apart by a member", n, maxCollections)
}

func (r *request) listCollections() {
	if !r.noTail() {
		return
	}
	body, fault := listCollections(r.store.Collections(), r.data, r.room)
	if fault != nil {
		r.refuse(fault)
		return
	}
	r.reply(200, nil, body)
}

// listCollections returns the reply to collection.list, of at most so many bytes.
func listCollections(all []*schema.Collection, request []byte, most int) ([]byte, *schema.Error) {
	var ask struct {
		Limit  *float64 `json:"limit"` // 100.0 is 100
		Cursor string   `json:"cursor"`
	}
	if len(request) > 0 {
		if err := json.Unmarshal(request, &ask); err != nil {
			return nil, schema.ErrBadRequest.With(`the body of collection.list is not {"limit":n,"cursor":"..."} or empty: %v`, err)
		}
	}
	limit := len(all)
	if ask.Limit != nil {
		n := *ask.Limit
		if n < 1 || n > maxCollections || n != math.Trunc(n) {
			return nil, schema.ErrBadRequest.With("limit %v: use a whole number from 1 to %d", n, maxCollections)
		}
		limit = int(n)
	}
	if ask.Cursor != "" {
		after, err := schema.ParseCollectionName(ask.Cursor)
		if err != nil {
			return nil, schema.ErrBadRequest.With("cursor %.80q: use the one of the page before", ask.Cursor)
		}
		at, found := slices.BinarySearchFunc(all, after, func(c *schema.Collection, name schema.CollectionName) int {
			return strings.Compare(string(c.Name), string(name))
		})
		if found {
			at++
		}
		all = all[at:]
	}
	return appendCollections(nil, all, limit, most), nil
}

// appendCollections appends a page of collections, and with the name of its last
// one a cursor if there are more: after so many, or where a message is full.
func appendCollections(dst []byte, collections []*schema.Collection, limit, most int) []byte {
	const cursorBytes = len(`],"cursor":""}`) + 64 // with the longest name
	dst = append(dst, `{"collections":[`...)
	for i, c := range collections {
		end := len(dst)
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = c.AppendReply(dst)
		if i > 0 && (i == limit || len(dst)+cursorBytes > most) {
			dst = append(dst[:end], `],"cursor":`...)
			return append(schema.AppendString(dst, string(collections[i-1].Name)), '}')
		}
	}
	return append(dst, ']', '}')
}
