package model

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"
	"time"
)

// Mutation is a mutation, or document.get, as a client sends it. ID is empty for one of a
// collection. The model judges what a client sends and what lapse logs in two separate
// ways: Judge by the rules for requests, Apply by the rules for a log. A test sends a
// mutation to lapse, compares the reply with Judge, and gives the events that follow to
// Apply.
type Mutation struct {
	Op             string // as in "document.upsert"
	Collection, ID string
	Body           string
	IfMatch, MsgID string
	ExpireAt, Keep string // Lapse-Expire-At and Lapse-Keep-Deadline, "" for none
	Cause          uint64 // its sequence in the mutations stream, 0 for a request
}

// Verdict is what must become of a mutation.
type Verdict struct {
	Code    int
	Error   string // its name, "" for none
	Repeats uint64 // the event of which it is a repeat, 0 for none
	Event   *Event // that follows, after the expiries that are due; without Seq and Time
}

// No is the verdict on a refused mutation.
func No(code int, name string) Verdict { return Verdict{Code: code, Error: name} }

// text and boolean are tests of values.
func text(v any) bool { _, ok := v.(string); return ok }

func boolean(v any) bool { _, ok := v.(bool); return ok }

// members has what may be in the bodies that are optional, each with its test.
var members = map[string]map[string]func(any) bool{
	"document.get":     {},
	"document.touch":   {"minAge": legalSeconds, "content": boolean},
	"document.hold":    {"reason": text},
	"document.release": {},
	"document.restore": {"version": text},
}

// read returns the body of a well-formed mutation, or the name of the error. It implements
// the part of the rules that needs no state: form, names of members, ends.
func (w *Mutation) read() (body map[string]any, fault string) {
	if body, fault = w.readBody(); fault != "" || w.ExpireAt == "" && w.Keep == "" {
		return body, fault
	}
	_, ttl := body["ttl"]
	switch w.Op {
	case "document.create", "document.replace", "document.upsert", "document.patch":
		if ttl || w.ExpireAt != "" && w.Keep != "" || w.Keep != "" && (w.Keep != "true" || w.Op == "document.create") || strings.Trim(w.ExpireAt, "0123456789") != "" {
			return nil, "bad_request"
		}
		return body, ""
	}
	return nil, "bad_request"
}

// readBody returns the body, of a collection with its defaults.
func (w *Mutation) readBody() (body map[string]any, fault string) {
	if w.Op == "document.delete" || w.Op == "collection.delete" {
		return nil, ""
	}
	optional, short := members[w.Op]
	if body = Parse([]byte(w.Body)); body == nil && (w.Body != "" || w.ID != "" && !short) {
		return nil, "bad_request"
	}
	switch {
	case short:
		for name, value := range body {
			if test := optional[name]; test == nil || !test(value) {
				return nil, "bad_request"
			}
		}
	case w.ID != "":
		if id, has := body["id"]; has && id != w.ID {
			return nil, "bad_id"
		}
	default:
		if ttl := body["defaultTtl"]; ttl != nil && !legalTTL(ttl) {
			return nil, "bad_ttl"
		}
		if before := body["warnBefore"]; before != nil && !legalSeconds(before) {
			return nil, "bad_ttl"
		}
		body = properties(body)
		if body["defaultTtl"] != nil && body["indexingPolicy"].(map[string]any)["indexingMode"] == "none" {
			return nil, "bad_request"
		}
	}
	return body, ""
}

// properties returns the properties of a collection with the defaults filled in.
func properties(sent map[string]any) map[string]any {
	policy := map[string]any{"indexingMode": "consistent", "includedPaths": []any{}}
	if given, ok := sent["indexingPolicy"].(map[string]any); ok {
		maps.Copy(policy, given)
	}
	all := map[string]any{"defaultTtl": sent["defaultTtl"], "indexingPolicy": policy, "previousImages": sent["previousImages"] != false}
	if before := sent["warnBefore"]; before != nil {
		all["warnBefore"] = before
	}
	if metadata, _ := sent["metadata"].(map[string]any); len(metadata) > 0 {
		all["metadata"] = metadata
	}
	return all
}

// Judge returns the verdict on a mutation or document.get at a log time in ms. The checks
// are in the order of the contract. The order: form, repeated Nats-Msg-Id, collection,
// document, If-Match, and what the operation demands.
func (m *Model) Judge(w Mutation, ms int64) Verdict {
	sent, fault := w.read()
	if fault != "" {
		return No(400, fault)
	}
	if first, ok := m.messages[w.MsgID]; ok && ms-first.at < 2*60*1000 {
		switch {
		case first.op != w.Op || first.key != key{w.Collection, w.ID}:
			return No(400, "bad_request")
		case w.Cause != 0:
			return Verdict{Repeats: first.seq, Event: &Event{Type: "MutationRepeated", Collection: "_"}}
		}
		return Verdict{Repeats: first.seq}
	}
	c := m.Collections[w.Collection]
	switch {
	case w.Op == "collection.create" && c != nil:
		return No(409, "collection_exists")
	case w.Op != "collection.create" && c == nil:
		return No(404, "collection_not_found")
	case w.ID != "":
		return m.judgeDocument(w, c, sent, ms/1000)
	case w.Op == "collection.create":
		return w.done(201, "CollectionCreated", sent)
	case !w.matches(c.Version):
		return No(412, "precondition_failed")
	case w.Op == "collection.replace":
		return w.done(200, "CollectionReplaced", sent)
	}
	for _, d := range c.Documents {
		if d.Held {
			return No(423, "document_held")
		}
	}
	return w.done(204, "CollectionDeleted", c.Properties)
}

// done is the verdict on a mutation that happens. The event has no body if it is nil.
func (w *Mutation) done(code int, event string, body map[string]any) Verdict {
	e := &Event{Type: event, Collection: w.Collection, ID: w.ID}
	if body != nil {
		var err error
		if e.Body, err = json.Marshal(body); err != nil {
			panic(err)
		}
	}
	return Verdict{Code: code, Event: e}
}

// matches checks If-Match.
func (w *Mutation) matches(version uint64) bool {
	return w.IfMatch == "" || w.IfMatch == "*" || w.IfMatch == fmt.Sprint(version)
}

// judgeDocument is Judge for an operation on a document, in a collection that exists.
func (m *Model) judgeDocument(w Mutation, c *Collection, sent map[string]any, now int64) Verdict {
	d, _, lives := c.Find(w.ID, now)
	creates := w.Op == "document.create" || w.Op == "document.restore"
	switch {
	case creates && lives:
		return No(409, "document_exists")
	case !creates && !lives && (w.Op != "document.upsert" || w.IfMatch != ""):
		return No(404, "document_not_found")
	case lives && !w.matches(d.Version):
		return No(412, "precondition_failed")
	}
	done := func(code int, event string, body map[string]any) Verdict {
		v := w.done(code, event, body)
		if lives {
			v.Event.Previous = d.Version
		}
		return v
	}
	switch w.Op {
	case "document.get":
		return Verdict{Code: 200}
	case "document.touch":
		if age, ok := sent["minAge"].(float64); ok && now-d.TS < int64(age) {
			v := Verdict{Code: 200}
			if w.Cause != 0 {
				v.Event = &Event{Type: "MutationRepeated", Collection: "_"}
			}
			return v
		}
		return done(200, "DocumentTouched", nil)
	case "document.delete":
		if d.Held {
			return No(423, "document_held")
		}
		v := done(204, "DocumentDeleted", nil)
		if c.images() {
			v.Event.Body = json.RawMessage(d.Body)
		}
		return v
	case "document.hold":
		return done(200, "DocumentHeld", reason(sent["reason"]))
	case "document.release":
		if !d.Held {
			return No(409, "not_held")
		}
		return done(200, "DocumentReleased", reason(d.Reason))
	}
	return m.judgeWrite(w, c, sent, now, done)
}

// judgeWrite is judgeDocument for what gives the document a content; done is the verdict if
// nothing is wrong with it. Which ttl counts is the subject: that of the content, of
// Lapse-Expire-At or of the deadline to keep.
func (m *Model) judgeWrite(w Mutation, c *Collection, sent map[string]any, now int64, done func(int, string, map[string]any) Verdict) Verdict {
	d, there, lives := c.Find(w.ID, now)
	content, restored, sets := written(w, d, sent), uint64(0), true
	switch w.Op {
	case "document.patch":
		_, sets = sent["ttl"] // else an illegal one, stored while TTL was off, may stay
	case "document.restore":
		last := m.last[key{w.Collection, w.ID}]
		if there { // its expiry is logged first
			last = c.remains(d)
		}
		if content, restored = m.former(w, last, sent); content == nil {
			return No(404, "version_not_found")
		}
	}
	if w.ExpireAt != "" {
		at, err := strconv.ParseInt(w.ExpireAt, 10, 64)
		if err != nil || at-now < 1 || at-now > math.MaxInt32 {
			return No(400, "bad_ttl")
		}
		content["ttl"] = float64(at - now)
	}
	if w.Keep != "" && lives {
		ttl, has := d.Content["ttl"]
		if due := DeadlineOf(c.Properties["defaultTtl"], ttl, d.TS); due.Rule != "" {
			content["ttl"] = float64(max(due.At-now, 1))
		} else if has {
			content["ttl"], sets = ttl, false
		}
	}
	if ttl := content["ttl"]; c.Properties["defaultTtl"] != nil && ttl != nil && !legalTTL(ttl) && sets {
		return No(400, "bad_ttl")
	}
	if lives {
		return done(200, "DocumentReplaced", content)
	}
	v := done(201, "DocumentCreated", content)
	v.Event.Restored = restored
	return v
}

// reason returns the body of an event about a hold.
func reason(given any) map[string]any {
	if given == nil {
		return map[string]any{}
	}
	return map[string]any{"reason": given}
}

// written returns the content that a write makes of what is sent.
func written(w Mutation, d Document, sent map[string]any) map[string]any {
	content := map[string]any{}
	maps.Copy(content, sent)
	for _, name := range []string{"_ts", "_etag", "_rid", "_self", "_attachments"} {
		delete(content, name)
	}
	if w.Op == "document.patch" {
		content = merged(d.Content, content).(map[string]any)
	}
	content["id"] = w.ID
	return content
}

// merged is MergePatch of RFC 7396.
func merged(target, patch any) any {
	changes, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	object, _ := target.(map[string]any)
	result := map[string]any{}
	maps.Copy(result, object)
	for name, value := range changes {
		if value == nil {
			delete(result, name)
		} else {
			result[name] = merged(result[name], value)
		}
	}
	return result
}

// former returns the version that a restore names, or the last one; its content is nil if
// there is none. A version restored has to be one of the same document.
func (m *Model) former(w Mutation, last uint64, sent map[string]any) (content map[string]any, seq uint64) {
	if named, ok := sent["version"].(string); ok {
		if last, _ = strconv.ParseUint(named, 10, 64); fmt.Sprint(last) != named {
			return nil, 0
		}
	}
	if v := m.versions[last]; v.key == (key{w.Collection, w.ID}) {
		return v.content, last
	}
	return nil, 0
}

// Do applies what follows from a mutation at a log time in ms, the expiry of its document
// first. lapse expires other due documents in the same turn; here only that of the
// mutation is expired, since only that bears on the verdict.
func (m *Model) Do(w Mutation, ms int64) (Verdict, error) {
	v := m.Judge(w, ms)
	c := m.Collections[w.Collection]
	if d, there, lives := c.Find(w.ID, ms/1000); there && !lives {
		due := c.Deadline(d)
		e := Event{Type: "DocumentExpired", Collection: w.Collection, ID: w.ID, Previous: d.Version, Deadline: due.At, TTL: due.TTL, Rule: due.Rule}
		if c.images() {
			e.Body = json.RawMessage(d.Body)
		}
		if err := m.next(e, ms); err != nil {
			return v, err
		}
	}
	if v.Event == nil {
		return v, nil
	}
	return v, m.next(*v.Event, ms)
}

// next gives an event its sequence and time, and applies it.
func (m *Model) next(e Event, ms int64) error {
	e.Seq, e.Time = m.Seq+1, time.UnixMilli(ms)
	return m.Apply(e)
}
