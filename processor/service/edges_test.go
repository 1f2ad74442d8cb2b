package service_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/processor/answer"
	"github.com/lapsedb/lapse/processor/processortest"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/stress"
)

// edge is a limit of the contract, with the reply codes just below it, at it and just
// above it.
type edge struct {
	name  string
	limit int
	tail  func(n int) string
	body  func(n int) string
	head  func(n int) []string
	codes [3]int
	error string // of refusals; any if empty
}

func fixed(s string) func(int) string { return func(int) string { return s } }

// sized returns a document of n bytes.
func sized(n int) string { return `{"p":"` + strings.Repeat("x", n-len(`{"p":""}`)) + `"}` }

// nested returns a document that nests n deep.
func nested(n int) string {
	return `{"p":` + strings.Repeat("[", n-1) + strings.Repeat("]", n-1) + `}`
}

// padded returns s padded with blanks to n bytes.
func padded(s string) func(n int) string {
	return func(n int) string { return s + strings.Repeat(" ", n-len(s)) }
}

// listed formats a list of n items.
func listed(format string, item func(i int) string) func(n int) string {
	return func(n int) string {
		items := make([]string, n)
		for i := range items {
			items[i] = item(i)
		}
		return fmt.Sprintf(format, strings.Join(items, ","))
	}
}

func path(i int) string { return fmt.Sprintf(`"/p%d"`, i) }

func pathObject(i int) string { return `{"path":` + path(i) + `}` }

// edges are limits that the service and the query engine check. Those of documents, ids,
// properties and batches are in the tests of schema and in testdata/wire.
var edges = []edge{
	// {"id":"a","p":"…"}
	{"bytes of what a patch makes", schema.MaxDocumentBytes, fixed("document.patch.c.a"), func(n int) string { return sized(n - 9) }, nil, [3]int{200, 200, 413}, "too_large"},
	{"levels of a query", schema.MaxDepth, fixed("query.c"), func(n int) string { return `{"params":` + nested(n-1) + `}` }, nil, [3]int{200, 200, 400}, "bad_request"},

	{"bytes of a collection's name", 64, func(n int) string { return "collection.create." + strings.Repeat("n", n) }, fixed(""), nil, [3]int{201, 201, 400}, "bad_request"},

	{"bytes of a Nats-Msg-Id", 255, fixed("document.upsert.c.a"), fixed("{}"), func(n int) []string { return []string{"Nats-Msg-Id", strings.Repeat("m", n)} }, [3]int{200, 200, 400}, "bad_request"},
	{"bytes of an If-Match", 4096, fixed("document.upsert.c.a"), fixed("{}"), func(n int) []string { return []string{"If-Match", strings.Repeat("1", n)} }, [3]int{412, 412, 412}, "precondition_failed"},
	{"bytes of another header", 1 << 20, fixed("document.upsert.c.a"), fixed("{}"), func(n int) []string { return []string{"X-Other", strings.Repeat("o", n)} }, [3]int{200, 200, 200}, ""},
	{"the least Lapse-Min-Seq", 0, fixed("document.get.c.a"), fixed(""), func(n int) []string { return []string{"Lapse-Min-Seq", strconv.Itoa(n)} }, [3]int{400, 200, 200}, "bad_request"},

	{"the least limit of a history", 0, fixed("history.c.b"), func(n int) string { return fmt.Sprintf(`{"limit":%d}`, n) }, nil, [3]int{400, 400, 200}, "bad_request"},
	{"the limit of a history", answer.MaxHistory, fixed("history.c.b"), func(n int) string { return fmt.Sprintf(`{"limit":%d}`, n) }, nil, [3]int{200, 200, 400}, "bad_request"},

	{"bytes of a query", 1 << 20, fixed("query.c"), padded(`{"limit":1,"select":["/id"]}`), nil, [3]int{200, 200, 413}, "too_large"},
	{"the least limit of a query", 0, fixed("query.c"), func(n int) string { return fmt.Sprintf(`{"select":["/id"],"limit":%d}`, n) }, nil, [3]int{400, 400, 200}, "bad_request"},
	{"the limit of a query", 1000, fixed("query.c"), func(n int) string { return fmt.Sprintf(`{"select":["/id"],"limit":%d}`, n) }, nil, [3]int{200, 200, 400}, "bad_request"},
	{"paths to order by", 16, fixed("query.c"), listed(`{"limit":1,"select":["/id"],"orderBy":[%s]}`, pathObject), nil, [3]int{200, 200, 400}, "bad_request"},
	{"paths to select", 64, fixed("query.c"), listed(`{"limit":1,"select":[%s]}`, path), nil, [3]int{200, 200, 400}, "bad_request"},
	{"bytes of a path to select", 255, fixed("query.c"), func(n int) string { return `{"select":["/` + strings.Repeat("p", n-1) + `"]}` }, nil, [3]int{200, 200, 400}, "bad_request"},
	{"bytes of an idPrefix", schema.MaxIDBytes, fixed("query.c"), func(n int) string { return `{"idPrefix":"` + strings.Repeat("i", n) + `"}` }, nil, [3]int{200, 200, 400}, "bad_request"},
	{"bytes of params", 256 << 10, fixed("query.c"), func(n int) string { return `{"limit":1,"select":["/id"],"params":` + sized(n) + `}` }, nil, [3]int{200, 200, 400}, "bad_request"},
	{"bytes of a condition", 8192, fixed("query.c"), func(n int) string {
		return `{"count":true,"where":"doc.x == '` + strings.Repeat("w", n-len("doc.x == ''")) + `'"}`
	}, nil, [3]int{200, 200, 400}, "bad_query"},
}

// TestPayloadEdges: requests just below, at and just above each limit get the right code.
// A refusal changes nothing, and the next request is served.
func TestPayloadEdges(t *testing.T) {
	w := processortest.New(t)
	w.Want(201, "collection.create.c", `{"defaultTtl":-1}`)
	w.Want(201, "document.create.c.a", "{}")
	w.Want(201, "document.create.c.b", "{}")
	for _, e := range edges {
		for i, code := range e.codes {
			n := e.limit - 1 + i
			var headers []string
			if e.head != nil {
				headers = e.head(n)
			}
			before := w.End()
			r := w.Ask(e.tail(n), e.body(n), headers...)
			if r.Code != code || e.error != "" && code >= 400 && r.Error != e.error {
				t.Errorf("%s (%s), %d: %.300s, want %d %s", e.name, e.tail(1), n, r, code, e.error)
			}
			if after := w.End(); r.Code >= 400 && after != before {
				t.Errorf("%s, %d: %.300s, and the log went on with %s", e.name, n, r, w.Summary(before))
			}
		}
	}
	w.Want(200, "document.get.c.b", "")
	w.Refold()
}

// TestBadBodies: every operation refuses a body that is not what it says, with one set of
// messages, as a request and as a mutation. Nothing changes.
func TestBadBodies(t *testing.T) {
	w := processortest.New(t)
	w.Want(201, "collection.create.c", "")
	w.Want(201, "document.create.c.a", "{}")
	// A wrong value of each member, and of parts that are objects.
	members := map[string][]string{
		"collection.create": {`"previousImages":1`, `"indexingPolicy":[]`, `"indexingPolicy":{"indexingMode":1}`, `"indexingPolicy":{"includedPaths":{}}`, `"indexingPolicy":{"includedPaths":[{"path":1}]}`, `"indexingPolicy":{"nope":1}`, `"indexingPolicy":{"includedPaths":[{"nope":1}]}`, `"id":1`},
		"document.restore":  {`"version":1`, `"version":""`},
		"document.hold":     {`"reason":1`},
		"batch":             {`"operations":{}`, `"operations":[],"atomic":1`},
		"query":             {`"where":1`, `"params":1`, `"orderBy":1`, `"orderBy":[1]`, `"orderBy":[{"path":"/a","path":"/b"}]`, `"orderBy":[{"path":"/a","nope":1}]`, `"select":1`, `"select":[1]`, `"limit":"1"`, `"cursor":1`, `"count":1`, `"explain":1`, `"deadlines":1`, `"due":1`, `"due":{"nope":1}`, `"due":{"from":[]}`, `"held":1`, `"idPrefix":1`, `"idPrefix":""`, `"idPrefix":"\ud800"`, `"due":{},"idPrefix":"a"`},
		"forecast":          {`"next":[]`, `"bucket":1.5`},
		"history":           {`"limit":"1"`, `"limit":1.5`, `"limit":0`, `"limit":1001`},
		"collection.list":   {`"limit":"1"`, `"limit":1.5`, `"cursor":1`, `"cursor":"."`},
	}
	members["collection.replace"] = members["collection.create"]
	foreign := regexp.MustCompile(`json:|Go |struct|float|unmarshal|map\[|nil|schema\.`)
	tails := map[schema.Tail]string{schema.CollectionTail: ".c", schema.DocumentTail: ".c.a", schema.SnapshotTail: ".1"}
	for _, o := range schema.Operations {
		op, tail := o.Name, o.Name+tails[o.Tail]
		bodies := []string{`[]`, `null`, `1`, `"{}"`, `{`, `{} {}`, `{"a":1,}`, "{\"a\":\"\xff\"}", "{\"a\":\"\x00\"}", "\ufeff{}", `{"a":` + strings.Repeat("[", 1024) + strings.Repeat("]", 1024) + `}`}
		switch op {
		case "document.create", "document.replace", "document.upsert", "document.patch":
			bodies = append(bodies, `{"id":"a","id":"a"}`, `{"ttl":1,"\u0074tl":1}`)
		default:
			bodies = append(bodies, `{"nope":1}`, `{"":1}`, `{"Limit":1}`)
		}
		for _, member := range members[op] {
			bodies = append(bodies, "{"+member+"}", "{"+member+","+member+"}")
		}
		for _, body := range bodies {
			r := w.Refused(400, "bad_request", tail, body)
			if foreign.MatchString(r.Message) || strings.Contains(body, "nope") && !strings.Contains(r.Message, `unknown member "nope" of `) {
				t.Errorf("%s %.80s: %s", tail, body, r.Message)
			}
			if !o.Mutates() {
				continue
			}
			w.Judged(w.Publish(tail, body))
			e, err := w.Inside().Log.Event(w.Ctx(), w.End())
			w.Check(err)
			if e.Type != schema.MutationRejected || !strings.Contains(string(e.Body), string(schema.AppendString(nil, r.Message))) {
				t.Fatalf("%s %.80s: published it is %s %s", tail, body, e.Type, e.Body)
			}
		}
	}
	w.Want(200, "document.get.c.a", "{}")
	w.Want(204, "document.delete.c.a", " {} ")
}

// TestMessageEdges: the largest message that the server accepts gets a reply; the client
// library refuses a larger one.
func TestMessageEdges(t *testing.T) {
	w := processortest.New(t)
	w.Want(201, "collection.create.c", "")
	w.Want(201, "document.create.c.a", "{}")
	payload := int(w.Client.MaxPayload())
	for tail, code := range map[string]int{
		"document.create.c.x": 413, "document.upsert.c.x": 413, "document.patch.c.a": 413, "document.get.c.a": 413,
		"document.delete.c.gone": 413, "collection.create.x": 413, "collection.get.c": 413, "collection.list": 400,
		"batch.c": 400, "query.c": 413, "history.c.a": 400, "status": 413, "unknown": 400,
	} {
		w.Want(code, tail, strings.Repeat("[", payload))
		if _, err := w.Client.Request("lapse.main.api."+tail, make([]byte, payload+1), processortest.Patience); !errors.Is(err, nats.ErrMaxPayload) {
			t.Errorf("%s of %d bytes: %v", tail, payload+1, err)
		}
	}
	// The same for headers.
	w.Want(200, "document.get.c.a", "", "X-Other", strings.Repeat("x", payload-100))
	w.Want(400, "document.get.c.a", "", "Lapse-Min-Seq", strings.Repeat("1", payload-100))
	w.Want(412, "document.upsert.c.a", "{}", "If-Match", strings.Repeat("1", payload-100))
	w.Want(400, "document.upsert.c.a", "{}", "Nats-Msg-Id", strings.Repeat("1", payload-100))
	// The same for mutations: each is judged.
	before := w.End()
	bodies := []string{strings.Repeat("[", payload), strings.Repeat("\x01", payload-1), strings.Repeat("\x01", schema.MaxDocumentBytes),
		`"` + strings.Repeat("\x02", schema.MaxDocumentBytes-2) + `"`, sized(schema.MaxDocumentBytes), sized(schema.MaxDocumentBytes + 1),
		strings.Repeat("[", 128) + strings.Repeat("]", 128), strings.Repeat("[", 129)}
	for _, body := range bodies {
		w.Publish("document.create.gone."+strings.Repeat("%22", 255), body)
	}
	w.Publish("document.upsert.c."+strings.Repeat("%22", 1200), sized(schema.MaxDocumentBytes))
	w.Judged(w.Publish(strings.Repeat("x.", 1900)+"y", sized(schema.MaxDocumentBytes), "Nats-Msg-Id", strings.Repeat("m", 255)))
	if got := strings.Count(w.Summary(before), "MutationRejected"); got != len(bodies)+2 {
		t.Errorf("%d of %d mutations were rejected", got, len(bodies)+2)
	}
	w.Want(200, "document.upsert.c.a", "{}")
}

// TestSmallMaxPayload: if max_payload is below the document limit, anything that does not
// fit is a 413 or a MutationRejected. It delays nothing else, and every change that was
// made is reported.
func TestSmallMaxPayload(t *testing.T) {
	for _, payload := range stress.Pick([]int{64 << 10}, []int{64 << 10, 1 << 20}) {
		t.Run(strconv.Itoa(payload), func(t *testing.T) {
			processortest.Bubble(t, func(w *processortest.Wire) {
				w.RestartInside(int32(payload))
				began := time.Now()
				w.Want(201, "collection.create.c", `{"defaultTtl":-1}`)
				most := payload - schema.HeaderRoom - schema.SystemRoom
				room := payload - schema.HeaderRoom

				// Documents whose events have the longest headers.
				id := strings.Repeat("%2E", 255)
				stored := func(n int) string { return sized(n - len(`"id":"",`) - 255) }
				for i, code := range []int{201, 200, 413} {
					w.Want(code, "document.upsert.c."+id, stored(most-1+i), "Nats-Msg-Id", strings.Repeat("m", 254)+strconv.Itoa(i),
						"traceparent", "01-"+strings.Repeat("1", 32)+"-"+strings.Repeat("1", 16)+"-01-"+strings.Repeat("x", 456), "tracestate", strings.Repeat("s", 512))
				}
				w.Want(200, "document.get.c."+id, "")
				w.Want(200, "query.c", `{"limit":1}`)
				w.Want(200, "batch.c", `{"operations":[{"op":"get","id":"`+strings.Repeat(".", 255)+`"}]}`)
				if r := w.Want(200, "history.c."+id, ""); !strings.Contains(string(r.Body), `],"cursor":"`) {
					t.Errorf("the page has no cursor: %.200s", r.Body)
				}
				w.Want(204, "document.delete.c."+id, "")

				// The result of a patch.
				w.Want(201, "document.create.c.p", `{"q":"`+strings.Repeat("q", most/2)+`"}`)
				base := len(`{"id":"p","q":"","p":""}`) + most/2
				for i, code := range []int{200, 200, 413} {
					w.Want(code, "document.patch.c.p", `{"p":"`+strings.Repeat("p", most-base-1+i)+`"}`)
				}

				// Mutations: one event each.
				before := w.End()
				w.Publish("document.upsert.c.m", sized(most-len(`"id":"m",`)))
				w.Publish("document.upsert.c.m", sized(most+1-len(`"id":"m",`)))
				last := uint64(0)
				rejection := len(rejectionOf(w, "document.create.gone.m", `{"p":""}`))
				sizes := []int{-1, 0, 1, schema.SystemRoom, schema.SystemRoom + 1}
				for _, n := range sizes {
					last = w.Publish("document.create.gone.m", sized(most-rejection+len(`{"p":""}`)+n))
				}
				for _, text := range []string{"\x01", "\xff", "\""} {
					last = w.Publish("document.create.gone.m", strings.Repeat(text, most))
				}
				w.Judged(last)
				if got, want := w.Summary(before), "DocumentCreated(m)"+strings.Repeat(" MutationRejected", 1+1+len(sizes)+3); got != want {
					t.Errorf("the log has %s, want %s", got, want)
				}
				for i, e := range w.Events() {
					if e.Type == schema.MutationRejected && !json.Valid(e.Body) {
						t.Errorf("event %d is no JSON", i)
					}
				}

				// Replies with two documents: the last that fits, and then a page that ends early.
				w.Want(201, "collection.create.two", "")
				for i := range 3 {
					// {"documents":[{"id":"x","p":"…","_ts":…,"_etag":"…"},{…}]}
					w.Ask("document.delete.two.x", "")
					w.Ask("document.delete.two.y", "")
					x := w.Want(201, "document.create.two.x", sized(room/2))
					y := w.Want(201, "document.create.two.y", sized(1000))
					fill := room - 1 + i - len(`{"documents":[`) - len(x.Body) - len(",") - len(y.Body) - len("]}")
					y = w.Want(200, "document.replace.two.y", sized(1000+fill))
					r := w.Want(200, "query.two", "")
					if size, early := len(r.Body), bytes.Contains(r.Body, []byte(`"cursor"`)); early != (i == 2) || !early && size != room-1+i {
						t.Errorf("the page has %d bytes, want %d; it ends early: %t", size, room-1+i, early)
					}
				}
				tooLarge := 0
				for n := -800; n < 40; n += 7 {
					w.Want(200, "document.replace.two.y", sized(room/2-200+n))
					r := w.Want(200, "batch.two", `{"operations":[{"op":"get","id":"x"},{"op":"get","id":"y"},{"op":"get","id":"nobody"}]}`)
					if len(r.Body) > room || !bytes.Contains(r.Body, []byte(`{"code":404,`)) {
						t.Errorf("a batch is answered with %d bytes", len(r.Body))
					}
					tooLarge += bytes.Count(r.Body, []byte(`{"code":413,"body"`))
				}
				if tooLarge == 0 || tooLarge == 120 {
					t.Errorf("the second document is too large %d times of 120", tooLarge)
				}

				// Due documents expire.
				ttl := func(n int) string {
					return `{"ttl":5,"p":"` + strings.Repeat("x", n-len(`{"ttl":5,"p":""}`)-len(`"id":"",`)-255) + `"}`
				}
				before = w.End()
				w.Want(201, "document.create.c."+id, ttl(most), "Nats-Msg-Id", strings.Repeat("m", 255))
				processortest.SleepUntil(time.Now().Unix()+7, 0)
				if got := w.Summary(before); strings.Count(got, "DocumentExpired") != 1 {
					t.Errorf("the log has %.200s", got)
				}
				if waited := time.Since(began); waited > time.Minute || strings.Contains(w.Logs.String(), "append failed") {
					t.Errorf("it took %s\n%s", waited, w.Logs)
				}
			})
		})
	}
}

// rejectionOf returns the body of the MutationRejected for a mutation.
func rejectionOf(w *processortest.Wire, tail, body string) []byte {
	w.T.Helper()
	before := w.End()
	w.Judged(w.Publish(tail, body))
	for _, e := range w.Events() {
		if e.Seq > before && e.Type == schema.MutationRejected {
			return e.Body
		}
	}
	w.T.Fatalf("%s was not rejected", tail)
	return nil
}

// TestMaxPayloadLowered: documents larger than a lowered max_payload can still be deleted
// and expire, in events without their content.
func TestMaxPayloadLowered(t *testing.T) {
	processortest.Bubble(t, func(w *processortest.Wire) {
		w.Want(201, "collection.create.c", `{"defaultTtl":-1}`)
		for _, id := range []string{"deleted", "patched", "shortened", "gone"} {
			w.Want(201, "document.create.c."+id, sized(1<<20))
		}
		w.Want(201, "document.create.c.expired", `{"ttl":60,`+sized(1 << 20)[1:])
		w.RestartInside(64 << 10)
		before := w.End()
		w.Refused(413, "too_large", "document.get.c.deleted", "")
		w.Refused(413, "too_large", "history.c.deleted", "")
		w.Refused(413, "too_large", "document.patch.c.patched", `{"n":1}`)
		w.Want(200, "document.patch.c.shortened", `{"p":null}`)
		w.Want(204, "document.delete.c.deleted", "")
		w.Want(200, "batch.c", `{"atomic":true,"operations":[{"op":"delete","id":"patched"}]}`)
		processortest.SleepUntil(time.Now().Unix()+61, 0)
		w.Want(204, "collection.delete.c", "")
		if got := w.Summary(before); got != "DocumentReplaced(shortened) DocumentDeleted(deleted) DocumentDeleted(patched) DocumentExpired(expired) CollectionDeleted" {
			t.Errorf("the log has %s", got)
		}
	})
	processortest.Bubble(t, func(w *processortest.Wire) {
		w.StopServer()
		w.StartInside(32 << 10)
		w.NoStart("max_payload")
	})
}

// TestLongestNames: a database, collection and id of maximum length fit one subject.
func TestLongestNames(t *testing.T) {
	for _, n := range []int{31, 32} {
		db := strings.Repeat("d", n)
		processortest.Bubble(t, func(w *processortest.Wire) {
			c, id := strings.Repeat("c", 64), strings.Repeat("%22", 255)
			for _, step := range []struct {
				tail, body string
				code       int
			}{
				{"collection.create." + c, `{"defaultTtl":60}`, 201}, {"document.create." + c + "." + id, "{}", 201},
				{"document.get." + c + "." + id, "", 200}, {"history." + c + "." + id, "", 200}, {"query." + c, "", 200}, {"status", "", 200},
			} {
				m, err := w.Client.Request("lapse."+db+".api."+step.tail, []byte(step.body), processortest.Patience)
				w.Check(err)
				if r, err := processortest.ReadReply(m); err != nil || r.Code != step.code {
					t.Errorf("%s: %s %v", step.tail, r, err)
				}
			}
			m := nats.NewMsg("lapse." + db + ".mutations.document.delete." + c + "." + id)
			_, err := w.Client.RequestMsg(m, processortest.Patience)
			w.Check(err)
			w.Judged(1)
		}, func(o *processor.Options) { o.Database = schema.DatabaseName(db) })
	}
	if _, err := schema.ParseDatabaseName(strings.Repeat("d", 33)); !errors.Is(err, schema.ErrBadRequest) {
		t.Errorf("a longer name of a database: %v", err)
	}
}
