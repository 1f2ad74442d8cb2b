package answer

import (
	"strings"

	"github.com/lapsedb/lapse/processor/machine"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// Whether a document lives is decided here for every read: it is there, and its deadline
// has not passed at the second that the caller gives (rule 1 of section 2 of the contract).
// Whether its DocumentExpired is in the log yet makes no difference. A document that seems
// to have expired may have been renewed by a write that is not folded yet; expired tells,
// and is the only question to the outside.

// DocumentName parses the tail of a subject: a collection and an id.
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

// expiredFunc returns nil if a document whose deadline has passed in the record read has
// expired, and an error if it may have been renewed.
type expiredFunc func(c *schema.Collection, id schema.DocumentID, record projections.Record) error

// NoRenewals is the expiredFunc of a state with nothing in flight.
func NoRenewals(*schema.Collection, schema.DocumentID, projections.Record) error { return nil }

// Live is a live document.
type Live struct {
	projections.Record
	Lifetime schema.Lifetime
}

// NewLive returns a document with its lifetime under the policy of its collection.
func NewLive(store *projections.Store, c *schema.Collection, id schema.DocumentID, record projections.Record) (live Live, err error) {
	live = Live{record, schema.Lifetime{Deadline: record.Deadline(c), Held: record.Held}}
	if record.Held {
		live.Lifetime.Reason, err = store.Reason(c, id)
	}
	return live, err
}

// LiveDocument returns a document that lives at now, in unix seconds, or the error for the
// client: a 404 for the collection or the document. The last error is internal, or that of
// expired. The body is shared with the store and must not be changed.
func LiveDocument(store *projections.Store, name schema.CollectionName, id schema.DocumentID, now int64, expired expiredFunc) (Live, *schema.Error, error) {
	c, ok := store.Collection(name)
	if !ok {
		return Live{}, schema.NoCollection(name), nil
	}
	record, _, err := store.Document(c, id)
	if err != nil {
		return Live{}, nil, err
	}
	if Lives(c, record, now) {
		live, err := NewLive(store, c, id, record)
		return live, nil, err
	}
	return Live{}, machine.NoDocument(c, id), expired(c, id, record)
}

// Lives reports whether a record lives at now, in unix seconds; Version 0 is no document.
func Lives(c *schema.Collection, record projections.Record, now int64) bool {
	return record.Version != 0 && !record.Deadline(c).Passed(now)
}

// Present returns a live document in the form that clients receive: with id, _ts and _etag.
// It allocates the reply and shares nothing with record.
func Present(record projections.Record) []byte {
	return schema.AppendReply(make([]byte, 0, len(record.Body)+48), record.Body, record.TS, record.Version)
}

// ContentReply returns the reply that has version of a document, modified at ts in unix
// seconds: its content is in the projection unless it changed meanwhile, and else in the
// log. The error is ErrUnavailable if neither has it.
func ContentReply(store *projections.Store, log machine.Log, name schema.CollectionName, id schema.DocumentID, version schema.Version, ts int64) ([]byte, error) {
	if c, ok := store.Collection(name); ok {
		record, _, err := store.Document(c, id)
		if err != nil {
			return nil, err
		}
		if record.Version != 0 && record.ContentVersion() <= version && version <= record.Version {
			return schema.AppendReply(nil, record.Body, ts, version), nil
		}
	}
	f, err := machine.FindFormer(log, name, id, uint64(version))
	if err != nil {
		return nil, err
	}
	if f.Content == nil || len(f.Content.Body) == 0 {
		return nil, Trimmed(uint64(version))
	}
	return schema.AppendReply(nil, f.Content.Body, ts, version), nil
}

// Trimmed returns the error for a mutation that was applied and whose reply the log no
// longer has.
func Trimmed(seq uint64) *schema.Error {
	return schema.ErrUnavailable.With("already applied as event %d, now trimmed: read the document", seq)
}
