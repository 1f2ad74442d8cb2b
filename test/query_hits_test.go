package test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/test/harness"
	"github.com/lapsedb/lapse/test/stress"
)

// hitDocument is a hit as a document of its own. Its id is its line number,
// without zeros before it, so that the order of ids is not that of the lines.
type hitDocument struct {
	id      string
	members map[string]any
}

// text returns a string member, empty if there is none.
func (d hitDocument) text(name string) string {
	s, _ := d.members[name].(string)
	return s
}

// number returns a number member; ok is false if there is none.
func (d hitDocument) number(name string) (n float64, ok bool) {
	n, ok = d.members[name].(float64)
	return n, ok
}

func (d hitDocument) status() int {
	n, _ := d.number("status")
	return int(n)
}

// hitDocuments returns the hits in the order of ids. A reply without a body has no size,
// as web servers log it: "-" if its status never has a body, else no member.
func hitDocuments(t testing.TB) (documents []hitDocument) {
	t.Helper()
	hits, _ := readHits(t)
	for i, h := range hits {
		d := hitDocument{id: strconv.Itoa(i + 1)}
		if err := json.Unmarshal(h.Body, &d.members); err != nil {
			t.Fatal(err)
		}
		d.members["id"], d.members["client"] = d.id, h.ID
		if n, _ := d.number("bytes"); n == 0 {
			delete(d.members, "bytes")
			if d.status() == 304 {
				d.members["bytes"] = "-"
			}
		}
		documents = append(documents, d)
	}
	slices.SortFunc(documents, func(a, b hitDocument) int { return strings.Compare(a.id, b.id) })
	return documents
}

// indexed returns the indexing policy for the queries below.
func indexed(mode string) string {
	return `"indexingPolicy":{"indexingMode":"` + mode + `","includedPaths":[{"path":"/status"},{"path":"/bytes"},{"path":"/agent"},{"path":"/client"},{"path":"/referrer"}]}`
}

// load upserts documents in batches and returns their _ts in seconds, by id.
func load(t testing.TB, nc *nats.Conn, collection string, documents []hitDocument) map[string]int64 {
	t.Helper()
	written := make(map[string]int64)
	for chunk := range slices.Chunk(documents, 1000) {
		var operations []map[string]any
		for _, d := range chunk {
			operations = append(operations, map[string]any{"op": "upsert", "id": d.id, "body": d.members})
		}
		a := mustAsk(t, nc, 200, "batch."+collection, marshal(t, map[string]any{"operations": operations}))
		var reply struct {
			Results []struct {
				Code int `json:"code"`
				Body struct {
					TS int64 `json:"_ts"`
				} `json:"body"`
			} `json:"results"`
		}
		unmarshal(t, a.body, &reply)
		if len(reply.Results) != len(chunk) {
			t.Fatalf("%d results for %d operations", len(reply.Results), len(chunk))
		}
		for i, r := range reply.Results {
			if r.Code != 200 && r.Code != 201 {
				t.Fatalf("upsert of %s in %s: %d", chunk[i].id, collection, r.Code)
			}
			written[chunk[i].id] = r.Body.TS
		}
	}
	return written
}

func marshal(t testing.TB, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func unmarshal(t testing.TB, text []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(text, v); err != nil {
		t.Fatalf("%.500s: %v", text, err)
	}
}

// ordering is one key of an orderBy.
type ordering struct {
	Path string `json:"path"`
	Desc bool   `json:"desc"`
}

// question is a query with the expectations for its result and its plan.
type question struct {
	name    string
	where   string
	params  map[string]any
	orderBy []ordering
	sel     []string // member names to select
	limit   int      // 0 for all
	page    int      // page size; 0 for 1000

	takes func(hitDocument) bool
	// index is the index that must be used in a collection with indexes: "-" for none, ""
	// if it does not matter. looked is the number of documents scanned through it, 0 if
	// unchecked.
	index  string
	looked int
}

// answers computes the expected result, in plain Go.
func (q *question) answers(t testing.TB, documents []hitDocument) (answers []string) {
	t.Helper()
	var taken []hitDocument
	for _, d := range documents {
		if q.takes == nil || q.takes(d) {
			taken = append(taken, d)
		}
	}
	slices.SortStableFunc(taken, func(a, b hitDocument) int { // stable: ids break ties
		for _, o := range q.orderBy {
			c := compareMembers(a.members[o.Path[1:]], b.members[o.Path[1:]])
			if o.Desc {
				c = -c
			}
			if c != 0 {
				return c
			}
		}
		return 0
	})
	if q.limit > 0 {
		taken = taken[:min(q.limit, len(taken))]
	}
	for _, d := range taken {
		kept := maps.Clone(d.members)
		if len(q.sel) > 0 {
			maps.DeleteFunc(kept, func(name string, _ any) bool { return !slices.Contains(q.sel, name) })
		}
		answers = append(answers, marshal(t, kept))
	}
	return answers
}

// compareMembers orders the JSON types that occur in the hits.
func compareMembers(a, b any) int {
	rank := func(v any) int {
		switch v.(type) {
		case nil: // missing: there is no null in the hits
			return 0
		case float64:
			return 1
		}
		return 2
	}
	if c := cmp.Compare(rank(a), rank(b)); c != 0 || a == nil {
		return c
	}
	if n, ok := a.(float64); ok {
		return cmp.Compare(n, b.(float64))
	}
	return strings.Compare(a.(string), b.(string))
}

// plan is the output of explain.
type plan struct {
	Index    *string  `json:"index"`
	Scanned  int      `json:"scanned"`
	Returned int      `json:"returned"`
	Behind   *int     `json:"behind"`
	Building []string `json:"building"`
}

// path returns the index that was used, "-" for none.
func (p plan) path() string {
	if p.Index == nil {
		return "-"
	}
	return *p.Index
}

// outcome is the result of a question, with the plan of its last page and the number of
// documents scanned for all pages.
type outcome struct {
	documents []string
	plan      plan
	pages     int
	scanned   int
}

// bare returns a document as it was sent, without what lapse adds to it, its members
// sorted by name.
func bare(t testing.TB, document []byte) string {
	t.Helper()
	if !bytes.Contains(document, []byte(`"_ts"`)) {
		return string(document)
	}
	var members map[string]any
	unmarshal(t, document, &members)
	delete(members, "_ts")
	delete(members, "_etag")
	return marshal(t, members)
}

// way is an interface for queries: request, command or client.
type way struct {
	name  string
	ask   func(t testing.TB, collection string, q *question) outcome
	count func(t testing.TB, collection string, q *question) (int, plan)
}

func ways(t testing.TB, s *harness.Server) []way {
	t.Helper()
	nc := dial(t, s)
	c := clientOn(t, nc)
	return []way{
		{"request", func(t testing.TB, collection string, q *question) outcome { return q.byRequest(t, nc, collection) },
			func(t testing.TB, collection string, q *question) (int, plan) {
				return q.countByRequest(t, nc, collection)
			}},
		{"command", func(t testing.TB, collection string, q *question) outcome { return q.byCommand(t, s, collection) },
			func(t testing.TB, collection string, q *question) (int, plan) {
				return q.countByCommand(t, s, collection)
			}},
		{"client", func(t testing.TB, collection string, q *question) outcome { return q.byClient(t, c, collection) },
			func(t testing.TB, collection string, q *question) (int, plan) {
				return q.countByClient(t, c, collection)
			}},
	}
}

// queryReply is a reply to a query request.
type queryReply struct {
	Documents []json.RawMessage `json:"documents"`
	Cursor    string            `json:"cursor"`
	Count     *int              `json:"count"`
	Plan      plan              `json:"plan"`
}

// query sends a query that must succeed.
func query(t testing.TB, nc *nats.Conn, collection string, request map[string]any) (reply queryReply) {
	t.Helper()
	unmarshal(t, mustAsk(t, nc, 200, "query."+collection, marshal(t, request)).body, &reply)
	return reply
}

// request returns the body of a question, without its limit.
func (q *question) request() map[string]any {
	request := map[string]any{"explain": true}
	if q.where != "" {
		request["where"] = q.where
	}
	if q.params != nil {
		request["params"] = q.params
	}
	if q.orderBy != nil {
		request["orderBy"] = q.orderBy
	}
	for _, name := range q.sel {
		paths, _ := request["select"].([]string)
		request["select"] = append(paths, "/"+name)
	}
	return request
}

func (q *question) byRequest(t testing.TB, nc *nats.Conn, collection string) (o outcome) {
	t.Helper()
	request := q.request()
	for {
		request["limit"] = q.nextLimit(len(o.documents))
		reply := query(t, nc, collection, request)
		if len(reply.Documents) > request["limit"].(int) || reply.Plan.Returned != len(reply.Documents) {
			t.Fatalf("a page of %d has %d documents, the plan says %d", request["limit"], len(reply.Documents), reply.Plan.Returned)
		}
		if q.more(&o, reply.Documents, reply.Plan, reply.Cursor, t) {
			return o
		}
		request["cursor"] = reply.Cursor
	}
}

// nextLimit returns the limit for the next page, given the number of documents so far.
func (q *question) nextLimit(have int) int {
	n := cmp.Or(q.page, 1000)
	if q.limit > 0 {
		n = min(n, q.limit-have)
	}
	return n
}

// more adds a page to the outcome, and reports whether it was the last one.
func (q *question) more(o *outcome, documents []json.RawMessage, p plan, cursor string, t testing.TB) (done bool) {
	t.Helper()
	for _, d := range documents {
		o.documents = append(o.documents, bare(t, d))
	}
	o.pages++
	o.plan = p
	o.scanned += p.Scanned
	if o.pages > 20_000 {
		t.Fatal("the pages come to no end")
	}
	return cursor == "" || q.limit > 0 && len(o.documents) >= q.limit
}

func (q *question) arguments(t testing.TB, collection string) []string {
	t.Helper()
	args := []string{"query", collection, "--json", "--explain"}
	if q.where != "" {
		args = append(args, "--where", q.where)
	}
	if q.params != nil {
		args = append(args, "--params", marshal(t, q.params))
	}
	for _, o := range q.orderBy {
		path := o.Path
		if o.Desc {
			path = "-" + path[1:] // the command accepts both forms
		}
		args = append(args, "--order-by="+path)
	}
	if len(q.sel) > 0 {
		args = append(args, "--select", strings.Join(q.sel, ","))
	}
	return args
}

func (q *question) byCommand(t testing.TB, s *harness.Server, collection string) (o outcome) {
	t.Helper()
	for cursor := ""; ; {
		args := q.arguments(t, collection)
		if q.page == 0 && q.limit == 0 {
			args = append(args, "--all")
		} else {
			args = append(args, "--limit", strconv.Itoa(q.nextLimit(len(o.documents))))
		}
		if cursor != "" {
			args = append(args, "--cursor", cursor)
		}
		r := s.Run(args...)
		var documents []json.RawMessage
		for _, line := range harness.Lines(r.OK()) {
			documents = append(documents, json.RawMessage(line))
		}
		var said struct {
			Plan   plan   `json:"plan"`
			Cursor string `json:"cursor"`
		}
		unmarshal(t, []byte(r.Stderr), &said)
		if q.more(&o, documents, said.Plan, said.Cursor, t) {
			return o
		}
		cursor = said.Cursor
	}
}

func (q *question) options(p *client.Plan) []client.QueryOption {
	opts := []client.QueryOption{client.Explain(p)}
	if q.where != "" {
		var params any
		if q.params != nil {
			params = q.params
		}
		opts = append(opts, client.Where(q.where, params))
	}
	for _, o := range q.orderBy {
		opts = append(opts, client.OrderBy(o.Path, client.Direction(o.Desc)))
	}
	for _, name := range q.sel {
		opts = append(opts, client.Select("/"+name))
	}
	if q.limit > 0 {
		opts = append(opts, client.Limit(q.limit))
	}
	return append(opts, client.PageSize(cmp.Or(q.page, 1000)))
}

// planOf returns the client's plan in the form of explain.
func planOf(p client.Plan) plan {
	out := plan{Scanned: int(p.Scanned), Returned: int(p.Returned), Building: p.Building}
	if p.Index != "" {
		out.Index = &p.Index
	}
	if p.Behind != nil {
		behind := int(*p.Behind)
		out.Behind = &behind
	}
	return out
}

func (q *question) byClient(t testing.TB, c *client.Client, collection string) (o outcome) {
	t.Helper()
	coll, err := c.Collection(t.Context(), collection)
	if err != nil {
		t.Fatal(err)
	}
	var p client.Plan
	for item, err := range client.Query[json.RawMessage](t.Context(), coll, q.options(&p)...) {
		if err != nil {
			t.Fatal(err)
		}
		o.documents = append(o.documents, bare(t, item.Value))
	}
	o.plan = planOf(p)
	o.scanned = o.plan.Scanned
	if o.plan.Returned != len(o.documents) {
		t.Errorf("%d documents, the plan says %d", len(o.documents), o.plan.Returned)
	}
	return o
}

func (q *question) countByRequest(t testing.TB, nc *nats.Conn, collection string) (int, plan) {
	t.Helper()
	request := q.request()
	request["count"] = true
	reply := query(t, nc, collection, request)
	if reply.Count == nil || reply.Documents != nil || reply.Cursor != "" {
		t.Fatalf("the reply is %+v, want a count alone", reply)
	}
	return *reply.Count, reply.Plan
}

func (q *question) countByCommand(t testing.TB, s *harness.Server, collection string) (int, plan) {
	t.Helper()
	r := s.Run(append(q.arguments(t, collection), "--count")...)
	n, err := strconv.Atoi(strings.TrimSpace(r.OK()))
	if err != nil {
		t.Fatal(err)
	}
	var said struct {
		Plan plan `json:"plan"`
	}
	unmarshal(t, []byte(r.Stderr), &said)
	return n, said.Plan
}

func (q *question) countByClient(t testing.TB, c *client.Client, collection string) (int, plan) {
	t.Helper()
	coll, err := c.Collection(t.Context(), collection)
	if err != nil {
		t.Fatal(err)
	}
	var p client.Plan
	n, err := client.Count(t.Context(), coll, q.options(&p)...)
	if err != nil {
		t.Fatal(err)
	}
	return int(n), planOf(p)
}

// awaitIndex waits until an index is used and contains all writes.
func awaitIndex(t testing.TB, nc *nats.Conn, collection string, q question) {
	t.Helper()
	eventually(t, "the index of "+collection+" is there", func() bool {
		p := query(t, nc, collection, q.request()).Plan
		if collection == "lazy" && p.Index != nil {
			return *p.Behind == 0 && len(p.Building) == 0
		}
		return p.Index != nil && len(p.Building) == 0
	})
}

// TestQueryHits: queries over a web server's log, with every kind of index and by
// request, command and client, return the same as plain Go over its file.
func TestQueryHits(t *testing.T) {
	t.Parallel()
	documents := hitDocuments(t)
	// A time limit that slow machines keep.
	s := harness.Serve(t, "--durability", "os", "--query-time", "1m")
	nc := dial(t, s)
	notFound := question{where: "doc.status == 404"}
	collections := []string{"plain", "consistent", "lazy", "later"}
	for _, collection := range collections {
		policy := "{}"
		if collection == "consistent" || collection == "lazy" {
			policy = "{" + indexed(collection) + "}"
		}
		mustAsk(t, nc, 201, "collection.create."+collection, policy)
		load(t, nc, collection, documents)
	}
	mustAsk(t, nc, 200, "collection.replace.later", "{"+indexed("consistent")+"}")
	for _, collection := range collections[1:] {
		awaitIndex(t, nc, collection, notFound)
	}
	clients := lostClients(t)
	questions := hitQuestions(documents)
	want := make([][]string, len(questions))
	for i, q := range questions {
		want[i] = q.answers(t, documents)
	}
	for _, collection := range collections {
		for _, w := range ways(t, s) {
			if w.name == "command" && collection != "consistent" && !stress.Long() {
				continue // slow, a process per page; the command does not depend on indexes
			}
			t.Run(collection+"/"+w.name, func(t *testing.T) {
				for i, q := range questions {
					t.Run(q.name, func(t *testing.T) {
						got := w.ask(t, collection, &q)
						sameAnswers(t, got.documents, want[i])
						checkPlan(t, collection, &q, got, len(documents))
					})
				}
				t.Run("how many of each status", func(t *testing.T) { countStatuses(t, w, collection, documents) })
				t.Run("the clients themselves", func(t *testing.T) { distinctClients(t, w, collection, clients) })
			})
		}
	}
	s.Stop()
}

// hitQuestions returns the questions for every collection.
func hitQuestions(documents []hitDocument) []question {
	is := func(codes ...int) func(hitDocument) bool {
		return func(d hitDocument) bool { return slices.Contains(codes, d.status()) }
	}
	both := func(a, b func(hitDocument) bool) func(hitDocument) bool {
		return func(d hitDocument) bool { return a(d) && b(d) }
	}
	// looked returns the number of documents that an index leads to.
	looked := func(takes func(hitDocument) bool) (n int) {
		for _, d := range documents {
			if takes(d) {
				n++
			}
		}
		return n
	}
	longest := ""
	for _, d := range documents {
		if link := d.text("referrer"); len(link) > len(longest) {
			longest = link
		}
	}
	sized := func(d hitDocument) bool { n, ok := d.number("bytes"); return ok && n > 0 }
	msnbot := func(d hitDocument) bool { return strings.HasPrefix(d.text("agent"), "msnbot") }
	busiest := func(d hitDocument) bool { return d.text("client") == "66.249.73.135" }
	bot := func(d hitDocument) bool { return strings.Contains(d.text("agent"), "bot") }
	return []question{
		{name: "which clients got a 404", where: "doc.status == 404", sel: []string{"client"},
			takes: is(404), index: "/status", looked: looked(is(404))},
		{name: "which clients got a 404, by pages", where: "params.code == doc.status", params: map[string]any{"code": 404}, sel: []string{"client", "id"}, page: 30,
			takes: is(404), index: "/status"},
		{name: "the ten largest answers", where: "doc.bytes > 0", orderBy: []ordering{{"/bytes", true}}, limit: 10,
			takes: sized, index: "/bytes", looked: 10},
		{name: "the first ten by size, with those that have none", orderBy: []ordering{{"/bytes", true}}, limit: 10,
			index: "/bytes", looked: 10},
		{name: "the fifty largest that are no downloads of the whole, page by page", where: "doc.bytes > 0 && doc.status != 200", orderBy: []ordering{{"/bytes", true}}, limit: 50, page: 20,
			takes: func(d hitDocument) bool { return sized(d) && d.status() != 200 }},
		{name: "everything from one crawler", where: "doc.agent.contains(params.crawler)", params: map[string]any{"crawler": "Googlebot"},
			takes: func(d hitDocument) bool { return strings.Contains(d.text("agent"), "Googlebot") }, index: "-"},
		{name: "everything from a crawler that comes first", where: "doc.agent.startsWith('msnbot')",
			takes: msnbot, index: "/agent", looked: looked(msnbot)},
		{name: "what crawlers did not find", where: "doc.agent.contains('bot') && doc.status == 404",
			takes: both(bot, is(404)), index: "/status", looked: looked(is(404))},
		{name: "what nobody linked to and went wrong", where: "!has(doc.referrer) && doc.status in [404, 500]",
			takes: func(d hitDocument) bool { return d.members["referrer"] == nil && is(404, 500)(d) }, index: "/status", looked: looked(is(404, 500))},
		{name: "what has no size", where: "!(doc.bytes >= 0)", sel: []string{"id", "bytes"},
			takes: func(d hitDocument) bool { _, ok := d.number("bytes"); return !ok }},
		{name: "one client's largest", where: "doc.client == params.client", params: map[string]any{"client": "66.249.73.135"}, orderBy: []ordering{{"/bytes", true}, {"/id", false}}, limit: 20,
			takes: busiest, index: "/client", looked: looked(busiest)},
		{name: "all by size", orderBy: []ordering{{"/bytes", false}}, sel: []string{"id", "bytes"}, page: 1000, index: "/bytes"},
		{name: "all by agent", orderBy: []ordering{{"/agent", true}}, sel: []string{"agent", "id"}},
		// Some referrers are longer than what an index keeps of them.
		{name: "all by referrer", orderBy: []ordering{{"/referrer", true}}, sel: []string{"referrer", "id"}, page: 500},
		{name: "who came by the longest link", where: "doc.referrer == params.link", params: map[string]any{"link": longest},
			takes: func(d hitDocument) bool { return d.text("referrer") == longest }, index: "/referrer"},
		{name: "links from where the longest is, on", where: "doc.referrer >= params.link && doc.referrer < 'https'", params: map[string]any{"link": longest}, orderBy: []ordering{{"/referrer", false}},
			takes: func(d hitDocument) bool { return d.text("referrer") >= longest && d.text("referrer") < "https" }, sel: []string{"id"}},
		{name: "all by status, size and referrer", orderBy: []ordering{{"/status", false}, {"/bytes", true}, {"/referrer", false}}, sel: []string{"id"}, page: 1000},
	}
}

func sameAnswers(t testing.TB, got, want []string) {
	t.Helper()
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			t.Fatalf("document %d is\n%s, want\n%s", i, got[i], want[i])
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%d documents, want %d", len(got), len(want))
	}
}

// checkPlan checks the output of explain: which index was used, and that no more
// documents were scanned than needed.
func checkPlan(t testing.TB, collection string, q *question, got outcome, all int) {
	t.Helper()
	p := got.plan
	if len(p.Building) != 0 {
		t.Errorf("the indexes %v are said to be built", p.Building)
	}
	if p.Behind != nil && *p.Behind != 0 {
		t.Errorf("the index is said to be %d behind", *p.Behind)
	}
	if collection == "plain" {
		if p.Index != nil {
			t.Errorf("the index %s is used, and there is none", *p.Index)
		}
	} else if q.index != "" && p.path() != q.index {
		t.Errorf("the index %s is used, want %s", p.path(), q.index)
	}
	switch {
	case p.Index == nil && q.page == 0 && (q.limit > 0 || q.takes != nil) && got.scanned != all:
		t.Errorf("%d documents were looked at, of %d", got.scanned, all)
	case p.Index != nil && q.looked > 0 && (got.scanned < q.looked || got.scanned > q.looked+1):
		t.Errorf("%d documents were looked at, want %d, or one more to see whether there are more", got.scanned, q.looked)
	}
}

// countStatuses compares counts with a tally of the file.
func countStatuses(t *testing.T, w way, collection string, documents []hitDocument) {
	tally := make(map[int]int)
	for _, d := range documents {
		tally[d.status()]++
	}
	tally[418] = 0
	for status, want := range tally {
		q := question{where: "doc.status == params.status", params: map[string]any{"status": status}}
		n, p := w.count(t, collection, &q)
		if n != want || p.Returned != want {
			t.Errorf("%d documents have status %d, want %d; the plan is %+v", n, status, want, p)
		}
		looked, index := want, "/status"
		if collection == "plain" {
			looked, index = len(documents), "-"
		}
		if p.path() != index || p.Scanned != looked {
			t.Errorf("status %d was counted by index %s looking at %d, want %s and %d", status, p.path(), p.Scanned, index, looked)
		}
	}
	if n, _ := w.count(t, collection, &question{}); n != len(documents) {
		t.Errorf("there are %d documents, want %d", n, len(documents))
	}
}

// lostClients returns the clients with a 404, from the file's lines.
func lostClients(t *testing.T) map[string]bool {
	hits, _ := readHits(t)
	clients := make(map[string]bool)
	for _, h := range hits {
		if strings.Contains(string(h.Body), `"status":404,`) {
			clients[h.ID] = true
		}
	}
	if len(clients) != 90 {
		t.Fatalf("%d clients got a 404, want the 90 that were counted by hand", len(clients))
	}
	return clients
}

// distinctClients queries the clients with a 404 in pages of different sizes.
func distinctClients(t *testing.T, w way, collection string, want map[string]bool) {
	pages := []int{17, 1000}
	if w.name == "command" {
		pages = []int{100, 0}
	}
	for _, page := range pages {
		got := make(map[string]bool)
		for _, d := range w.ask(t, collection, &question{where: "doc.status == 404", sel: []string{"client"}, page: page}).documents {
			var document map[string]string
			unmarshal(t, []byte(d), &document)
			got[document["client"]] = true
		}
		if !maps.Equal(got, want) {
			t.Errorf("in pages of %d there are %d clients, want %d", page, len(got), len(want))
		}
	}
}

// TestQueryDuringExpiry: while half of a crawler's documents expire, queries return no
// document past its deadline, and all others.
func TestQueryDuringExpiry(t *testing.T) {
	t.Parallel()
	var documents, half []hitDocument
	for _, d := range hitDocuments(t) {
		if !strings.Contains(d.text("agent"), "bot") {
			continue
		}
		documents = append(documents, d)
		if strings.Contains(d.text("agent"), "Googlebot") && len(documents)%2 == 0 {
			half = append(half, d)
		}
	}
	s := harness.Serve(t, "--durability", "os", "--query-time", "1m")
	for collection, policy := range map[string]string{
		"plain":      `{"defaultTtl":-1}`,
		"consistent": `{"defaultTtl":-1,` + indexed("consistent") + "}",
		"lazy":       `{"defaultTtl":-1,` + indexed("lazy") + "}",
	} {
		t.Run(collection, func(t *testing.T) {
			t.Parallel()
			nc := dial(t, s)
			c := clientOn(t, nc)
			mustAsk(t, nc, 201, "collection.create."+collection, policy)
			load(t, nc, collection, documents)
			if collection != "plain" {
				awaitIndex(t, nc, collection, question{where: "doc.status == 404"})
			}
			// On a machine that stalls, all may expire before the first query: retry with
			// a longer TTL.
			for ttl := 2; ; ttl *= 2 {
				w := expiryWatch{collection: collection, members: make(map[string]string), deadlines: make(map[string]int64)}
				for _, d := range documents {
					if strings.Contains(d.text("agent"), "Googlebot") {
						w.members[d.id] = marshal(t, d.members)
					}
				}
				var short []hitDocument
				for _, d := range half {
					d.members = maps.Clone(d.members)
					d.members["ttl"] = float64(ttl)
					w.members[d.id] = marshal(t, d.members)
					short = append(short, d)
				}
				for id, ts := range load(t, nc, collection, short) {
					w.deadlines[id] = ts + int64(ttl)
				}
				for !w.over {
					w.look(t, nc, c)
				}
				if w.seen {
					break
				}
			}
			eventually(t, "the expiries are in the log", func() bool {
				var info struct{ Documents int }
				unmarshal(t, mustAsk(t, nc, 200, "collection.get."+collection, "").body, &info)
				return info.Documents == len(documents)-len(half)
			})
		})
	}
	t.Cleanup(func() {
		if !t.Failed() {
			s.Stop()
		}
	})
}

// expiryWatch queries the documents of one crawler until they expire.
type expiryWatch struct {
	collection string
	members    map[string]string // content by id
	deadlines  map[string]int64  // by id, where there is one
	seen, over bool              // whether documents with a deadline were seen, and whether all of them are gone
}

const crawler = "doc.agent.contains('Googlebot') && doc.status > 0" // an index on the status leads to all

// look queries all in one page, then in small pages, and then the count.
func (w *expiryWatch) look(t testing.TB, nc *nats.Conn, c *client.Client) {
	t.Helper()
	q := question{where: crawler, page: 100}
	sent := time.Now().Unix()
	reply := query(t, nc, w.collection, map[string]any{"where": crawler, "limit": 1000, "explain": true})
	var documents []string
	for _, d := range reply.Documents {
		documents = append(documents, bare(t, d))
	}
	// With a lazy index that is behind, documents with a deadline may be missing early.
	current := reply.Plan.Behind == nil || *reply.Plan.Behind == 0
	short := w.check(t, documents, sent, time.Now().Unix(), current)
	w.seen = w.seen || short > 0
	w.over = short == 0

	sent = time.Now().Unix()
	o := q.byClient(t, c, w.collection)
	w.check(t, o.documents, sent, time.Now().Unix(), false) // documents come due between pages

	sent = time.Now().Unix()
	counted := query(t, nc, w.collection, map[string]any{"where": crawler, "count": true, "explain": true})
	answered := time.Now().Unix()
	most, least := len(w.members), len(w.members)
	for _, deadline := range w.deadlines {
		if deadline <= sent {
			most--
		}
		if deadline <= answered {
			least--
		}
	}
	if counted.Plan.Behind != nil && *counted.Plan.Behind > 0 {
		least = len(w.members) - len(w.deadlines)
	}
	if n := *counted.Count; n < least || n > most {
		t.Fatalf("%d documents are counted, want %d to %d", n, least, most)
	}
}

// check checks the result of a query that was sent and answered in these seconds. It
// returns the number of documents with a deadline in it.
func (w *expiryWatch) check(t testing.TB, documents []string, sent, answered int64, current bool) (short int) {
	t.Helper()
	there := make(map[string]bool)
	last := ""
	for _, d := range documents {
		var document struct{ ID string }
		unmarshal(t, []byte(d), &document)
		id := document.ID
		if id <= last {
			t.Fatalf("%s comes after %s", id, last)
		}
		last = id
		if d != w.members[id] {
			t.Fatalf("%s is\n%s, want\n%s", id, d, w.members[id])
		}
		there[id] = true
		if deadline, ok := w.deadlines[id]; ok {
			short++
			if deadline <= sent {
				t.Fatalf("%s was there in an answer to what was asked at %d, after its deadline %d", id, sent, deadline)
			}
		}
	}
	for id := range w.members {
		deadline, ends := w.deadlines[id]
		if !there[id] && (!ends || current && deadline > answered) {
			t.Fatalf("%s is missing at %d, its deadline is %d (0 for none)", id, answered, deadline)
		}
	}
	return short
}
