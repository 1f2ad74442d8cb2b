package answer

import (
	"slices"
	"strings"

	"github.com/lapsedb/lapse/processor/machine"
	"github.com/lapsedb/lapse/schema"
)

// ListCollections returns the reply to collection.list; most is its maximum in bytes. all
// is sorted by name. The cursor is the name of the last collection of the page before, so
// collections that come and go in between leave no gap.
func ListCollections(all []*schema.Collection, request []byte, most int) ([]byte, *schema.Error) {
	limit, cursor := len(all), ""
	if fault := schema.ReadObject("the body of collection.list", request,
		schema.Whole("limit", &limit, machine.MaxCollections), schema.Text("cursor", &cursor)); fault != nil {
		return nil, fault
	}
	if cursor != "" {
		after, err := schema.ParseCollectionName(cursor)
		if err != nil {
			return nil, schema.ErrBadRequest.With("cursor %.80q: use the one of the page before", cursor)
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
