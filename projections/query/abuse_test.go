package query_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lapsedb/lapse/projections/query"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/stress"
)

// TestAbuse: queries that would take hours or all memory are refused or answered, all in
// less than a minute, which is enough for any machine.
func TestAbuse(t *testing.T) {
	stress.OneGoroutine(t)
	long := strings.Repeat("a", 200_000)
	list := "[" + strings.Repeat("1,", 20_000) + "1]"
	documents := []string{fmt.Sprintf(`"n":1,"s":%q,"half":%q,"l":[%s1],"c":%s`, long, long[:100_000]+"b", strings.Repeat("1,", 1000), strings.Repeat("[", 100)+list+strings.Repeat("]", 100))}
	for i := range 200 {
		documents = append(documents, fmt.Sprintf(`"n":%d`, i))
	}
	l := collectionOf(t, `{"indexingPolicy":{"includedPaths":[{"path":"/n"}]}}`, documents...)
	engine := newEngine(t, query.Limits{Time: time.Second})
	nested := "doc.x == 1"
	for range 50 {
		nested = "(doc.x == 1 ? doc.y == 1 : " + nested + ")"
	}
	deep := "doc.n == 7"
	for range 50 {
		deep = "(" + deep + " ? true : doc.n == 8)"
	}
	params := `{"l":` + list + `}`
	for name, where := range map[string]string{
		"choices in choices":       nested,
		"choices of choices":       deep,
		"bytes that double":        `[b'aaaaaaaaaaaaaaaa']` + strings.Repeat(".map(x, x + x)", 40) + ".size() == 1",
		"strings that double":      `['aaaaaaaaaaaaaaaa']` + strings.Repeat(".map(x, x + x)", 40) + ".size() == 1",
		"lists that double":        `[[1, 2]]` + strings.Repeat(".map(x, x + x)", 40) + ".exists(x, x == [])",
		"lists of lists":           `[1]` + strings.Repeat(".map(x, [x, x])", 40) + ".exists(x, x == x)",
		"maps of maps":             `[1]` + strings.Repeat(".map(x, {x: x})", 16) + ".exists(x, true)",
		"maps of lists":            `[1]` + strings.Repeat(".map(x, {'a': x, 'b': x})", 40) + ".exists(x, x == x)",
		"a nested array compared":  "[doc.c].exists(y, params.l.exists(i, y != y))",
		"params read again":        "params.l.exists(x, " + strings.Repeat("params.l[0] == 2 || ", 300) + "false)",
		"lists in an index":        strings.Repeat("doc.n in params.l && ", 300) + "true",
		"lists without one":        strings.Repeat("doc.m in params.l || ", 300) + "false",
		"arrays compared":          strings.Repeat("doc.c != doc.c || ", 400) + "false",
		"a wide expression":        "doc.s.matches('(a|a?){300}b')",
		"expressions on long text": strings.Repeat("doc.s.matches('(a|b?){20}c') || ", 60) + "false",
		"searches in long text":    strings.Repeat("doc.s.contains('aaaaaaaaaaaaaaab') || ", 200) + "false",
		"searches of long text":    strings.Repeat("doc.s.indexOf(doc.half) + ", 15) + "0 == 1 || " + strings.Repeat("doc.s.lastIndexOf(doc.half) + ", 15) + "0 == 1",
		"texts taken apart":        "doc.l.exists(a, doc.s.split('').exists(b, doc.s.split('').join(b) == ''))",
		"least of least":           strings.Repeat("math.least(doc.n, ", 50) + "doc.n" + strings.Repeat(")", 50) + " == 7",
		"many least":               strings.Repeat("math.least(doc.n, 1.0, 2u) == 7 || ", 200) + "false",
		"macros in macros":         "doc.l.exists(a, doc.l.exists(b, doc.l.exists(c, a + b + c == 0)))",
	} {
		began := time.Now()
		_, _, err := ask(engine, l.store, naiveNow, fmt.Sprintf(`{"count":true,"where":%q,"params":%s}`, where, params))
		var fault *schema.Error
		if err != nil && !errors.As(err, &fault) {
			t.Errorf("%s: %v", name, err)
		}
		t.Logf("%s: %v, %v", name, time.Since(began).Round(time.Millisecond), err)
		if time.Since(began) > time.Minute {
			t.Errorf("%s: took %v", name, time.Since(began))
		}
	}
}

// TestLongSortKeys: a sort key too long for a cursor is refused.
func TestLongSortKeys(t *testing.T) {
	l := collectionOf(t, `{}`, `"a":`+"["+strings.Repeat("1,", 100_000)+"1]", `"a":1`)
	engine := newEngine(t, query.Limits{})
	if _, _, err := ask(engine, l.store, naiveNow, `{"orderBy":[{"path":"/a"}],"limit":1}`); !errors.Is(err, schema.ErrTooLarge) || !strings.Contains(err.Error(), "shorter") {
		t.Error(err)
	}
}

// TestRangeBoundShorterThanKey: a bound may be shorter than a key, so [b, KeyAfter(b))
// may hold many keys.
func TestRangeBoundShorterThanKey(t *testing.T) {
	const first = 4503599627370752
	var documents []string
	for i := range 6 {
		documents = append(documents, fmt.Sprintf(`"n":%d`, first+10-i))
	}
	l := collectionOf(t, `{"indexingPolicy":{"includedPaths":[{"path":"/n"}]}}`, documents...)
	engine := newEngine(t, query.Limits{})
	got := ""
	readPages(t, room, engine, l.store, fmt.Sprintf(`"where":"doc.n > %d && doc.n <= %d","limit":2,"explain":true`, first-1, first+255), func(_ int, p page) {
		if *p.Plan.Index != "/n" {
			t.Error(p)
		}
		for _, d := range p.Documents {
			got += id(d) + " "
		}
	})
	if got != "d0 d1 d2 d3 d4 d5 " {
		t.Errorf("got %s", got)
	}
}
