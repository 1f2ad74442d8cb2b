package processor

import (
	"strings"

	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// documentName reads the end of a subject: a collection and an id.
func documentName(tail string) (schema.CollectionName, schema.DocumentID, *schema.Error) {
	collection, token, _ := strings.Cut(tail, ".")
	name, err := schema.ParseCollectionName(collection)
	if err != nil {
		return "", "", schema.AsError(err)
	}
	id, err := schema.DecodeID(token)
	if err != nil {
		return "", "", schema.AsError(err)
	}
	return name, id, nil
}

// goneFunc returns an error if a document whose deadline has passed in the
// version read may have another.
type goneFunc func(c *schema.Collection, id schema.DocumentID, record projections.Record) error

// reallyGone is the goneFunc where nothing is under way.
func reallyGone(*schema.Collection, schema.DocumentID, projections.Record) error { return nil }

func liveDocument(store *projections.Store, name schema.CollectionName, id schema.DocumentID, now int64, gone goneFunc) (projections.Record, *schema.Error, error) {
	c, ok := store.Collection(name)
	if !ok {
		return projections.Record{}, schema.NoCollection(name), nil
	}
	record, _, err := store.Document(c, id)
	if err != nil || lives(c, record, now) {
		return record, nil, err
	}
	return projections.Record{}, noDocument(c, id), gone(c, id, record)
}

// lives tells whether a record, of Version 0 if there is none, exists at now, in
// seconds.
func lives(c *schema.Collection, record projections.Record, now int64) bool {
	return record.Version != 0 && !record.Deadline(c).Passed(now)
}

// present returns a live document as clients see it.
func present(record projections.Record) []byte {
	return schema.AppendReply(make([]byte, 0, len(record.Body)+48), record.Body, record.TS, record.Version)
}
