package answer

import (
	"strings"

	"github.com/lapsedb/lapse/processor/machine"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// DocumentName reads the end of a subject: a collection and an id.
func DocumentName(tail string) (schema.CollectionName, schema.DocumentID, *schema.Error) {
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

// ReallyGone is the goneFunc where nothing is under way.
func ReallyGone(*schema.Collection, schema.DocumentID, projections.Record) error { return nil }

func LiveDocument(store *projections.Store, name schema.CollectionName, id schema.DocumentID, now int64, gone goneFunc) (projections.Record, *schema.Error, error) {
	c, ok := store.Collection(name)
	if !ok {
		return projections.Record{}, schema.NoCollection(name), nil
	}
	record, _, err := store.Document(c, id)
	if err != nil || Lives(c, record, now) {
		return record, nil, err
	}
	return projections.Record{}, machine.NoDocument(c, id), gone(c, id, record)
}

// Lives tells whether a record, of Version 0 if there is none, exists at now, in
// seconds.
func Lives(c *schema.Collection, record projections.Record, now int64) bool {
	return record.Version != 0 && !record.Deadline(c).Passed(now)
}

// Present returns a live document as clients see it.
func Present(record projections.Record) []byte {
	return schema.AppendReply(make([]byte, 0, len(record.Body)+48), record.Body, record.TS, record.Version)
}
