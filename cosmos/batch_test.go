package cosmos_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/host"
)

// batch sends a batch that is not atomic, unless headers say so. It returns the statuses of its
// operations.
func (g *gateway) batch(container, operations string, headers ...string) string {
	g.Helper()
	return statuses(g, g.ask("POST", "dbs/db/colls/"+container+"/docs", "["+operations+"]", append(headers, "x-ms-cosmos-is-batch-request", "true")...).text)
}

func statuses(t testing.TB, text string) string {
	t.Helper()
	var rows []struct{ StatusCode int }
	if err := json.Unmarshal([]byte(text), &rows); err != nil {
		t.Fatalf("%.500s: %v", text, err)
	}
	codes := make([]string, len(rows))
	for i, row := range rows {
		codes[i] = fmt.Sprint(row.StatusCode)
	}
	return strings.Join(codes, " ")
}

// ids returns the ids of items in a list, which may be texts alone.
func ids(documents []string) (all []string) {
	for _, document := range documents {
		item := struct{ ID string }{strings.Trim(document, `"`)}
		_ = json.Unmarshal([]byte(document), &item)
		all = append(all, item.ID)
	}
	return all
}

// TestTogetherTooLarge: items that together do not fit into a message are all read, by queries,
// feeds and batches; pages of them end with a continuation.
func TestTogetherTooLarge(t *testing.T) {
	g := start(t, host.Cosmos{})
	g.container("c", "/k", "")
	all := []string{"a", "b", "c", "d", "e"}
	large := strings.Repeat("s", 1_700_000)
	for _, id := range all {
		g.want(201, "POST", "dbs/db/colls/c/docs", `{"id":"`+id+`","k":"v","n":1,"s":"`+large+`"}`, of(`["v"]`)...)
	}
	for query, pages := range map[string]int{`SELECT VALUE c.id`: 1, `SELECT *`: 2, `SELECT * ORDER`: 2} {
		query, sorted := strings.CutSuffix(query, " ORDER")
		if query += ` FROM c WHERE c.k = 'v' AND c.id IN ('a', 'b', 'c', 'd', 'e', 'f')`; sorted {
			query += " ORDER BY c.id"
		}
		got := g.query("c", query, "100", func() {})
		if found := ids(slices.Concat(got...)); !slices.Equal(found, all) || len(got) != pages {
			t.Errorf("%s has %q in %d pages, want %q in %d", query, found, len(got), all, pages)
		}
	}
	var found []string
	for etag := ""; ; {
		a := g.ask("GET", "dbs/db/colls/c/docs", "", "A-IM", latest, "If-None-Match", etag)
		if a.StatusCode == 304 {
			break
		}
		var page struct{ Documents []struct{ ID string } }
		if err := json.Unmarshal([]byte(a.text), &page); err != nil || len(page.Documents) > 3 {
			t.Fatalf("%d items, %v", len(page.Documents), err)
		}
		for _, item := range page.Documents {
			found = append(found, item.ID)
		}
		etag = a.Header.Get("Etag")
	}
	if !slices.Equal(found, all) {
		t.Errorf("the feed has %q", found)
	}
	var patches, upserts []string
	for _, id := range append(all, "none") {
		patches = append(patches, `{"operationType":"Patch","id":"`+id+`","resourceBody":{"operations":[{"op":"incr","path":"/n","value":1}]}}`)
	}
	if got := g.batch("c", strings.Join(patches, ","), of(`["v"]`)...); got != "200 200 200 200 200 404" {
		t.Errorf("patches: %s", got)
	}
	coll, err := g.client.Collection(t.Context(), "c")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Create(t.Context(), coll, "v:none", map[string]string{"k": "w", "s": large}); err != nil {
		t.Fatal(err)
	}
	for _, id := range append(all, "none") {
		upserts = append(upserts, `{"operationType":"Upsert","resourceBody":{"id":"`+id+`","k":"v"}}`)
	}
	if got := g.batch("c", strings.Join(upserts, ","), append(of(`["v"]`), "x-ms-cosmos-batch-atomic", "true")...); got != "424 424 424 424 424 409" {
		t.Errorf("atomic upserts: %s", got)
	}
	if got := g.batch("c", strings.Join(upserts, ","), of(`["v"]`)...); got != "200 200 200 200 200 409" {
		t.Errorf("upserts: %s", got)
	}
}

// TestBatchOfOneItem: an operation sees what those before it did to its item, not what they were
// to do.
func TestBatchOfOneItem(t *testing.T) {
	g := start(t, host.Cosmos{})
	g.container("c", "/id", "")
	g.want(201, "POST", "dbs/db/colls/c/docs", `{"id":"a","n":1}`, of(`["a"]`)...)
	steps := strings.NewReplacer("create", `{"operationType":"Create","resourceBody":{"id":"a","n":100}}`, "upsert", `{"operationType":"Upsert","resourceBody":{"id":"a","n":100}}`,
		"stale", `{"operationType":"Replace","id":"a","ifMatch":"\"1\"","resourceBody":{"id":"a","n":100}}`, "lose", `{"operationType":"Delete","id":"a","ifMatch":"\"1\""}`,
		"delete", `{"operationType":"Delete","id":"a"}`, "read", `{"operationType":"Read","id":"a"}`,
		"patch", `{"operationType":"Patch","id":"a","resourceBody":{"operations":[{"op":"incr","path":"/n","value":1}]}}`, " ", ",")
	for _, test := range []struct {
		steps, want string
		n           int
	}{
		{"create patch", "409 200", 2}, {"stale patch", "412 200", 3}, {"lose patch", "412 200", 4}, {"patch patch read create patch", "200 200 200 409 200", 7},
		{"patch upsert patch read", "200 200 200 200", 101}, {"delete patch create patch upsert patch", "204 404 201 200 200 200", 101}, {"read patch delete read create", "200 200 204 404 201", 100},
	} {
		got := g.batch("c", steps.Replace(test.steps), of(`["a"]`)...)
		if text := g.want(200, "GET", "dbs/db/colls/c/docs/a", "", of(`["a"]`)...).text; got != test.want || !strings.HasPrefix(text, fmt.Sprintf(`{"id":"a","n":%d,`, test.n)) {
			t.Errorf("%s: %s, want %s; the item is %s, want n %d", test.steps, got, test.want, text, test.n)
		}
	}
	for list, want := range map[string]string{"upsert patch patch read": "200 200 200 200", "create patch": "409 424", "patch stale patch": "424 412 424", "delete patch": "424 404"} {
		if got := g.batch("c", steps.Replace(list), append(of(`["a"]`), "x-ms-cosmos-batch-atomic", "true")...); got != want {
			t.Errorf("atomic, %s: %s, want %s", list, got, want)
		}
	}
	if text := g.want(200, "GET", "dbs/db/colls/c/docs/a", "", of(`["a"]`)...).text; !strings.HasPrefix(text, `{"id":"a","n":102,`) {
		t.Errorf("the item is %s", text)
	}
}

// answerBatches answers requests in the place of lapse: batches by a result for each operation,
// or by a 429 if a result is empty. It returns the operations that are sent, as text.
func (w *world) answerBatches(t *testing.T, result func(op, ifMatch string) string) (sent chan string) {
	w.lapse.Stop(t)
	sent = make(chan string, 100)
	nc := w.lapse.Connect(t)
	_, err := nc.Subscribe("lapse.main.api.>", func(m *nats.Msg) {
		status, body := "200", `{"id":"orders","_ts":1,"_etag":"1"}`
		if strings.HasPrefix(m.Subject, "lapse.main.api.batch") {
			var b struct {
				Operations []struct {
					Op, IfMatch string
					Body        json.RawMessage
				}
			}
			_ = json.Unmarshal(m.Data, &b)
			var results []string
			for _, op := range b.Operations {
				sent <- strings.TrimSpace(op.Op + " " + string(op.Body))
				results = append(results, result(op.Op, op.IfMatch))
			}
			if body = `{"results":[` + strings.Join(results, ",") + `]}`; slices.Contains(results, "") {
				status, body = "429", `{"code":429,"error":"overloaded","message":"try again"}`
			}
		}
		_ = m.RespondMsg(&nats.Msg{Header: nats.Header{"Lapse-Status": {status}, "Lapse-Seq": {"5"}}, Data: []byte(body)})
	})
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	return sent
}

const found = `{"code":200,"body":{"id":"a","n":1,"_ts":1,"_etag":"5"}}`

// TestInterruptedBatch: where other writes interrupt a patch, what follows it in the batch waits
// for its last try.
func TestInterruptedBatch(t *testing.T) {
	for _, test := range []struct {
		writes, tries int
		want          string
	}{{0, 1, "200 200"}, {2, 3, "200 200"}, {99, 16, "449 200"}} {
		inBubble(t, func(t *testing.T, w *world) {
			sent := w.answerBatches(t, func(op, ifMatch string) string {
				if ifMatch == "" || test.writes == 0 {
					return found
				}
				test.writes--
				return `{"code":412,"body":{"code":412,"error":"precondition_failed","message":"another write"}}`
			})
			answer := w.ask("POST", `[{"operationType":"Patch","id":"a","resourceBody":[{"op":"incr","path":"/n","value":1}]},{"operationType":"Replace","id":"a","resourceBody":{"id":"a","n":9}}]`,
				append(of(`["a"]`), "x-ms-cosmos-is-batch-request", "true")...)
			if got := statuses(t, answer.Body.String()); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
			for _, want := range append(slices.Repeat([]string{`get`, `replace {"id":"a","n":2}`}, test.tries), `replace {"id":"a","n":9}`) {
				if got := <-sent; got != want {
					t.Errorf("%s is sent, want %s", got, want)
				}
			}
			if len(sent) > 0 {
				t.Errorf("%s is sent, too", <-sent)
			}
		})
	}
}

// TestBatchEndsEarly: operations that were done keep their results if lapse does not answer for
// the others; nothing done is the error of the batch.
func TestBatchEndsEarly(t *testing.T) {
	for answered, want := range []string{"", "200 429 429", "200 429 429", "200 200 429"} {
		inBubble(t, func(t *testing.T, w *world) {
			w.answerBatches(t, func(op, ifMatch string) string {
				if answered--; answered < 0 {
					return ""
				}
				return found
			})
			answer := w.ask("POST", `[{"operationType":"Upsert","resourceBody":{"id":"a","n":1}},{"operationType":"Patch","id":"a","resourceBody":[{"op":"incr","path":"/n","value":1}]},{"operationType":"Read","id":"a"}]`,
				append(of(`["a"]`), "x-ms-cosmos-is-batch-request", "true")...)
			if want == "" {
				if answer.Code != 429 {
					t.Errorf("nothing is done: %d %s", answer.Code, answer.Body)
				}
			} else if got := statuses(t, answer.Body.String()); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
}
