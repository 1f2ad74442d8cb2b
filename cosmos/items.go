package cosmos

import (
	"errors"
	"net/http"
	"regexp"
	"strings"
	"unicode"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/schema/values"
)

// stored is an item to be stored, as a document. Address and content are made once, by
// itemFrom or addressOf, and sent as they are.
type stored struct {
	id       string // the item's
	document string // the document's id
	body     []byte
	key      partitionKey
}

// keyHeader returns the values of the partition key in the request's header, nil without one.
func (x *exchange) keyHeader() (partitionKey, error) {
	text := x.Header.Get("X-Ms-Documentdb-Partitionkey")
	if text == "" {
		return nil, nil
	}
	return parseKey(text)
}

// wholeKey returns the partition key of the request, which must have all values.
func (x *exchange) wholeKey(c *container) (partitionKey, error) {
	key, err := x.keyHeader()
	if err == nil {
		err = c.checkKey(key)
	}
	return key, err
}

func (c *container) checkKey(key partitionKey) error {
	if len(key) != len(c.paths) {
		return badRequest("the partition key needs %d values, for %s", len(c.paths), strings.Join(c.pathTexts(), ", "))
	}
	return nil
}

// itemFrom reads an item that a client sent with a partition key. It is where an item of
// Cosmos DB becomes a document of lapse. For customer C1 and the container's key
// /customerId,
//
//	{"id":"SO05","customerId":"C1","total":5}      is stored as document C1:SO05 with
//	{"id":"C1:SO05","customerId":"C1","total":5}
//
// The body has all that is needed to make the item of it again; see itemOf.
func (c *container) itemFrom(body values.Value, key partitionKey) (*stored, error) {
	if err := schema.CheckJSON(body); err != nil {
		return nil, badRequest("the item is not JSON: %v", err)
	}
	id := body.At([]string{"id"})
	if body.Kind() != values.Object || id.Kind() != values.String || len(id) == len(`""`) {
		return nil, badRequest("an item is a JSON object with an id, a string that is not empty")
	}
	s := &stored{id: string(id.Text()), key: key}
	own, err := c.keyOf(body, s.id)
	if err != nil {
		return nil, err
	}
	if !own.equal(key) {
		return nil, &fault{status: http.StatusBadRequest, substatus: keyMismatch, message: "the partition key of the request is not the one of the item, at " + strings.Join(c.pathTexts(), ", ")}
	}
	isCut := false
	if s.document, isCut, err = c.documentID(key, s.id); err != nil {
		return nil, err
	}
	s.body = toDocument(body, s.document)
	if isCut {
		s.body = setMember(s.body, itemID, id)
	}
	return s, nil
}

// toDocument returns the content of an item with the document's id in the place of the
// item's. System members are dropped: a client sends back what it has read.
func toDocument(item values.Value, document string) []byte {
	out := make([]byte, 1, len(item)+len(document))
	out[0] = '{'
	out = appendMembers(out, item, func(name string, value values.Value) values.Value {
		switch {
		case isSystem(name):
			return nil
		case name == "id":
			return schema.AppendString(nil, document)
		}
		return value
	})
	return append(out, '}')
}

// fit returns a document as it is sent: without its id, which lapse then adds at its beginning,
// where it is larger than a document may be. So the limit is that of the item, whose id is
// shorter.
func fit(document []byte) []byte {
	if len(document) > schema.MaxDocumentBytes {
		return schema.Without(document, "id")
	}
	return document
}

// item is a document as an item.
type item struct {
	id   string
	etag string
	body []byte
}

// itemIn returns the item that a document of a reply is; ok is false if it is none. This
// is where a document that is none, stored over NATS, disappears from the gateway's
// replies.
func (c *container) itemIn(content values.Value) (it item, ok bool) {
	document := string(content.At([]string{"id"}).Text())
	if it.id, ok = c.itemOf(document, content); !ok {
		return it, false
	}
	it.etag = string(content.At([]string{"_etag"}).Text())
	it.body = c.toItem(content, document, it.id)
	return it, true
}

// toItem returns the content of a document as an item: with the item's id, the etag in quotes
// and the members of a resource. The members of a resource come last. _ts is that of
// lapse's reply; the etag gets the quotes that it has in HTTP.
func (c *container) toItem(content values.Value, document, id string) []byte {
	out := make([]byte, 1, len(content)+256)
	out[0] = '{'
	out = appendMembers(out, content, func(name string, value values.Value) values.Value {
		switch name {
		case itemID:
			return nil
		case "id":
			return schema.AppendString(nil, id)
		case "_etag":
			return values.Value(`"\"` + string(value.Text()) + `\""`)
		}
		return value
	})
	return append(out, `,"_rid":"`+itemRID(c.rid, document)+`","_self":"`+c.self+"docs/"+encodeRID([]byte(id))+`/","_attachments":"attachments/"}`...)
}

// found returns the reply to a request about an item.
func (c *container) found(status int, it item, seq uint64) *reply {
	return &reply{status: status, body: it.body, etag: it.etag, seq: seq, about: c.about}
}

// noItem is the error for an item that does not exist here.
func (c *container) noItem(id string) *fault {
	return notFound("item %.300q is not in this partition of container %s", id, c.name())
}

var percentCode = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)

// checkPathID refuses ids in a path that Microsoft's gateway refuses: SDKs and their tests
// expect its statuses.
func checkPathID(id string) error {
	switch {
	case strings.ContainsFunc(id, unicode.IsControl):
		return badRequest("the id %.300q has a control character", id)
	case strings.ContainsAny(id, `/\#`), strings.HasSuffix(id, " "), percentCode.MatchString(id):
		return unauthorized("the id %.300q has /, \\, #, a percent code or a space at its end, with which no item can be read: create it under another id", id)
	}
	return nil
}

// find reads an item. The reply is that of the database, also with an error. An id that
// exists and is no item is a 404 like one that does not exist.
func (x *exchange) find(c *container, document, id string, opts ...client.RequestOption) (item, *client.Reply, error) {
	answer, err := x.do("document.get", c.name(), document, nil, opts...)
	if errors.Is(err, client.ErrDocumentNotFound) {
		return item{}, answer, c.noItem(id)
	}
	if err != nil {
		return item{}, answer, err
	}
	it, ok := c.itemIn(answer.Body)
	if !ok {
		return it, answer, c.noItem(id)
	}
	return it, answer, nil
}

// readItem reads an item; with If-None-Match it says whether it changed.
func (x *exchange) readItem(c *container, id string) (*reply, error) {
	_, document, err := x.requested(c, id)
	if err != nil {
		return nil, err
	}
	it, answer, err := x.find(c, document, id)
	if err != nil {
		return c.failed(answer), err
	}
	if etag := etagOf(x.Request, "If-None-Match"); etag == it.etag || etag == "*" {
		return &reply{status: http.StatusNotModified, etag: it.etag, seq: answer.Seq, about: c.about}, nil
	}
	return c.found(http.StatusOK, it, answer.Seq), nil
}

// requested returns the partition key of the request and the id of the document that has the
// item of its path.
func (x *exchange) requested(c *container, id string) (key partitionKey, document string, err error) {
	if key, err = x.wholeKey(c); err == nil {
		document, err = c.addressOf(key, id)
	}
	return key, document, err
}

// addressOf returns the id of the document that has the item of a path. With a partition key
// that includes the id, the two must agree.
func (c *container) addressOf(key partitionKey, id string) (string, error) {
	for i, path := range c.paths {
		if isID(path) && string(key[i].Text()) != id {
			return "", c.noItem(id)
		}
	}
	document, _, err := c.documentID(key, id)
	return document, err
}

// failed is the reply whose status and body an error sets. SDKs take the session token of
// errors, too, so it has the sequence that answered.
func (c *container) failed(answer *client.Reply) *reply {
	out := &reply{about: c.about}
	if answer != nil {
		out.seq = answer.Seq
	}
	return out
}

// put creates, replaces or upserts an item; id is that of the path, "" for none. A create
// is decided by lapse alone: two at once cannot both succeed. The check before others is
// by a state that may be older than the write. A document that becomes none in between is
// replaced: only writes over NATS can do that.
func (x *exchange) put(c *container, op, id string) (*reply, error) {
	key, err := x.wholeKey(c)
	if err != nil {
		return nil, err
	}
	s, err := c.itemFrom(x.body, key)
	if err != nil {
		return nil, err
	}
	if id != "" && id != s.id {
		return nil, badRequest("the item has the id %.300q and the path %.300q: use the same", s.id, id)
	}
	if err := x.checkItem(c, op, s.document, s.id); err != nil {
		return c.failed(nil), err
	}
	answer, err := x.do(op, c.name(), s.document, fit(s.body), x.ifMatch()...)
	if err != nil {
		return c.failed(answer), x.explainExists(c, s, err)
	}
	return x.written(c, s, answer), nil
}

// written is the reply to a write of the item s.
func (x *exchange) written(c *container, s *stored, answer *client.Reply) *reply {
	content := values.Value(answer.Body)
	it := item{etag: string(content.At([]string{"_etag"}).Text())}
	if !x.preferMinimal() {
		it.body = c.toItem(content, s.document, s.id)
	}
	return c.found(answer.Status, it, answer.Seq)
}

// checkItem refuses to replace, upsert or delete a document that is no item. With the
// partition key /id there is no other: each document is an item.
func (x *exchange) checkItem(c *container, op, document, id string) error {
	if c.byID() || op == "document.create" {
		return nil
	}
	found, _, err := x.contents(c, []string{document})
	if err != nil || found[0] == nil { // without a document the write has its own error
		return err
	}
	if _, ok := c.itemIn(found[0]); ok {
		return nil
	}
	if op == "document.upsert" {
		return c.occupied(document)
	}
	return c.noItem(id)
}

// occupied is the error for an item whose document's id is taken by a document that is
// none.
func (c *container) occupied(document string) *fault {
	return faultf(http.StatusConflict, "document %q of collection %s has the id of this item and is none, since its members are others: remove it over NATS", document, c.name())
}

// explainExists returns the error of a write; that of a create says whether an item or another
// document is there.
func (x *exchange) explainExists(c *container, s *stored, err error) error {
	switch {
	case errors.Is(err, client.ErrDocumentNotFound):
		return c.noItem(s.id)
	case !errors.Is(err, client.ErrDocumentExists):
		return err
	}
	if err := x.checkItem(c, "document.upsert", s.document, s.id); err != nil {
		return err
	}
	return faultf(http.StatusConflict, "item %.300q exists", s.id)
}

func (x *exchange) deleteItem(c *container, id string) (*reply, error) {
	_, document, err := x.requested(c, id)
	if err != nil {
		return nil, err
	}
	if err := x.checkItem(c, "document.delete", document, id); err != nil {
		return c.failed(nil), err
	}
	answer, err := x.do("document.delete", c.name(), document, nil, x.ifMatch()...)
	if errors.Is(err, client.ErrDocumentNotFound) {
		err = c.noItem(id)
	}
	if err != nil {
		return c.failed(answer), err
	}
	return &reply{status: http.StatusNoContent, seq: answer.Seq, about: c.about}, nil
}

// patchTries bounds the tries of a patch that others' writes interrupt.
const patchTries = 16

// patch reads an item, changes it and replaces it, unless another write came between.
// lapse's own patch is RFC 7396, which has no indexes, increments and conditions. So the
// gateway does it, and the etag makes it safe: each try is judged by the state that it
// read.
func (x *exchange) patch(c *container, id string) (*reply, error) {
	p, err := x.parsePatch(x.body, c.definition)
	if err != nil {
		return nil, err
	}
	key, document, err := x.requested(c, id)
	if err != nil {
		return nil, err
	}
	var seen []client.RequestOption // a standby may lag behind the write that came between
	for range patchTries {
		answer, err := x.patchOnce(c, p, key, document, id, seen)
		if err == nil {
			return x.written(c, &stored{id: id, document: document}, answer), nil
		}
		if !errors.Is(err, errChanged) {
			return c.failed(answer), err
		}
		seen = []client.RequestOption{client.MinSeq(answer.Seq)}
	}
	return c.failed(nil), faultf(449, "other writes of item %.300q came between %d times: try again", id, patchTries)
}

// errChanged says that another write came between.
var errChanged = errors.New("changed meanwhile")

// patchOnce is one try; errChanged asks for another.
func (x *exchange) patchOnce(c *container, p *patch, key partitionKey, document, id string, opts []client.RequestOption) (*client.Reply, error) {
	it, answer, err := x.find(c, document, id, opts...)
	if err != nil {
		return answer, err
	}
	if etag := etagOf(x.Request, "If-Match"); etag != "" && etag != "*" && etag != it.etag {
		return answer, faultf(http.StatusPreconditionFailed, "item %.300q has the etag %s now, not %.40s", id, it.etag, etag)
	}
	changed, err := p.apply(it.body)
	if err != nil {
		return answer, err
	}
	s, err := c.itemFrom(changed, key)
	if err != nil {
		return answer, err
	}
	answer, err = x.do("document.replace", c.name(), document, fit(s.body), client.IfMatch(it.etag))
	switch {
	case errors.Is(err, client.ErrPreconditionFailed):
		err = errChanged
	case errors.Is(err, client.ErrDocumentNotFound):
		err = c.noItem(id)
	}
	return answer, err
}
