package cosmos_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/cosmos"
	"github.com/lapsedb/lapse/cosmos/sql"
	"github.com/lapsedb/lapse/host"
	"github.com/lapsedb/lapse/schema/values"
)

// gateway is a server for tests with a gateway, and the database db in it.
type gateway struct {
	testing.TB
	url    string
	key    string
	client *client.Client
}

// start serves databases in memory until the test ends.
func start(t testing.TB, with host.Cosmos) *gateway {
	t.Helper()
	with.URL = "http://127.0.0.1:0"
	ctx, stop := context.WithCancel(context.Background())
	ready, ended := make(chan host.Ready, 1), make(chan error, 1)
	at := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	go func() {
		ended <- host.Run(ctx, host.Options{Listen: "127.0.0.1:0", Cosmos: with, Test: &host.Test{At: at}, Events: func(e host.Event) {
			if e, ok := e.(host.Ready); ok {
				ready <- e
			}
		}})
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	g := &gateway{TB: t, key: with.Key}
	if g.key == "" {
		g.key = cosmos.WellKnownKey
	}
	select {
	case r := <-ready:
		g.url = r.Cosmos
		var err error
		g.client, err = client.Connect(r.URL, client.WithDatabase("db"))
		check(t, err)
		t.Cleanup(g.client.Close)
	case err := <-ended:
		ended <- nil
		t.Fatal(err)
	}
	g.want(201, "POST", "dbs", `{"id":"DB"}`)
	return g
}

// answer is a reply of the gateway.
type answer struct {
	*http.Response
	text string
}

// ask sends a request with the signature of an SDK; headers are names and values in turn.
func (g *gateway) ask(method, path, body string, headers ...string) answer {
	g.Helper()
	r, err := http.NewRequest(method, g.url+"/"+path, strings.NewReader(body))
	check(g, err)
	g.sign(r)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
		if headers[i+1] == "" {
			r.Header.Del(headers[i])
		}
	}
	response, err := http.DefaultClient.Do(r)
	check(g, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	check(g, err)
	return answer{response, string(text)}
}

func (g *gateway) sign(r *http.Request) {
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	kind, link := path[len(path)-1], strings.Join(path[:len(path)-1], "/")
	if len(path)%2 == 0 {
		kind, link = path[len(path)-2], strings.Join(path, "/")
	}
	g.signAs(r, kind, link, time.Now())
}

// signAs signs a request for a type of resource and a link.
func (g *gateway) signAs(r *http.Request, kind, link string, at time.Time) {
	date := at.UTC().Format(http.TimeFormat)
	key, _ := base64.StdEncoding.DecodeString(g.key)
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s\n%s\n%s\n%s\n\n", strings.ToLower(r.Method), kind, link, strings.ToLower(date))
	r.Header.Set("x-ms-date", date)
	r.Header.Set("Authorization", url.QueryEscape("type=master&ver=1.0&sig="+base64.StdEncoding.EncodeToString(mac.Sum(nil))))
}

// want is ask, with the status that the reply must have.
func (g *gateway) want(status int, method, path, body string, headers ...string) answer {
	g.Helper()
	a := g.ask(method, path, body, headers...)
	if a.StatusCode != status {
		g.Errorf("%s %s %.200s: %d %s, want %d", method, path, body, a.StatusCode, a.text, status)
	}
	if a.StatusCode >= 400 {
		var fault struct{ Code, Message string }
		if err := json.Unmarshal([]byte(a.text), &fault); err != nil || fault.Code == "" || fault.Message == "" {
			g.Errorf("%s %s: the error is %s", method, path, a.text)
		}
	}
	return a
}

// container creates a container with one path of its partition key.
func (g *gateway) container(id, path, more string) {
	g.Helper()
	g.want(201, "POST", "dbs/db/colls", fmt.Sprintf(`{"id":%q,"partitionKey":{"paths":[%q]}%s}`, id, path, more))
}

func (g *gateway) advance(seconds int) {
	g.Helper()
	g.want(200, "POST", "_lapse/clock", fmt.Sprintf(`{"advance":%d}`, seconds), "Content-Type", "application/json", "Authorization", "")
}

// of is the header of a partition key.
func of(values string) []string { return []string{"x-ms-documentdb-partitionkey", values} }

// query returns the rows of a query within all partitions, page by page.
func (g *gateway) query(container, query, size string, between func()) (pages [][]string) {
	g.Helper()
	token := ""
	for {
		body, _ := json.Marshal(map[string]string{"query": query})
		a := g.want(200, "POST", "dbs/db/colls/"+container+"/docs", string(body), "Content-Type", "application/query+json", "x-ms-documentdb-partitionkeyrangeid", "0",
			"x-ms-max-item-count", size, "x-ms-continuation", token)
		var page struct{ Documents []json.RawMessage }
		check(g, json.Unmarshal([]byte(a.text), &page))
		var rows []string
		for _, row := range page.Documents {
			rows = append(rows, string(row))
		}
		pages = append(pages, rows)
		if token = a.Header.Get("x-ms-continuation"); token == "" {
			return pages
		}
		between()
	}
}

// TestDoors: only signed requests under a known name and from no page are answered.
func TestDoors(t *testing.T) {
	g := start(t, host.Cosmos{})
	g.want(200, "GET", "dbs/db", "")
	other := *g
	other.key = base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 64)))
	other.want(401, "GET", "dbs/db", "")
	g.want(401, "GET", "dbs/db", "", "Authorization", "")
	g.want(401, "GET", "dbs/db", "", "Authorization", "%zz")
	g.want(401, "GET", "dbs/db", "", "x-ms-date", time.Now().Add(-16*time.Minute).UTC().Format(http.TimeFormat))
	g.want(200, "GET", "dbs/db", "", "Authorization", url.QueryEscape("type=aad&ver=1.0&sig=a.b.c"))
	g.want(401, "GET", "dbs/db", "", "Authorization", url.QueryEscape("type=resource&ver=1.0&sig=a"))
	for _, path := range []string{"dbs/db", "_lapse/clock"} {
		g.want(403, "GET", path, "", "Host", "evil.example")
		a := g.want(403, "GET", path, "", "Origin", g.url)
		for name := range a.Header {
			if strings.HasPrefix(name, "Access-Control") {
				t.Errorf("%s has %s", path, name)
			}
		}
	}
	for range 3 {
		r, _ := http.NewRequest("GET", g.url+"/dbs/db", nil)
		g.signAs(r, "dbs", "dbs/db", time.Now().Add(-16*time.Minute))
		if response, err := http.DefaultClient.Do(r); err != nil || response.StatusCode != 401 {
			t.Errorf("an old signature: %v, %v", response, err)
		}
	}
	own := start(t, host.Cosmos{Key: other.key})
	own.want(200, "GET", "dbs/db", "")
	own.want(401, "GET", "dbs/db", "", "Authorization", url.QueryEscape("type=aad&ver=1.0&sig=a.b.c"))
}

// TestBusy: beyond 64 requests at once the next waits for its turn, and is told to try again
// after 2 s.
func TestBusy(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var bodies []*io.PipeWriter
		var underWay sync.WaitGroup
		for range 64 {
			body, rest := io.Pipe()
			bodies = append(bodies, rest)
			underWay.Go(func() { w.send("POST", body) })
		}
		synctest.Wait()
		began := time.Now()
		a := w.ask("GET", "")
		if wait, err := strconv.Atoi(a.Header().Get("x-ms-retry-after-ms")); a.Code != 429 || err != nil || wait <= 0 || time.Since(began) != 2*time.Second {
			t.Errorf("%d after %s, with x-ms-retry-after-ms %q", a.Code, time.Since(began), a.Header().Get("x-ms-retry-after-ms"))
		}
		answered := make(chan int)
		go func() { answered <- w.ask("GET", "").Code }()
		synctest.Wait()
		for _, rest := range bodies {
			_ = rest.Close()
		}
		if status := <-answered; status != 200 || time.Since(began) >= 10*time.Second {
			t.Errorf("in its turn: %d after %s", status, time.Since(began))
		}
		underWay.Wait()
	})
}

// TestRefusals: what isn't served, and what is malformed, is an error of Cosmos DB's form.
func TestRefusals(t *testing.T) {
	g := start(t, host.Cosmos{})
	g.container("c", "/k", "")
	for _, c := range []struct {
		status             int
		method, path, body string
		headers            []string
		says               string
	}{
		{400, "POST", "dbs/db/colls/c/sprocs", `{}`, nil, "stored procedures"},
		{400, "POST", "dbs/db/colls/c/triggers", `{}`, nil, "triggers"},
		{400, "POST", "dbs/db/colls/c/docs", `{"id":"a","k":"v"}`, append(of(`["v"]`), "x-ms-documentdb-pre-trigger-include", "t"), "triggers"},
		{400, "DELETE", "dbs/db/colls/c/docs/a", "", append(of(`["v"]`), "x-ms-documentdb-post-trigger-include", "t"), "triggers"},
		{400, "GET", "dbs/db/users", "", nil, "users"},
		{400, "GET", "nothing", "", nil, "path"},
		{405, "PATCH", "dbs/db", "", nil, "PATCH"},
		{400, "POST", "dbs", `{"id":"ä"}`, nil, "makes no name"},
		{400, "POST", "dbs", `{"id":`, nil, "no JSON"},
		{400, "POST", "dbs", `{"id":5}`, nil, "id, a string"},
		{404, "GET", "dbs/none/colls/c", "", nil, "none"},
		{400, "POST", "dbs/db/colls", `{"id":"a b","partitionKey":{"paths":["/k"]}}`, nil, "id"},
		{400, "POST", "dbs/db/colls", `{"id":"d","partitionKey":{"paths":["/a/[]"]}}`, nil, "path"},
		{400, "POST", "dbs/db/colls", `{"id":"d","partitionKey":{"paths":["/a","/b","/c","/d"]}}`, nil, "3 paths"},
		{400, "POST", "dbs/db/colls", `{"id":"d","partitionKey":{"paths":["/_ts"]}}`, nil, "path"},
		{400, "POST", "dbs/db/colls", `{"id":"d","partitionKey":{"paths":["/k"]},"x":"` + strings.Repeat("x", 17<<10) + `"}`, nil, "too large"},
		{400, "POST", "dbs/db/colls/c/docs", `{"id":"a","k":"v"}`, nil, "partition key"},
		{400, "POST", "dbs/db/colls/c/docs", `{"id":"a","k":"v"}`, of(`["w"]`), "partition key"},
		{400, "POST", "dbs/db/colls/c/docs", `{"id":"a","k":[]}`, of(`["w"]`), "array"},
		{400, "POST", "dbs/db/colls/c/docs", `{"id":"a","k":1e400}`, of(`["w"]`), "beyond a double"},
		{400, "GET", "dbs/db/colls/c/docs/a", "", of(`[1e400]`), "partition key"},
		{400, "GET", "dbs/db/colls/c/docs", "", append(of(`[-1e400]`), "A-IM", "Incremental Feed"), "partition key"},
		{400, "POST", "dbs/db/colls/c/docs", `{"k":"v"}`, of(`["v"]`), "id"},
		{400, "POST", "dbs/db/colls/c/docs", `{"id":"","k":"v"}`, of(`["v"]`), "id"},
		{400, "POST", "dbs/db/colls/c/docs", `{"id":"a","k":"v"`, of(`["v"]`), "JSON"},
		{413, "POST", "dbs/db/colls/c/docs", strings.Repeat(" ", 2<<20+1), of(`["v"]`), "more than"},
		{404, "GET", "dbs/db/colls/c/docs/a", "", of(`["v"]`), "a"},
		{400, "PATCH", "dbs/db/colls/c/docs/a", `[]`, of(`["v"]`), "1 to 10"},
		{400, "POST", "dbs/db/colls/c/docs", `{"query":"SELECT udf.f(c) FROM c"}`, []string{"x-ms-documentdb-query", "true"}, ""},
		{400, "POST", "dbs/db/colls/c/docs", `[]`, []string{"x-ms-cosmos-is-batch-request", "true"}, "1 to 100"},
		{400, "POST", "dbs/db/colls/c/docs", "\x81\x00\x00", []string{"x-ms-cosmos-is-batch-request", "True"}, ".NET"},
		{400, "GET", "dbs/db/colls/c/docs", "", []string{"A-IM", "Full-Fidelity Feed"}, "from now"},
		{400, "GET", "dbs/db/colls/c/docs", "", []string{"x-ms-continuation", "x!"}, "continuation"},
		{400, "GET", "dbs//colls", "", nil, "empty"},
	} {
		if a := g.want(c.status, c.method, c.path, c.body, c.headers...); !strings.Contains(a.text, c.says) {
			t.Errorf("%s %s: %s, want it to say %q", c.method, c.path, a.text, c.says)
		}
	}
	if a := g.want(404, "GET", "dbs/db/colls/c/docs/a", "", append(of(`["v"]`), "x-ms-session-token", "0:-1#999")...); a.Header.Get("x-ms-substatus") != "1002" {
		t.Errorf("a state that isn't there yet has substatus %q: %s", a.Header.Get("x-ms-substatus"), a.text)
	}
	if a := g.want(404, "GET", "dbs/db/colls/none", ""); a.Header.Get("x-ms-substatus") != "1003" {
		t.Errorf("a container that isn't there has substatus %q", a.Header.Get("x-ms-substatus"))
	}
}

// TestBothWorlds: an item's expiry is an event with its content, a document of the form of an
// item is one, and another document is none.
func TestBothWorlds(t *testing.T) {
	g := start(t, host.Cosmos{})
	g.container("orders", "/customerId", `,"defaultTtl":-1`)
	g.want(201, "POST", "dbs/db/colls/orders/docs", `{"total":1.50,"id":"SO05","customerId":"C1","ttl":60}`, of(`["C1"]`)...)
	g.advance(60)
	g.want(404, "GET", "dbs/db/colls/orders/docs/SO05", "", of(`["C1"]`)...)
	for e, err := range g.client.Changes(t.Context(), client.FromStart(), client.OfType(client.DocumentExpired)) {
		check(t, err)
		if want := `{"total":1.50,"id":"C1:SO05","customerId":"C1","ttl":60}`; e.ID != "C1:SO05" || string(e.Body) != want {
			t.Errorf("%s expired with %s", e.ID, e.Body)
		}
		break
	}
	orders, err := g.client.Collection(t.Context(), "orders")
	check(t, err)
	for id, customer := range map[string]string{"C1:mine": "C1", "C2:not": "C1", "plain": "C1"} {
		if _, err := client.Create(t.Context(), orders, id, map[string]string{"customerId": customer}); err != nil {
			t.Fatal(err)
		}
	}
	if a := g.want(200, "GET", "dbs/db/colls/orders/docs/mine", "", of(`["C1"]`)...); !strings.HasPrefix(a.text, `{"id":"mine","customerId":"C1","_ts":`) {
		t.Error(a.text)
	}
	g.want(404, "GET", "dbs/db/colls/orders/docs/not", "", of(`["C2"]`)...)
	g.want(404, "DELETE", "dbs/db/colls/orders/docs/not", "", of(`["C2"]`)...)
	g.want(404, "PUT", "dbs/db/colls/orders/docs/not", `{"id":"not","customerId":"C2"}`, of(`["C2"]`)...)
	for _, upsert := range []string{"true", "false"} {
		if a := g.want(409, "POST", "dbs/db/colls/orders/docs", `{"id":"not","customerId":"C2"}`, append(of(`["C2"]`), "x-ms-documentdb-is-upsert", upsert)...); !strings.Contains(a.text, "C2:not") {
			t.Error(a.text)
		}
	}
	for _, operation := range []string{"Create", "Upsert"} {
		batch := `[{"operationType":"` + operation + `","resourceBody":{"id":"not","customerId":"C2"}}]`
		if a := g.want(207, "POST", "dbs/db/colls/orders/docs", batch, append(of(`["C2"]`), "x-ms-cosmos-is-batch-request", "true")...); !strings.Contains(a.text, `"statusCode":409`) || !strings.Contains(a.text, "C2:not") {
			t.Errorf("a batch with %s: %s", operation, a.text)
		}
	}
	if pages := g.query("orders", "SELECT VALUE c.id FROM c", "10", nil); fmt.Sprint(pages) != `[["mine"]]` {
		t.Error(pages)
	}
	if pages := g.query("orders", "SELECT VALUE COUNT(1) FROM c", "10", nil); fmt.Sprint(pages) != `[[1]]` {
		t.Error(pages)
	}
	check(t, client.Hold(t.Context(), orders, "C1:mine", "audit"))
	g.want(423, "DELETE", "dbs/db/colls/orders/docs/mine", "", of(`["C1"]`)...)
}

// TestTrace: the trace context of an HTTP request stands on the events that it makes.
func TestTrace(t *testing.T) {
	g := start(t, host.Cosmos{})
	g.container("orders", "/id", "")
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	trace := []string{"traceparent", parent, "tracestate", "a=1"}
	g.want(201, "POST", "dbs/db/colls/orders/docs", `{"id":"a"}`, append(of(`["a"]`), trace...)...)
	g.want(200, "PUT", "dbs/db/colls/orders/docs/a", `{"id":"a"}`, append(of(`["a"]`), trace...)...)
	g.want(200, "PATCH", "dbs/db/colls/orders/docs/a", `{"operations":[{"op":"set","path":"/n","value":1}]}`, append(of(`["a"]`), trace...)...)
	g.want(200, "POST", "dbs/db/colls/orders/docs", `[{"operationType":"Delete","id":"a"}]`, append(append(of(`["a"]`), "x-ms-cosmos-is-batch-request", "true"), trace...)...)
	g.want(201, "POST", "dbs/db/colls/orders/docs", `{"id":"a"}`, append(of(`["a"]`), "traceparent", parent+", "+parent)...)
	var got []string
	for e, err := range g.client.Changes(t.Context(), client.FromStart(), client.UntilNow(), client.InCollection("orders")) {
		check(t, err)
		traced := e.Schema().Trace
		got = append(got, e.Type.String()+" "+strings.ReplaceAll(traced.Parent, parent, "…")+" "+traced.State)
	}
	if want := []string{"CollectionCreated  ", "DocumentCreated … a=1", "DocumentReplaced … a=1", "DocumentReplaced … a=1", "DocumentDeleted … a=1", "DocumentCreated  "}; !slices.Equal(got, want) {
		t.Errorf("the log has %q, want %q", got, want)
	}
}

// TestDefinitions: a container's definition stands in the metadata, and PUT keeps what Cosmos
// DB has no word for.
func TestDefinitions(t *testing.T) {
	g := start(t, host.Cosmos{})
	g.container("c", "/k", `,"defaultTtl":60,"uniqueKeyPolicy":{},"indexingPolicy":{"indexingMode":"Consistent","includedPaths":[{"path":"/a/b/?"},{"path":"/*"}]}`)
	coll, err := g.client.ChangeCollection(t.Context(), "c", client.WarnBefore(5*time.Second), client.IncludePaths("/mine"))
	if err != nil || !slices.Equal(coll.Info().IncludedPaths, []string{"/a/b", "/mine"}) || !strings.Contains(coll.Info().Metadata["cosmos"], `"uniqueKeyPolicy":{}`) {
		t.Fatalf("%+v, %v", coll, err)
	}
	a := g.want(200, "PUT", "dbs/db/colls/c", `{"id":"c","partitionKey":{"paths":["/k"]},"indexingPolicy":{"includedPaths":[{"path":"/x/?"}]}}`)
	for _, part := range []string{`"id":"c"`, `"version":2`, `"includedPaths":[{"path":"/x/?"}]`, `"indexingMode":"consistent"`} {
		if !strings.Contains(a.text, part) {
			t.Errorf("%s lacks %s", a.text, part)
		}
	}
	if coll, err = g.client.Collection(t.Context(), "c"); err != nil || coll.Info().WarnBefore != 5 || coll.Info().DefaultTTL != client.TTLOff || !slices.Equal(coll.Info().IncludedPaths, []string{"/mine", "/x"}) {
		t.Errorf("%+v, %v", coll, err)
	}
	if _, err := g.client.CreateCollection(t.Context(), "plain"); err != nil {
		t.Fatal(err)
	}
	if a := g.want(200, "GET", "dbs/db/colls/plain", ""); !strings.Contains(a.text, `"paths":["/id"]`) {
		t.Error(a.text)
	}
	if _, err := g.client.CreateCollection(t.Context(), "wrong", client.Metadata("cosmos", "{")); err != nil {
		t.Fatal(err)
	}
	g.want(500, "GET", "dbs/db/colls/wrong", "")
	g.want(500, "POST", "dbs/db/colls/wrong/docs", `{"id":"a"}`, of(`["a"]`)...)
}

// TestPagesAcrossDeadlines: items that expire between two pages neither show nor hide others,
// whatever a page goes on after.
func TestPagesAcrossDeadlines(t *testing.T) {
	g := start(t, host.Cosmos{})
	for n, c := range []struct{ query, want string }{
		{"SELECT VALUE c.n FROM c", "[[0 2 4] [6 8 3] [5 7]]"},
		{"SELECT TOP 7 VALUE c.n FROM c", "[[0 2 4] [6 8 3] [5]]"},
		{"SELECT VALUE c.n FROM c OFFSET 1 LIMIT 5", "[[2 4 6] [8 3]]"},
		{"SELECT VALUE c.n FROM c ORDER BY c.n", "[[0 1 2] [3 5 6] [7 8]]"},
		{"SELECT TOP 5 VALUE c.n FROM c ORDER BY c.n", "[[0 1 2] [3 5]]"},
		{"SELECT VALUE c.n FROM c ORDER BY c.n DESC OFFSET 1 LIMIT 4", "[[7 6 5] [3]]"},
		{"SELECT DISTINCT VALUE c.n FROM c", "[[0 1 2] [3 5 6] [7 8]]"},
		{"SELECT DISTINCT TOP 4 VALUE c.n FROM c ORDER BY c.n DESC", "[[8 7 6] [5]]"},
		{"SELECT VALUE COUNT(1) FROM c", "[[9]]"},
		{"SELECT VALUE c.n FROM c GROUP BY c.n", "[[0 1 2] [3 5 6] [7 8]]"},
		{"SELECT c.k, COUNT(1) AS n, MAX(c.n) AS m FROM c GROUP BY c.k", `[[{"k":"0","n":5,"m":8} {"k":"1","n":4,"m":7}]]`},
		{"SELECT VALUE l FROM c JOIN l IN c.l", "[[0 1 20] [21 60 61] [80 81 30] [31 50 51] [70 71]]"},
		{"SELECT VALUE l FROM c JOIN l IN c.l OFFSET 2 LIMIT 9", "[[20 21 40] [60 61 80] [81 30 31]]"}, // 4 expires between its rows
		{"SELECT VALUE l FROM c JOIN l IN c.l WHERE c.n < 4 ORDER BY c.n DESC", "[[30 31 20] [21 0 1]]"},
		{"SELECT VALUE c.n FROM c WHERE EXISTS(SELECT VALUE l FROM l IN c.l WHERE l > 50)", "[[6 8 5] [7]]"},
	} {
		name := fmt.Sprint("c", n)
		g.container(name, "/k", `,"defaultTtl":-1`)
		for i := range 9 {
			ttl := -1
			if i == 1 || i == 4 {
				ttl = 60
			}
			g.want(201, "POST", "dbs/db/colls/"+name+"/docs", fmt.Sprintf(`{"id":"%d","k":"%d","n":%d,"l":[%d,%d],"ttl":%d}`, i, i%2, i, 10*i, 10*i+1, ttl), of(fmt.Sprintf(`["%d"]`, i%2))...)
		}
		if pages := g.query(name, c.query, "3", func() { g.advance(60) }); fmt.Sprint(pages) != c.want {
			t.Errorf("%s: %v, want %s", c.query, pages, c.want)
		}
	}
}

// TestPageNamesFunctions: the functions that the page names are served.
func TestPageNamesFunctions(t *testing.T) {
	page, err := os.ReadFile("../docs/cosmos.md")
	check(t, err)
	_, table, _ := strings.Cut(string(page), "\n| strings |")
	table, _, _ = strings.Cut(table, "\n\n")
	names := regexp.MustCompile("`([A-Z][A-Z0-9_]+)`").FindAllStringSubmatch(strings.Replace(table, "`STATIC`", "", 1), -1)
	if len(names) < 70 {
		t.Errorf("%d functions", len(names))
	}
	for _, name := range names {
		for _, args := range []string{"", "1", "1, 1", "1, 1, 1"} {
			if _, err = sql.Parse("SELECT VALUE "+name[1]+"("+args+")", nil); err == nil || strings.Contains(err.Error(), "pattern 1") {
				err = nil
				break
			}
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// TestCount: a count that lapse makes itself is that of the rows, whatever types the items have;
// the metrics say how many items a query reads.
func TestCount(t *testing.T) {
	g := start(t, host.Cosmos{})
	g.container("c", "/id", "")
	for i, v := range []string{`1`, `1.0`, `-1`, `"1"`, `"a"`, `"B"`, `"é"`, `true`, `false`, `null`, `[1]`, `[]`, `{"b":1}`, `{"b":"1"}`, `{"b":null}`, `9007199254740993`, `9007199254740992`, `18446744073709551615`, `1e300`, `0.1`} {
		g.want(201, "POST", "dbs/db/colls/c/docs", fmt.Sprintf(`{"id":"%d","a":%s,"a-b":%s,"even":%t}`, i, v, v, i%2 == 0), of(fmt.Sprintf(`["%d"]`, i))...)
	}
	g.want(201, "POST", "dbs/db/colls/c/docs", `{"id":"none"}`, of(`["none"]`)...)
	read := func(query string) (rows, read string) {
		body, _ := json.Marshal(map[string]string{"query": query})
		a := g.want(200, "POST", "dbs/db/colls/c/docs", string(body), "Content-Type", "application/query+json", "x-ms-documentdb-partitionkeyrangeid", "0", "x-ms-max-item-count", "-1")
		_, metrics, _ := strings.Cut(a.Header.Get("X-Ms-Documentdb-Query-Metrics"), "retrievedDocumentCount=")
		read, _, _ = strings.Cut(metrics, ";")
		return string(values.Value(a.text).At([]string{"Documents"})), read
	}
	literals := []string{`1`, `0.1`, `"1"`, `"a"`, `"é"`, `true`, `null`, `9007199254740993`, `18446744073709551615`, `1e300`}
	for _, path := range []string{`c.a`, `c["a-b"]`, `c.a.b`, `c._ts`, `c.even`} {
		for _, operator := range []string{"=", "<", "<=", ">", ">=", "IN", "!="} {
			for _, literal := range literals {
				condition := path + " " + operator + " " + literal
				if operator == "IN" {
					condition = path + ` IN (` + literal + `, "B", false) AND (c.even = true OR c.a = 1)`
				}
				scalar := !strings.Contains("true null", literal) || operator == "=" || operator == "IN"
				rows, all := read("SELECT VALUE 1 FROM c WHERE " + condition)
				count, few := read("SELECT VALUE COUNT(1) FROM c WHERE " + condition)
				if want := fmt.Sprintf("[%d]", strings.Count(rows, "1")); count != want || all != "21" || (few == "0") != (scalar && operator != "!=") {
					t.Errorf("%s: %s, want %s; %s and %s items read", condition, count, want, all, few)
				}
			}
		}
	}
	for condition, want := range map[string]string{`c.id = "1"`: "1", `NOT (c.a = 1)`: "21", `c.a["0"] = 1`: "21", `c._etag = "1"`: "21", `c.a = 1 AND LENGTH(c.id) = 1`: "21", `true`: "0", `c.id > "1" AND c.id < "3"`: "0"} {
		rows, _ := read("SELECT VALUE 1 FROM c WHERE " + condition)
		count, n := read("SELECT VALUE COUNT(1) FROM c WHERE " + condition)
		if want := fmt.Sprintf("[%d]", strings.Count(rows, "1")); count != want {
			t.Errorf("%s: %s, want %s", condition, count, want)
		}
		if n != want {
			t.Errorf("%s: %s items read, want %s", condition, n, want)
		}
	}
}

// TestWhatSDKsNeed: replies have what one of the SDKs fails or loses rows without.
func TestWhatSDKsNeed(t *testing.T) {
	g := start(t, host.Cosmos{})
	g.container("c", "/k", "")
	for i := range 4 {
		g.want(201, "POST", "dbs/db/colls/c/docs", fmt.Sprintf(`{"id":"%d","k":"%d"}`, i, i), of(fmt.Sprintf(`["%d"]`, i))...)
	}
	sorted := func(status int, headers ...string) answer {
		return g.want(status, "POST", "dbs/db/colls/c/docs", `{"query":"SELECT VALUE c.k FROM c ORDER BY c.k"}`,
			append(headers, "Content-Type", "application/query+json", "x-ms-documentdb-query-enablecrosspartition", "true")...)
	}
	const metrics = "totalExecutionTimeInMs=0.00;retrievedDocumentCount=4;retrievedDocumentSize=192;outputDocumentCount=2;outputDocumentSize=6;indexUtilizationRatio=0.50"
	a := sorted(200, "x-ms-documentdb-partitionkeyrangeid", "0", "x-ms-max-item-count", "2")
	if got := a.Header.Get("x-ms-documentdb-query-metrics"); got != metrics {
		t.Errorf("Java: metrics %s", got)
	}
	if a := sorted(200, "x-ms-documentdb-partitionkeyrangeid", "0", "x-ms-max-item-count", "4"); a.Header.Get("x-ms-continuation") != "" {
		t.Errorf("JavaScript: the last page has a continuation, and a page without rows is undefined: %s", a.text)
	}
	if a := g.want(200, "GET", "dbs/db/colls/c/docs", "", "x-ms-max-item-count", "2"); !strings.Contains(a.Header.Get("x-ms-documentdb-query-metrics"), "retrievedDocumentCount=2;") {
		t.Errorf("a page of two reads more: %s", a.Header.Get("x-ms-documentdb-query-metrics"))
	}
	if a := sorted(400); a.Header.Get("x-ms-substatus") != "1004" {
		t.Errorf("Go and JavaScript: %s", a.text)
	}
	first := sorted(200, "x-ms-documentdb-query-iscontinuationexpected", "False", "x-ms-max-item-count", "2")
	if second := sorted(200, "x-ms-documentdb-query-iscontinuationexpected", "False", "x-ms-continuation", first.Header.Get("x-ms-continuation")); !strings.Contains(second.text, `["2","3"]`) {
		t.Errorf("Python: the second page is %s", second.text)
	}
	g.container("indexed", "/k", `,"indexingPolicy":{"includedPaths":[{"path":"/a/b/?"}]}`)
	for condition, index := range map[string]string{"c.a.b = 1": `"IndexSpec":"/a/b/?"`, "c.a.b > 1": `"UtilizedSingleIndexes":[]`} {
		a := g.want(200, "POST", "dbs/db/colls/indexed/docs", `{"query":"SELECT * FROM c WHERE `+condition+`"}`, "Content-Type", "application/query+json",
			"x-ms-documentdb-partitionkeyrangeid", "0", "x-ms-cosmos-populateindexmetrics", "true")
		if text, err := base64.StdEncoding.DecodeString(a.Header.Get("x-ms-cosmos-index-utilization")); err != nil || !strings.Contains(string(text), index) {
			t.Errorf("%s: %s, %v", condition, text, err)
		}
	}
	for path, substatus := range map[string]string{"dbs/none": "", "dbs/none/colls/c": "1003", "dbs/none/colls/c/docs": "1003"} {
		if a := g.want(404, "GET", path, ""); a.Header.Get("x-ms-substatus") != substatus {
			t.Errorf("%s has substatus %q", path, a.Header.Get("x-ms-substatus"))
		}
	}
}

// TestSelfLinks: an item is found by its _self, which Python's SDK uses for items that it is
// given, whatever characters the id has.
func TestSelfLinks(t *testing.T) {
	g := start(t, host.Cosmos{})
	g.container("c", "/k", "")
	for _, id := range []string{"a", "a/b", "ü?~ ", "YWJj=", strings.Repeat("i", 300)} {
		a := g.want(201, "POST", "dbs/db/colls/c/docs", fmt.Sprintf(`{"id":%q,"k":"v"}`, id), of(`["v"]`)...)
		self := string(values.Value(a.text).At([]string{"_self"}).Text())
		link := strings.ToLower(path.Base(self))
		for _, c := range []struct {
			status       int
			method, body string
		}{{200, "GET", ""}, {200, "PUT", fmt.Sprintf(`{"id":%q,"k":"v","n":1}`, id)}, {200, "PATCH", `[{"op":"incr","path":"/n","value":1}]`}, {204, "DELETE", ""}, {404, "GET", ""}} {
			r := httptest.NewRequest(c.method, "http://localhost/", nil)
			g.signAs(r, "docs", link, time.Now())
			g.want(c.status, c.method, self, c.body, append(of(`["v"]`), "Authorization", r.Header.Get("Authorization"), "x-ms-date", r.Header.Get("x-ms-date"))...)
		}
	}
	container := string(values.Value(g.want(200, "GET", "dbs/db/colls/c", "").text).At([]string{"_self"}).Text())
	for _, link := range []string{"not base64", "gICA"} {
		g.want(404, "GET", container+"docs/"+link, "", append(of(`["v"]`), "Authorization", url.QueryEscape("type=aad&ver=1.0&sig=a"))...)
	}
}

// TestCurrentTime: the current time of a query and of a patch's condition is that of the clock
// that a test moves.
func TestCurrentTime(t *testing.T) {
	g := start(t, host.Cosmos{})
	g.container("c", "/k", "")
	g.want(201, "POST", "dbs/db/colls/c/docs", `{"id":"a","k":"v"}`, of(`["v"]`)...)
	for now, status := range map[string]int{"0": 412, "c._ts * 1000": 200} {
		patch := `{"operations":[{"op":"set","path":"/x","value":1}],"condition":"FROM c WHERE GetCurrentTimestamp() = ` + now + `"}`
		g.want(status, "PATCH", "dbs/db/colls/c/docs/a", patch, of(`["v"]`)...)
		if got := g.batch("c", `{"operationType":"Patch","id":"a","resourceBody":`+patch+`}`, of(`["v"]`)...); got != fmt.Sprint(status) {
			t.Errorf("in a batch, %s: %s, want %d", patch, got, status)
		}
	}
	const age = `SELECT VALUE DateTimeDiff("dd", TimestampToDateTime(c._ts * 1000), GetCurrentDateTime()) FROM c`
	for _, days := range []string{"0", "30"} {
		if pages := g.query("c", age, "10", nil); fmt.Sprint(pages) != "[["+days+"]]" {
			t.Errorf("%v days, want %s", pages, days)
		}
		g.advance(30 * 24 * 60 * 60)
	}
}

// TestLargest: an item may have 2 MiB, whatever its partition key adds to the document's id.
func TestLargest(t *testing.T) {
	g := start(t, host.Cosmos{})
	g.container("c", "/k", "")
	item := `{"id":"a","k":"v","s":"` + strings.Repeat("s", 2<<20-len(`{"id":"a","k":"v","s":""}`)) + `"}`
	g.want(201, "POST", "dbs/db/colls/c/docs", item, of(`["v"]`)...)
	g.want(200, "PUT", "dbs/db/colls/c/docs/a", item, of(`["v"]`)...)
	if a := g.want(200, "GET", "dbs/db/colls/c/docs/a", "", of(`["v"]`)...); !strings.HasPrefix(a.text, strings.TrimSuffix(item, "}")) {
		t.Errorf("%.100s", a.text)
	}
	g.want(413, "POST", "dbs/db/colls/c/docs", item+" ", of(`["v"]`)...)
}

// TestClock: the clocks of all databases move, or that of one; a database is opened at the
// latest time of all.
func TestClock(t *testing.T) {
	g := start(t, host.Cosmos{})
	now := func() string { return g.want(200, "GET", "_lapse/clock", "", "Authorization", "").text }
	begin := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	if want := fmt.Sprintf(`{"now":%d}`, begin); now() != want {
		t.Errorf("%s, want %s", now(), want)
	}
	g.want(200, "POST", "_lapse/clock?database=DB", `{"advance":10}`, "Content-Type", "application/json")
	g.want(404, "POST", "_lapse/clock?database=none", `{"advance":10}`, "Content-Type", "application/json")
	g.want(415, "POST", "_lapse/clock", `{"advance":10}`, "Content-Type", "text/plain")
	for _, wrong := range []string{`{}`, `{"advance":-1}`, `{"advance":1.5}`, `{"advance":"1"}`, `{"advance":999999999999999}`} {
		g.want(400, "POST", "_lapse/clock", wrong, "Content-Type", "application/json")
	}
	g.want(201, "POST", "dbs", `{"id":"later"}`)
	later, err := client.New(g.client.Conn(), client.WithDatabase("later"))
	check(t, err)
	if at, err := later.TestClock().Now(t.Context()); err != nil || at.Unix() != begin+10 {
		t.Errorf("it begins at %v, %v", at, err)
	}
	g.want(204, "DELETE", "dbs/later", "")
	g.want(404, "GET", "dbs/later", "")
}

// FuzzRequests: whatever a client sends gets a reply of Cosmos DB's form.
func FuzzRequests(f *testing.F) {
	g := start(f, host.Cosmos{})
	g.container("c", "/k", "")
	for _, body := range []string{`{"id":"a","k":"v"}`, `[{"operationType":"Patch","id":"a","resourceBody":{"operations":[{"op":"add","path":"/-","value":[]}]}}]`,
		`[{"operationType":"Create","partitionKey":"[\"v\"]","resourceBody":{"id":"a","k":"v"}}]`, `{"query":"SELECT * FROM c"}`, `[{"op":"move","from":"/a","path":"/b/0"}]`} {
		for _, path := range []string{"dbs/db/colls", "dbs/db/colls/c", "dbs/db/colls/c/docs", "dbs/db/colls/c/docs/a", "offers/x"} {
			f.Add("POST", path, body, `["v"]`)
			f.Add("PATCH", path, body, `["v"]`)
		}
	}
	f.Fuzz(func(t *testing.T, method, path, body, key string) {
		g := *g
		g.TB = t
		target, err := url.Parse(g.url + "/" + path)
		if err != nil || target.Host+target.Scheme != strings.TrimPrefix(g.url, "http://")+"http" || len(method) > 10 {
			t.Skip()
		}
		r, err := http.NewRequest(method, target.String(), strings.NewReader(body))
		if err != nil {
			t.Skip()
		}
		r.Header.Set("Authorization", url.QueryEscape("type=aad&ver=1.0&sig=a.b.c"))
		r.Header.Set("x-ms-documentdb-partitionkey", key)
		if strings.HasPrefix(body, "[") {
			r.Header.Set("x-ms-cosmos-is-batch-request", "true")
		} else if strings.HasPrefix(body, `{"q`) {
			r.Header.Set("x-ms-documentdb-query", "true")
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Skip() // what Go's client does not send
		}
		defer response.Body.Close()
		text, _ := io.ReadAll(response.Body)
		if response.StatusCode == 500 || response.StatusCode >= 400 && method != "HEAD" && !strings.HasPrefix(string(text), `{"code":"`) && response.Header.Get("x-ms-request-charge") != "" {
			t.Errorf("%s %q %q: %d %s", method, path, body, response.StatusCode, text)
		}
	})
}

// TestMinimal: a write that is answered without content has the etag that a read shows, and
// what SDKs read of the range and of the feed's rows is there.
func TestMinimal(t *testing.T) {
	g := start(t, host.Cosmos{})
	g.container("c", "/k", "")
	const items = "dbs/db/colls/c/docs"
	feed := func(etag string) answer {
		return g.ask("GET", items, "", "A-IM", "Full-Fidelity Feed", "If-None-Match", etag)
	}
	from := feed("*").Header.Get("Etag")
	written := g.want(201, "POST", items, `{"id":"a","k":"v"}`, append(of(`["v"]`), "Prefer", "return=minimal")...)
	read := g.want(200, "GET", items+"/a", "", of(`["v"]`)...)
	if written.text != "" || written.Header.Get("Etag") == "" || written.Header.Get("Etag") != read.Header.Get("Etag") {
		t.Errorf("it says %q with the etag %s, a read %s", written.text, written.Header.Get("Etag"), read.Header.Get("Etag"))
	}
	for what, a := range map[string]answer{"the range": g.want(200, "GET", "dbs/db/colls/c/pkranges", ""), "a change": feed(from)} {
		if !strings.Contains(a.text, `"lsn":`) {
			t.Errorf("%s has no lsn: %d %s", what, a.StatusCode, a.text)
		}
	}
}
