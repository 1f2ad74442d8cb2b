package sql_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/lapsedb/lapse/cosmos/sql"
)

var families = []string{
	`{"id":"a","name":"tent","tags":[{"k":"use","v":"camp"},{"k":"size","v":2}],"sizes":["s","m"],"o":{"x":1}}`,
	`{"id":"b","name":"stove","tags":[{"k":"use","v":"cook"},{"v":"gas"},7],"sizes":[]}`,
	`{"id":"c","name":"lamp","tags":"none"}`,
	`{"id":"d","name":"rope","sizes":["m",["l"],null]}`,
}

// TestJoin: the rows of arrays, as Microsoft's reference has them. An item without the array, or
// with an empty one, has none.
func TestJoin(t *testing.T) {
	for _, test := range []struct{ query, want string }{
		{`SELECT VALUE t.k FROM c JOIN t IN c.tags`, `"use" "size" "use"`}, {`SELECT c.id, t.v FROM c JOIN t IN c.tags WHERE t.k = "use"`, `{"id":"a","v":"camp"} {"id":"b","v":"cook"}`},
		{`SELECT VALUE t FROM c JOIN t IN c.tags WHERE c.id = "b"`, `{"k":"use","v":"cook"} {"v":"gas"} 7`}, {`SELECT VALUE c.id FROM c JOIN s IN c.sizes`, `"a" "a" "d" "d" "d"`}, {`SELECT VALUE c.id || s FROM c JOIN s IN c["sizes"] WHERE s != "m"`, `"as"`},
		{`SELECT VALUE [t.v, s] FROM c JOIN t IN c.tags JOIN s IN c.sizes`, `["camp","s"] ["camp","m"] [2,"s"] [2,"m"]`}, {`SELECT VALUE m FROM c JOIN s IN c.sizes JOIN m IN s`, `"l"`}, {`SELECT VALUE x FROM c JOIN c.o x`, `{"x":1}`}, {`SELECT VALUE x FROM c JOIN c.o.x`, `1`},
		{`SELECT VALUE t.k FROM t IN c.tags`, `"use" "size" "use"`}, {`SELECT * FROM s IN c.sizes`, `"s" "m" "m" ["l"] null`}, {`SELECT * FROM c.o`, `{"x":1}`}, {`SELECT VALUE o.x FROM c.o`, `1`}, {`SELECT VALUE y FROM c.o.x AS y`, `1`}, {`SELECT VALUE n FROM c["name"] n WHERE n > "s"`, `"tent" "stove"`},
		{`SELECT VALUE COUNT(1) FROM c JOIN t IN c.tags`, `5`}, {`SELECT VALUE COUNT(t.k) FROM t IN c.tags`, `3`}, {`SELECT TOP 2 VALUE c.id FROM c JOIN s IN c.sizes`, `"a" "a"`}, {`SELECT VALUE c.id FROM c JOIN s IN c.sizes OFFSET 1 LIMIT 2`, `"a" "d"`}, {`SELECT DISTINCT VALUE c.id FROM c JOIN s IN c.sizes`, `"a" "d"`},
		{`SELECT VALUE c.id FROM c JOIN t IN c.tags ORDER BY t.k DESC, c.id`, `"a" "b" "a" "b" "b"`}, {`SELECT VALUE s FROM c JOIN s IN c.sizes ORDER BY c.id DESC`, `"m" ["l"] null "s" "m"`},
		// EXISTS.
		{`SELECT VALUE c.id FROM c WHERE EXISTS(SELECT VALUE t FROM t IN c.tags WHERE t.v = "gas")`, `"b"`}, {`SELECT VALUE c.id FROM c WHERE NOT EXISTS(SELECT VALUE t FROM t IN c.tags WHERE t.k = "use")`, `"c" "d"`}, {`SELECT VALUE EXISTS(SELECT * FROM s IN c.sizes WHERE s = "m") FROM c`, `true false false true`},
		{`SELECT VALUE c.id FROM c WHERE EXISTS(SELECT VALUE 1 FROM t IN c.tags JOIN s IN c.sizes WHERE t.v = 2 AND s = "m")`, `"a"`}, {`SELECT VALUE c.id FROM c WHERE EXISTS(SELECT VALUE 1 FROM t IN c.tags WHERE EXISTS(SELECT VALUE s FROM s IN c.sizes WHERE t.v = 2 AND c.id = "a"))`, `"a"`},
		{`SELECT VALUE EXISTS(SELECT VALUE undefined)`, `false`}, {`SELECT VALUE EXISTS(SELECT undefined)`, `true`}, {`SELECT VALUE EXISTS(SELECT VALUE null)`, `true`}, {`SELECT VALUE EXISTS(SELECT VALUE c.tags) FROM c`, `true true true false`}, {`SELECT VALUE c.id FROM c WHERE EXISTS(SELECT VALUE 1 WHERE c.id = "c")`, `"c"`}, {`SELECT VALUE c.id FROM c WHERE EXISTS(SELECT VALUE x FROM c.o x)`, `"a"`},
		{`SELECT c.id, EXISTS(SELECT VALUE t FROM t IN c.tags WHERE t.k = "size") AS sized FROM c WHERE c.id < "c"`, `{"id":"a","sized":true} {"id":"b","sized":false}`}, {`SELECT VALUE t.v FROM c JOIN t IN c.tags WHERE EXISTS(SELECT VALUE u FROM u IN c.tags WHERE u.v = "gas") AND t.k = "use"`, `"cook"`}, {`SELECT VALUE COUNT(EXISTS(SELECT VALUE t FROM t IN c.tags) ? 1 : undefined) FROM c`, `2`},
	} {
		if got := rows(t, mustParse(t, test.query), items(families...)); got != test.want {
			t.Errorf("%s: %s, want %s", test.query, got, test.want)
		}
	}
}

func TestJoinRefused(t *testing.T) {
	for query, want := range map[string]string{
		`SELECT * FROM c JOIN t IN c.tags`: `SELECT * of several names`, `SELECT VALUE 1 FROM c JOIN t IN t.x`: `unknown name "t" at byte 33`, `SELECT VALUE 1 FROM c JOIN t IN u JOIN u IN c.x`: `unknown name "u"`, `SELECT VALUE c FROM t IN c.tags`: `unknown name "c"`,
		`SELECT VALUE 1 FROM c JOIN c IN c.tags`: `two names of FROM and JOIN are "c"`, `SELECT VALUE 1 FROM c` + strings.Repeat(" JOIN t IN c.tags", 11): `two names`, `SELECT VALUE 1 FROM c JOIN`: `a name`, `SELECT VALUE 1 FROM c JOIN t IN (SELECT VALUE 1)`: `"("`, `SELECT VALUE 1 FROM c JOIN (SELECT VALUE 1) t`: `"("`,
		`SELECT VALUE EXISTS(SELECT VALUE d.x) FROM c`: `unknown name "d"`, `SELECT VALUE EXISTS(SELECT VALUE t FROM t IN t.x) FROM c`: `unknown name "t"`, `SELECT VALUE EXISTS(SELECT TOP 1 VALUE 1)`: `EXISTS is served for a subquery of`, `SELECT VALUE EXISTS(SELECT VALUE COUNT(1))`: `EXISTS is served`, `SELECT VALUE EXISTS(SELECT *)`: `no FROM`, `SELECT VALUE EXISTS(c.a)`: `SELECT`, `SELECT VALUE EXISTS 1`: `(`,
		`SELECT VALUE EXISTS(SELECT VALUE 1`: `where ) is expected`, `SELECT COUNT(1), EXISTS(SELECT VALUE 1) FROM c`: `byte 24 is neither in an aggregate`, `SELECT VALUE ` + strings.Repeat("EXISTS(SELECT VALUE ", 1000): `deeper than 100`, `SELECT VALUE t.x FROM c WHERE EXISTS(SELECT VALUE t FROM t IN c.tags)`: `unknown name "t" at byte 14`,
	} {
		if _, err := sql.Parse(query, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: %v, want %s", query, err, want)
		}
	}
	joins := ""
	for i := range 11 {
		joins += fmt.Sprintf(" JOIN t%d IN c.tags", i)
	}
	if _, err := sql.Parse("SELECT VALUE 1 FROM c"+joins, nil); err == nil || err.Error() != "the query has more than 10 JOINs" {
		t.Error(err)
	}
}

// TestJoinIsHandedDown: what the condition demands of elements, it does not demand of the item.
func TestJoinIsHandedDown(t *testing.T) {
	q := mustParse(t, `SELECT VALUE 1 FROM c JOIN t IN c.tags WHERE t.k = "use" AND c.id = "a" AND EXISTS(SELECT VALUE 1 FROM c.x WHERE c.n = 1)`)
	if e := q.Equalities(); len(e) != 1 || e[0].Path.String() != "/id" || q.NeedsPlan() || !q.Joins() {
		t.Error(e)
	}
	for query, want := range map[string]int{`SELECT VALUE 1 FROM c.o WHERE o.id = "a"`: 0, `SELECT VALUE 1 FROM t IN c.tags WHERE t.id = "a"`: 0, `SELECT VALUE 1 FROM c JOIN t IN c.tags WHERE t.id = "a" OR c.id = "b"`: 0} {
		if e := mustParse(t, query).Equalities(); len(e) != want {
			t.Errorf("%s: %v", query, e)
		}
	}
	if mustParse(t, `SELECT VALUE COUNT(1) FROM c JOIN t IN c.tags`).CountsAll() || mustParse(t, `SELECT VALUE COUNT(1) FROM c.o`).CountsAll() {
		t.Error("counts elements as items")
	}
}

// TestJoinPages: rows of an item may be on several pages.
func TestJoinPages(t *testing.T) {
	for _, query := range []string{`SELECT VALUE [c.id, s] FROM c JOIN s IN c.sizes`, `SELECT VALUE s FROM c JOIN s IN c.sizes ORDER BY c.name`, `SELECT VALUE c.id FROM c JOIN s IN c.sizes JOIN t IN c.sizes ORDER BY c.id DESC`} {
		q := mustParse(t, query)
		read := 0
		over := func(yield func([]byte, error) bool) {
			for read = range families {
				if !yield([]byte(families[read]), nil) {
					return
				}
			}
		}
		want := strings.Fields(rows(t, q, over))
		var got []string
		var last sql.Row
		at := -1
		for {
			row := sql.Row{}
			given := func() int {
				switch {
				case read < at:
					return math.MaxInt
				case read == at && !q.Sorted():
					return last.Nth
				}
				return 0
			}
			for next, err := range q.Part(len(got), 1).Without(given).After(last.Key, over, func() string { return fmt.Sprint(read) }, room) {
				if err != nil {
					t.Fatal(err)
				}
				row = sql.Row{JSON: slices.Clone(next.JSON), Key: bytes.Clone(next.Key), Nth: next.Nth}
			}
			if row.JSON == nil {
				break
			}
			got, last = append(got, string(row.JSON)), row
			if at = read; q.Sorted() {
				at = -1
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q row by row, want %q", query, got, want)
		}
	}
}

// TestJoinIsBounded: a cross product of arrays, and the reading of a large item for each of its
// elements, end with an error.
func TestJoinIsBounded(t *testing.T) {
	item := `{"l":[0` + strings.Repeat(",0", 5_000) + `],"pad":"` + strings.Repeat("x", 1<<20) + `"}`
	for _, query := range []string{`SELECT VALUE 1 FROM c JOIN a IN c.l JOIN b IN c.l JOIN d IN c.l WHERE d > 0`, `SELECT VALUE c.id FROM c WHERE EXISTS(SELECT VALUE a FROM a IN c.l WHERE c.pad LIKE "%y%")`} {
		found := 0
		for row, err := range mustParse(t, query).Run(items(item), room) {
			if found++; !errors.Is(err, sql.ErrTooLarge) || row != nil {
				t.Errorf("%s: %s, %v", query, row, err)
			}
		}
		if found != 1 {
			t.Errorf("%s: no error", query)
		}
	}
}
