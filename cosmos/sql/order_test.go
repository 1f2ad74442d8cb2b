package sql

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
)

// TestFirst: the first items of an ordered query, their keys and their rows are those of Run.
func TestFirst(t *testing.T) {
	q, err := Parse("SELECT VALUE c.v FROM c WHERE c.n > 0 ORDER BY c.n DESC", nil)
	if err != nil || !q.Ordered() {
		t.Fatal(q, err)
	}
	items := func(yield func([]byte, error) bool) {
		for _, item := range []string{`{"n":1,"v":"a"}`, `{"n":3}`, `{"n":2,"v":"b"}`, `{"n":0,"v":"c"}`} {
			if !yield([]byte(item), nil) {
				return
			}
		}
	}
	var found, rows []string
	var keys [][]byte
	for item, err := range q.First(2, items, 1<<20) {
		if err != nil {
			t.Fatal(err)
		}
		found, rows, keys = append(found, string(item)), append(rows, string(q.Row(item))), append(keys, q.Key(item))
	}
	if fmt.Sprint(found) != `[{"n":3} {"n":2,"v":"b"}]` || fmt.Sprintf("%q", rows) != `["" "\"b\""]` || !slices.IsSortedFunc(keys, bytes.Compare) {
		t.Errorf("%s, %q, %x", found, rows, keys)
	}
	for _, query := range []string{"SELECT * FROM c", "SELECT TOP 1 * FROM c ORDER BY c.n", "SELECT DISTINCT c.n FROM c ORDER BY c.n"} {
		if q, err := Parse(query, nil); err != nil || q.Ordered() {
			t.Errorf("%s is ordered: %v", query, err)
		}
	}
}
