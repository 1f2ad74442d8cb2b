package model

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Apply appends an event to the log, or returns why it is wrong. Internal events may be left
// out of a log. What it knows of a log that leaves events out is that sequences rise.
func (m *Model) Apply(e Event) error {
	if err := m.apply(e); err != nil {
		return fmt.Errorf("%w: %s", err, e)
	}
	return nil
}

// apply checks an event in the order of the rules: position, cause, collection, due
// documents, document.
func (m *Model) apply(e Event) error {
	now := e.Time.Unix()
	if e.Seq <= m.Seq || e.Time.UnixMilli() < m.Time {
		return fmt.Errorf("comes after event %d at %d", m.Seq, m.Time)
	}
	m.Seq, m.Time = e.Seq, e.Time.UnixMilli()
	if sequence, ok := strings.CutPrefix(e.Cause, "mutations/"); ok {
		cause, err := strconv.ParseUint(sequence, 10, 64)
		if err != nil || cause <= m.Judged {
			return fmt.Errorf("mutation %s is judged after %d", sequence, m.Judged)
		}
		m.Judged = cause
	}
	switch {
	case e.Type == "MutationRejected":
		return m.rejected(e, now)
	case e.Collection == "_":
		return nil
	}
	if e.MsgID != "" {
		m.messages[e.MsgID] = message{e.Seq, m.Time, e.MsgOp, key{e.Collection, e.ID}}
	}
	c := m.Collections[e.Collection]
	switch {
	case (c == nil) != (e.Type == "CollectionCreated"):
		return fmt.Errorf("the collection exists: %t", c != nil)
	case strings.HasPrefix(e.Type, "Document"):
		return m.document(c, e, now)
	case c == nil:
		c = &Collection{Documents: map[string]Document{}}
	}
	for id, d := range c.Documents {
		if c.Deadline(d).Passed(now) {
			return fmt.Errorf("%s was due before", id)
		}
	}
	if e.Type == "CollectionDeleted" {
		if !reflect.DeepEqual(Parse(e.Body), c.Properties) {
			return fmt.Errorf("the properties were %v", c.Properties)
		}
		for id, d := range c.Documents {
			if d.Held {
				return fmt.Errorf("%s is held", id)
			}
			m.last[key{e.Collection, id}] = d.Version
		}
		delete(m.Collections, e.Collection)
		return nil
	}
	m.Collections[e.Collection] = &Collection{e.Seq, now, Parse(e.Body), c.Documents}
	return nil
}

// document applies an event of a document. An event that ends a version after its deadline
// has to be its expiry, and before it must not be.
func (m *Model) document(c *Collection, e Event, now int64) error {
	d, exists := c.Documents[e.ID]
	due := c.Deadline(d)
	switch {
	case exists == (e.Type == "DocumentCreated"), e.Previous != d.Version:
		return fmt.Errorf("the version before it is %d", d.Version)
	case exists && due.Passed(now) != (e.Type == "DocumentExpired"):
		return fmt.Errorf("the version is due at %d", due.At)
	}
	switch e.Type {
	case "DocumentCreated", "DocumentReplaced":
		content := Parse(e.Body)
		if content["id"] != e.ID {
			return fmt.Errorf("the body lacks its id")
		}
		if former := m.versions[e.Restored]; e.Restored != 0 && (former.key != key{e.Collection, e.ID} || !reflect.DeepEqual(content, former.content)) {
			return fmt.Errorf("version %d is %v", e.Restored, former)
		}
		d.Content, d.Body = content, string(e.Body)
		m.modified(c, d, e, now)
		return nil
	case "DocumentTouched":
		if len(e.Body) > 0 {
			return fmt.Errorf("a touch has no body")
		}
		m.modified(c, d, e, now)
		return nil
	case "DocumentHeld", "DocumentReleased":
		return c.hold(d, e)
	}
	// The others carry the content that they end or warn of.
	if c.images() && string(e.Body) != d.Body || !c.images() && len(e.Body) > 0 {
		return fmt.Errorf("previousImages is %t, the content %s", c.images(), d.Body)
	}
	if e.Type != "DocumentDeleted" && (Deadline{e.Deadline, e.TTL, e.Rule} != due) {
		return fmt.Errorf("the deadline is %+v", due)
	}
	switch {
	case e.Type == "DocumentExpiring":
		if !c.Warns(d, now) {
			return fmt.Errorf("it was warned of %v", d.Warned)
		}
		d.Warned = append(slices.Clip(d.Warned), due.At)
		c.Documents[e.ID] = d
		return nil
	case e.Type == "DocumentDeleted" && d.Held:
		return fmt.Errorf("it is held")
	case e.Type != "DocumentDeleted" && e.Type != "DocumentExpired":
		return fmt.Errorf("there is no such event")
	}
	delete(c.Documents, e.ID)
	m.last[key{e.Collection, e.ID}] = c.remains(d)
	return nil
}

// hold applies the event of a hold or release of d.
func (c *Collection) hold(d Document, e Event) error {
	reason := Parse(e.Body)["reason"]
	if e.Type == "DocumentReleased" && (!d.Held || d.Reason != reason) {
		return fmt.Errorf("held is %t, for %v", d.Held, d.Reason)
	}
	d.Held, d.Reason = e.Type == "DocumentHeld", reason
	c.Documents[e.ID] = d
	return nil
}

// modified makes d a new version.
func (m *Model) modified(c *Collection, d Document, e Event, now int64) {
	d.Version, d.TS, d.Warned = e.Seq, now, nil
	c.Documents[e.ID] = d
	m.versions[e.Seq] = version{key{e.Collection, e.ID}, d.Content}
}

// remains returns the version that a restore brings back after d ended, 0 for none.
func (c *Collection) remains(d Document) uint64 {
	if c.images() {
		return d.Version
	}
	return 0
}

// Warns reports whether a warning of a document is due at a second.
func (c *Collection) Warns(d Document, now int64) bool {
	before, warns := c.Properties["warnBefore"].(float64)
	due := c.Deadline(d)
	return warns && due.Rule != "" && due.At-int64(before) <= now && now < due.At && !slices.Contains(d.Warned, due.At)
}

// rejected checks that a rejection that depends on a document comes after its expiry. The
// reason of a rejection cannot be checked further: the log does not have all that the
// mutation said.
func (m *Model) rejected(e Event, now int64) error {
	var body struct {
		Error    string
		Mutation struct{ Collection, ID string }
	}
	if err := json.Unmarshal(e.Body, &body); err != nil {
		return err
	}
	depends := []string{"document_not_found", "document_exists", "precondition_failed", "bad_ttl", "version_not_found", "document_held", "not_held"}
	if _, there, lives := m.Collections[body.Mutation.Collection].Find(body.Mutation.ID, now); there && !lives && slices.Contains(depends, body.Error) {
		return fmt.Errorf("the document was due before")
	}
	return nil
}
