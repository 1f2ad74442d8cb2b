package service_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lapsedb/lapse/processor/processortest"
)

// TestCollectionPages: collection.list returns every collection once, in order of name,
// in pages that fit a message.
func TestCollectionPages(t *testing.T) {
	const collections = 40
	var paths []string
	for n := range 30 {
		paths = append(paths, fmt.Sprintf(`{"path":"/%d/%s"}`, n, strings.Repeat("x", 245)))
	}
	properties := `{"indexingPolicy":{"includedPaths":[` + strings.Join(paths, ",") + `]}}`
	var want []string
	processortest.Bubble(t, func(w *processortest.Wire) {
		w.RestartInside(64 << 10)
		for n := range collections {
			name := fmt.Sprintf("c%02d", n)
			want = append(want, name)
			w.Want(201, "collection.create."+name, properties)
		}
		list := func(body string) (names []string, cursor string) {
			var page struct {
				Collections []struct{ ID string }
				Cursor      string
			}
			w.Check(json.Unmarshal(w.Want(200, "collection.list", body).Body, &page))
			for _, c := range page.Collections {
				names = append(names, c.ID)
			}
			return names, page.Cursor
		}
		for limit, most := range map[string]int{"": collections, `"limit":3.0`: 3, `"limit":7`: 7, `"limit":20`: 20, `"limit":10000`: collections} {
			var got []string
			pages := 0
			for cursor := ""; ; pages++ {
				body := `{` + limit + `}`
				if cursor != "" {
					body = strings.TrimSuffix(`{"cursor":"`+cursor+`",`+limit, ",") + `}`
				} else if limit == "" {
					body = ""
				}
				names, next := list(body)
				if len(names) > most || len(names) == 0 {
					t.Fatalf("%s: a page has %d", body, len(names))
				}
				got = append(got, names...)
				if cursor = next; cursor == "" {
					break
				}
			}
			if !slices.Equal(got, want) || limit == "" && pages == 0 {
				t.Errorf("%q: %d pages have %d collections of %d", limit, pages+1, len(got), collections)
			}
		}
		// A cursor works after its collection is deleted.
		w.Want(204, "collection.delete.c19", "")
		if names, cursor := list(`{"cursor":"c19","limit":2}`); !slices.Equal(names, []string{"c20", "c21"}) || cursor != "c21" {
			t.Errorf("after c19 come %q, %q", names, cursor)
		}
		if names, cursor := list(`{"cursor":"c39"}`); len(names) != 0 || cursor != "" {
			t.Errorf("after the last come %q, %q", names, cursor)
		}
		for _, body := range []string{`{"limit":0}`, `{"limit":1.5}`, `{"limit":-1}`, `{"limit":10001}`, `{"limit":"1"}`, `{"cursor":"a b"}`, `{"cursor":1}`, `[]`, `x`} {
			w.Refused(400, "bad_request", "collection.list", body)
		}
	})
}
