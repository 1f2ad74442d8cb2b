package answer

import (
	"encoding/json"
	"math"
	"slices"
	"strings"

	"github.com/lapsedb/lapse/processor/machine"
	"github.com/lapsedb/lapse/schema"
)

// ListCollections returns the reply to collection.list; most is its maximum in bytes.
func ListCollections(all []*schema.Collection, request []byte, most int) ([]byte, *schema.Error) {
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
		if n < 1 || n > machine.MaxCollections || n != math.Trunc(n) {
			return nil, schema.ErrBadRequest.With("limit %v: use a whole number from 1 to %d", n, machine.MaxCollections)
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

// appendCollections appends a page of collections: at most limit, and as many as fit
// into most bytes. If there are more, it adds a cursor with the name of the last one.
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
