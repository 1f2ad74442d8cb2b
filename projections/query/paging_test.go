package query_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

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
		limit := rapid.IntRange(1, 7).Draw(t, "limit")
		var got []string
		for cursor, n := "", 0; n == 0 || cursor != ""; n++ {
			p, _, err := ask(engine, l.store, naiveNow, fmt.Sprintf(`{%s,"limit":%d,"cursor":%q}`, body, limit, cursor))
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range p.Documents {
				got = append(got, id(d))
			}
			cursor = p.Cursor
			for range rapid.IntRange(0, 3).Draw(t, "writes") {
				name := fmt.Sprint("d", rapid.IntRange(0, 99).Draw(t, "id"), "+", n)
				switch old, exists := others[name]; {
				case !exists && small.Draw(t, "one of the old") < 5 && len(others) > 0:
					name = slices.Min(keys(others))
					l.put(schema.DocumentReplaced, name, members(), others[name])
					others[name] = l.seq
				case exists:
					l.write(schema.Event{Type: schema.DocumentDeleted, Collection: things, ID: schema.DocumentID(name), Previous: schema.Version(old)})
					delete(others, name)
				default:
					others[name] = l.put(schema.DocumentCreated, name, members(), 0)
				}
			}
			if n > 200 {
				t.Fatal("it does not end")
			}
		}
		for _, name := range stay {
			if n := count(got, name); n != 1 {
				t.Fatalf("%s came %d times: %v", name, n, got)
			}
		}
	})
}

func keys(m map[string]uint64) (all []string) {
	for k := range m {
		all = append(all, k)
	}
	return all
}

func count(all []string, one string) (n int) {
	for _, s := range all {
		if s == one {
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
				if err != nil {
					t.Fatal(err)
				}
				var p page
				if err := json.Unmarshal(reply.Body, &p); err != nil {
					t.Fatal(err)
				}
				for _, d := range p.Documents {
					if deadline[id(d)] <= clock {
						t.Errorf("%s %s: %s is on page %d at second %d, its deadline is %d", mode, plan, id(d), n, clock-naiveNow, deadline[id(d)]-naiveNow)
					}
					if seen[id(d)] {
						t.Errorf("%s came twice", id(d))
					}
					seen[id(d)] = true
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
	if err != nil {
		t.Fatal(err)
	}
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
