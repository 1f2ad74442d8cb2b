package sql_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/lapsedb/lapse/cosmos/sql"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/schema/values"
)

var seeds = []string{
	`SELECT * FROM c`, `SELECT DISTINCT TOP 2 VALUE c.a["b"][0] FROM root c WHERE c.n NOT IN (1, @p) AND NOT (c.s BETWEEN 'a' AND "b\u0041") ORDER BY c.n DESC, c.s OFFSET 1 LIMIT 2`,
	`SELECT COUNT(1) AS n, MAX(c.n), AVG(c.n) FROM c`, `SELECT c.id, -c.n * 2 % 3 / .5e1 FROM c WHERE CONTAINS(c.s, 'A', true) OR ARRAY_CONTAINS(c.l, @p, true)`, `SELECT VALUE LOWER(UPPER(c.s)) FROM c WHERE IS_DEFINED(c.n) <> IS_NULL(c.n)`,
	`SELECT * FROM c WHERE c.n = 1 AND (c.id IN ("a", "b") AND IS_NULL(c.z) OR c.id = "c")`, `SELECT t.a, c.s LIKE "%[a-z]_^%" ESCAPE "^" AS m FROM c JOIN t IN c.l WHERE EXISTS(SELECT VALUE u FROM u IN t.b) ORDER BY t.a`, `SELECT c.n ?? 1, COUNT(1) AS k, {a: [c.n, "x" || "y"]} AS o FROM c GROUP BY c.n ?? 1, c.n`,
	`SELECT VALUE DateTimeAdd("mm", c.n, "2020-01-31") || ToString(c.a ? 1 : [REPLACE(c.s, "A", c.s)])  FROM c`, `SELECT VALUE ARRAY_SLICE(c.l, -c.n, 1) FROM x IN c.l`, `SELECT VALUE (((1`, `SELECT '`, `SELECT @`, `SELECT VALUE LENGTH("\ud800")`,
}

// FuzzParse: any text is refused in one line or parsed.
func FuzzParse(f *testing.F) {
	for _, seed := range seeds {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		q, err := sql.Parse(text, []sql.Parameter{param("@p", `{"a":1}`)})
		if err != nil && strings.ContainsAny(err.Error(), "\r\n") || (err == nil) != (q != nil) {
			t.Fatalf("%q: %v, %v", text, q, err)
		}
	})
}

// FuzzRun: a query over any items ends with JSON rows, and items that satisfy its condition
// have what its equalities demand.
func FuzzRun(f *testing.F) {
	for _, seed := range seeds {
		f.Add(seed, `{"id":"a","n":1,"s":"\u0041b","l":[{"a":1,"b":[]}],"a":{"b":[null]}}`)
	}
	f.Fuzz(func(t *testing.T, text, item string) {
		q, err := sql.Parse(text, []sql.Parameter{param("@p", `{"a":1}`)})
		if err != nil || !strings.HasPrefix(item, "{") || !schema.ValidJSON([]byte(item)) {
			return
		}
		n := 0
		for row, err := range q.Run(items(item, `{"n":2}`, item), room) {
			if n++; n > 3 && !q.Joins() || err != nil && !errors.Is(err, sql.ErrTooLarge) || err == nil && !json.Valid(row) {
				t.Fatalf("%q: row %d %q, %v", text, n, row, err)
			}
		}
		for _, e := range q.Equalities() {
			found := values.AppendKey(nil, values.Value(item).At(e.Path))
			same := func(v values.Value) bool { return bytes.Equal(values.AppendKey(nil, v), found) }
			if matches, _ := q.Matches([]byte(item)); matches && !slices.ContainsFunc(e.Values, same) {
				t.Fatalf("%q: %s satisfies it without %v", text, item, e)
			}
		}
	})
}
