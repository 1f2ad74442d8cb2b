package client

import (
	"context"
	"encoding/json"

	"github.com/lapsedb/lapse/schema"
)

// Status is the status of the process that answered.
type Status = schema.Status

// Memory is what the process takes.
type Memory = schema.Memory

// Storage is the space of the streams.
type Storage = schema.Storage

// LatenessObjective is the state of the lateness objective of expiries.
type LatenessObjective = schema.LatenessObjective

// Status requests the status of any one process that serves the database.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var status Status
	reply, err := c.Do(ctx, "status", "", "", nil)
	if err != nil {
		return status, err
	}
	err = decodeReply("", reply, &status)
	return status, err
}

// Moved says who wrote a database before and who does now, by the ids of Status.Processes.
type Moved = schema.Moved

// Move hands the database over to another process that serves it, or to the one with id
// to, and returns when that writes; give ctx half a minute. The client's user must be one
// of the account of the streams. It fails with ErrPreconditionFailed if there is no such
// process or it is behind. The Reply is nil if there is none.
func (c *Client) Move(ctx context.Context, to string) (moved Moved, reply *Reply, err error) {
	var body []byte
	if to != "" {
		body, _ = json.Marshal(map[string]string{"to": to})
	}
	reply, err = c.Do(ctx, schema.MoveOperation, "", "", body)
	if err == nil {
		err = decodeReply("", reply, &moved)
	}
	return moved, reply, err
}

// History returns the events of an id, newest first, including earlier documents with the
// id and deleted or expired ones, and each CollectionDeleted that ended one: at most limit
// events, or 100 with 0, in as many requests as their size needs.
// It fails with ErrDocumentNotFound if there are none.
func History(ctx context.Context, coll *Collection, id string, limit int, opts ...RequestOption) ([]*Event, error) {
	if limit == 0 {
		limit = 100
	}
	var all []*Event
	for cursor := ""; ; {
		body, err := encode(historyRequest{min(limit-len(all), 1000), cursor})
		if err != nil {
			return nil, err
		}
		reply, err := coll.client.Do(ctx, "history", coll.info.Name, id, body, opts...)
		if err != nil {
			return nil, err
		}
		var page struct {
			Events []*Event `json:"events"`
			Cursor string   `json:"cursor"`
		}
		if err := decodeReply(coll.info.Name, reply, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Events...)
		if cursor = page.Cursor; cursor == "" || len(all) >= limit {
			return all, nil
		}
	}
}

type historyRequest struct {
	Limit  int    `json:"limit"`
	Cursor string `json:"cursor,omitempty"`
}
