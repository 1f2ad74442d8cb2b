package console

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/client/importer"
	"github.com/lapsedb/lapse/schema"
)

// importResult is what became of the lines of a request.
type importResult struct {
	importer.Count
	Refused []json.RawMessage `json:"refused"` // the lines, instead of their number, as --rejects keeps them
	More    int               `json:"more"`    // lines refused besides, for which maxRefused has no room
	Due     []int64           `json:"due"`     // documents that expire within each of importer.Spans
	Never   int64             `json:"never"`   // documents that do not expire

	bytes int // of Refused
}

// maxRefused is the size of the refused lines in a reply, in bytes: a line of two bytes makes
// more than a hundred.
const maxRefused = 4 << 20

// refuse keeps a refused line while there is room.
func (i *importResult) refuse(number int, text []byte, fault *client.Error) error {
	if i.More == 0 {
		line := importer.AppendRefused(nil, number, text, fault)
		if i.bytes += len(line); i.bytes <= maxRefused {
			i.Refused = append(i.Refused, line)
			return nil
		}
	}
	i.More++
	return nil
}

// importLines stores the lines of a request as documents, as lapse import does. A page sends
// a file in parts of whole lines. Each request is an import of its own: the page adds up
// the counts. importTimeout ends it before the server's own limit would cut the reply.
func (h *Handler) importLines(w http.ResponseWriter, r *http.Request) {
	if !h.mayChange(w, r) {
		return
	}
	query, err := parameters(r, "collection", "id", "op", "expires", "drop...", "dryRun")
	if err != nil {
		refuseError(w, err)
		return
	}
	dryRun, err := strconv.ParseBool(cmp.Or(query.Get("dryRun"), "false"))
	if err != nil {
		refuseError(w, client.ErrBadRequest.With("dryRun=%.40q: use true or false", query.Get("dryRun")))
		return
	}
	rules, err := importer.Options{ID: cmp.Or(query.Get("id"), "/id"), Op: cmp.Or(query.Get("op"), "upsert"), Expires: query.Get("expires"), Drop: query["drop"], DryRun: dryRun}.Rules()
	if err != nil {
		refuseError(w, err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), importTimeout)
	defer cancel()
	body, done := h.body(ctx, w, r)
	if done == nil {
		return
	}
	defer done()
	coll, err := h.client.Collection(ctx, query.Get("collection"))
	if err != nil {
		refuseError(w, err)
		return
	}
	im, err := rules.Begin(coll)
	if err != nil {
		refuseError(w, err)
		return
	}
	result := importResult{Refused: []json.RawMessage{}}
	im.Reject = result.refuse
	if err := im.Run(ctx, schema.ReadLines(ctx, bytes.NewReader(body))); err != nil {
		if file, ok := errors.AsType[schema.FileError](err); ok {
			err = client.ErrBadRequest.With("%s", file)
		}
		refuseError(w, err)
		return
	}
	due, never := im.Within()
	result.Count, result.Due, result.Never = im.Count(), due[:], never
	result.Forecast = nil
	reply(w, http.StatusOK, result)
}
