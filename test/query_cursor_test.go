package test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/test/harness"
)

// cursorQueries are queries with different plans: by id, by an index, by the order of an
// index, and sorted.
var cursorQueries = []map[string]any{
	{},
	{"where": "doc.m <= params.most", "params": map[string]any{"most": 900}},
	{"where": "doc.n >= 100"},
	{"where": "doc.n == 7 || doc.n > 8"},
	{"orderBy": []ordering{{"/n", true}}},
	{"orderBy": []ordering{{"/third", false}, {"/m", false}}, "select": []string{"/id"}},
	{"where": "doc.n < 800", "orderBy": []ordering{{"/m", true}}},
}

// with returns a copy of a query with members added or replaced.
func with(q map[string]any, members map[string]any) map[string]any {
	q = maps.Clone(q)
	maps.Copy(q, members)
	return q
}

// pagesFrom reads the rest of a query from a cursor.
func pagesFrom(t testing.TB, nc *nats.Conn, collection string, q map[string]any, cursor string, limit int) (ids []string) {
	t.Helper()
	for {
		q = with(q, map[string]any{"limit": limit, "cursor": cursor})
		reply := query(t, nc, collection, q)
		ids = append(ids, idsOf(t, reply.Documents)...)
		if cursor = reply.Cursor; cursor == "" {
			return ids
		}
	}
}

// firstPage returns 60 documents and the cursor.
func firstPage(t testing.TB, nc *nats.Conn, collection string, q map[string]any) (ids []string, cursor string) {
	t.Helper()
	reply := query(t, nc, collection, with(q, map[string]any{"limit": 60}))
	if len(reply.Documents) != 60 || reply.Cursor == "" {
		t.Fatalf("the first page of %v has %d documents and the cursor %q", q, len(reply.Documents), reply.Cursor)
	}
	return idsOf(t, reply.Documents), reply.Cursor
}

// TestQueryCursorSurvivesRestart: a cursor stays valid after a restart, after kill -9, after the
// projection is folded again, and with other indexes; limit and select may differ on the
// next page.
func TestQueryCursorSurvivesRestart(t *testing.T) {
	t.Parallel()
	s, nc := limitedServer(t, "--query-time=1m")
	type page struct {
		ids    []string
		cursor string
		rest   []string
	}
	var first []page
	for _, q := range cursorQueries {
		ids, cursor := firstPage(t, nc, "c", q)
		rest := pagesFrom(t, nc, "c", q, cursor, 300)
		all := pagesFrom(t, nc, "c", q, "", 1000)
		if !slices.Equal(slices.Concat(ids, rest), all) {
			t.Fatalf("the pages of %v are not all of it: %d and %d, of %d", q, len(ids), len(rest), len(all))
		}
		first = append(first, page{ids, cursor, rest})
	}
	indexes := func(policy string) func() {
		return func() {
			mustAsk(t, nc, 200, "collection.replace.c", `{"indexingPolicy":`+policy+`}`)
			eventually(t, "the indexes are there", func() bool {
				p := query(t, nc, "c", map[string]any{"where": "doc.n == 1 || doc.m == 1", "explain": true, "limit": 1}).Plan
				return len(p.Building) == 0 && (p.Behind == nil || *p.Behind == 0)
			})
		}
	}
	for _, test := range []struct {
		name   string
		happen func()
	}{
		{"SIGTERM", func() { s.Stop(); s.Restart() }},
		{"kill -9", func() { s.Kill(); s.Restart() }},
		{"the projection is folded again", func() {
			s.Stop()
			if err := os.RemoveAll(filepath.Join(s.Dir, "projection")); err != nil {
				t.Fatal(err)
			}
			s.Restart()
		}},
		{"no index", indexes(`{}`)},
		{"other indexes", indexes(`{"includedPaths":[{"path":"/m"},{"path":"/third"}]}`)},
		{"lazy indexes", indexes(`{"indexingMode":"lazy","includedPaths":[{"path":"/n"},{"path":"/m"}]}`)},
		{"kill -9, again", func() { s.Kill(); s.Restart() }},
	} {
		test.happen()
		eventually(t, "the service is back", func() bool { _, err := tryAskFor(nc, "status", "", time.Second); return err == nil })
		for i, q := range cursorQueries {
			for _, limit := range []int{70, 1000} {
				if got := pagesFrom(t, nc, "c", q, first[i].cursor, limit); !slices.Equal(got, first[i].rest) {
					t.Errorf("%s: by %d, %d documents follow the first page of %v, want %d", test.name, limit, len(got), q, len(first[i].rest))
				}
			}
			other := with(q, map[string]any{"select": []string{"/id", "/third"}, "explain": true})
			if got := pagesFrom(t, nc, "c", other, first[i].cursor, 500); !slices.Equal(got, first[i].rest) {
				t.Errorf("%s: with another select %d documents follow the first page of %v, want %d", test.name, len(got), q, len(first[i].rest))
			}
		}
	}
	args := []string{"query", "c", "--all", "--select", "id", "--cursor", first[0].cursor}
	if lines := harness.Lines(s.Run(args...).OK()); len(lines) != len(first[0].rest) {
		t.Errorf("by the command %d documents follow, want %d", len(lines), len(first[0].rest))
	}
}

// TestQueryCursorRefused: a cursor is valid for its own query only, and cannot be forged.
func TestQueryCursorRefused(t *testing.T) {
	t.Parallel()
	_, nc := limitedServer(t, "--query-time=1m")
	mustAsk(t, nc, 201, "collection.create.other", `{"indexingPolicy":{"includedPaths":[{"path":"/n"}]}}`)
	load(t, nc, "other", numbered(limited))
	refuse := func(collection string, q map[string]any, cursor string) {
		t.Helper()
		refused(t, nc, collection, marshal(t, with(q, map[string]any{"cursor": cursor, "limit": 60})), 400, "bad_query")
	}
	cursors := make([]string, len(cursorQueries))
	for i, q := range cursorQueries {
		_, cursor := firstPage(t, nc, "c", q)
		cursors[i] = cursor
		for at := range cursor {
			for _, b := range []string{"A", "B", "_", "z", "\n", "", string(cursor[at]) + string(cursor[at])} {
				changed := cursor[:at] + b + cursor[at+1:]
				if changed == cursor || b == "" && at == len(cursor)-1 {
					continue
				}
				refuse("c", q, changed)
			}
		}
		for _, changed := range []string{cursor[:len(cursor)-1], cursor[:len(cursor)/2], cursor + "A", cursor + "=", cursor + "==", " " + cursor, cursor + "\n", cursor[:3] + "\r\n" + cursor[3:], cursor + cursor, "x", strings.Repeat("A", len(cursor)), strings.Repeat("A", 100_000)} {
			refuse("c", q, changed)
		}
		refuse("other", q, cursor)
		for _, members := range []map[string]any{
			{"where": "doc.n >= 101"},
			{"where": "true"},
			{"params": map[string]any{"most": 901}},
			{"params": map[string]any{"most": 900, "more": 1}},
			{"orderBy": []ordering{{"/n", false}}},
			{"orderBy": []ordering{{"/text", true}}},
			{"orderBy": []ordering{{"/third", false}, {"/m", true}}},
			{"orderBy": []ordering{{"/m", false}, {"/third", false}}},
			{"orderBy": []ordering{{"/third", false}}},
			{"orderBy": []ordering{{"/n", true}, {"/id", false}}},
		} {
			refuse("c", with(q, members), cursor)
		}
		for j, other := range cursorQueries {
			if i != j {
				refuse("c", other, cursor)
			}
		}
	}
	// A new collection of the same name does not accept the cursors, even with the same
	// documents.
	mustAsk(t, nc, 204, "collection.delete.c", "")
	for i, q := range cursorQueries {
		refused(t, nc, "c", marshal(t, with(q, map[string]any{"cursor": cursors[i]})), 404, "collection_not_found")
	}
	mustAsk(t, nc, 201, "collection.create.c", `{"indexingPolicy":{"includedPaths":[{"path":"/n"}]}}`)
	for i, q := range cursorQueries {
		refuse("c", q, cursors[i])
	}
	load(t, nc, "c", numbered(limited))
	for i, q := range cursorQueries {
		refuse("c", q, cursors[i])
	}
	// Nor does the same collection of another database.
	_, elsewhere := limitedServer(t)
	for i, q := range cursorQueries {
		refused(t, elsewhere, "c", marshal(t, with(q, map[string]any{"cursor": cursors[i]})), 400, "bad_query")
	}
}

// TestQueryCursorUnderChanges: unchanged documents are returned exactly once, whatever happens
// between pages to other documents, even to those at the cursor.
func TestQueryCursorUnderChanges(t *testing.T) {
	t.Parallel()
	s, _ := limitedServer(t, "--query-time=1m")
	for _, mode := range []string{"consistent", "lazy"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			goesOn(t, dial(t, s), mode)
		})
	}
}

func goesOn(t *testing.T, nc *nats.Conn, mode string) {
	for i, q := range cursorQueries {
		collection := fmt.Sprintf("%s%d", mode, i)
		mustAsk(t, nc, 201, "collection.create."+collection, `{"defaultTtl":-1,"indexingPolicy":{"indexingMode":"`+mode+`","includedPaths":[{"path":"/n"},{"path":"/third"}]}}`)
		load(t, nc, collection, numbered(limited))
		eventually(t, "the index is there", func() bool {
			p := query(t, nc, collection, map[string]any{"where": "doc.n == 1", "explain": true}).Plan
			return p.Index != nil && len(p.Building) == 0 && (p.Behind == nil || *p.Behind == 0)
		})
		want := pagesFrom(t, nc, collection, q, "", 1000)
		touched := make(map[string]bool)
		var got []string
		for cursor, page := "", 0; ; page++ {
			reply := query(t, nc, collection, with(q, map[string]any{"limit": 90, "cursor": cursor}))
			ids := idsOf(t, reply.Documents)
			got = append(got, ids...)
			if cursor = reply.Cursor; cursor == "" {
				break
			}
			// Delete the last document of the page, move the one before it in every
			// order, and add new ones all over.
			last, before := ids[len(ids)-1], ids[len(ids)-2]
			touched[last], touched[before] = true, true
			mustAsk(t, nc, 204, "document.delete."+collection+"."+last, "")
			mustAsk(t, nc, 200, "document.patch."+collection+"."+before, `{"n":500.5,"m":500.5,"third":1.5}`)
			for n := range 10 {
				id := fmt.Sprintf("d%04d-%d", n*100, page)
				touched[id] = true
				mustAsk(t, nc, 201, "document.create."+collection+"."+id, fmt.Sprintf(`{"n":%d.5,"m":%d.5,"third":%d}`, n*100, limited-n*100, n%3))
			}
		}
		changed := func(id string) bool { return touched[id] }
		if got, want := slices.DeleteFunc(got, changed), slices.DeleteFunc(want, changed); !slices.Equal(got, want) {
			t.Errorf("%v: %d documents that did not change came, want %d", q, len(got), len(want))
		}
	}
}
