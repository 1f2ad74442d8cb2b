package sql_test

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/lapsedb/lapse/cosmos/sql"
)

// TestAfter: the rows after a key are those that Run has after its row, whatever became of the
// items before.
func TestAfter(t *testing.T) {
	all := []string{`{"n":1,"v":"a"}`, `{"n":3}`, `{"n":2,"v":"b"}`, `{"n":2,"v":"a"}`, `{"n":0,"v":"c"}`, `{"n":2,"v":"` + strings.Repeat("d", 1000) + `"}`}
	for query, window := range map[string]int{
		"SELECT VALUE c.v FROM c WHERE c.n > 0 ORDER BY c.n DESC": math.MaxInt, "SELECT DISTINCT VALUE c.v FROM c": math.MaxInt, "SELECT DISTINCT c.n FROM c ORDER BY c.n DESC": math.MaxInt,
		"SELECT TOP 3 VALUE c.v FROM c ORDER BY c.n": 3, "SELECT DISTINCT VALUE c.v FROM c OFFSET 1 LIMIT 2": 2,
	} {
		q := mustParse(t, query)
		if !q.Sorted() {
			t.Errorf("%s is not sorted", query)
		}
		left := slices.Clone(all)
		read := 0
		tie := func() string { return fmt.Sprint(read) }
		over := func(yield func([]byte, error) bool) {
			for i, item := range all {
				if read = i; slices.Contains(left, item) && !yield([]byte(item), nil) {
					return
				}
			}
		}
		want := strings.Fields(rows(t, q, over))
		var got []string
		var last []byte
		for found := 0; ; found++ {
			row := sql.Row{}
			for first, err := range q.Part(found, 1).After(last, over, tie, room) {
				if err != nil {
					t.Fatal(err)
				}
				row = sql.Row{JSON: slices.Clone(first.JSON), Key: slices.Clone(first.Key)}
			}
			if row.JSON == nil {
				break
			}
			if bytes.Compare(row.Key, last) <= 0 || len(row.Key) > 400 {
				t.Errorf("%s: the key %x after %x", query, row.Key, last)
			}
			got, last = append(got, string(row.JSON)), row.Key
			// What the first row was made of expires.
			left = slices.DeleteFunc(left, func(item string) bool { return rows(t, q, items(item)) == got[0] })
		}
		if len(want) > window || !slices.Equal(got, want) {
			t.Errorf("%s: %.200q row by row, want %.200q", query, got, want)
		}
	}
	for _, query := range []string{"SELECT * FROM c", "SELECT TOP 1 * FROM c", "SELECT DISTINCT VALUE COUNT(1) FROM c ORDER BY c.n"} {
		if mustParse(t, query).Sorted() {
			t.Errorf("%s is sorted", query)
		}
	}
}

// TestPart: the parts of a query have its rows, an aggregate's only one too.
func TestPart(t *testing.T) {
	for query, want := range map[string]string{"SELECT VALUE c.n FROM c OFFSET 1 LIMIT 3": "2 3|4", "SELECT TOP 4 VALUE c.n FROM c": "1 2|3 4", "SELECT VALUE COUNT(1) FROM c": "5", "SELECT VALUE c.n FROM c": "1 2|3 4|5"} {
		all := []string{`{"n":1}`, `{"n":2}`, `{"n":3}`, `{"n":4}`, `{"n":5}`}
		q := mustParse(t, query)
		var parts []string
		for found := 0; ; {
			part := rows(t, q.Part(found, 2), items(all...))
			if part == "" {
				break
			}
			n := len(strings.Fields(part))
			parts, found = append(parts, part), found+n
			all = all[slices.Index(all, `{"n":`+part[len(part)-1:]+`}`)+1:] // a page goes on after its last item
		}
		if got := strings.Join(parts, "|"); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
}
