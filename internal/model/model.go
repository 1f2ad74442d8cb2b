// Package model is a naive second implementation of lapse's rules, for tests: of TTL, of
// requests with their preconditions, and of the log. It shares no code with lapse, keeps
// everything in maps, and walks all documents for every question.
//
// Apply says whether the next event of a log obeys the rules, and Judge what must become
// of a mutation. Package audit has a reading of its own. How it differs from lapse, which
// is its point: documents are maps of encoding/json, not bytes; a deadline is computed
// whenever it is asked for; nothing is indexed, cached or in flight. So it is slow and
// short, and a fault in lapse is unlikely to be here as well.
package model

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"time"
)

// Event is an event of the log. Its JSON is a line of lapse export.
type Event struct {
	Seq        uint64          `json:"seq"`
	Time       time.Time       `json:"time"`
	Type       string          `json:"type"`
	Collection string          `json:"collection"`
	ID         string          `json:"id,omitempty"`
	Previous   uint64          `json:"previous,omitempty"`
	Deadline   int64           `json:"deadline,omitempty"`
	TTL        int64           `json:"ttl,omitempty"`
	Rule       string          `json:"rule,omitempty"`
	Restored   uint64          `json:"restored,omitempty"`
	Cause      string          `json:"cause,omitempty"`
	Body       json.RawMessage `json:"body,omitempty"`

	MsgID, MsgOp string `json:"-"` // the Nats-Msg-Id of its mutation, and the operation
}

func (e Event) String() string {
	line, err := json.Marshal(e)
	if err != nil {
		return err.Error()
	}
	return string(line)
}

// ParseLog returns the events of a log, one a line.
func ParseLog(lines []byte) (log []Event, err error) {
	d := json.NewDecoder(bytes.NewReader(lines))
	d.DisallowUnknownFields()
	for d.More() {
		var e Event
		if err := d.Decode(&e); err != nil {
			return nil, err
		}
		log = append(log, e)
	}
	return log, nil
}

// Model is the state after a log. It is used as a value in searches for an order of
// requests (test/linear): Clone makes a branch.
type Model struct {
	Seq         uint64 // of the last event
	Time        int64  // of the last event, ms
	Judged      uint64 // the last mutation of the stream
	Collections map[string]*Collection

	messages map[string]message
	versions map[uint64]version // all there ever were
	last     map[key]uint64     // the version that ended last, 0 if its end has no content
}

// key names a document for ever: a document of the same id in a later collection has it,
// too.
type key struct{ collection, id string }

type version struct {
	key
	content map[string]any
}

// message is the event that a Nats-Msg-Id led to.
type message struct {
	seq uint64
	at  int64 // ms
	op  string
	key
}

// Collection is a collection as of version Version, at second TS.
type Collection struct {
	Version    uint64
	TS         int64
	Properties map[string]any
	Documents  map[string]Document
}

// Document is a document that the log has not ended; it may be past its deadline. Body is
// compared byte by byte with what an expiry carries, Content by value with replies.
type Document struct {
	Version uint64
	TS      int64 // s
	Content map[string]any
	Body    string // the content as in the log
	Held    bool
	Reason  any     // of the hold, nil for none
	Warned  []int64 // deadlines of this version that were warned of
}

// New returns the state after no events.
func New() *Model {
	return &Model{Collections: map[string]*Collection{}, messages: map[string]message{}, versions: map[uint64]version{}, last: map[key]uint64{}}
}

// Of returns the state after a log, or why an event of it is wrong.
func Of(log []Event) (*Model, error) {
	m := New()
	for _, e := range log {
		if err := m.Apply(e); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Clone returns a copy that changes by itself.
func (m *Model) Clone() *Model {
	n := &Model{m.Seq, m.Time, m.Judged, map[string]*Collection{}, maps.Clone(m.messages), maps.Clone(m.versions), maps.Clone(m.last)}
	for name, c := range m.Collections {
		n.Collections[name] = &Collection{c.Version, c.TS, c.Properties, maps.Clone(c.Documents)}
	}
	return n
}

// Deadline is when a version expires, and why.
type Deadline struct {
	At, TTL int64  // s
	Rule    string // "" for never
}

// Passed reports whether the version has expired at a second.
func (d Deadline) Passed(now int64) bool { return d.Rule != "" && d.At <= now }

// DeadlineOf computes a deadline by the TTL table: of a document with this ttl, modified at
// second ts. nil stands for what is absent or null. The types are those of encoding/json:
// a number is a float64.
func DeadlineOf(defaultTTL, ttl any, ts int64) Deadline {
	seconds, rule := defaultTTL, "collection"
	if legalTTL(ttl) {
		seconds, rule = ttl, "document"
	}
	if defaultTTL == nil || seconds == -1.0 {
		return Deadline{}
	}
	n := int64(seconds.(float64))
	return Deadline{ts + n, n, rule}
}

// legalTTL reports whether v is -1 or a number of seconds; 5.0 is 5.
func legalTTL(v any) bool { return v == -1.0 || legalSeconds(v) }

// legalSeconds reports whether v is a whole number of seconds from 1 on.
func legalSeconds(v any) bool {
	f, ok := v.(float64)
	return ok && f >= 1 && f <= 2147483647 && f == math.Trunc(f)
}

// Deadline returns the deadline of a document.
func (c *Collection) Deadline(d Document) Deadline {
	if d.Held {
		return Deadline{}
	}
	return DeadlineOf(c.Properties["defaultTtl"], d.Content["ttl"], d.TS)
}

// Find returns a document. One that has expired by second now is there until its expiry is
// in the log, and does not live. A nil collection has none.
func (c *Collection) Find(id string, now int64) (d Document, there, lives bool) {
	if c != nil {
		d, there = c.Documents[id]
	}
	return d, there, there && !c.Deadline(d).Passed(now)
}

// images reports whether the events that end documents carry their content.
func (c *Collection) images() bool { return c.Properties["previousImages"] == true }

// Reply returns the body of the reply to an operation that has just succeeded, or to a get
// of a live document; nil for none.
func (m *Model) Reply(op, collection, id string) map[string]any {
	c := m.Collections[collection]
	switch op {
	case "collection.create", "collection.replace":
		return system(c.Properties, collection, c.TS, c.Version)
	case "collection.delete", "document.delete":
		return nil
	}
	d := c.Documents[id]
	switch op {
	case "document.touch":
		return system(nil, id, d.TS, d.Version)
	case "document.hold":
		reason, _ := d.Reason.(string)
		return map[string]any{"id": id, "held": true, "reason": reason}
	case "document.release":
		return map[string]any{"id": id, "held": false}
	}
	return system(d.Content, id, d.TS, d.Version)
}

// system returns content with the properties that lapse adds.
func system(content map[string]any, id string, ts int64, version uint64) map[string]any {
	all := map[string]any{"id": id, "_ts": float64(ts), "_etag": fmt.Sprint(version)}
	maps.Copy(all, content)
	return all
}

// Parse returns a JSON object, nil if body is none.
func Parse(body []byte) map[string]any {
	var object map[string]any
	if json.Unmarshal(body, &object) != nil {
		return nil
	}
	return object
}
