package sql_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lapsedb/lapse/cosmos/sql"
)

// TestGroupBy: groups as Microsoft's reference has them; items without the value are one.
func TestGroupBy(t *testing.T) {
	all := []string{
		`{"id":"a","kind":"tent","n":2,"o":{"x":1},"tags":["r","g"]}`, `{"id":"b","kind":"lamp","n":5.0,"o":{"x":1.0}}`, `{"id":"c","kind":"Tent","n":"many","tags":["g"]}`, `{"id":"d","n":1}`, `{"id":"e","kind":"tent","n":7,"o":{"x":2}}`, `{"id":"f"}`, `{"id":"g","kind":null}`,
	}
	long := strings.Repeat("x", 300)
	for _, test := range []struct{ query, want string }{
		{`SELECT c.kind FROM c GROUP BY c.kind`, `{} {"kind":null} {"kind":"Tent"} {"kind":"lamp"} {"kind":"tent"}`}, {`SELECT VALUE c.kind FROM c GROUP BY c.kind`, `null "Tent" "lamp" "tent"`}, {`SELECT COUNT(1) AS n, c.kind AS what FROM c GROUP BY c.kind`, `{"n":2} {"n":1,"what":null} {"n":1,"what":"Tent"} {"n":1,"what":"lamp"} {"n":2,"what":"tent"}`},
		{`SELECT LOWER(c.kind) AS k, SUM(c.n) AS s, MIN(c.n) AS low, MAX(c.id) AS last, AVG(c.n) AS mean FROM c WHERE c.kind > "" GROUP BY LOWER(c.kind)`, `{"k":"lamp","s":5,"low":5.0,"last":"b","mean":5} {"k":"tent","low":2,"last":"e"}`}, {`SELECT c.o.x, COUNT(1) AS n FROM c WHERE IS_DEFINED(c.o) GROUP BY c.o.x`, `{"x":1,"n":2} {"x":2,"n":1}`},
		{`SELECT c.kind, c.n > 3 AS many, COUNT(1) AS n FROM c WHERE IS_NUMBER(c.n) GROUP BY c.kind, c.n > 3`, `{"many":false,"n":1} {"kind":"lamp","many":true,"n":1} {"kind":"tent","many":false,"n":1} {"kind":"tent","many":true,"n":1}`}, {`SELECT VALUE {kind: c.kind, "n": COUNT(1) * 10, one: 1} FROM c WHERE c.kind = "tent" GROUP BY c.kind`, `{"kind":"tent","n":20,"one":1}`},
		{`SELECT VALUE [c.kind, COUNT(c.n)] FROM c GROUP BY c.kind OFFSET 1 LIMIT 2`, `[null,0] ["Tent",1]`}, {`SELECT TOP 1 COUNT(1) AS n FROM c GROUP BY c.kind`, `{"n":2}`}, {`SELECT t AS tag, COUNT(1) AS n FROM c JOIN t IN c.tags GROUP BY t`, `{"tag":"g","n":2} {"tag":"r","n":1}`}, {`SELECT COUNT(1) AS n FROM c WHERE false GROUP BY c.kind`, ``}, {`SELECT LOWER(c.kind) || "s" AS k FROM c WHERE c.n = 5 GROUP BY LOWER(c.kind)`, `{"k":"lamps"}`},
		{`SELECT VALUE COUNT(1) FROM c GROUP BY c.id = "a" ? "` + long + `a" : "` + long + `b"`, `6 1`}, {`SELECT CONCAT(c.kind, c.id) AS k FROM c WHERE c.kind = "lamp" GROUP BY c.id, c.kind`, `{"k":"lampb"}`},
	} {
		q := mustParse(t, test.query)
		if got := rows(t, q, items(all...)); got != test.want {
			t.Errorf("%s: %s, want %s", test.query, got, test.want)
		}
		if !q.Sorted() || !q.NeedsPlan() {
			t.Errorf("%s: sorted %v, plan %v", test.query, q.Sorted(), q.NeedsPlan())
		}
		var pages []string
		for last := []byte(nil); ; {
			before := len(pages)
			for row, err := range q.Part(before, 1).After(last, items(all...), nil, room) {
				if err != nil {
					t.Fatal(err)
				}
				pages, last = append(pages, string(row.JSON)), slices.Clone(row.Key)
			}
			if len(pages) == before {
				break
			}
		}
		if got := strings.Join(pages, " "); got != test.want {
			t.Errorf("%s, row by row: %s, want %s", test.query, got, test.want)
		}
	}
}

func TestGroupByRefused(t *testing.T) {
	for query, want := range map[string]string{
		`SELECT c.a, c.b FROM c GROUP BY c.a`: `expression at byte 13 is neither`, `SELECT LOWER(c.a) FROM c GROUP BY UPPER(c.a)`: `byte 14 is neither`, `SELECT c["a"] FROM c GROUP BY c.a`: `spell it as there`, `SELECT * FROM c GROUP BY c.a`: `GROUP BY is not served with SELECT *, DISTINCT and ORDER BY`, `SELECT DISTINCT c.a FROM c GROUP BY c.a`: `not served with`, `SELECT c.a FROM c GROUP BY c.a ORDER BY c.a`: `not served with`,
		`SELECT c.a FROM c GROUP BY COUNT(1)`: `COUNT is served only in SELECT`, `SELECT c.a FROM c GROUP c.a`: `BY is expected`, `SELECT c.a FROM c GROUP BY`: `an expression is expected`, `SELECT c.a FROM c GROUP BY c.a,`: `an expression`, `SELECT EXISTS(SELECT VALUE c.a) FROM c GROUP BY EXISTS(SELECT VALUE c.a)`: `byte 14 is neither`, `SELECT c.a FROM c GROUP BY c.a AS b`: `"AS"`, `SELECT d.a FROM c GROUP BY d.a`: `unknown name "d"`, `SELECT c.a FROM c GROUP BY (c.a`: `where ) is expected`,
	} {
		if _, err := sql.Parse(query, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", query, err, want)
		}
	}
}

// TestGroupByIsBounded: many groups, and aggregates of long strings, end with an error.
func TestGroupByIsBounded(t *testing.T) {
	many := func(yield func([]byte, error) bool) {
		for i := 0; i < 10_000 && yield(fmt.Appendf(nil, `{"n":%d,"s":"%s"}`, i, strings.Repeat("s", i)), nil); i++ {
		}
	}
	for query, limited := range map[string]bool{`SELECT c.n FROM c GROUP BY c.n`: true, `SELECT MAX(c.s) AS m FROM c WHERE c.n > 9000 GROUP BY c.n % 50`: true, `SELECT VALUE COUNT(1) FROM c GROUP BY c.n % 50`: false, `SELECT VALUE LENGTH(MAX(c.s)) FROM c GROUP BY c.n % 5`: false} {
		var failed error
		for _, err := range mustParse(t, query).Run(many, 100_000) {
			failed = err
		}
		if errors.Is(failed, sql.ErrTooLarge) != limited {
			t.Errorf("%s: %v", query, failed)
		}
	}
}
