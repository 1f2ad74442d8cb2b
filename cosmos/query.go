package cosmos

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strconv"
	"time"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/cosmos/sql"
	"github.com/lapsedb/lapse/schema/values"
)

// Limits of a query. A request has to end some time. What ends it is a 400 or a
// continuation, never a cut result.
const (
	maxExamined  = 5_000_000 // documents of one request
	pauseAfter   = 50_000    // documents, where a page can go on from its last item
	maxKept      = 64 << 20  // bytes of rows kept for ORDER BY and DISTINCT
	maxPageBytes = 4 << 20   // of the rows of a page, but for the last one
	defaultPage  = 100       // rows
	maxPage      = 1000
)

// parseQuery reads the query in the body.
func (x *exchange) parseQuery() (*sql.Query, error) {
	var given struct {
		Query      string          `json:"query"`
		Parameters []sql.Parameter `json:"parameters"`
	}
	if err := json.Unmarshal(x.body, &given); err != nil {
		return nil, badRequest("the query is not JSON: %v", err)
	}
	q, err := sql.Parse(given.Query, given.Parameters)
	if err != nil {
		return nil, badRequest("%v", err)
	}
	return q, x.setNow(q)
}

// setNow gives a query that asks for the time that of the database, so that TTL and query agree
// on a server for tests. Whatever parses a query of a client calls it.
func (x *exchange) setNow(q *sql.Query) error {
	if q.Now == nil {
		return nil
	}
	now, err := x.now()
	*q.Now = now.UnixMilli()
	return err
}

// now is the time by which the database of the request expires its items, as far as this
// process knows it.
func (x *exchange) now() (time.Time, error) {
	if !x.options.Test || x.db == nil {
		return time.Now(), nil
	}
	return x.db.client.TestClock().Now(x)
}

// queried answers the query in the body by a list of resources.
func (x *exchange) queried(list func(*sql.Query) (*reply, error)) (*reply, error) {
	q, err := x.parseQuery()
	if err != nil {
		return nil, err
	}
	return list(q)
}

// list is the reply with all resources, or those rows that a query makes of them.
func list(member, rid string, resources [][]byte, q *sql.Query) (*reply, error) {
	rows := func(yield func([]byte, error) bool) {
		for _, resource := range resources {
			if !yield(resource, nil) {
				return
			}
		}
	}
	if q != nil {
		rows = q.Run(rows, maxKept)
	}
	p := newPage(member, rid)
	p.read = len(resources)
	for row, err := range rows {
		if err != nil {
			return nil, queryFault(err)
		}
		p.add(row)
	}
	return p.reply(), nil
}

// page is a list of rows in the making.
type page struct {
	body []byte
	rows int
	size int // of the rows, in bytes
	read int // resources read for it
	from int // and their bytes
}

func newPage(member, rid string) *page {
	return &page{body: fmt.Appendf(nil, `{"_rid":"%s","%s":[`, rid, member)}
}

func (p *page) add(row []byte) {
	p.body = append(comma(p.body), row...)
	p.rows++
	p.size += len(row)
}

// reply returns the page. Its headers are what SDKs need to page and to show metrics.
func (p *page) reply() *reply {
	count, ratio := strconv.Itoa(p.rows), 1.0
	if p.read > p.rows {
		ratio = float64(p.rows) / float64(p.read)
	}
	// Java's SDK fails without one of the last five.
	metrics := fmt.Sprintf("totalExecutionTimeInMs=0.00;retrievedDocumentCount=%d;retrievedDocumentSize=%d;outputDocumentCount=%d;outputDocumentSize=%d;indexUtilizationRatio=%.2f",
		p.read, p.from, p.rows, p.size, ratio)
	return &reply{status: http.StatusOK, body: append(append(append(p.body, `],"_count":`...), count...), '}'),
		header: map[string]string{"X-Ms-Item-Count": count, "X-Ms-Documentdb-Query-Metrics": metrics}}
}

// queryFault returns the error of a query that lapse or the evaluation stopped as a 400.
func queryFault(err error) error {
	coded, ok := errors.AsType[*client.Error](err)
	if errors.Is(err, sql.ErrTooLarge) || ok && (errors.Is(coded, client.ErrTooLarge) || errors.Is(coded, client.ErrBadQuery)) {
		return badRequest("%v", err)
	}
	return err
}

// place is where the next page of a query begins, as a continuation. An example, decoded:
// {"c":"gAAB…","a":"C1:SO05","r":100}. It is not signed, since it can only lead to other
// documents that the client may read anyway; whatever is in it is checked.
//
// Two positions are needed. Cursor leads to the beginning of lapse's page, After to the
// place in it: a page of lapse may have more documents than rows fit into one of Cosmos
// DB's.
type place struct {
	Span   int    `json:"s,omitempty"`
	Cursor string `json:"c,omitempty"` // of lapse's page
	After  string `json:"a,omitempty"` // document's id
	Given  int    `json:"g,omitempty"` // rows of that document, if it may have more
	Key    []byte `json:"k,omitempty"` // of the last row, if rows are sorted by keys
	Rows   int    `json:"r,omitempty"` // found so far
}

func (p place) String() string {
	text, _ := json.Marshal(p) // strings and numbers
	return base64.RawURLEncoding.EncodeToString(text)
}

// continuation returns the place at which the request goes on.
func (x *exchange) continuation() (p place, err error) {
	token := x.Header.Get("X-Ms-Continuation")
	if token == "" {
		return p, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err != nil || p.Span < 0 || p.Rows < 0 || p.Given < 0 {
		return p, badRequest("x-ms-continuation %.80q is not one that this gateway gave", token)
	}
	return p, nil
}

// pageSize returns the most rows of a page.
func (x *exchange) pageSize() (int, error) {
	text := x.Header.Get("X-Ms-Max-Item-Count")
	if text == "" {
		return defaultPage, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < -1 || n == 0 {
		return 0, badRequest("x-ms-max-item-count %.40q: use a number from 1 on, or -1", text)
	}
	if n < 0 || n > maxPage {
		n = maxPage
	}
	return n, nil
}

// readAll is the query for all items.
func (x *exchange) readAll(c *container) (*reply, error) {
	q, err := sql.Parse("SELECT * FROM c", nil)
	if err != nil {
		return nil, err
	}
	s, err := x.selection(c, q)
	if err != nil {
		return nil, err
	}
	return x.pageOf(c, q, s, false)
}

// query answers a page of a query. What SDKs do depends on these answers. A query within a
// partition is answered at once. One over several that sorts or counts is refused at
// first. SDKs then ask for its plan, which has nothing to merge, and send the query to the
// only range.
func (x *exchange) query(c *container) (*reply, error) {
	q, err := x.parseQuery()
	if err != nil {
		return nil, err
	}
	s, err := x.selection(c, q)
	if err != nil {
		return nil, err
	}
	cross := !s.single && x.Header.Get("X-Ms-Documentdb-Partitionkeyrangeid") == ""
	switch {
	case cross && !is(x.Request, "X-Ms-Documentdb-Query-Enablecrosspartition"):
		return c.failed(nil), badRequest("the query spans partitions: give a partition key, or enable cross partition queries")
	case cross && q.NeedsPlan() && !x.skipsAhead():
		return c.failed(nil), &fault{status: http.StatusBadRequest, substatus: crossPartition, extra: string(planOf(q)),
			message: "The provided cross partition query can not be directly served by the gateway: ask for its plan first"}
	}
	out, err := x.pageOf(c, q, s, cross)
	if err == nil && is(x.Request, "X-Ms-Cosmos-Populateindexmetrics") {
		out.header["X-Ms-Cosmos-Index-Utilization"] = s.utilization()
	}
	return out, err
}

// skipsAhead reports whether the client is Python's, which alone sends this header. With a plan
// it fetches pages ahead, which its continuations leave out.
func (x *exchange) skipsAhead() bool {
	return x.Header.Get("X-Ms-Documentdb-Query-Iscontinuationexpected") != ""
}

// pageOf answers a page. With more, a full page is always followed by another.
// Counting everything is one request of lapse (countAll). Any other query reads documents
// and evaluates SQL here; the condition of lapse, if there is one, only narrows what is
// read.
func (x *exchange) pageOf(c *container, q *sql.Query, s *selection, more bool) (*reply, error) {
	at, err := x.continuation()
	if err != nil {
		return nil, err
	}
	size, err := x.pageSize()
	if err != nil {
		return nil, err
	}
	if q.Counts() && s.everything() && c.byID() {
		if out, err := x.countAll(c, q); out != nil || err != nil {
			return out, err
		}
	}
	r := &reader{x: x, c: c, s: s, at: at}
	if !q.NeedsPlan() {
		r.limit, r.chunk = pauseAfter, size
	}
	if q.CountsAll() {
		r.columns = c.columns()
	}
	read := r.page
	if q.Sorted() {
		read, r.at = r.sortedPage, place{}
	}
	p, next, err := read(q, size, at)
	if err != nil {
		return c.failed(nil), queryFault(err)
	}
	p.read, p.from = r.examined, r.bytes
	out := p.reply()
	out.seq, out.about = r.seq, c.about
	if next != nil && (next.more || more && p.rows == size) {
		out.header["X-Ms-Continuation"] = next.String()
	}
	return out, nil
}

// next is the place after a page, and whether there is more as far as that is known.
type next struct {
	place
	more bool
}

// page collects the rows of a page; there is no next place after the end. size+1 rows are
// asked for: whether there is one more tells whether another page follows. Where that
// would read on for long, the place says that there may be more.
func (r *reader) page(q *sql.Query, size int, from place) (*page, *next, error) {
	p := newPage("Documents", r.c.rid)
	var end *next
	given := func() int {
		if r.at.After == from.After {
			return from.Given
		}
		return 0
	}
	for row, err := range q.Part(from.Rows, size+1).Without(given).After(nil, r.items(), nil, maxKept) {
		if err != nil {
			return nil, nil, err
		}
		if end != nil {
			end.more = true
			return p, end, nil
		}
		p.add(row.JSON)
		if p.rows == size || len(p.body) > maxPageBytes {
			end = &next{place: r.at}
			end.Rows = from.Rows + p.rows
			if q.Joins() {
				end.Given = row.Nth
			} else if !q.NeedsPlan() && r.more() {
				end.more = true
				return p, end, nil
			}
		}
	}
	if r.paused {
		return p, &next{place: r.at, more: true}, nil
	}
	return p, end, nil
}

// maxKey is the longest key of an order in a continuation, in bytes.
const maxKey = 4 << 10

// sortedPage collects the rows of a page that goes on after the key of a row: items that expire
// between two pages hide no others. All rows are computed again for each page, since their
// order needs them all. maxKept bounds the memory.
func (r *reader) sortedPage(q *sql.Query, size int, from place) (*page, *next, error) {
	p := newPage("Documents", r.c.rid)
	var end *next
	document := func() string { return r.at.After }
	for row, err := range q.Part(from.Rows, size+1).After(from.Key, r.items(), document, maxKept) {
		switch {
		case err != nil:
			return nil, nil, err
		case p.rows == size || len(p.body) > maxPageBytes:
			if end.more = true; len(end.Key) > maxKey {
				return nil, nil, badRequest("the query orders by values of more than %d bytes, after which no page can go on: ask for larger pages", maxKey)
			}
			return p, end, nil
		}
		p.add(row.JSON)
		end = &next{place: place{Key: row.Key, Rows: from.Rows + p.rows}}
	}
	if p.rows < size {
		end = nil
	}
	return p, end, nil
}

// countAll counts documents in one request, where each is an item. Where the condition means
// something else in lapse, or counting goes beyond lapse's limits, there is no reply.
func (x *exchange) countAll(c *container, q *sql.Query) (*reply, error) {
	where, params, ok := q.Condition(func(path values.Pointer) bool { return !isSystem(path[0]) || len(path) == 1 && path[0] == "_ts" })
	if !ok {
		return nil, nil
	}
	body, _ := json.Marshal(map[string]any{"count": true, "where": where, "params": json.RawMessage(params)}) // strings and JSON
	answer, err := x.do("query", c.name(), "", body)
	if errors.Is(err, client.ErrTooLarge) || errors.Is(err, client.ErrBadQuery) || errors.Is(err, client.ErrTimeout) {
		return nil, nil
	}
	if err != nil {
		return c.failed(answer), queryFault(err)
	}
	p := newPage("Documents", c.rid)
	p.add(values.Value(answer.Body).At([]string{"count"}))
	out := p.reply()
	out.seq, out.about = answer.Seq, c.about
	return out, nil
}

// plan answers a request for the plan of a query: as there is one range, nothing is to merge.
func (x *exchange) plan() (*reply, error) {
	q, err := x.parseQuery()
	if err != nil {
		return nil, err
	}
	return &reply{status: http.StatusOK, body: planOf(q)}, nil
}

// planOf returns the plan: one range, nothing to merge.
func planOf(q *sql.Query) []byte {
	return fmt.Appendf(nil, `{"partitionedQueryExecutionInfoVersion":2,"queryInfo":{"distinctType":"None","top":null,"offset":null,"limit":null,"orderBy":[],"orderByExpressions":[],`+
		`"groupByExpressions":[],"groupByAliases":[],"aggregates":[],"groupByAliasToAggregateType":{},"rewrittenQuery":"","hasSelectValue":%t,"dCountInfo":null,"hasNonStreamingOrderBy":false},`+
		`"queryRanges":[{"min":"","max":"FF","isMinInclusive":true,"isMaxInclusive":false}]}`, q.HasSelectValue())
}

// items yields the items that the selection reads.
func (r *reader) items() iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for {
			it, ok, err := r.next()
			if err != nil {
				yield(nil, err)
				return
			}
			if !ok || !yield(it.body, nil) {
				return
			}
		}
	}
}
