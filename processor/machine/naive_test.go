package machine

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"

	"github.com/lapsedb/lapse/schema"
)

// naive is a second implementation of the contract's sections 2, 3 and 5, with plain
// maps and loops: the state after a log, the verdict on a mutation, and the error in an
// event. It shares no code with the machine, and looks at every document for every
// question.
type naive struct {
	seq         uint64
	time        int64 // log time of the last event, ms
	mutations   uint64
	collections map[string]*naiveCollection
	messages    map[string]naiveMessage
	ended       map[string][]uint64 // by collection/id: the last event of each life

	// By collection/id: the content of every version, and the last one that ended.
	versions map[string]map[uint64]map[string]any
	last     map[string]naiveEnd
}

type naiveEnd struct {
	version uint64
	content bool // the event that ended it carries the content
}

// kept stores the content of a version.
func (n *naive) kept(name, id string, version uint64, content map[string]any) {
	before := n.versions[name+"/"+id]
	n.versions = maps.Clone(n.versions)
	n.versions[name+"/"+id] = maps.Clone(before)
	if before == nil {
		n.versions[name+"/"+id] = map[uint64]map[string]any{}
	}
	n.versions[name+"/"+id][version] = content
}

// end notes the last version of a life that an event of its own ended.
func (n *naive) end(name, id string, version uint64) {
	n.last[name+"/"+id] = naiveEnd{version, n.collections[name].images()}
}

// former returns the content of the version that a restore names; ok is false for none.
func (n *naive) former(name, id string, sent map[string]any) (content map[string]any, version uint64, ok bool) {
	key := name + "/" + id
	if named, _ := sent["version"].(string); named != "" {
		for version, content := range n.versions[key] {
			if fmt.Sprint(version) == named {
				return content, version, true
			}
		}
		return nil, 0, false
	}
	end, ok := n.last[key]
	return n.versions[key][end.version], end.version, ok && end.content
}

type naiveCollection struct {
	version    uint64
	ts         int64
	properties map[string]any
	documents  map[string]naiveDocument
}

type naiveDocument struct {
	version uint64
	ts      int64
	content map[string]any
	size    int64
	held    bool
	reason  any     // of the hold, nil for none
	warned  []int64 // deadlines of this version that were warned of
	changed uint64  // sequence of the last create, replace, hold or release
}

type naiveMessage struct {
	seq                uint64
	at                 int64
	op, collection, id string
}

func newNaive() *naive {
	return &naive{collections: map[string]*naiveCollection{}, messages: map[string]naiveMessage{}, ended: map[string][]uint64{},
		versions: map[string]map[uint64]map[string]any{}, last: map[string]naiveEnd{}}
}

// naiveOf returns the state after a log.
func naiveOf(log []*schema.Event) (*naive, error) {
	n := newNaive()
	for _, e := range log {
		if err := n.apply(e); err != nil {
			return nil, err
		}
	}
	return n, nil
}

func (c *naiveCollection) on() bool     { return c.properties["defaultTtl"] != nil }
func (c *naiveCollection) images() bool { return c.properties["previousImages"] == true }

// legalTTL reports whether v is -1 or an integer in 1…2147483647; 5.0 is 5.
func legalTTL(v any) bool {
	f, ok := v.(float64)
	return ok && (f == -1 || f >= 1 && f <= 2147483647 && f == math.Trunc(f))
}

// deadline computes the deadline by the TTL table.
func (c *naiveCollection) deadline(d naiveDocument) (at, ttl int64, rule string, ok bool) {
	if !c.on() || d.held {
		return 0, 0, "", false
	}
	if own := d.content["ttl"]; legalTTL(own) {
		ttl, rule = int64(own.(float64)), "document"
	} else {
		ttl, rule = int64(c.properties["defaultTtl"].(float64)), "collection"
	}
	return d.ts + ttl, ttl, rule, ttl != -1
}

func (c *naiveCollection) due(d naiveDocument, now int64) bool {
	at, _, _, ok := c.deadline(d)
	return ok && at <= now
}

// toWarn reports whether a warning of a document is due at a second. Each new version
// clears warned.
func (c *naiveCollection) toWarn(d naiveDocument, now int64) bool {
	at, _, _, ok := c.deadline(d)
	before, warns := c.properties["warnBefore"].(float64)
	return ok && warns && at-int64(before) <= now && now < at && !slices.Contains(d.warned, at)
}

// counts returns documents, bytes, pending and overdue at a second, and the time since
// which the oldest overdue one is due.
func (c *naiveCollection) counts(now int64) (documents, bytes, pending, overdue, oldest int64) {
	for _, d := range c.documents {
		if c.due(d, now) {
			at, _, _, _ := c.deadline(d)
			if at = max(at, c.ts); overdue == 0 || at < oldest { // a change of policy made it due
				oldest = at
			}
			overdue++
			continue
		}
		documents++
		bytes += d.size
		if _, _, _, ok := c.deadline(d); ok {
			pending++
		}
	}
	return
}

func parsed(body []byte) map[string]any {
	var m map[string]any
	if json.Unmarshal(body, &m) != nil {
		return nil
	}
	return m
}

// apply appends an event to the log, or returns why it is wrong.
func (n *naive) apply(e *schema.Event) error {
	wrong := func(format string, args ...any) error {
		line, _ := e.MarshalJSON()
		return fmt.Errorf("%s: %s", fmt.Sprintf(format, args...), line)
	}
	switch {
	case e.Seq != n.seq+1:
		return wrong("the sequence is not %d", n.seq+1)
	case e.Time < n.time:
		return wrong("the log time goes back from %d", n.time)
	}
	n.seq, n.time = e.Seq, e.Time
	if e.Cause != 0 {
		if e.Cause <= n.mutations {
			return wrong("mutation %d was judged before", e.Cause)
		}
		n.mutations = e.Cause
	}
	name, id, now := string(e.Collection), string(e.ID), e.Time/1000
	c := n.collections[name]
	switch e.Type {
	case schema.MutationRejected:
		return n.rejected(e, wrong)
	case schema.MutationRepeated:
		return nil
	}
	if e.MsgID != "" {
		n.messages[e.MsgID] = naiveMessage{e.Seq, e.Time, e.MsgOp.String(), name, id}
	}
	if (c == nil) != (e.Type == schema.CollectionCreated) {
		return wrong("the collection exists: %t", c != nil)
	}
	if e.Type.OnDocument() {
		return n.applyDocument(c, name, id, e, wrong)
	}
	if c != nil {
		for id, d := range c.documents {
			if c.due(d, now) {
				return wrong("%s was due before", id)
			}
		}
	}
	switch e.Type {
	case schema.CollectionCreated:
		n.collections[name] = &naiveCollection{e.Seq, now, parsed(e.Body), map[string]naiveDocument{}}
	case schema.CollectionReplaced:
		n.collections[name] = &naiveCollection{e.Seq, now, parsed(e.Body), c.documents}
	case schema.CollectionDeleted:
		if !reflect.DeepEqual(parsed(e.Body), c.properties) {
			return wrong("the properties were %v", c.properties)
		}
		for id, d := range c.documents {
			if d.held {
				return wrong("%s is held", id)
			}
			n.ended[name+"/"+id] = append(n.ended[name+"/"+id], d.version)
			n.last[name+"/"+id] = naiveEnd{d.version, true}
		}
		delete(n.collections, name)
	default:
		return wrong("what is this?")
	}
	return nil
}

func (n *naive) applyDocument(c *naiveCollection, name, id string, e *schema.Event, wrong func(string, ...any) error) error {
	d, exists := c.documents[id]
	if e.Type == schema.DocumentExpiring {
		at, ttl, rule, _ := c.deadline(d)
		if !exists || uint64(e.Previous) != d.version || !c.toWarn(d, e.Time/1000) || e.Deadline.At != at || int64(e.Deadline.TTL) != ttl || e.Deadline.Rule.String() != rule {
			return wrong("the document is %+v, due at %d", d, at)
		}
		if c.images() != (len(e.Body) > 0) || c.images() && !reflect.DeepEqual(parsed(e.Body), d.content) {
			return wrong("previousImages is %t, the content is %v", c.images(), d.content)
		}
		d.warned = append(slices.Clip(d.warned), at)
		c.documents[id] = d
		n.ended[name+"/"+id] = append(n.ended[name+"/"+id], e.Seq)
		return nil
	}
	if e.Type == schema.DocumentHeld || e.Type == schema.DocumentReleased {
		reason := parsed(e.Body)["reason"]
		if !exists || c.due(d, e.Time/1000) || uint64(e.Previous) != d.version || e.Type == schema.DocumentReleased && (!d.held || d.reason != reason) {
			return wrong("the document is %+v", d)
		}
		d.held, d.reason, d.changed = e.Type == schema.DocumentHeld, reason, e.Seq
		c.documents[id] = d
		n.ended[name+"/"+id] = append(n.ended[name+"/"+id], e.Seq)
		return nil
	}
	if exists == (e.Type == schema.DocumentCreated) || uint64(e.Previous) != d.version {
		return wrong("the version before it is %d", d.version)
	}
	at, ttl, rule, expires := c.deadline(d)
	due := exists && expires && at <= e.Time/1000
	if due != (e.Type == schema.DocumentExpired) {
		return wrong("version %d is due at %d", d.version, at)
	}
	if due && (e.Deadline.At != at || int64(e.Deadline.TTL) != ttl || e.Deadline.Rule.String() != rule) {
		return wrong("the deadline is %d, %d seconds by the %s", at, ttl, rule)
	}
	if e.Type == schema.DocumentCreated || e.Type == schema.DocumentReplaced {
		content := parsed(e.Body)
		if content["id"] != id {
			return wrong("the body has no id")
		}
		if former := n.versions[name+"/"+id][uint64(e.Restored)]; e.Restored != 0 && !reflect.DeepEqual(content, former) {
			return wrong("version %d was %v", e.Restored, former)
		}
		n.kept(name, id, e.Seq, content)
		c.documents[id] = naiveDocument{e.Seq, e.Time / 1000, content, int64(len(e.Body)), d.held, d.reason, nil, e.Seq}
		return nil
	}
	if e.Type == schema.DocumentTouched {
		if len(e.Body) > 0 {
			return wrong("a touch has no body")
		}
		d.version, d.ts, d.warned = e.Seq, e.Time/1000, nil
		c.documents[id] = d
		n.kept(name, id, e.Seq, d.content)
		return nil
	}
	if d.held {
		return wrong("the document is held")
	}
	if c.images() != (len(e.Body) > 0) || c.images() && !reflect.DeepEqual(parsed(e.Body), d.content) {
		return wrong("previousImages is %t, the content was %v", c.images(), d.content)
	}
	delete(c.documents, id)
	n.end(name, id, d.version)
	n.ended[name+"/"+id] = append(n.ended[name+"/"+id], e.Seq)
	return nil
}

// rejected checks that a rejection that depends on the document comes after the
// document's expiry.
func (n *naive) rejected(e *schema.Event, wrong func(string, ...any) error) error {
	var r struct {
		Error    string
		Mutation struct{ Collection, ID string }
	}
	if err := json.Unmarshal(e.Body, &r); err != nil {
		return wrong("%v", err)
	}
	looked := slices.Contains([]string{"document_not_found", "document_exists", "precondition_failed", "bad_ttl", "version_not_found", "document_held", "not_held"}, r.Error)
	if c := n.collections[r.Mutation.Collection]; looked && c != nil {
		if d, ok := c.documents[r.Mutation.ID]; ok && c.due(d, e.Time/1000) {
			return wrong("the document has expired before that")
		}
	}
	return nil
}

// lives returns the last events of each life of an id, newest first.
func (n *naive) lives(name, id string) []uint64 {
	ends := slices.Clone(n.ended[name+"/"+id])
	if c := n.collections[name]; c != nil {
		if d, ok := c.documents[id]; ok {
			ends = append(ends, d.version)
		}
	}
	slices.SortFunc(ends, func(a, b uint64) int { return cmp.Compare(b, a) })
	return ends
}

// intent is a mutation as a client sends it.
type intent struct {
	op, collection, id string // op as in "document.upsert"
	body               string
	ifMatch, msgID     string
	recorded           bool
	cause              uint64
}

func (w *intent) onDocument() bool { return w.op[0] == 'd' }

// verdict is the expected outcome of a mutation.
type verdict struct {
	code    int
	name    string         // of the error
	repeat  uint64         // sequence of the event that it repeats
	event   string         // name of the event, besides expiries
	content map[string]any // of the document or collection afterwards
	noted   bool           // content is that of the reply, and the version stays
	touched bool           // content is that of the reply, and the event has none
}

func no(code int, name string) verdict { return verdict{code: code, name: name} }

// judge returns the expected outcome of a mutation at a log time in ms, by the order of
// the checks in section 3.
func (n *naive) judge(w *intent, time int64) verdict {
	var body any
	wellFormed := json.Unmarshal([]byte(w.body), &body) == nil
	content, isObject := body.(map[string]any)
	deletes := w.op == "document.delete" || w.op == "collection.delete"
	if w.op == "document.hold" {
		if reason, has := content["reason"]; w.body != "" && (!wellFormed || !isObject || len(content) > 1 || len(content) == 1 && !has) {
			return no(400, "bad_request")
		} else if _, text := reason.(string); has && !text {
			return no(400, "bad_request")
		}
	} else if w.op == "document.touch" || w.op == "document.release" {
		if w.body != "" && (!wellFormed || !isObject || len(content) > 0) {
			return no(400, "bad_request")
		}
	} else if w.op == "document.restore" {
		for name, value := range content {
			if _, text := value.(string); name != "version" || !text {
				return no(400, "bad_request")
			}
		}
		if w.body != "" && (!wellFormed || !isObject) {
			return no(400, "bad_request")
		}
	} else if !deletes && (!wellFormed || !isObject) && (w.onDocument() || w.body != "") {
		return no(400, "bad_request")
	}
	if w.onDocument() {
		if id, has := content["id"]; !deletes && has && id != w.id {
			return no(400, "bad_id")
		}
	} else if !deletes {
		if ttl := content["defaultTtl"]; ttl != nil && !legalTTL(ttl) {
			return no(400, "bad_ttl")
		}
		if before := content["warnBefore"]; before != nil && (!legalTTL(before) || before == -1.0) {
			return no(400, "bad_ttl")
		}
		content = usual(content)
		if content["defaultTtl"] != nil && content["indexingPolicy"].(map[string]any)["indexingMode"] == "none" {
			return no(400, "bad_request")
		}
	}
	if m, ok := n.messages[w.msgID]; ok && w.msgID != "" && time-m.at < 2*60*1000 {
		if m.op != w.op || m.collection != w.collection || m.id != w.id {
			return no(400, "bad_request")
		}
		v := verdict{repeat: m.seq}
		if w.cause != 0 {
			v.event = "MutationRepeated"
		}
		return v
	}
	if w.onDocument() {
		return n.judgeDocument(w, content, time/1000)
	}
	c := n.collections[w.collection]
	switch {
	case w.op == "collection.create" && c != nil:
		return no(409, "collection_exists")
	case w.op == "collection.create":
		return verdict{code: 201, event: "CollectionCreated", content: content}
	case c == nil:
		return no(404, "collection_not_found")
	case w.ifMatch != "" && w.ifMatch != "*" && w.ifMatch != fmt.Sprint(c.version):
		return no(412, "precondition_failed")
	case w.op == "collection.delete" && slices.ContainsFunc(slices.Collect(maps.Values(c.documents)), func(d naiveDocument) bool { return d.held }):
		return no(423, "document_held")
	case w.op == "collection.replace":
		return verdict{code: 200, event: "CollectionReplaced", content: content}
	}
	return verdict{code: 204, event: "CollectionDeleted"}
}

// usual returns properties with the defaults filled in.
func usual(sent map[string]any) map[string]any {
	policy := map[string]any{"indexingMode": "consistent", "includedPaths": []any{}}
	if given, ok := sent["indexingPolicy"].(map[string]any); ok {
		maps.Copy(policy, given)
	}
	images := sent["previousImages"] != false
	all := map[string]any{"defaultTtl": sent["defaultTtl"], "indexingPolicy": policy, "previousImages": images}
	if before := sent["warnBefore"]; before != nil {
		all["warnBefore"] = before
	}
	return all
}

func (n *naive) judgeDocument(w *intent, sent map[string]any, now int64) verdict {
	c := n.collections[w.collection]
	if c == nil {
		return no(404, "collection_not_found")
	}
	d, lives := c.documents[w.id]
	lives = lives && !c.due(d, now)
	switch {
	case (w.op == "document.create" || w.op == "document.restore") && lives:
		return no(409, "document_exists")
	case w.op == "document.create" || w.op == "document.restore" || w.op == "document.upsert" && !lives && w.ifMatch == "":
	case !lives:
		return no(404, "document_not_found")
	case w.ifMatch != "" && w.ifMatch != "*" && w.ifMatch != fmt.Sprint(d.version):
		return no(412, "precondition_failed")
	}
	switch {
	case w.op == "document.delete" && d.held:
		return no(423, "document_held")
	case w.op == "document.release" && !d.held:
		return no(409, "not_held")
	case w.op == "document.hold":
		reason, _ := sent["reason"].(string)
		return verdict{code: 200, event: "DocumentHeld", content: map[string]any{"id": w.id, "held": true, "reason": reason}, noted: true}
	case w.op == "document.release":
		return verdict{code: 200, event: "DocumentReleased", content: map[string]any{"id": w.id, "held": false}, noted: true}
	}
	if w.op == "document.delete" {
		return verdict{code: 204, event: "DocumentDeleted"}
	}
	if w.op == "document.touch" {
		return verdict{code: 200, event: "DocumentTouched", content: map[string]any{"id": w.id}, touched: true}
	}
	if w.op == "document.restore" {
		if d.version != 0 { // it has expired, which is logged first
			n = &naive{collections: n.collections, versions: n.versions, last: maps.Clone(n.last)}
			n.end(w.collection, w.id, d.version)
		}
		content, _, ok := n.former(w.collection, w.id, sent)
		if !ok {
			return no(404, "version_not_found")
		}
		if ttl := content["ttl"]; c.on() && ttl != nil && !legalTTL(ttl) {
			return no(400, "bad_ttl")
		}
		return verdict{code: 201, event: "DocumentCreated", content: content}
	}
	content := maps.Clone(sent)
	for _, name := range []string{"_ts", "_etag", "_rid", "_self", "_attachments"} {
		delete(content, name)
	}
	_, names := sent["ttl"]
	if w.op == "document.patch" {
		content = merged(d.content, content).(map[string]any)
	}
	content["id"] = w.id
	// A ttl stored while TTL was off may stay until a write sets it again.
	if ttl := content["ttl"]; c.on() && ttl != nil && !legalTTL(ttl) && names {
		return no(400, "bad_ttl")
	}
	if lives {
		return verdict{code: 200, event: "DocumentReplaced", content: content}
	}
	return verdict{code: 201, event: "DocumentCreated", content: content}
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

// read returns the expected body of a get, nil for 404.
func (n *naive) read(name, id string, now int64) map[string]any {
	c := n.collections[name]
	if c == nil {
		return nil
	}
	d, ok := c.documents[id]
	if !ok || c.due(d, now) {
		return nil
	}
	return reply(d.content, d.ts, d.version)
}

// reply returns content with the system properties.
func reply(content map[string]any, ts int64, version uint64) map[string]any {
	r := maps.Clone(content)
	r["_ts"], r["_etag"] = float64(ts), fmt.Sprint(version)
	return r
}
