package client

import (
	"context"
	"encoding/json"

	"github.com/lapsedb/lapse/schema"
)

// Status is how the process that answered stands.
type Status = schema.Status

// LatenessObjective is what status tells of how late expiries may be.
type LatenessObjective = schema.LatenessObjective

// Status asks how the database stands. Any process that serves it may answer.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var status Status
	reply, err := c.Do(ctx, "status", "", "", nil)
	if err != nil {
		return status, err
	}
	if err := json.Unmarshal(reply.Body, &status); err != nil {
		return status, badReply(err)
	}
	return status, nil
}

// History returns what happened to an id, newest first, earlier lives
// included, also when the document lives no more; at most limit events, 0 for
// as many as the server gives. An id that never was is ErrDocumentNotFound.
func History(ctx context.Context, coll *Collection, id string, limit int, opts ...RequestOption) ([]*Event, error) {
	var body []byte
	if limit != 0 {
		body, _ = json.Marshal(map[string]int{"limit": limit})
	}
	reply, err := coll.client.Do(ctx, "history", coll.info.Name, id, body, opts...)
	if err != nil {
		return nil, err
	}
	var list struct {
		Events []*Event `json:"events"`
	}
	if err := json.Unmarshal(reply.Body, &list); err != nil {
		return nil, badReply(err)
	}
	return list.Events, nil
}
