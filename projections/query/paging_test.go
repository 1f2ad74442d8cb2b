package query_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/projections/query"
	"github.com/lapsedb/lapse/schema"
)

func id(document []byte) string {
	var d struct {
		ID string `json:"id"`
	}
	_ = json.Unmarshal(document, &d)
	return d.ID
}

// plans are queries that read a collection with an index on /n, one for each kind of
// access. All match every document whose n is not -1.
var plans = []string{
	`"where":"doc.n >= 0"`,
	`"where":"doc.n != -1"`,
	`"where":"doc.n in [0,1,2,3,4,5,6,7,8,9]"`,
	`"orderBy":[{"path":"/n"}],"where":"doc.n > -1"`,
	`"orderBy":[{"path":"/n","desc":true}],"where":"doc.n != -1"`,
	`"orderBy":[{"path":"/m"}],"where":"doc.n >= 0"`,
	`"orderBy":[{"path":"/m","desc":true},{"path":"/n"}],"where":"doc.n != -1"`,
	`"where":"'t' in doc.t && doc.n != -1"`,
	`"idPrefix":"d","where":"doc.n >= 0"`,
	`"idPrefix":"d","orderBy":[{"path":"/n"}],"where":"doc.n != -1"`,
}

// readPages reads a query to its end. A page has at most room bytes, and a document if it has a
// cursor.
func readPages(t rapid.TB, room int, engine *query.Engine, store *projections.Store, request string, visit func(n int, p page)) {
	t.Helper()
	for cursor, n := "", 0; n == 0 || cursor != ""; n++ {
		p, _, err := askFor(room, engine, store, naiveNow, fmt.Sprintf(`{%s,"cursor":%q}`, request, cursor))
		if err != nil || p.size > room || p.Cursor != "" && len(p.Documents) == 0 || n > 200 {
			t.Fatalf("%s: page %d has %d bytes, of %d, and %d documents: %v", request, n, p.size, room, len(p.Documents), err)
		}
		visit(n, p)
		cursor = p.Cursor
	}
}

// TestEachDocumentOnOnePage: while other documents are created, replaced and deleted
// between pages, each unchanged document is on exactly one page.
func TestEachDocumentOnOnePage(t *testing.T) {
	engine := newEngine(t, query.Limits{})
	rapid.Check(t, func(t *rapid.T) {
		l := newLedger(t)
		defer l.close()
		l.write(schema.Event{Type: schema.CollectionCreated, Collection: things, Body: []byte(`{"indexingPolicy":{"includedPaths":[{"path":"/n"},{"path":"/t"}]}}`)})
		small := rapid.IntRange(0, 9)
		members := func() string {
			return fmt.Sprintf(`"n":%d,"m":%d,"t":["t"]`, small.Draw(t, "n"), small.Draw(t, "m"))
		}
		var stay []string
		others := make(map[string]uint64)
		for i := range rapid.IntRange(1, 40).Draw(t, "documents") {
			name := fmt.Sprint("d", rapid.IntRange(0, 99).Draw(t, "id"), "-", i)
			seq := l.put(schema.DocumentCreated, name, members(), 0)
			if small.Draw(t, "stays") < 6 {
				stay = append(stay, name)
			} else {
				others[name] = seq
			}
		}
		body := rapid.SampledFrom(plans).Draw(t, "query")
		limit, bytes := rapid.IntRange(1, 7).Draw(t, "limit"), rapid.IntRange(250, 800).Draw(t, "bytes")
		var got []string
		readPages(t, bytes, engine, l.store, fmt.Sprintf(`%s,"limit":%d`, body, limit), func(n int, p page) {
			for _, d := range p.Documents {
				got = append(got, id(d))
			}
			for range rapid.IntRange(0, 3).Draw(t, "writes") {
				name := fmt.Sprint("d", rapid.IntRange(0, 99).Draw(t, "id"), "+", n)
				switch old, exists := others[name]; {
				case !exists && small.Draw(t, "one of the old") < 5 && len(others) > 0:
					name = slices.Min(slices.Collect(maps.Keys(others)))
					l.put(schema.DocumentReplaced, name, members(), others[name])
					others[name] = l.seq
				case exists:
					l.write(schema.Event{Type: schema.DocumentDeleted, Collection: things, ID: schema.DocumentID(name), Previous: schema.Version(old)})
					delete(others, name)
				default:
					others[name] = l.put(schema.DocumentCreated, name, members(), 0)
				}
			}
		})
		for _, name := range stay {
			if n := count(got, name); n != 1 {
				t.Fatalf("%s came %d times: %v", name, n, got)
			}
		}
	})
}

func count(all []string, id string) (n int) {
	for _, s := range all {
		if s == id {
			n++
		}
	}
	return n
}

// TestExpiryWhilePaging moves the clock between pages and while a page is made: no page
// has a document from its deadline on, though no sweep expires any.
func TestExpiryWhilePaging(t *testing.T) {
	for _, mode := range []string{"consistent", "lazy"} {
		for _, plan := range plans {
			l := newLedger(t)
			l.write(schema.Event{Type: schema.CollectionCreated, Collection: things,
				Body: []byte(`{"defaultTtl":-1,"indexingPolicy":{"indexingMode":"` + mode + `","includedPaths":[{"path":"/n"},{"path":"/t"}]}}`)})
			deadline := make(map[string]int64)
			for i := range 60 {
				name := fmt.Sprintf("d%02d", (i*37)%60)
				deadline[name] = naiveNow + int64(i%12+1)
				l.put(schema.DocumentCreated, name, fmt.Sprintf(`"n":%d,"m":%d,"t":["t"],"ttl":%d`, i%10, i%7, i%12+1), 0)
			}
			for more := true; more; {
				more, _ = l.store.Index(100)
			}
			engine := newEngine(t, query.Limits{})
			seen := make(map[string]bool)
			clock := int64(naiveNow)
			cursor := ""
			for n := 0; n == 0 || cursor != ""; n++ {
				calls := 0
				began := clock
				reply, err := engine.Answer(context.Background(), l.store, query.Ask{
					Collection: things, Room: room,
					Body: fmt.Appendf(nil, `{%s,"limit":7,"cursor":%q}`, plan, cursor),
					Now: func(int64) int64 {
						if calls++; calls == 2 {
							clock++ // a second passes while the page is made
						}
						return clock
					},
				})
				must(t, err)
				var p page
				must(t, json.Unmarshal(reply.Body, &p))
				for _, d := range p.Documents {
					if deadline[id(d)] <= clock {
						t.Errorf("%s %s: %s is on page %d at second %d, its deadline is %d", mode, plan, id(d), n, clock-naiveNow, deadline[id(d)]-naiveNow)
					}
					if seen[id(d)] {
						t.Errorf("%s came twice", id(d))
					}
					seen[id(d)] = true
				}
				if p.Cursor != "" && len(p.Documents) == 0 {
					t.Errorf("%s %s: page %d has a cursor and no document", mode, plan, n)
				}
				if clock == began {
					t.Fatal("the reply was made without looking at the clock")
				}
				cursor = p.Cursor
			}
			for name, at := range deadline {
				if at > clock && !seen[name] {
					t.Errorf("%s %s: %s never came, it lives until second %d", mode, plan, name, at-naiveNow)
				}
			}
			p, _, err := ask(engine, l.store, naiveNow+5, `{"count":true,"where":"doc.n >= 0"}`)
			if err != nil || *p.Count != 35 {
				t.Errorf("%s: count %v %v", mode, *p.Count, err)
			}
			p, _, err = ask(engine, l.store, naiveNow+5, `{"count":true}`)
			if err != nil || *p.Count != 35 {
				t.Errorf("%s: count of all %v %v", mode, *p.Count, err)
			}
			l.close()
		}
	}
}

// TestPagesEndEarly: in every order, a page ends before the document that would exceed the
// limit of bytes, and the next one goes on there.
func TestPagesEndEarly(t *testing.T) {
	var documents []string
	for i := range 60 {
		documents = append(documents, fmt.Sprintf(`"n":%d,"m":%d,"t":["t"],"ttl":%d,"s":%q`, i%10, i%7, 100+i%5, strings.Repeat("s", i*i%300)))
	}
	l := collectionOf(t, `{"defaultTtl":-1,"indexingPolicy":{"includedPaths":[{"path":"/n"},{"path":"/t"}]}}`, documents...)
	for i := range 30 {
		l.write(schema.Event{Type: schema.DocumentHeld, Collection: things, ID: schema.DocumentID(fmt.Sprint("d", i)), Previous: schema.Version(i + 2), Body: []byte(`{}`)})
	}
	for more := true; more; {
		more, _ = l.store.Index(100)
	}
	engine := newEngine(t, query.Limits{})
	for _, plan := range append([]string{`"due":{}`, `"held":true`, `"held":true,"idPrefix":"d1"`, `"held":true,"orderBy":[{"path":"/s"}]`, `"idPrefix":"d4"`, `"deadlines":true`, `"select":["/s"]`}, plans...) {
		all, _, err := ask(engine, l.store, naiveNow, `{"limit":1000,`+plan+`}`)
		if err != nil || len(all.Documents) == 0 || all.Cursor != "" {
			t.Fatal(plan, all, err)
		}
		for _, bytes := range []int{900, 1000, 2000, all.size - 1, all.size} {
			var got []json.RawMessage
			pages := 0
			readPages(t, bytes, engine, l.store, `"limit":1000,`+plan, func(n int, p page) {
				if got, pages = append(got, p.Documents...), n+1; len(p.Documents) == 0 {
					t.Errorf("%s: page %d of %d bytes is empty", plan, n, bytes)
				}
			})
			if fmt.Sprint(got) != fmt.Sprint(all.Documents) || (pages == 1) != (bytes >= all.size) {
				t.Errorf("%s in pages of %d bytes: %d pages with %d documents, not %d", plan, bytes, pages, len(got), len(all.Documents))
			}
		}
	}
}

// TestPageThatExpires: when all documents of a page expire while it is made, the reply has
// the next ones, since a page with a cursor has a document.
func TestPageThatExpires(t *testing.T) {
	documents := make([]string, 2500)
	for i := range documents {
		documents[i] = fmt.Sprintf(`"n":%d,"s":"","ttl":1000`, i)
	}
	documents[0], documents[1], documents[2499] = `"n":-2,"s":"x","ttl":1`, `"n":-1,"s":"x","ttl":1`, `"n":2499,"s":"x"`
	l := collectionOf(t, `{"defaultTtl":-1}`, documents...)
	for _, body := range []string{`"limit":1,"orderBy":[{"path":"/n"}]`, `"limit":2,"idPrefix":"d"`, `"limit":1,"due":{}`} {
		clock := int64(naiveNow)
		reply, err := newEngine(t, query.Limits{}).Answer(context.Background(), l.store, query.Ask{
			Collection: things, Room: room, Body: []byte(`{"where":"doc.s == 'x' || doc.n == 2000",` + body + `}`),
			Now: func(int64) int64 { clock++; return clock - 1 },
		})
		var p page
		if err == nil {
			err = json.Unmarshal(reply.Body, &p)
		}
		if err != nil || len(p.Documents) == 0 || id(p.Documents[0]) != "d2000" {
			t.Errorf("%s: %s %v", body, reply.Body, err)
		}
	}
}

// TestIDPrefix: a query by the beginning of the id reads these documents only, whatever else
// it asks for.
func TestIDPrefix(t *testing.T) {
	l := hundred(t, "")
	l.write(schema.Event{Type: schema.DocumentHeld, Collection: things, ID: "d15", Previous: 17, Body: []byte(`{}`)})
	l.write(schema.Event{Type: schema.DocumentHeld, Collection: things, ID: "d20", Previous: 22, Body: []byte(`{}`)})
	engine := newEngine(t, query.Limits{})
	for body, want := range map[string][2]int{ // scanned, found
		`"idPrefix":"d1"`:                                        {11, 11},
		`"idPrefix":"d15"`:                                       {1, 1},
		`"idPrefix":"d155"`:                                      {0, 0},
		`"idPrefix":"d1","where":"doc.n == 20"`:                  {11, 0},
		`"idPrefix":"d1","where":"doc.n == 15"`:                  {11, 1},
		`"idPrefix":"d1","where":"doc.id == 'd20'"`:              {11, 0},
		`"idPrefix":"d1","orderBy":[{"path":"/n","desc":true}]`:  {11, 11},
		`"idPrefix":"d1","held":true`:                            {1, 1},
		`"idPrefix":"d1","held":true,"orderBy":[{"path":"/m"}]`:  {1, 1},
		`"idPrefix":"d1","deadlines":true,"select":["/n","/id"]`: {11, 11},
	} {
		p, _, err := ask(engine, l.store, naiveNow, `{"explain":true,`+body+`}`)
		if err != nil || p.Plan.Index != nil || [2]int{p.Plan.Scanned, len(p.Documents)} != want {
			t.Errorf("%s: %+v %d documents, %v", body, p.Plan, len(p.Documents), err)
		}
		if strings.Contains(body, "orderBy") {
			continue
		}
		p, _, err = ask(engine, l.store, naiveNow, `{"explain":true,"count":true,`+body+`}`)
		if err != nil || p.Plan.Index != nil || [2]int{p.Plan.Scanned, *p.Count} != want {
			t.Errorf("count of %s: %+v, %v", body, p, err)
		}
	}
}

func TestCursors(t *testing.T) {
	l := hundred(t, "x")
	engine := newEngine(t, query.Limits{})
	const rest = `"where":"doc.n > params.n","params":{"n":3},"orderBy":[{"path":"/m"}],"limit":5`
	first, _, err := ask(engine, l.store, naiveNow, `{`+rest+`}`)
	if err != nil || first.Cursor == "" {
		t.Fatal(first, err)
	}
	with := func(rest, cursor string) error {
		_, _, err := ask(engine, l.store, naiveNow, `{`+rest+`,"cursor":"`+cursor+`"}`)
		return err
	}
	// A query may change in what does not affect which documents come in which order.
	for _, same := range []string{
		rest,
		`"where":"doc.n > params.n","params":{"n":3},"orderBy":[{"path":"/m","desc":false}],"limit":7,"explain":true,"select":["/id"]`,
		`"where":"  doc.n > params.n\n","params":{"n":3},"orderBy":[{"path":"/m"}]`,
	} {
		if err := with(same, first.Cursor); err != nil {
			t.Errorf("%s: %v", same, err)
		}
	}
	for _, other := range []string{
		`"where":"doc.n >= params.n","params":{"n":3},"orderBy":[{"path":"/m"}]`,
		`"where":"doc.n > params.n","params":{"n":3.0},"orderBy":[{"path":"/m"}]`, // arithmetic distinguishes them
		`"where":"doc.n > params.n","params":{"n":4},"orderBy":[{"path":"/m"}]`,
		`"where":"doc.n > params.n","params":{"n":3},"orderBy":[{"path":"/m","desc":true}]`,
		`"where":"doc.n > params.n","params":{"n":3},"orderBy":[{"path":"/n"}]`,
		`"where":"doc.n > params.n","params":{"n":3}`,
		rest + `,"idPrefix":"d"`,
		rest + `,"held":true`,
	} {
		if err := with(other, first.Cursor); !errors.Is(err, schema.ErrBadQuery) {
			t.Errorf("%s: %v", other, err)
		}
	}
	// A cursor with a changed, missing or additional byte is refused.
	for i := range first.Cursor {
		for _, c := range "Aa_" {
			changed := first.Cursor[:i] + string(c) + first.Cursor[i+1:]
			if changed != first.Cursor && !errors.Is(with(rest, changed), schema.ErrBadQuery) {
				t.Errorf("%s is accepted as %s", changed, first.Cursor)
			}
		}
		if !errors.Is(with(rest, first.Cursor[:i]+first.Cursor[i+1:]), schema.ErrBadQuery) && i > 0 {
			t.Errorf("a cursor without byte %d is accepted", i)
		}
	}
	if !errors.Is(with(rest, first.Cursor+"A"), schema.ErrBadQuery) || !errors.Is(with(rest, strings.Repeat("A", 100)), schema.ErrBadQuery) {
		t.Error("a cursor with more is accepted")
	}
	other, err := query.New(query.Options{Secret: []byte("another secret")})
	must(t, err)
	if _, _, err := ask(other, l.store, naiveNow, `{`+rest+`,"cursor":"`+first.Cursor+`"}`); !errors.Is(err, schema.ErrBadQuery) {
		t.Errorf("a cursor of another secret: %v", err)
	}
	// Another engine with the same secret, as after a restart, accepts the cursor.
	if _, _, err := ask(newEngine(t, query.Limits{}), l.store, naiveNow, `{`+rest+`,"cursor":"`+first.Cursor+`"}`); err != nil {
		t.Errorf("after a restart: %v", err)
	}
	l.write(schema.Event{Type: schema.CollectionDeleted, Collection: things})
	l.write(schema.Event{Type: schema.CollectionCreated, Collection: things})
	if err := with(rest, first.Cursor); !errors.Is(err, schema.ErrBadQuery) {
		t.Errorf("a cursor of an earlier collection of the name: %v", err)
	}
}
