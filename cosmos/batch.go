package cosmos

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/schema/values"
)

// maxBatch is the most operations of a batch, as in Cosmos DB.
const maxBatch = 100

// Batches of Cosmos DB become batches of lapse. A batch goes through these steps:
//
//	given ─► stepOf ─► nextRound ─► readAhead ─► decide ─► run ─► results
//	          address      ▲          gets                  │
//	                       └─ steps without a result ◄──────┘
//
//   - Most operations have one of lapse. A patch has none with Cosmos DB's rules. So the
//     gateway reads the item, applies the patch, and replaces the item if it still has the
//     etag.
//   - Where the partition key is not /id, a document may be no item (partition.go).
//     Reading ahead keeps replace, upsert and delete from changing one.
//   - A patch may depend on a write before it in the same batch, which may be refused. So it
//     waits for a round of its own, as does what follows it: another write may interrupt it.
//   - An atomic batch is one round, since all its writes succeed or none. decide keeps what
//     each document will have. Such an item has no etag yet, and its patch no condition.
//
// In an atomic batch a fault of one operation is the end: nothing is sent.

// batchOperation is an operation of a batch as sent.
type batchOperation struct {
	OperationType string          `json:"operationType"`
	ID            string          `json:"id"`
	IfMatch       string          `json:"ifMatch"`
	PartitionKey  json.RawMessage `json:"partitionKey"`
	ResourceBody  json.RawMessage `json:"resourceBody"`
}

// step is an operation of a batch, and what came of it. Its stored part is complete after
// stepOf, but for a patch: its content is made in decide.
type step struct {
	op      string // lapse's: create, upsert, replace, delete, get; patch becomes replace
	ifMatch string
	patch   *patch
	stored  // the item: its content only where the operation has one
	err     error
	result  client.Result
	sent    bool // stands in the batch of lapse
	done    bool // err or result is final
	tries   int  // of a patch that other writes interrupted
}

// operations maps types to lapse's operations.
var operations = map[string]string{"Create": "create", "Upsert": "upsert", "Replace": "replace", "Delete": "delete", "Read": "get", "Patch": "patch"}

// batch runs the operations of a batch, all or none if it is atomic. The key of the header
// counts for all operations. Without it each brings its own, as in bulk mode.
func (x *exchange) batch(c *container) (*reply, error) {
	var given []batchOperation
	if err := json.Unmarshal(x.body, &given); err != nil || len(given) == 0 || len(given) > maxBatch {
		return nil, badRequest("a batch is a JSON array of 1 to %d operations; the binary form in which .NET's SDK sends batches and bulk is not served", maxBatch)
	}
	key, err := x.keyHeader()
	if err != nil {
		return nil, err
	}
	atomic := is(x.Request, "X-Ms-Cosmos-Batch-Atomic")
	steps := make([]*step, len(given))
	for i := range given {
		steps[i] = x.stepOf(c, &given[i], key)
	}
	seq, err := x.runSteps(c, steps, atomic)
	if err != nil {
		return c.failed(nil), err
	}
	return x.results(c, steps, atomic, seq), nil
}

// stepOf reads an operation. A fault of it is the step's.
func (x *exchange) stepOf(c *container, o *batchOperation, key partitionKey) *step {
	s := &step{op: operations[o.OperationType], ifMatch: etagText(o.IfMatch)}
	s.err = x.fill(c, s, o, key)
	return s
}

// fill reads what the step is about. It asks for nothing but the time.
func (x *exchange) fill(c *container, s *step, o *batchOperation, key partitionKey) (err error) {
	if s.op == "" {
		return badRequest("operationType %.40q is not served: use Create, Upsert, Replace, Delete, Read or Patch", o.OperationType)
	}
	if key == nil {
		if key, err = parseKey(textOf(values.Value(o.PartitionKey))); err != nil {
			return err
		}
	}
	if err = c.checkKey(key); err != nil {
		return err
	}
	switch s.op {
	case "create", "upsert", "replace":
		var item *stored
		if item, err = c.itemFrom(values.Value(o.ResourceBody), key); err != nil {
			return err
		}
		if s.stored = *item; s.op == "replace" && o.ID != "" && o.ID != s.id {
			return badRequest("the item has the id %.300q and the operation %.300q: use the same", s.id, o.ID)
		}
		return nil
	case "patch":
		if s.patch, err = x.parsePatch(values.Value(o.ResourceBody), c.definition); err != nil {
			return err
		}
	}
	if o.ID == "" {
		return badRequest("the operation %s has no id", o.OperationType)
	}
	s.id, s.key = o.ID, key
	s.document, err = c.addressOf(key, o.ID)
	return err
}

// textOf returns the text of a partition key, which SDKs send as a string or as an array.
func textOf(v values.Value) string {
	if v.Kind() == values.String {
		return string(v.Text())
	}
	return string(v)
}

// runSteps runs the steps in rounds. Once a round has written, the error of a later one is that of
// the steps without a result.
func (x *exchange) runSteps(c *container, steps []*step, atomic bool) (seq uint64, err error) {
	for {
		round := nextRound(steps, atomic)
		if len(round) == 0 {
			return seq, nil
		}
		sent, err := x.runRound(c, round, atomic)
		if err != nil && (atomic || seq == 0) {
			return 0, err
		}
		for _, s := range steps {
			if err != nil && !s.done {
				s.err, s.done = err, true
			}
			s.done = s.done && !s.interrupted()
		}
		seq = max(seq, sent)
	}
}

// nextRound returns the steps to run next. An atomic batch is one round, tried again as a whole: of
// a try that failed nothing happened. Else a patch follows no write of its item in a round,
// and nothing about the item follows the patch.
func nextRound(steps []*step, atomic bool) (round []*step) {
	if atomic && slices.ContainsFunc(steps, func(s *step) bool { return !s.done }) {
		return steps
	}
	closed := make(map[string]bool) // by document that the round writes: the rest waits
	for _, s := range steps {
		waits, written := closed[s.document]
		switch {
		case s.done:
		case waits || written && s.patch != nil:
			closed[s.document] = true
		default:
			round = append(round, s)
			if s.err == nil && s.op != "get" {
				closed[s.document] = s.patch != nil
			}
		}
	}
	return round
}

// interrupted reports whether another write came between reading and writing for a patch, which
// is tried again then. If it has a condition of the client's own, the client has to hear that the
// item changed.
func (s *step) interrupted() bool {
	if s.patch == nil || s.ifMatch != "" || s.err != nil || !errors.Is(s.result.Err, client.ErrPreconditionFailed) {
		return false
	}
	if s.tries++; s.tries == patchTries {
		s.err = faultf(449, "other writes of item %.300q came between %d times: try again", s.id, patchTries)
	}
	return s.err == nil
}

// runRound reads what the steps depend on, and sends those without a fault. Unless the batch is
// atomic, it stops before the first step that makes a reply or request too large, which is not done
// then. It returns the log sequence of the reply, 0 if nothing was sent.
func (x *exchange) runRound(c *container, steps []*step, atomic bool) (uint64, error) {
	for _, s := range steps {
		s.result, s.sent, s.done = client.Result{}, false, atomic
	}
	steps, present, err := x.readAhead(c, steps, atomic)
	if err != nil {
		return 0, err
	}
	b, room := newBatch(), int(x.db.client.Conn().MaxPayload())/2 // the reply has the contents, too
	for _, s := range steps {
		ifMatch, err := s.ifMatch, s.err
		if err == nil {
			ifMatch, err = c.decide(s, present)
		}
		if !atomic && b.operations > 0 && len(b.text)+len(s.body) > room {
			break
		}
		if s.err, s.done = err, atomic || err != nil; err == nil {
			op := s.op
			if s.patch != nil {
				op = "replace"
			}
			b.add(op, s.document, s.body, ifMatch)
			s.sent = true
		} else if atomic {
			return 0, nil
		}
	}
	if b.operations == 0 {
		return 0, nil
	}
	results, answer, err := x.run(c, b, atomic)
	if err != nil {
		return 0, err
	}
	for _, s := range steps {
		if s.sent {
			s.result, s.done, results = results[0], true, results[1:]
		}
	}
	return answer.Seq, nil
}

// existing is what a batch knows of a document before an operation.
type existing struct {
	item    item // without a body if no patch needs it
	isItem  bool
	isWrite bool // an operation of the atomic batch wrote it: it has no etag yet
}

// looksAhead reports whether a step has to know what its document has. Creates and gets need
// not: lapse judges the former, and the reply shows what the latter found.
func (s *step) looksAhead(c *container) bool {
	return s.err == nil && (s.patch != nil || !c.byID() && s.op != "create" && s.op != "get")
}

// readAhead reads the documents of which steps have to know what they have. Unless the batch is
// atomic, these are no more than fit into a reply: ready are the steps before the first whose
// document was not read.
func (x *exchange) readAhead(c *container, steps []*step, atomic bool) (ready []*step, present map[string]*existing, err error) {
	var documents []string
	patched := make(map[string]bool)
	for _, s := range steps {
		if s.looksAhead(c) {
			if !slices.Contains(documents, s.document) {
				documents = append(documents, s.document)
			}
			patched[s.document] = patched[s.document] || s.patch != nil
		}
	}
	present = make(map[string]*existing)
	for bytes := 0; len(documents) > 0; {
		contents, _, err := x.contents(c, documents)
		if err != nil {
			return nil, nil, err
		}
		for i, content := range contents {
			if content == nil {
				continue
			}
			e := &existing{}
			if e.item, e.isItem = c.itemIn(content); !patched[documents[i]] {
				e.item.body = nil
			}
			present[documents[i]] = e
			bytes += len(e.item.body)
		}
		if documents = documents[len(contents):]; !atomic {
			break
		}
		if bytes > maxKept {
			return nil, nil, faultf(http.StatusRequestEntityTooLarge, "the batch patches items of more than %d bytes: use smaller batches", maxKept)
		}
	}
	if len(documents) > 0 {
		steps = steps[:slices.IndexFunc(steps, func(s *step) bool { return s.looksAhead(c) && s.document == documents[0] })]
	}
	return steps, present, nil
}

// decide returns the condition with which a step is sent, or why it is not. It keeps in present
// what the document has after it. was is what the document has before this step, nil for
// nothing.
func (c *container) decide(s *step, present map[string]*existing) (ifMatch string, err error) {
	was := present[s.document]
	ifMatch = s.ifMatch
	switch {
	case was != nil && !was.isItem && (s.op == "create" || s.op == "upsert"):
		return "", c.occupied(s.document)
	case was != nil && !was.isItem, was == nil && s.patch != nil:
		return "", c.noItem(s.id)
	case s.op == "get":
		return "", nil
	case s.op == "delete":
		delete(present, s.document)
		return ifMatch, nil
	case s.patch != nil:
		if !was.isWrite {
			if ifMatch != "" && ifMatch != was.item.etag {
				return "", faultf(http.StatusPreconditionFailed, "item %.300q has the etag %s now, not %.40s", s.id, was.item.etag, ifMatch)
			}
			ifMatch = was.item.etag
		}
		if err := c.patchStep(s, was); err != nil {
			return "", err
		}
	}
	document := values.Value(s.body)
	present[s.document] = &existing{item: item{id: s.id, body: c.toItem(document, s.document, s.id)}, isItem: true, isWrite: true}
	return ifMatch, nil
}

// patchStep sets the step's content to the item with its patch applied.
func (c *container) patchStep(s *step, was *existing) error {
	changed, err := s.patch.apply(was.item.body)
	if err != nil {
		return err
	}
	item, err := c.itemFrom(changed, s.key)
	if err == nil {
		s.stored = *item
	}
	return err
}

// results is the reply to a batch: in an atomic one that failed, all steps but the one to blame
// depend on it. The status of the reply is 207 when an operation failed, else 200. Each
// row has its own status.
func (x *exchange) results(c *container, steps []*step, atomic bool, seq uint64) *reply {
	status := http.StatusOK
	for _, s := range steps {
		if s.err == nil && s.result.Err != nil && !errors.Is(s.result.Err, client.ErrFailedDependency) {
			s.err = x.explainExists(c, &s.stored, s.result.Err)
		}
		if s.err != nil {
			status = http.StatusMultiStatus
		}
	}
	out := []byte{'['}
	failed := atomic && status != http.StatusOK
	for _, s := range steps {
		out = x.appendResult(comma(out), c, s, failed)
	}
	return &reply{status: status, body: append(out, ']'), seq: seq, about: c.about}
}

// appendResult appends the row of one step:
//
//	{"statusCode":201,"requestCharge":1,"eTag":"\"41\"","resourceBody":{…}}
func (x *exchange) appendResult(out []byte, c *container, s *step, failed bool) []byte {
	status := s.result.Code
	var it item
	isItem := false
	switch {
	case s.err != nil:
		status = asFault(s.err).status
	case failed:
		status = http.StatusFailedDependency
	case s.result.Body != nil:
		if it, isItem = c.itemIn(values.Value(s.result.Body)); !isItem {
			status, s.err = http.StatusNotFound, c.noItem(s.id)
		}
	}
	out = strconv.AppendInt(append(out, `{"statusCode":`...), int64(status), 10)
	out = append(out, `,"requestCharge":1`...)
	switch {
	case s.err != nil:
		out = appendString(out, "message", s.err.Error())
	case isItem:
		out = appendString(out, "eTag", strconv.Quote(it.etag))
		if s.op == "get" || !x.preferMinimal() {
			out = append(append(out, `,"resourceBody":`...), it.body...)
		}
	}
	return append(out, '}')
}

// batchBody is the body of a batch of lapse in the making.
type batchBody struct {
	text       []byte
	operations int
}

func newBatch() *batchBody { return &batchBody{text: []byte(`{"operations":[`)} }

// add adds an operation. A body goes with the operations that write content.
func (b *batchBody) add(op, id string, body []byte, ifMatch string) {
	b.operations++
	b.text = appendString(append(comma(b.text), `{"op":"`+op+`"`...), "id", id)
	if body != nil && slices.Contains([]string{"create", "upsert", "replace"}, op) {
		b.text = append(append(b.text, `,"body":`...), fit(body)...)
	}
	if ifMatch != "" {
		b.text = appendString(b.text, "ifMatch", ifMatch)
	}
	b.text = append(b.text, '}')
}

// run sends a batch to lapse, and returns a result for each operation.
func (x *exchange) run(c *container, b *batchBody, atomic bool, opts ...client.RequestOption) ([]client.Result, *client.Reply, error) {
	body := append(b.text, `],"atomic":`+strconv.FormatBool(atomic)+"}"...)
	answer, err := x.do("batch", c.name(), "", body, opts...)
	if err != nil {
		return nil, answer, err
	}
	var given struct{ Results []client.Result }
	if err = json.Unmarshal(answer.Body, &given); err == nil && len(given.Results) != b.operations {
		err = schema.ErrUnavailable.With("a batch of %d operations has %d results", b.operations, len(given.Results))
	}
	return given.Results, answer, err
}

// contents reads the first of some documents, in their order: as many as a reply has room for,
// at least one; nil stands for a document that does not exist. lapse answers gets without room by
// a 413, which must not count as absence: whoever reads several documents calls this until it has
// all. The writer answers: a standby may lag.
func (x *exchange) contents(c *container, documents []string, opts ...client.RequestOption) (contents []values.Value, seq uint64, err error) {
	asked := documents[:min(len(documents), cmp.Or(x.fit, maxPage))]
	b := newBatch()
	for _, document := range asked {
		b.add("get", document, nil, "")
	}
	results, answer, err := x.run(c, b, false, opts...)
	if err != nil {
		return nil, 0, err
	}
	for _, result := range results {
		switch {
		case errors.Is(result.Err, client.ErrTooLarge) && len(contents) > 0:
			x.fit = len(contents)
			return contents, answer.Seq, nil
		case errors.Is(result.Err, client.ErrTooLarge) && len(asked) > 1:
			x.fit = len(asked) / 2
			return x.contents(c, documents, opts...)
		case result.Err != nil && !errors.Is(result.Err, client.ErrDocumentNotFound):
			return nil, 0, result.Err
		}
		contents = append(contents, values.Value(result.Body))
	}
	x.fit = min(2*x.fit, maxPage)
	return contents, answer.Seq, nil
}
