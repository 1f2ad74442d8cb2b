package lapsetest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/schema"
)

// Document is a document as in a reply: its Value is all of its JSON.
type Document = client.Item[json.RawMessage]

// must is Do, but fails the test on an error.
func (db *DB) must(op, collection, id string, body any, opts ...client.WriteOption) *client.Reply {
	db.t.Helper()
	reply, err := db.Do(op, collection, id, body, opts...)
	if err != nil {
		db.t.Fatalf("%s %s %s: %v", op, collection, id, schema.Describe(err))
	}
	return reply
}

// into decodes a reply.
func (db *DB) into(v any, reply *client.Reply) {
	db.t.Helper()
	if err := json.Unmarshal(reply.Body, v); err != nil {
		db.t.Fatalf("the reply %s: %v", reply.Body, err)
	}
}

// encode returns JSON text unchanged and any other value as JSON.
func encode(body any) ([]byte, error) {
	switch body := body.(type) {
	case nil:
		return nil, nil
	case string:
		return []byte(body), nil
	case []byte:
		return body, nil
	case json.RawMessage:
		return body, nil
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(body); err != nil {
		return nil, fmt.Errorf("a %T cannot be written as JSON: %w", body, err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// Properties returns properties as JSON from options of package client. It panics if one
// is invalid.
//
//	db.CreateCollection("sessions", lapsetest.Properties(client.DefaultTTL(time.Hour)))
func Properties(opts ...client.PropertyOption) string {
	p := schema.DefaultProperties()
	for _, opt := range opts {
		if err := opt(&p); err != nil {
			panic(fmt.Sprintf("lapsetest: %v", err))
		}
	}
	return string(p.AppendJSON(nil))
}

// CreateCollection creates a collection. properties are JSON, "" for the
// defaults.
func (db *DB) CreateCollection(name string, properties string) (info client.CollectionInfo) {
	db.t.Helper()
	db.into(&info, db.must("collection.create", name, "", properties))
	return info
}

// ReplaceCollection replaces all properties of a collection.
func (db *DB) ReplaceCollection(name string, properties string) (info client.CollectionInfo) {
	db.t.Helper()
	db.into(&info, db.must("collection.replace", name, "", properties))
	return info
}

// DeleteCollection deletes a collection with all its documents.
func (db *DB) DeleteCollection(name string) {
	db.t.Helper()
	db.must("collection.delete", name, "", nil)
}

// Collection returns a collection with its counts, and whether it exists.
func (db *DB) Collection(name string) (info client.CollectionInfo, ok bool) {
	db.t.Helper()
	reply, err := db.Do("collection.get", name, "", nil)
	if errors.Is(err, client.ErrCollectionNotFound) {
		return info, false
	} else if err != nil {
		db.t.Fatalf("%v", err)
	}
	db.into(&info, reply)
	return info, true
}

// Collections returns all collections.
func (db *DB) Collections() []client.CollectionInfo {
	db.t.Helper()
	var all []client.CollectionInfo
	for cursor := ""; ; {
		var page struct {
			Collections []client.CollectionInfo `json:"collections"`
			Cursor      string                  `json:"cursor"`
		}
		db.into(&page, db.must("collection.list", "", "", map[string]string{"cursor": cursor}))
		if all, cursor = append(all, page.Collections...), page.Cursor; cursor == "" {
			return all
		}
	}
}

// Create stores a new document. body is JSON text or a value
// to encode as JSON, here and below.
func (db *DB) Create(collection, id string, body any, opts ...client.WriteOption) Document {
	db.t.Helper()
	return db.write("document.create", collection, id, body, opts)
}

// Upsert creates or replaces a document; see Created of the Document.
func (db *DB) Upsert(collection, id string, body any, opts ...client.WriteOption) Document {
	db.t.Helper()
	return db.write("document.upsert", collection, id, body, opts)
}

// Replace replaces an existing document.
func (db *DB) Replace(collection, id string, body any, opts ...client.WriteOption) Document {
	db.t.Helper()
	return db.write("document.replace", collection, id, body, opts)
}

// Patch applies a JSON Merge Patch (RFC 7396) to an existing document.
func (db *DB) Patch(collection, id string, patch any, opts ...client.WriteOption) Document {
	db.t.Helper()
	return db.write("document.patch", collection, id, patch, opts)
}

// write sends a request whose reply is a document.
func (db *DB) write(op, collection, id string, body any, opts []client.WriteOption) Document {
	db.t.Helper()
	return db.document(db.must(op, collection, id, body, opts...))
}

// document decodes the document in a reply, with the deadline that its headers would say.
func (db *DB) document(reply *client.Reply) Document {
	db.t.Helper()
	d, err := client.Decode[json.RawMessage](client.Result{Code: reply.Status, Body: reply.Body})
	if err != nil {
		db.t.Fatalf("%v", err)
	}
	if reply.Rule != client.NoRule || reply.Held {
		d.Lifetime = reply.Lifetime
	}
	return d
}

// Delete deletes an existing document.
func (db *DB) Delete(collection, id string, opts ...client.WriteOption) {
	db.t.Helper()
	db.must("document.delete", collection, id, nil, opts...)
}

// Touch restarts the time to live of an existing document.
func (db *DB) Touch(collection, id string, opts ...client.WriteOption) client.Touched {
	db.t.Helper()
	reply := db.must("document.touch", collection, id, nil, opts...)
	d := db.document(reply)
	return client.Touched{ETag: d.ETag, Modified: d.Modified, Lifetime: reply.Lifetime}
}

// GetAndTouch is Touch, and returns the document.
func (db *DB) GetAndTouch(collection, id string, opts ...client.WriteOption) Document {
	db.t.Helper()
	return db.write("document.touch", collection, id, `{"content":true}`, opts)
}

// Restore creates an expired or deleted document again, from the version, an ETag, or
// from its last version if that is empty.
func (db *DB) Restore(collection, id, version string, opts ...client.WriteOption) Document {
	db.t.Helper()
	body := map[string]string{}
	if version != "" {
		body["version"] = version
	}
	return db.write("document.restore", collection, id, body, opts)
}

// Hold holds an existing document, with a reason that may be empty.
func (db *DB) Hold(collection, id, reason string, opts ...client.WriteOption) {
	db.t.Helper()
	db.must("document.hold", collection, id, map[string]string{"reason": reason}, opts...)
}

// Release ends the hold of a document.
func (db *DB) Release(collection, id string, opts ...client.WriteOption) {
	db.t.Helper()
	db.must("document.release", collection, id, nil, opts...)
}

// Document returns a document, and whether it exists now.
func (db *DB) Document(collection, id string) (d Document, ok bool) {
	db.t.Helper()
	reply, err := db.Do("document.get", collection, id, nil)
	if errors.Is(err, client.ErrDocumentNotFound) || errors.Is(err, client.ErrCollectionNotFound) {
		return d, false
	} else if err != nil {
		db.t.Fatalf("document.get %s %s: %v", collection, id, schema.Describe(err))
	}
	return db.document(reply), true
}

// Batch sends a batch, {"operations":[…],"atomic":…} as in a request. Each result has its
// own code, and an error if it was refused.
func (db *DB) Batch(collection string, batch any) client.Results {
	db.t.Helper()
	var answer struct {
		Results client.Results `json:"results"`
	}
	db.into(&answer, db.must("batch", collection, "", batch))
	return answer.Results
}

// query sends a query: the body of a request, as JSON or a value to encode.
func (db *DB) query(collection string, request any, change map[string]any) (answer struct {
	Documents []json.RawMessage `json:"documents"`
	Cursor    string            `json:"cursor"`
	Count     int               `json:"count"`
	Plan      client.Plan       `json:"plan"`
}) {
	db.t.Helper()
	text, err := encode(request)
	if err != nil {
		db.t.Fatalf("%v", err)
	}
	if len(change) > 0 {
		members := map[string]any{}
		if len(text) > 0 {
			d := json.NewDecoder(bytes.NewReader(text))
			d.UseNumber()
			if err := d.Decode(&members); err != nil {
				db.t.Fatalf("the query %s: %v", text, err)
			}
		}
		for name, value := range change {
			members[name] = value
		}
		if text, err = encode(members); err != nil {
			db.t.Fatalf("%v", err)
		}
	}
	db.into(&answer, db.must("query", collection, "", text))
	return answer
}

// Query returns a page of the documents that match a query, {"where":…} as in a request,
// "" for all. The page has a cursor if more match.
func (db *DB) Query(collection string, request any) (page client.Page[json.RawMessage]) {
	db.t.Helper()
	answer := db.query(collection, request, nil)
	page.Cursor = answer.Cursor
	for _, body := range answer.Documents {
		page.Items = append(page.Items, db.document(&client.Reply{Status: 200, Body: body}))
	}
	return page
}

// Count returns how many documents match a query, over all pages.
func (db *DB) Count(collection string, request any) int {
	db.t.Helper()
	return db.query(collection, request, map[string]any{"count": true}).Count
}

// Plan returns the plan of a query: its index, and how many documents it scanned. Indexes
// are always complete here.
func (db *DB) Plan(collection string, request any) client.Plan {
	db.t.Helper()
	return db.query(collection, request, map[string]any{"explain": true}).Plan
}

// Forecast counts the documents of a collection by the time at which they expire,
// {"next":…,"bucket":…,"defaultTtl":…} as in a request, "" for the next day.
func (db *DB) Forecast(collection string, request any) (f client.Forecast) {
	db.t.Helper()
	db.into(&f, db.must("forecast", collection, "", request))
	return f
}

// Status returns the status. Members that depend on NATS are 0.
func (db *DB) Status() (status client.Status) {
	db.t.Helper()
	db.into(&status, db.must("status", "", "", nil))
	return status
}

// Digest returns the digest over all collections and documents, as in the status
// of lapse serve and of lapse replay for the same log.
func (db *DB) Digest() string {
	db.t.Helper()
	return db.Status().Digest
}
