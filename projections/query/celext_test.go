package query_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/lapsedb/lapse/projections/query"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/stress"
)

// TestTextsStayBounded: a condition that could make a text or list much larger than the
// document is refused before it does.
func TestTextsStayBounded(t *testing.T) {
	stress.OneGoroutine(t)
	list := "[" + strings.Repeat(`"",`, 9_999) + `""]`
	documentOf := func(size int) string {
		return fmt.Sprintf(`"s":%q,"l":%s,"n":1`, strings.Repeat("a", size), list)
	}
	engine := newEngine(t, query.Limits{})
	for _, c := range []struct {
		size    int // of doc.s
		where   string
		refused bool
		most    uint64 // MiB that it allocates
	}{
		// Small enough that the test fails, and the machine does not, without the bounds.
		{20_000, "doc.s.replace('', doc.s) == ''", true, 25},
		{20_000, "doc.s.replace('a', doc.s, 5000) == ''", true, 25},
		{20_000, "doc.s.replace('a', doc.s, 100) == ''", false, 25},
		{20_000, "doc.s.replace('a', '') == '' && doc.s.replace('a', 'aa').size() == 40000", false, 25},
		{20_000, "doc.l.join(doc.s) == ''", true, 50},
		{20_000, "doc.l.map(x, doc.s).join() == ''", true, 25},
		{20_000, "doc.l.join(',').size() == 9999", false, 25},
		{20_000, "doc.l.all(x, doc.s.upperAscii().charAt(0) == 'A')", true, 50},
		{20_000, "doc.l.map(x, doc.s.lowerAscii()).size() == 10000", true, 25},
		{2_000_000, "doc.s.split('') == []", true, 40},
		{2_000_000, "doc.s.split('a') == []", true, 40},
		{2_000_000, "doc.s.split('', 10).size() == 10", false, 40},

		{2_000_000, "doc.s.replace('', doc.s).replace('', doc.s) == ''", true, 40},
		{2_000_000, "doc.s.replace('a', '" + strings.Repeat("b", 1000) + "') == ''", true, 40},
		{2_000_000, "doc.s.lowerAscii().contains('b') || doc.s.trim().endsWith('b')", false, 60},
		{2_000_000, "doc.s.lowerAscii().upperAscii().lowerAscii().upperAscii().lowerAscii() == ''", true, 60},
		{2_000_000, "strings.quote(strings.quote(strings.quote(doc.s))) == ''", true, 120},
		{2_000_000, "doc.s.indexOf('b') == -1 && doc.s.lastIndexOf('b') == -1 && doc.s.charAt(7) == 'a' && doc.s.substring(7).size() == 1999993", false, 60},
	} {
		l := collectionOf(t, `{}`, documentOf(c.size))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, err := ask(engine, l.store, naiveNow, fmt.Sprintf(`{"count":true,"where":%q}`, c.where))
		runtime.ReadMemStats(&after)
		if c.refused != (err != nil) || err != nil && !errors.Is(err, schema.ErrTooLarge) {
			t.Errorf("%d bytes, %.80s: %v", c.size, c.where, err)
		}
		allocated := (after.TotalAlloc - before.TotalAlloc) >> 20
		t.Logf("%d bytes, %.80s: %d MiB", c.size, c.where, allocated)
		if allocated > c.most {
			t.Fatalf("%d bytes, %.80s: allocates %d MiB, want at most %d", c.size, c.where, allocated, c.most)
		}
	}
}

// TestIndexesBesideFunctions: a condition with functions uses the indexes of its other
// terms.
func TestIndexesBesideFunctions(t *testing.T) {
	var documents []string
	for i := range 20 {
		documents = append(documents, fmt.Sprintf(`"n":%d,"s":"A,%d"`, i, i%10))
	}
	l := collectionOf(t, `{"indexingPolicy":{"includedPaths":[{"path":"/n"},{"path":"/s"}]}}`, documents...)
	engine := newEngine(t, query.Limits{})
	for where, want := range map[string]string{
		"doc.n > 14 && doc.s.lowerAscii() == 'a,7'":                    "/n 5 1",
		"'7' in doc.s.split(',') && doc.n >= 10":                       "/n 10 1",
		"math.greatest(doc.n, 3) == 3 && doc.s == 'A,3'":               "/s 2 1",
		"math.least(doc.n, 3, doc.m) == 3 || doc.n == 1":               "null 20 1",
		"doc.s.lowerAscii() == 'a,7'":                                  "null 20 2",
		"doc.s.startsWith('A,7') && math.bitAnd(doc.n, 16) == 16":      "/s 2 1",
		"doc.n >= 0 && doc.s >= 'A,9'":                                 "/s 2 2", // the fewest entries
		"doc.s >= 'A,0' && doc.n >= 18":                                "/n 2 2",
		"doc.n == math.abs(-7)":                                        "null 20 1",
		"doc.n in [7, 8] && !math.isNaN(doc.n) && doc.s.trim() != 'x'": "/n 2 2",
	} {
		p, _, err := ask(engine, l.store, naiveNow, fmt.Sprintf(`{"explain":true,"where":%q}`, where))
		if err != nil {
			t.Fatalf("%s: %v", where, err)
		}
		index := "null"
		if p.Plan.Index != nil {
			index = *p.Plan.Index
		}
		if got := fmt.Sprintf("%s %d %d", index, p.Plan.Scanned, p.Plan.Returned); got != want {
			t.Errorf("%s: %s, want %s", where, got, want)
		}
	}
}

// TestExamplesOfFunctions: the examples of the manual are conditions.
func TestExamplesOfFunctions(t *testing.T) {
	manual, err := os.ReadFile("../../docs/queries.md")
	must(t, err)
	_, table, _ := strings.Cut(string(manual), "| functions | example |")
	table, _, _ = strings.Cut(table, "\n\n")
	l := collectionOf(t, `{}`, `"user":"Ann","code":" A1\n","colors":"blue,red","path":["a","b"],"phone":"030 12 34","mail":"a@example.com","a":1,"b":5.5,"x":7,"flags":12`)
	engine, found := newEngine(t, query.Limits{}), 0
	for _, example := range regexp.MustCompile("`([^`]*doc\\.[^`]*)`").FindAllStringSubmatch(table, -1) {
		found++
		where, _ := json.Marshal(example[1])
		if p, _, err := ask(engine, l.store, naiveNow, fmt.Sprintf(`{"count":true,"params":{"x":7.25},"where":%s}`, where)); err != nil || *p.Count != 1 {
			t.Errorf("%s: %v %v", example[1], p.Count, err)
		}
	}
	if found != 10 {
		t.Errorf("%d examples, want 10", found)
	}
}
