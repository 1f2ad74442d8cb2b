package cosmos

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/schema/values"
)

// fullFidelity is the mode of the change feed that has all versions and deletes; the other is
// that of the latest version.
const fullFidelity = "Full-Fidelity Feed"

// The two modes of a change feed, as reads of the log:
//
//   - All versions and deletes: each event of an item is a row. An expiry is a delete.
//   - Latest version: an item is a row once for its present version. Events say which
//     documents changed, gets which of these versions still stand; a later one has a later
//     event, further on.
//
// A continuation is the sequence of the last event read, in Etag and If-None-Match. It is
// valid on any process and after any time, as long as the log has what follows. For the
// latest version the projection has what retention took from the log (readOlder).
//
// Events come from the tail in memory where it has them, else from the log by message
// gets.

// changes is a page of a change feed in the making.
type changes struct {
	x      *exchange
	c      *container
	key    partitionKey // of the items; without values for all
	prefix string       // of their documents' ids
	s      *selection   // chooses by effective partition key
	page   *page
	size   int
	after  uint64 // sequence of the last event that was read
	tail   *tail
	first  uint64 // sequence of the first event that the log or the tail has
	last   uint64 // and of its last one when the request came
}

// maxRead is the most events that a page of a change feed reads. A page with few matches
// ends there, with a continuation that has moved on; the client asks again.
const maxRead = 2000

// changeFeed answers a page of a change feed, or 304 if there is nothing new.
func (x *exchange) changeFeed(c *container) (*reply, error) {
	mode := x.Header.Get("A-IM")
	full := strings.EqualFold(mode, fullFidelity)
	if !full && !strings.EqualFold(mode, "Incremental Feed") {
		return nil, badRequest("A-IM %.60q is not served: use Incremental Feed or %s", mode, fullFidelity)
	}
	f := &changes{x: x, c: c, page: newPage("Documents", c.rid)}
	var err error
	if f.size, err = x.pageSize(); err != nil {
		return nil, err
	}
	if err = f.choose(); err != nil {
		return nil, err
	}
	position := etagOf(x.Request, "If-None-Match")
	if err = f.bounds(position); err != nil {
		return nil, x.explain(err)
	}
	if err := f.begin(full, position); err != nil {
		return c.failed(nil), err
	}
	if full {
		err = f.readAll()
	} else {
		err = f.readLatest()
	}
	if err != nil {
		return c.failed(nil), err
	}
	return f.reply(), nil
}

func (f *changes) reply() *reply {
	out := f.page.reply()
	if f.page.rows == 0 {
		out.status, out.body = http.StatusNotModified, nil
	}
	out.etag, out.seq, out.about = strconv.FormatUint(f.after, 10), max(f.last, f.after), f.c.about
	return out
}

// choose sets what the request chooses by partition key or range of keys.
func (f *changes) choose() (err error) {
	if f.key, err = f.x.keyHeader(); err != nil {
		return err
	}
	if len(f.key) > len(f.c.paths) {
		return f.c.checkKey(f.key)
	}
	f.prefix = f.key.prefix()
	f.s = &selection{start: f.x.Header.Get("X-Ms-Start-Epk"), end: f.x.Header.Get("X-Ms-End-Epk")}
	return nil
}

// bounds sets where the log begins and ends. The tail says it if it has all events after the
// position and all that replies have promised; with the strong consistency of a server for tests
// only NATS does.
func (f *changes) bounds(position string) error {
	db := f.x.db
	if after, err := strconv.ParseUint(position, 10, 64); err == nil && !f.x.options.Test {
		if f.tail, f.first, f.last = db.tailOf(after, max(f.x.sessionSeq(), db.seen.Load())); f.tail != nil {
			return nil
		}
	}
	log, err := db.client.LogState(f.x)
	if err == nil {
		f.tail, f.first, f.last = db.follow(log), log.First, log.Last
	}
	return err
}

// begin sets where the page begins. What a request without If-None-Match means depends on
// the mode: the latest version begins with the first item ever, all versions and deletes
// have no such beginning.
func (f *changes) begin(full bool, position string) error {
	since := f.x.Header.Get("If-Modified-Since")
	switch {
	case position == "*":
		f.after = f.last
	case position != "":
		seq, err := strconv.ParseUint(position, 10, 64)
		if err != nil {
			return badRequest("If-None-Match %.60q is no continuation of a change feed", position)
		}
		if full && seq+1 < f.first {
			return faultf(http.StatusGone, "the log begins after this continuation: begin again from now")
		}
		f.after = seq
	case full:
		return badRequest("all versions and deletes are read from now (If-None-Match: *) or from a continuation")
	case since != "":
		t, err := http.ParseTime(strings.Replace(since, "UTC", "GMT", 1))
		if err != nil {
			return badRequest("If-Modified-Since %.60q is no date of HTTP", since)
		}
		seq, err := f.x.db.client.SeqSince(f.x, t)
		if err != nil {
			return err
		}
		f.after = seq - 1
	}
	return nil
}

// next returns the first event of the container from a sequence on, from memory where it is
// there; nil if there is none.
func (f *changes) next(seq uint64) (*client.Event, error) {
	if e, ok := f.tail.next(f.c.name(), seq, f.last); ok {
		return e, nil
	}
	return f.x.db.client.NextEvent(f.x, f.c.name(), seq)
}

// events passes the events of the container's items to visit, until it returns false. It
// moves f.after with each event, so that the continuation is right wherever it stops.
// Without events left it is the end of the log: later pages do not read the gap again.
func (f *changes) events(visit func(*client.Event) (more bool, err error)) error {
	for range maxRead {
		e, err := f.next(f.after + 1)
		if err != nil {
			return err
		}
		if e == nil {
			f.after = max(f.after, f.last)
			return nil
		}
		f.after = e.Seq
		if more, err := visit(e); err != nil || !more {
			return err
		}
	}
	return nil
}

// isVersion reports whether an event makes a version of a document.
func isVersion(e *client.Event) bool {
	return e.Type == client.DocumentCreated || e.Type == client.DocumentReplaced || e.Type == client.DocumentTouched
}

// chooses reports whether the id of a document may be one of the range of the feed. It
// sees the id alone, so it may let too many pass: range and item are checked later, by
// content.
func (f *changes) chooses(document string) bool {
	if f.c.byID() && len(f.key) > 0 {
		return string(f.key[0].Text()) == document
	}
	return strings.HasPrefix(document, f.prefix)
}

// readLatest reads the items whose present version the log has next. It reads on until a
// page has at least one item, since to clients an empty page is the end.
func (f *changes) readLatest() error {
	if f.after+1 < f.first {
		if done, err := f.readOlder(); done || err != nil {
			return err
		}
	}
	for f.page.rows == 0 {
		from := f.after
		last := make(map[string]string) // by document
		err := f.events(func(e *client.Event) (bool, error) {
			if isVersion(e) && f.chooses(e.ID) {
				last[e.ID] = strconv.FormatUint(e.Seq, 10)
			}
			return len(last) < f.size, nil
		})
		versions := make([]version, 0, len(last))
		for document, etag := range last {
			versions = append(versions, version{document, etag})
		}
		slices.SortFunc(versions, inLogOrder)
		if err == nil {
			err = f.addCurrent(versions)
		}
		if err != nil || f.after == from || f.after >= f.last {
			return err
		}
	}
	return nil
}

// addCurrent adds the items that still have these versions, which are in the order of the log:
// later ones have a later event. MinSeq makes the state at least as new as the events, so a
// version that is gone was replaced or has ended. Where the page is full, the feed goes on after its
// last item.
func (f *changes) addCurrent(versions []version) error {
	documents := make([]string, len(versions))
	for i, v := range versions {
		documents[i] = v.document
	}
	for seen := client.MinSeq(f.after); len(documents) > 0; {
		contents, _, err := f.x.contents(f.c, documents, seen)
		if err != nil {
			return err
		}
		for i, content := range contents {
			if content == nil {
				continue
			}
			it, ok := f.c.itemIn(content)
			if !ok || it.etag != versions[i].etag || !f.s.inRange(f.c, content, it.id) {
				continue
			}
			if f.page.add(withMember(it.body, "_lsn", it.etag)); len(f.page.body) > maxPageBytes {
				f.after = versions[i].seq()
				return nil
			}
		}
		documents, versions = documents[len(contents):], versions[len(contents):]
	}
	return nil
}

// withMember adds a member to an item, with a value as JSON.
func withMember(body []byte, name, value string) []byte {
	return fmt.Appendf(body[:len(body)-1:len(body)-1], `,"%s":%s}`, name, value)
}

// compareVersions compares etags as numbers.
func compareVersions(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}

// version is a document with the sequence of its present version.
type version struct{ document, etag string }

func (v version) seq() uint64 {
	seq, _ := strconv.ParseUint(v.etag, 10, 64)
	return seq
}

func inLogOrder(a, b version) int { return compareVersions(a.etag, b.etag) }

// readOlder adds the items whose version is before the beginning of the log, which retention
// took, in the order of versions. done says that the page has some. It scans ids and
// versions of all items, for each page again, and sorts those of before the log.
func (f *changes) readOlder() (done bool, err error) {
	older, err := f.older()
	for len(older) > 0 && f.page.rows == 0 && err == nil {
		n := min(f.size, len(older))
		f.after = older[n-1].seq()
		err = f.addCurrent(older[:n])
		older = older[n:]
	}
	if err != nil || f.page.rows > 0 {
		return true, err
	}
	f.after = f.first - 1
	return false, nil
}

// older returns the versions after the position of the feed that the log no longer has, sorted.
func (f *changes) older() (all []version, err error) {
	from, before := strconv.FormatUint(f.after, 10), strconv.FormatUint(f.first, 10)
	r := &reader{x: f.x, c: f.c, s: &selection{prefixes: []string{""}}, columns: append(f.c.columns(), "/_etag")}
	for {
		it, ok, err := r.next()
		if err != nil || !ok {
			slices.SortFunc(all, inLogOrder)
			return all, err
		}
		etag := string(values.Value(it.body).At([]string{"_etag"}).Text())
		if compareVersions(etag, from) > 0 && compareVersions(etag, before) < 0 && f.chooses(r.at.After) {
			all = append(all, version{r.at.After, etag})
		}
	}
}

// readAll reads all versions and deletes.
func (f *changes) readAll() error {
	return f.events(func(e *client.Event) (bool, error) {
		if !f.chooses(e.ID) {
			return true, nil
		}
		row, err := f.row(e)
		if row != nil {
			f.page.add(row)
		}
		return f.page.rows < f.size && len(f.page.body) < maxPageBytes, err
	})
}

// operationTypes are the operations that events are in a feed of all versions.
var operationTypes = map[client.EventType]string{client.DocumentCreated: "create", client.DocumentReplaced: "replace", client.DocumentTouched: "replace",
	client.DocumentDeleted: "delete", client.DocumentExpired: "delete"}

// row returns an event as a row, nil if it is none of an item. For an expiry it is,
// shortened,
//
//	{"current":{},"previous":{"id":"SO05",…},"metadata":{"operationType":"delete","lsn":57,"timeToLiveExpired":true,…}}
func (f *changes) row(e *client.Event) ([]byte, error) {
	operation := operationTypes[e.Type]
	if operation == "" {
		return nil, nil
	}
	content, err := f.contentOf(e)
	if err != nil {
		return nil, err
	}
	id, key, ok := f.c.identify(e.ID, content)
	if !ok || content != nil && !f.s.inRange(f.c, content, id) {
		return nil, nil
	}
	current, previous := []byte("{}"), []byte(nil)
	switch {
	case operation != "delete" && content != nil:
		current = f.c.toItem(schema.AppendReply(nil, content, e.Time.Unix(), schema.Version(e.Seq)), e.ID, id)
	case content != nil:
		previous = f.c.toItem(f.previous(e, content), e.ID, id)
	}
	row := fmt.Appendf(nil, `{"current":%s`, current)
	if previous != nil {
		row = fmt.Appendf(row, `,"previous":%s`, previous)
	}
	return append(f.appendMetadata(append(row, `,"metadata":`...), e, operation, id, key), '}'), nil
}

// contentOf returns the content that an event has, or to which it leads. A touch has no
// content: its header Lapse-Content names the event that has it. If retention took that
// one, the row has an empty current.
func (f *changes) contentOf(e *client.Event) (values.Value, error) {
	if e.Type != client.DocumentTouched {
		return values.Value(e.Body), nil
	}
	seq := uint64(e.Schema().Content)
	origin, err := f.next(seq)
	if err != nil || origin == nil || origin.Seq != seq {
		return nil, err
	}
	return values.Value(origin.Body), nil
}

// previous returns the last content of a document as a reply would have it. When it was
// written is known of an expired one.
func (f *changes) previous(e *client.Event, content values.Value) values.Value {
	if e.Type == client.DocumentExpired {
		seq, _ := strconv.ParseUint(e.Previous, 10, 64)
		return schema.AppendReply(nil, content, e.Deadline.Add(-e.TTL).Unix(), schema.Version(seq))
	}
	return setMember(content, "_etag", schema.AppendString(nil, e.Previous))
}

// identify returns the item's id and partition key in an event about a document; without its
// content as far as the document's id tells.
func (c *container) identify(document string, content values.Value) (id string, key partitionKey, ok bool) {
	if content != nil {
		if id, ok = c.itemOf(document, content); !ok {
			return "", nil, false
		}
		key, err := c.keyOf(content, id)
		return id, key, err == nil
	}
	if c.byID() {
		return document, partitionKey{schema.AppendString(nil, document)}, true
	}
	parts := strings.Split(document, ":")
	if id, ok = c.decodeID(document); !ok || !isWritten(parts[len(parts)-1], id) {
		return "", nil, false
	}
	for _, part := range parts[:len(parts)-1] {
		value, ok := valueOf(part)
		if !ok {
			return "", nil, false
		}
		key = append(key, value)
	}
	return id, key, true
}

// valueOf returns the value that a part of a document's id stands for; ok is false for a part
// that no value has. It is the inverse of partOf, for values that were not cut.
func valueOf(part string) (v values.Value, ok bool) {
	text, special := strings.CutPrefix(part, "=")
	switch {
	case special && text == "none":
		return nil, true
	case special:
		v = values.Value(text)
		return v, json.Valid(v) && v.Kind() < values.String && partOf(v) == part
	}
	text, ok = unescape(part)
	return schema.AppendString(nil, text), ok && isWritten(part, text)
}

// isWritten reports whether a part of a document's id is how escape writes text. Of a part that
// was cut, which alone has a ~, not all is known.
func isWritten(part, text string) bool { return escape(text) == part || strings.Contains(part, "~") }

// appendMetadata appends the metadata of a row, with the partition key by the names of its
// paths.
func (f *changes) appendMetadata(row []byte, e *client.Event, operation, id string, key partitionKey) []byte {
	row = fmt.Appendf(row, `{"operationType":"%s","lsn":%d,"crts":%d`, operation, e.Seq, e.Time.Unix())
	if e.Previous != "" {
		row = fmt.Appendf(row, `,"previousImageLSN":%s`, e.Previous)
	}
	if e.Type == client.DocumentExpired {
		row = append(row, `,"timeToLiveExpired":true`...)
	}
	row = append(appendString(row, "id", id), `,"partitionKey":{`...)
	for i, v := range key {
		if v != nil {
			row = appendMember(row, f.c.pathText(i)[1:], v)
		}
	}
	return append(row, "}}"...)
}
