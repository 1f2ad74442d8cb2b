package sql_test

import (
	"encoding/json"
	"errors"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/lapsedb/lapse/cosmos/sql"
)

const room = 1 << 20

// items is a sequence of JSON texts, each of which is overwritten after its turn.
func items(texts ...string) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for _, text := range texts {
			item := []byte(text)
			more := yield(item, nil)
			clear(item)
			if !more {
				return
			}
		}
	}
}

// rows runs a query and returns its rows, joined by blanks.
func rows(t *testing.T, query *sql.Query, over iter.Seq2[[]byte, error]) string {
	t.Helper()
	var all []string
	for row, err := range query.Run(over, room) {
		if err != nil {
			t.Fatal(err)
		}
		if !json.Valid(row) {
			t.Fatalf("row %q is not JSON", row)
		}
		all = append(all, string(row))
	}
	return strings.Join(all, " ")
}

func mustParse(t *testing.T, query string, params ...sql.Parameter) *sql.Query {
	t.Helper()
	q, err := sql.Parse(query, params)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return q
}

func param(name, value string) sql.Parameter {
	return sql.Parameter{Name: name, Value: json.RawMessage(value)}
}

// TestExpressions: undefined is the empty text.
func TestExpressions(t *testing.T) {
	const item = `{"id":"a","n":1,"big":9007199254740993,"s":"Aé\u0042","t":true,"z":null,"l":[1,{"x":1,"y":[2]},"v"],"o":{"p":{"q":2.50}},"0":"zero","value":7}`
	for _, test := range []struct{ expression, want string }{
		// Literals.
		{`1`, `1`}, {`-1.50`, `-1.50`}, {`007`, `7`}, {`.5`, `0.5`}, {`1.`, `1`}, {`1e3`, `1e3`}, {`'a"b'`, `"a\"b"`}, {`"it's"`, `"it's"`}, {`'\'\u0041\n<'`, `"'A\n\u003c"`},
		{`"` + strings.Repeat("é", 300) + `"`, `"` + strings.Repeat("é", 300) + `"`}, {strings.Repeat("1", 300), strings.Repeat("1", 300)}, {`c.` + strings.Repeat("é", 300), ``}, {`c.` + strings.Repeat("aé", 300), ``},
		{`true`, `true`}, {`false`, `false`}, {`null`, `null`}, {`undefined`, ``}, {`@p`, `{"a":[1.0]}`}, {`@none`, ``},
		// Paths.
		{`c`, item}, {`c.n`, `1`}, {`c["n"]`, `1`}, {`c['o'].p["q"]`, `2.50`}, {`c.l[1].y[0]`, `2`}, {`c.l[3]`, ``}, {`c.l["0"]`, ``}, {`c["0"]`, `"zero"`}, {`c[0]`, ``},
		{`c.none`, ``}, {`c.n.none`, ``}, {`c.value`, `7`}, {`c[@name]`, `1`}, {`(c.o)`, `{"p":{"q":2.50}}`},
		// Equality of each two types, and of undefined.
		{`1 = 1.0`, `true`}, {`1 = "1"`, `false`}, {`1 != "1"`, `true`}, {`null = null`, `true`}, {`c.n != null`, `true`}, {`c.z <> null`, `false`}, {`true = 1`, `false`},
		{`undefined = undefined`, ``}, {`c.none != 1`, ``}, {`c.none = null`, ``}, {`c.s = "AéB"`, `true`}, {`c.o = c.o`, `true`}, {`c.l[1].y = c.l`, `false`},
		{`@p = @q`, `true`}, {`c.big = 9007199254740992`, `false`}, {`c.big = 9007199254740993`, `true`}, {`true != false`, `true`},
		// Order, of scalars of a type alone.
		{`1 < 2`, `true`}, {`2 <= 2`, `true`}, {`"a" > "B"`, `true`}, {`"a" >= "b"`, `false`}, {`false < true`, `true`}, {`null <= null`, `true`}, {`null < null`, `false`},
		{`1 < "2"`, ``}, {`null < 1`, ``}, {`c.l > c.l`, ``}, {`c.o <= c.o`, ``}, {`c.none < 1`, ``}, {`c.big > 9007199254740992`, `true`},
		// Three values.
		{`true AND true`, `true`}, {`true and undefined`, ``}, {`undefined AND false`, `false`}, {`false OR undefined`, ``}, {`undefined OR true`, `true`}, {`NOT true`, `false`}, {`NOT undefined`, ``}, {`NOT 1`, ``},
		{`1 AND true`, ``}, {`"a" OR true`, `true`}, {`NOT (1 = "1")`, `true`}, {`NOT NOT true`, `true`}, {`true OR false AND false`, `true`}, {`NOT true OR true`, `true`}, {`true = NOT false`, `true`},
		// IN and BETWEEN.
		{`c.n IN (2, 1)`, `true`}, {`c.n NOT IN (2, "1")`, `true`}, {`c.none IN (1)`, ``}, {`c.none NOT IN (1)`, ``}, {`c.n IN (c.none)`, `false`}, {`1 + 1 IN (2)`, `true`},
		{`c.n BETWEEN 1 AND 2`, `true`}, {`c.n NOT BETWEEN 1 AND 2`, `false`}, {`"b" BETWEEN "a" AND "c" AND true`, `true`}, {`c.n BETWEEN "a" AND 2`, ``}, {`3 BETWEEN "a" AND 2`, `false`},
		// Arithmetic.
		{`1 + 2 * 3`, `7`}, {`(1 + 2) * 3`, `9`}, {`7 - 2 - 1`, `4`}, {`1 / 4`, `0.25`}, {`-7 % 4`, `-3`}, {`1 / 0`, ``}, {`0 * -1`, `0`}, {`c.n + "1"`, ``}, {`-c.n`, `-1`}, {`+c.s`, ``}, {`- -2`, `2`}, {`1-1`, `0`}, {`c.n-1`, `0`}, {`1e300 * 1e300`, ``},
		{`2 * 3 = 6 AND 1 + 1 < 3`, `true`},
		// Functions.
		{`IS_DEFINED(c.z)`, `true`}, {`is_defined(c.none)`, `false`}, {`IS_NULL(c.z)`, `true`}, {`IS_NULL(c.n)`, `false`}, {`IS_NULL(c.none)`, `false`},
		{`STARTSWITH(c.s, "A")`, `true`}, {`STARTSWITH(c.s, "a")`, `false`}, {`STARTSWITH(c.s, "a", true)`, `true`}, {`STARTSWITH(c.n, "1")`, ``}, {`STARTSWITH(c.s, c.none)`, ``}, {`STARTSWITH(c.s, "A", 1)`, ``},
		{`ENDSWITH(c.s, "B", false)`, `true`}, {`ENDSWITH(c.s, "é")`, `false`}, {`CONTAINS(c.s, "É", true)`, `true`}, {`CONTAINS(c.s, "")`, `true`}, {`CONTAINS(null, "")`, ``},
		{`ARRAY_CONTAINS(c.l, 1.0)`, `true`}, {`ARRAY_CONTAINS(c.l, "w")`, `false`}, {`ARRAY_CONTAINS(c.l, @x)`, `false`}, {`ARRAY_CONTAINS(c.l, @x, true)`, `true`}, {`ARRAY_CONTAINS(c.l, "v", true)`, `true`},
		{`ARRAY_CONTAINS(c.n, 1)`, ``}, {`ARRAY_CONTAINS(c.l, c.none)`, ``}, {`ARRAY_CONTAINS(c.l, 1, null)`, ``},
		{`LOWER(c.s)`, `"aéb"`}, {`UPPER(c.s)`, `"AÉB"`}, {`UPPER(c.n)`, ``}, {`LENGTH(c.s)`, `3`}, {`LENGTH("😀")`, `2`}, {`LENGTH(c.l)`, ``}, {`LOWER("É\"")`, `"é\""`},
	} {
		q, err := sql.Parse("SELECT VALUE "+test.expression+" FROM c", []sql.Parameter{param("@p", `{"a":[1.0]}`), param("@q", ` {"a" : [1]}`), param("@name", `"n"`), param("@x", `{"x":1}`), {Name: "@none"}})
		if err != nil {
			t.Errorf("%s: %v", test.expression, err)
			continue
		}
		if got := rows(t, q, items(item)); got != test.want {
			t.Errorf("%s: %s, want %s", test.expression, got, test.want)
		}
	}
}

func TestQueries(t *testing.T) {
	all := []string{
		`{"id":"a","pk":"x","n":3,"v":2.50}`, `{"id":"b","pk":"y","n":1,"v":"s"}`, `{"id":"c","pk":"x","n":2,"l":[1]}`, `{"id":"d","pk":"y","v":null}`, `{"id":"e","pk":"x","n":1.0,"v":true,"l":0}`,
	}
	star := strings.Join(all, " ")
	for _, test := range []struct{ query, want string }{
		{`SELECT * FROM c`, star}, {`select * from docs c`, star}, {`SELECT * FROM root`, star}, {`SELECT VALUE r FROM root AS r`, star},
		{"-- all\nSELECT/* of \n them */VALUE c.n -- 'numbers'\nFROM c/**/WHERE c.n /2 - -1 > 2 -- or more", `3`},
		{"SELECT\t*\r\nFROM c WHERE c.pk = 'y'", all[1] + " " + all[3]}, {`SELECT * FROM c WHERE c.n`, ``}, {`SELECT * FROM c WHERE c.v`, all[4]}, {`SELECT * FROM c WHERE c.v != null`, all[0] + " " + all[1] + " " + all[4]},
		// Projections.
		{`SELECT c.id, c.n FROM c WHERE c.id = "d"`, `{"id":"d"}`}, {`SELECT c.none FROM c WHERE c.id = "d"`, `{}`}, {`SELECT VALUE c.n FROM c`, `3 1 2 1.0`},
		{`SELECT c.id AS value, c["n"], c.n + 1, 7 AS seven, LOWER(c.pk) lower, c.none[0] FROM c WHERE c.id = "a"`, `{"value":"a","n":3,"$1":4,"seven":7,"lower":"x"}`},
		{`SELECT c FROM c WHERE c.id = "d"`, `{"c":` + all[3] + `}`}, {`SELECT 1`, `{"$1":1}`}, {`SELECT VALUE "ping"`, `"ping"`}, {`SELECT 1, 2 FROM c WHERE c.id = "a"`, `{"$1":1,"$2":2}`},
		// Windows.
		{`SELECT TOP 2 VALUE c.id FROM c`, `"a" "b"`}, {`SELECT TOP 0 * FROM c`, ``}, {`SELECT TOP @two VALUE c.id FROM c`, `"a" "b"`}, {`SELECT VALUE c.n FROM c OFFSET 1 LIMIT 2`, `1 2`}, {`SELECT VALUE c.id FROM c OFFSET @two LIMIT 9`, `"c" "d" "e"`},
		{`SELECT VALUE c.id FROM c OFFSET 9 LIMIT 1`, ``}, {`SELECT VALUE c.id FROM c OFFSET 0 LIMIT 0`, ``}, {`SELECT TOP 3 VALUE c.id FROM c OFFSET 2 LIMIT 2`, `"c"`},
		// ORDER BY: undefined, null, booleans, numbers, strings; equal ones in the order of items.
		{`SELECT VALUE c.id FROM c ORDER BY c.n`, `"d" "b" "e" "c" "a"`}, {`SELECT VALUE c.id FROM c ORDER BY c.v ASC`, `"c" "d" "e" "a" "b"`}, {`SELECT VALUE c.id FROM c ORDER BY c.v DESC`, `"b" "a" "e" "d" "c"`},
		{`SELECT VALUE c.id FROM c ORDER BY c.pk DESC, c.n`, `"d" "b" "e" "c" "a"`}, {`SELECT VALUE c.id FROM c ORDER BY c.pk, c.n DESC, c.id DESC`, `"a" "c" "e" "b" "d"`},
		{`SELECT TOP 2 VALUE c.id FROM c ORDER BY c.n DESC`, `"a" "c"`}, {`SELECT VALUE c.id FROM c ORDER BY c.n OFFSET 1 LIMIT 1`, `"b"`}, {`SELECT TOP 1 VALUE c.v FROM c ORDER BY c.id DESC`, `true`}, {`SELECT VALUE c.v FROM c ORDER BY c.id DESC OFFSET 1 LIMIT 1`, `null`},
		// DISTINCT by value.
		{`SELECT DISTINCT VALUE c.n FROM c`, `1 2 3`}, {`SELECT DISTINCT c.pk FROM c`, `{"pk":"x"} {"pk":"y"}`}, {`SELECT DISTINCT TOP 1 VALUE c.pk FROM c ORDER BY c.id DESC`, `"x"`}, {`SELECT DISTINCT VALUE c.pk FROM c ORDER BY c.n OFFSET 1 LIMIT 5`, `"x"`},
		// Aggregates.
		{`SELECT VALUE COUNT(1) FROM c`, `5`}, {`SELECT VALUE COUNT(c.n) FROM c`, `4`}, {`SELECT VALUE COUNT(undefined) FROM c`, `0`}, {`SELECT COUNT(1) AS count FROM c WHERE c.pk = "x"`, `{"count":3}`}, {`SELECT COUNT(1) FROM c`, `{"$1":5}`},
		{`SELECT VALUE SUM(c.n) FROM c`, `7`}, {`SELECT VALUE AVG(c.n) FROM c`, `1.75`}, {`SELECT VALUE MIN(c.n) FROM c`, `1`}, {`SELECT MAX(c.n) AS top, MIN(c.v), SUM(c.v) AS none, AVG(c.v) FROM c`, `{"top":3,"$1":null}`},
		{`SELECT VALUE MAX(c.v) FROM c`, `"s"`}, {`SELECT VALUE MAX(c) FROM c`, ``}, {`SELECT VALUE MIN(c.l) FROM c`, ``}, {`SELECT AVG(c.v) AS a, MAX(c.id) AS m FROM c WHERE c.v > ""`, `{"m":"b"}`}, {`SELECT VALUE SUM(c.n) FROM c WHERE c.n < 3`, `4`}, {`SELECT VALUE SUM(c.v) FROM c`, ``}, {`SELECT VALUE SUM(c.n) + COUNT(1) FROM c`, `12`}, {`SELECT VALUE COUNT(1) > 4 FROM c`, `true`},
		{`SELECT VALUE COUNT(1) FROM c WHERE false`, `0`}, {`SELECT VALUE SUM(c.n) FROM c WHERE false`, `0`}, {`SELECT VALUE AVG(c.n) FROM c WHERE false`, ``}, {`SELECT MIN(c.n) AS m FROM c WHERE false`, `{}`}, {`SELECT VALUE COUNT(1) FROM c OFFSET 1 LIMIT 1`, ``},
		{`SELECT TOP 1 VALUE COUNT(1) FROM c`, `5`}, {`SELECT DISTINCT VALUE COUNT(1) FROM c ORDER BY c.id`, `5`}, {`SELECT TOP 0 VALUE COUNT(1) FROM c`, ``},
	} {
		if got := rows(t, mustParse(t, test.query, param("@two", "2")), items(all...)); got != test.want {
			t.Errorf("%s: %s, want %s", test.query, got, test.want)
		}
	}
}

// TestCaptured: the queries that the SDKs of Go, JavaScript, Python and Java send.
func TestCaptured(t *testing.T) {
	const item = `{"id":"a","someProp":"some_4","pk":"1","parent":"parent1","city":"x","my-pk":null,"offerResourceId":"EAAACoAAAAs=","resource":"dbs/d/","title":"t"}`
	for _, query := range []string{
		"SELECT * FROM c WHERE c.offerResourceId = 'EAAACoAAAAs='", "select * from c where c.offerResourceId = @resourceId", "SELECT * FROM root r WHERE r.resource=@link", "SELECT * FROM root r WHERE r.id = @id",
		"select * from docs c where c.someProp = 'some_4'", "select * from c order by c.id", "select * from c where c.pk = '1' order by c.id", "select * from c where c.someProp = @prop order by c.id", "select value c from c order by c.id",
		"select * from c", "select * from c where c.parent = 'parent1'", "select * from dbs d", "select * from containers c", `SELECT * FROM c WHERE c["city"] = @city`,
		"SELECT * FROM c WHERE c.id IN (@id, @other)", `SELECT * FROM c WHERE IS_NULL(c["my-pk"]) AND c.id IN (@other, @id)`, `SELECT * FROM c WHERE (c.id = @other AND c.pk = @pk) OR (c.id = @id AND c.pk = @pk)`,
		`SELECT * FROM c WHERE ( ( c.id = @id AND c.city = @city ) OR ( c.id = @other AND c.city = @city ) )`,
	} {
		q := mustParse(t, query, param("@resourceId", `"EAAACoAAAAs="`), param("@link", `"dbs/d/"`), param("@id", `"a"`), param("@other", `"b"`), param("@prop", `"some_4"`), param("@city", `"x"`), param("@pk", `"1"`))
		if got := rows(t, q, items(item, `{"id":"c"}`)); !strings.HasPrefix(got, item) {
			t.Errorf("%s: %s", query, got)
		}
	}
}

func TestRefused(t *testing.T) {
	for _, test := range []struct{ query, want string }{
		{``, `the query ends where SELECT is expected`}, {`SELECT`, `ends where an expression`}, {`SELECT *`, `no FROM`}, {`SELECT * WHERE true`, `no FROM`}, {`SELECT VALUE 1, 2`, `","`}, {`SELECT c.a, FROM c`, `"FROM"`}, {`Selec * FROM c`, `"Selec"`},
		{`SELECT * FROM c WHERE FullTextContains(c.title, "search")`, `function FullTextContains is not served`}, {`SELECT VALUE udf.f(c) FROM c`, `"udf" at byte 14 is not served`}, {`SELECT VALUE ARRAY(SELECT 1) FROM c`, `"ARRAY"`},
		{`SELECT * FROM c, d`, `","`}, {`SELECT * FROM (SELECT 1)`, `"("`},
		{`SELECT c.a, COUNT(1) FROM c`, `the expression at byte 8 is neither in an aggregate nor in GROUP BY`}, {`SELECT * FROM c WHERE COUNT(1) > 1`, `COUNT is served only in SELECT`}, {`SELECT SUM(MAX(c.a)) FROM c`, `MAX is served only in SELECT, and not in another aggregate`}, {`SELECT COUNT(*) FROM c`, `"*"`}, {`SELECT COUNT() FROM c`, `")"`},
		{`SELECT VALUE 1 ?? 2 ? 3 : 4`, `?? and ? before byte 28 are ambiguous`}, {`SELECT VALUE 1 ? 2 : 3 ?? 4`, `ambiguous`}, {`SELECT VALUE 1 ? 2`, `where : is expected`}, {`SELECT VALUE 1 = "a" || "b"`, `|| before byte 28 is ambiguous beside =`}, {`SELECT VALUE "a" || "b" < "c"`, `ambiguous`},
		{`SELECT VALUE "a" LIKE "b" ESCAPE "cd"`, `ESCAPE is not a string of one character`}, {`SELECT VALUE "a" LIKE 1`, `pattern 1: use a string of at most 500 bytes`}, {`SELECT VALUE "a" LIKE "[z-a]"`, `pattern "[z-a]": error parsing regexp`}, {`SELECT VALUE REGEXMATCH("a", "(")`, `pattern "("`}, {`SELECT VALUE REGEXMATCH("a", "a", "q")`, `pattern "a"`}, {`SELECT VALUE "a" LIKE "` + strings.Repeat("a", 501) + `"`, `at most 500 bytes`},
		{`SELECT VALUE {"a": 1`, `where } is expected`}, {`SELECT VALUE {1: 1}`, `a name or string is expected`}, {`SELECT VALUE {a: 1, a: 2}`, `two members are named "a"`}, {`SELECT VALUE {a 1}`, `: is expected`}, {`SELECT VALUE [1`, `where ] is expected`}, {`SELECT VALUE RAND()`, `function RAND is not served`}, {`SELECT VALUE CONCAT("a")`, `CONCAT has 1 arguments: use 2 or more`}, {`SELECT VALUE PI(1)`, `use 0 to 0`}, {`SELECT VALUE 1 ` + strings.Repeat("?? 1 ", 1000), `deeper than 100`},
		{`SELECT VALUE ~1`, `"~"`}, {`SELECT VALUE 1 & 2`, `"&"`}, {`SELECT VALUE (SELECT 1)`, `"SELECT"`},
		{`SELECT * FROM c WHERE NOT c.a = 1`, `ambiguous`}, {`SELECT * FROM c WHERE NOT c.a IN (1)`, `ambiguous`}, {`SELECT * FROM c WHERE NOT c.a + 1`, `ambiguous`}, {`SELECT * FROM c WHERE c.a NOT 1`, `IN, LIKE or BETWEEN is expected`}, {`SELECT * FROM c WHERE c.a IN ()`, `")"`}, {`SELECT * FROM c WHERE c.a IN (1`, `where ) is expected`}, {`SELECT * FROM c WHERE c.a BETWEEN 1`, `AND`},
		{`SELECT * FROM c WHERE d.a = 1`, `unknown name "d" at byte 23`}, {`SELECT * FROM docs c WHERE docs.a = 1`, `unknown name "docs"`}, {`SELECT VALUE c.a`, `no FROM`}, {`SELECT VALUE c.a + 1`, `unknown name "c"`}, {`SELECT * FROM c WHERE c.a = TRUE`, `unknown name "TRUE"`},
		{`SELECT * FROM c WHERE c.a = @p`, `parameter @p has no value`}, {`SELECT * FROM c WHERE c.a = @`, `"@"`}, {`SELECT c.a, c.b.a FROM c`, `two columns are named "a"`}, {`SELECT VALUE c.a[-1] FROM c`, `index at byte 18`}, {`SELECT VALUE c.a[1.5] FROM c`, `index`}, {`SELECT VALUE c[c.a] FROM c`, `index`}, {`SELECT VALUE c.a[] FROM c`, `"]"`}, {`SELECT VALUE c. FROM`, `no FROM`}, {`SELECT VALUE "a".b FROM c`, `"."`},
		{`SELECT TOP -1 * FROM c`, `"-"`}, {`SELECT TOP 1.5 * FROM c`, `TOP is not a number of rows`}, {`SELECT TOP 2147483648 * FROM c`, `TOP`}, {`SELECT TOP 'a' * FROM c`, `TOP`}, {`SELECT TOP @s * FROM c`, `TOP`}, {`SELECT * FROM c OFFSET 1`, `LIMIT`}, {`SELECT * FROM c LIMIT 1`, `"LIMIT"`}, {`SELECT * FROM c /* WHERE`, `"/"`}, {`SELECT * FROM c OFFSET c LIMIT 1`, `OFFSET is not a number`},
		{`SELECT * FROM c ORDER BY LOWER(c.a)`, `ORDER BY at byte 26 is not a path`}, {`SELECT * FROM c ORDER BY c.a,`, `an expression`}, {`SELECT * FROM c ORDER c.a`, `BY is expected`}, {`SELECT * FROM c ORDER BY RANK f(c)`, `"RANK"`}, {`SELECT * FROM c WHERE`, `ends where`}, {`SELECT * FROM c c2 c3`, `"c3"`}, {`SELECT * FROM c;`, `";"`}, {`SELECT * FROM select`, `"select"`},
		{`SELECT VALUE 'a`, `string at byte 14`}, {`SELECT VALUE '`, `string`}, {`SELECT VALUE "` + strings.Repeat("a", 300), `string`}, {`SELECT VALUE 'a\`, `string`}, {`SELECT VALUE 'a\'`, `string`}, {`SELECT VALUE 'a\q'`, `string`}, {`SELECT VALUE 'it''s'`, `"s"`}, {`SELECT VALUE 1e999`, `out of range`}, {`SELECT VALUE 1a`, `"a"`}, {`SELECT VALUE 1e`, `"e"`}, {`SELECT VALUE 1.2.3`, `"0.3"`}, {`SELECT VALUE "\ud83"`, `string`}, {`SELECT VALUE $1`, `"$"`},
		{`SELECT VALUE LENGTH("a", "b")`, `function LENGTH has 2 arguments: use 1 to 1`}, {`SELECT VALUE CONTAINS("a")`, `CONTAINS has 1 arguments: use 2 to 3`}, {`SELECT VALUE LENGTH()`, `")"`}, {"SELECT VALUE '\xff'", `not UTF-8`},
		{`SELECT VALUE ` + strings.Repeat("(", 1000), `deeper than 100`}, {`SELECT VALUE ` + strings.Repeat("- ", 1000) + "c", `deeper than 100`}, {`SELECT VALUE 1` + strings.Repeat("+1", 1000), `more than 100 operators`}, {`SELECT VALUE ` + strings.Repeat("NOT ", 1000) + "true", `deeper than 100`}, {`SELECT VALUE ` + strings.Repeat("LOWER(", 1000), `deeper than 100`}, {`SELECT VALUE c` + strings.Repeat("[c", 1000), `deeper than 100`},
		{`SELECT VALUE 1 ` + strings.Repeat(" ", sql.MaxBytes), `use at most 262144`},
	} {
		q, err := sql.Parse(test.query, []sql.Parameter{param("@s", `"1"`)})
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.60s: %v, %v, want %s", test.query, q, err, test.want)
		}
	}
	if _, err := sql.Parse(`SELECT 1`, []sql.Parameter{param("@p", `{`)}); err == nil || err.Error() != "parameter \"@p\" is not JSON in UTF-8" {
		t.Error(err)
	}
}

// TestManyTerms: AND, OR and IN have as many terms as a query's bytes allow.
func TestManyTerms(t *testing.T) {
	query := `SELECT VALUE c.n FROM c WHERE c.n = 1` + strings.Repeat(` OR c.n = 2`, 20_000)
	if got := rows(t, mustParse(t, query), items(`{"n":2}`, `{"n":3}`)); got != "2" {
		t.Error(got)
	}
}

// TestMatches: so the condition of a PATCH is evaluated.
func TestMatches(t *testing.T) {
	q := mustParse(t, `SELECT * from c where c.n > 1`)
	for item, want := range map[string]bool{`{"n":2}`: true, `{"n":"2"}`: false, `{}`: false} {
		if matches, err := q.Matches([]byte(item)); matches != want || err != nil {
			t.Error(item, matches, err)
		}
	}
	q = mustParse(t, `SELECT * from c where LENGTH(REPLACE(c.s, "s", c.s)) > 0`)
	if matches, err := q.Matches([]byte(`{"s":"` + strings.Repeat("s", 1<<14) + `"}`)); matches || !errors.Is(err, sql.ErrTooLarge) {
		t.Error(matches, err)
	}
}

// TestRunReadsNoMoreThanItNeeds: TOP and LIMIT end the reading, and so does the consumer.
func TestRunReadsNoMoreThanItNeeds(t *testing.T) {
	for query, want := range map[string]int{`SELECT TOP 2 * FROM c`: 2, `SELECT * FROM c OFFSET 1 LIMIT 2`: 3, `SELECT TOP 0 * FROM c`: 0, `SELECT * FROM c OFFSET 3 LIMIT 0`: 0, `SELECT TOP 0 VALUE COUNT(1) FROM c`: 0, `SELECT TOP 0 * FROM c ORDER BY c.n`: 0, `SELECT DISTINCT TOP 1 c.n FROM c`: 9, `SELECT * FROM c ORDER BY c.n`: 9, `SELECT 1`: 0} {
		read := 0
		rows(t, mustParse(t, query), func(yield func([]byte, error) bool) {
			for more := true; more && read < 9; more = yield([]byte(`{"n":1}`), nil) {
				read++
			}
		})
		if read != want {
			t.Errorf("%s: %d items read, want %d", query, read, want)
		}
	}
	for _, query := range []string{`SELECT * FROM c`, `SELECT * FROM c ORDER BY c.n`, `SELECT VALUE COUNT(1) FROM c`} {
		for range mustParse(t, query).Run(items(`{"n":1}`, `{"n":2}`, `{"n":3}`), room) {
			break
		}
	}
}

func TestRunFails(t *testing.T) {
	lost := errors.New("lost")
	broken := func(yield func([]byte, error) bool) {
		_ = yield([]byte(`{"n":1}`), nil) && yield(nil, lost)
	}
	many := func(yield func([]byte, error) bool) {
		for i := 0; i < 1000 && yield([]byte(`{"n":`+strings.Repeat("1", 1+i)+`,"pad":"`+strings.Repeat("x", 1000)+`"}`), nil); i++ {
		}
	}
	for _, test := range []struct {
		query string
		over  iter.Seq2[[]byte, error]
		want  error
	}{
		{`SELECT * FROM c`, broken, lost}, {`SELECT * FROM c ORDER BY c.n`, broken, lost}, {`SELECT VALUE COUNT(1) FROM c`, broken, lost}, {`SELECT DISTINCT * FROM c`, broken, lost}, {`SELECT TOP 1 * FROM c`, broken, nil},
		{`SELECT * FROM c ORDER BY c.n`, many, sql.ErrTooLarge}, {`SELECT DISTINCT * FROM c`, many, sql.ErrTooLarge}, {`SELECT DISTINCT TOP 1 * FROM c ORDER BY c.n`, many, sql.ErrTooLarge},
		{`SELECT * FROM c`, many, nil}, {`SELECT TOP 10 * FROM c ORDER BY c.n DESC`, many, nil}, {`SELECT VALUE MAX(c.pad) FROM c`, many, nil}, {`SELECT DISTINCT VALUE c.pad FROM c`, many, nil},
	} {
		var failed error
		for row, err := range mustParse(t, test.query).Run(test.over, 100_000) {
			if failed != nil || (err != nil) == (row != nil) {
				t.Fatalf("%s: %q, %v after %v", test.query, row, err, failed)
			}
			failed = err
		}
		if !errors.Is(failed, test.want) {
			t.Errorf("%s: %v, want %v", test.query, failed, test.want)
		}
	}
}

func TestWhatIsHandedDown(t *testing.T) {
	for _, test := range []struct {
		query            string
		plan, value, all bool
		equalities       string
	}{
		{`SELECT * FROM c`, false, false, false, ``},
		{`SELECT VALUE c.n FROM c WHERE c.n > 1 OR NOT (c.id = "a")`, false, true, false, ``},
		{`SELECT c.n FROM c ORDER BY c.n`, true, false, false, ``}, {`SELECT TOP 1 * FROM c`, true, false, false, ``}, {`SELECT DISTINCT c.n FROM c`, true, false, false, ``}, {`SELECT * FROM c OFFSET 0 LIMIT 1`, true, false, false, ``}, {`SELECT * FROM c OFFSET 1 LIMIT 2147483647`, true, false, false, ``},
		{`SELECT VALUE COUNT(1) FROM c`, true, true, true, ``}, {`SELECT VALUE COUNT("a") FROM root r`, true, true, true, ``}, {`SELECT COUNT(1) FROM c`, true, false, false, ``}, {`SELECT VALUE COUNT(c.n) FROM c`, true, true, false, ``}, {`SELECT VALUE COUNT(undefined) FROM c`, true, true, false, ``}, {`SELECT VALUE COUNT(1) + 1 FROM c`, true, true, false, ``},
		{`SELECT VALUE SUM(1) FROM c`, true, true, false, ``}, {`SELECT VALUE COUNT(1)`, true, true, false, ``}, {`SELECT TOP 0 VALUE COUNT(1) FROM c`, true, true, false, ``}, {`SELECT VALUE COUNT(1) FROM c WHERE c.pk = @pk`, true, true, false, `/pk ["x",1]`},
		{`SELECT * FROM c WHERE c.id = "a" AND 1.50 = c["o"].p AND c.n IN (1, 2, @pk) AND IS_NULL(c.z)`, false, false, false, `/id "a"; /o/p 1.50; /n 1,2,["x",1]; /z null`},
		{`SELECT * FROM c WHERE c.a = undefined AND c.l[0] = 1 AND c = 1 AND c.a = c.b AND c.n IN (1, c.m) AND c.n != 1 AND c.n NOT IN (1) AND c["~/"] = -1`, false, false, false, `/~0~1 -1`},
		{`SELECT * FROM c WHERE (c.id = "a" AND c.pk = 1 AND c.n = 0) OR (c.pk = 2 AND c.id = "b") OR (c.id IN ("c", "d") AND c.pk = 3)`, false, false, false, `/id "a","b","c","d"; /pk 1,2,3`},
		{`SELECT * FROM c WHERE c.pk = 1 AND (c.id = "a" OR c.id = "b") AND (c.n = 1 OR c.m = 1)`, false, false, false, `/pk 1; /id "a","b"`},
		{`SELECT * FROM c WHERE c.id = "a" OR true`, false, false, false, ``}, {`SELECT * FROM c WHERE (c.id = "a") = false`, false, false, false, ``}, {`SELECT * FROM c WHERE c.n BETWEEN 1 AND 1`, false, false, false, ``},
	} {
		q := mustParse(t, test.query, param("@pk", `["x",1]`))
		var parts []string
		for _, e := range q.Equalities() {
			var list []string
			for _, v := range e.Values {
				list = append(list, string(v))
			}
			parts = append(parts, e.Path.String()+" "+strings.Join(list, ","))
		}
		if got := strings.Join(parts, "; "); got != test.equalities || q.NeedsPlan() != test.plan || q.HasSelectValue() != test.value || q.CountsAll() != test.all {
			t.Errorf("%s: plan %v, value %v, counts all %v, %s", test.query, q.NeedsPlan(), q.HasSelectValue(), q.CountsAll(), got)
		}
	}
}

// TestEqualitiesAreIndependent: the lists of an OR do not share memory.
func TestEqualitiesAreIndependent(t *testing.T) {
	q := mustParse(t, `SELECT * FROM c WHERE (c.a IN (1, 2, 3) OR c.a = 4) AND (c.a = 5 OR c.a = 6)`)
	var all []string
	for _, e := range q.Equalities() {
		for _, v := range e.Values {
			all = append(all, string(v))
		}
	}
	if want := []string{"1", "2", "3", "4", "5", "6"}; !slices.Equal(all, want) {
		t.Error(all)
	}
}
