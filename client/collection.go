package client

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/lapsedb/lapse/schema"
)

// Collection is a handle of a collection. Calls fail with ErrCollectionNotFound once the
// collection is deleted.
type Collection struct {
	client *Client
	info   CollectionInfo
}

// CollectionInfo describes a collection.
type CollectionInfo struct {
	Name string
	Properties
	// Documents and Bytes count the live documents. Only Client.Collection sets them.
	Documents, Bytes int64
	Held             int64     // of these, held; only Client.Collection sets it
	Modified         time.Time // second of the last property change
	ETag             string    // version of the properties
}

// Name returns the collection's name.
func (coll *Collection) Name() string { return coll.info.Name }

// Info returns the description from the reply that made this handle, without a request.
func (coll *Collection) Info() CollectionInfo { return coll.info }

// CreateCollection creates a collection, or fails with ErrCollectionExists.
func (c *Client) CreateCollection(ctx context.Context, name string, opts ...PropertyOption) (*Collection, error) {
	return c.putCollection(ctx, "collection.create", name, opts)
}

// OpenCollection returns a collection, and creates it with these properties if it does not
// exist. An existing one keeps its own.
func (c *Client) OpenCollection(ctx context.Context, name string, opts ...PropertyOption) (*Collection, error) {
	coll, err := c.CreateCollection(ctx, name, opts...)
	if errors.Is(err, ErrCollectionExists) {
		return c.Collection(ctx, name)
	}
	return coll, err
}

// ReplaceCollection replaces all properties of a collection; without an option a property
// gets its default. A new default TTL applies to existing documents at once; expired
// ones stay expired.
func (c *Client) ReplaceCollection(ctx context.Context, name string, opts ...PropertyOption) (*Collection, error) {
	return c.putCollection(ctx, "collection.replace", name, opts)
}

// ChangeCollection changes only the properties that options name. It retries if another
// client changes the collection at the same time, and fails with
// ErrPreconditionFailed after too many tries.
func (c *Client) ChangeCollection(ctx context.Context, name string, opts ...PropertyOption) (*Collection, error) {
	reply, err := c.ChangeProperties(ctx, name, func(now *Reply) ([]byte, error) {
		coll, err := c.collectionOf(name, now)
		if err != nil {
			return nil, err
		}
		return properties(append([]PropertyOption{Like(coll.info.Properties)}, opts...))
	})
	if err != nil {
		return nil, err
	}
	return c.collectionOf(name, reply)
}

// ChangeProperties is ChangeCollection for properties as JSON: change returns the body of
// collection.replace for the reply to collection.get, and is called again for each retry. It
// keeps properties that this version of the client does not know, if change does.
func (c *Client) ChangeProperties(ctx context.Context, name string, change func(now *Reply) (body []byte, err error)) (*Reply, error) {
	var newer []RequestOption // a standby may lag behind the change that caused the mismatch
	for try := 1; ; try++ {
		reply, err := c.Do(ctx, "collection.get", name, "", nil, newer...)
		if err != nil {
			return nil, err
		}
		var present struct {
			ETag string `json:"_etag"`
		}
		if err := decodeReply(name, reply, &present); err != nil {
			return nil, err
		}
		body, err := change(reply)
		if err != nil {
			return nil, err
		}
		reply, err = c.Do(ctx, "collection.replace", name, "", body, IfMatch(present.ETag))
		if !errors.Is(err, ErrPreconditionFailed) || try == maxChangeTries {
			return reply, err
		}
		newer = []RequestOption{MinSeq(reply.Seq)}
	}
}

// maxChangeTries bounds the tries of ChangeProperties.
const maxChangeTries = 32

func (c *Client) putCollection(ctx context.Context, op, name string, opts []PropertyOption) (*Collection, error) {
	body, err := properties(opts)
	if err != nil {
		return nil, err
	}
	reply, err := c.Do(ctx, op, name, "", body)
	if err != nil {
		return nil, err
	}
	return c.collectionOf(name, reply)
}

// Collection returns a collection, or fails with ErrCollectionNotFound.
func (c *Client) Collection(ctx context.Context, name string) (*Collection, error) {
	reply, err := c.Do(ctx, "collection.get", name, "", nil)
	if err != nil {
		return nil, err
	}
	return c.collectionOf(name, reply)
}

// Collections lists all collections, ordered by name.
func (c *Client) Collections(ctx context.Context) ([]CollectionInfo, error) {
	var all []CollectionInfo
	var body []byte
	for {
		reply, err := c.Do(ctx, "collection.list", "", "", body)
		if err != nil {
			return nil, err
		}
		var page struct {
			Collections []CollectionInfo `json:"collections"`
			Cursor      string           `json:"cursor"`
		}
		if err := decodeReply("", reply, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Collections...)
		if page.Cursor == "" {
			return all, nil
		}
		if body, err = json.Marshal(map[string]string{"cursor": page.Cursor}); err != nil {
			return nil, err
		}
	}
}

// DeleteCollection deletes a collection with all its documents, or fails with
// ErrCollectionNotFound.
func (c *Client) DeleteCollection(ctx context.Context, name string) error {
	_, err := c.Do(ctx, "collection.delete", name, "", nil)
	return err
}

func (c *Client) collectionOf(name string, reply *Reply) (*Collection, error) {
	coll := &Collection{client: c}
	if err := decodeReply(name, reply, &coll.info); err != nil {
		return nil, err
	}
	return coll, nil
}

// UnmarshalJSON decodes a collection of a reply.
func (info *CollectionInfo) UnmarshalJSON(data []byte) error {
	var fields struct {
		ID        string `json:"id"`
		Documents int64  `json:"documents"`
		Bytes     int64  `json:"bytes"`
		Held      int64  `json:"held"`
		TS        int64  `json:"_ts"`
		ETag      string `json:"_etag"`
	}
	if err := json.Unmarshal(data, &fields); err != nil {
		return err
	}
	p, fault := schema.ReadProperties(schema.CollectionName(fields.ID), data)
	if fault != nil {
		return fault
	}
	*info = CollectionInfo{Name: fields.ID, Properties: p, Documents: fields.Documents, Bytes: fields.Bytes, Held: fields.Held, Modified: timeOf(fields.TS), ETag: fields.ETag}
	return nil
}
