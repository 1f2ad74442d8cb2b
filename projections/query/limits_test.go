package query_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/lapsedb/lapse/projections/query"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/stress"
)

// hundred returns a collection of d0 to d99 with the indexed member n from 0 on, and
// text as s.
func hundred(t testing.TB, text string) *ledger {
	var documents []string
	for i := range 100 {
		documents = append(documents, fmt.Sprintf(`"n":%d,"m":%d,"s":%q,"l":[%s0]`, i, i%10, text, strings.Repeat("0,", 199)))
	}
	return collectionOf(t, `{"indexingPolicy":{"includedPaths":[{"path":"/n"}]}}`, documents...)
}

func TestLimits(t *testing.T) {
	long := strings.Repeat("long", 250)
	l := hundred(t, long)
	for _, c := range []struct {
		name   string
		limits query.Limits
		body   string
		want   error // nil: within the limits
	}{
		{"scan", query.Limits{Scanned: 100}, `{"where":"doc.m == 100"}`, nil},
		{"scan", query.Limits{Scanned: 99}, `{"where":"doc.m == 100"}`, schema.ErrTooLarge},
		{"scan to sort", query.Limits{Scanned: 99}, `{"orderBy":[{"path":"/m"}],"limit":1}`, schema.ErrTooLarge},
		{"scan to count", query.Limits{Scanned: 99}, `{"where":"doc.m == 1","count":true}`, schema.ErrTooLarge},
		{"count of all", query.Limits{Scanned: 1}, `{"count":true}`, nil},
		{"page before the limit", query.Limits{Scanned: 50}, `{"where":"doc.m == 0","limit":3}`, nil},
		{"index", query.Limits{Scanned: 50}, `{"where":"doc.n >= 50"}`, nil},
		{"index", query.Limits{Scanned: 49}, `{"where":"doc.n >= 50"}`, schema.ErrTooLarge},
		{"order by index", query.Limits{Scanned: 50}, `{"orderBy":[{"path":"/n"}],"limit":10}`, nil},

		{"page", query.Limits{Bytes: 200_000}, `{}`, nil},
		{"page", query.Limits{Bytes: 2000}, `{}`, nil},
		{"page", query.Limits{Bytes: 1000}, `{}`, schema.ErrTooLarge},
		{"page", query.Limits{Bytes: 1000}, `{"select":["/id"]}`, nil},
		{"params", query.Limits{}, `{"where":"doc.n in params.l || doc.n in params.l","params":{"l":[` + strings.Repeat("1,", 100_000) + `1]}}`, nil},
		{"params", query.Limits{}, `{"where":"doc.n in params.l","params":{"l":[` + strings.Repeat("1,", 200_000) + `1]}}`, schema.ErrBadRequest},
		{"params within params", query.Limits{}, `{"where":"doc.n == params.a || doc.n == params.a.a || doc.n in [params.a]","params":{"a":{"a":[` + strings.Repeat("1,", 30_000) + `1]}}}`, nil},
		{"params within params", query.Limits{}, `{"where":"doc.n == params.a || doc.n == params.a.a || doc.n in [params.a]","params":{"a":{"a":[` + strings.Repeat("1,", 60_000) + `1]}}}`, schema.ErrBadQuery},
		{"cursor in the page", query.Limits{Bytes: 100}, `{"limit":1,"select":["/id"],"orderBy":[{"path":"/s"}]}`, schema.ErrTooLarge},

		{"time", query.Limits{Time: time.Nanosecond}, `{"where":"doc.m == 100"}`, schema.ErrTimeout},
		{"time of macros", query.Limits{Time: 50 * time.Millisecond, Cost: 1 << 62}, `{"where":"doc.l.all(a, doc.l.all(b, doc.l.all(c, doc.l.all(d, doc.l.all(e, a + b + c + d + e == 0)))))"}`, schema.ErrTimeout},

		{"expression", query.Limits{ExpressionBytes: 10}, `{"where":"doc.n == 1"}`, nil},
		{"expression", query.Limits{ExpressionBytes: 9}, `{"where":"doc.n == 1"}`, schema.ErrBadQuery},
		{"memory", query.Limits{}, `{"where":"doc.s.matches('^[a-z0-9._-]{1,64}@[a-z0-9.-]+$')"}`, nil},
		{"memory of a class", query.Limits{}, `{"where":"doc.s.matches('^\\\\pL{240}$')"}`, schema.ErrBadQuery},
		{"memory of expressions", query.Limits{}, `{"where":"` + strings.Repeat("doc.s.matches('^a{99}$') || ", 200) + `false"}`, schema.ErrBadQuery},
		{"nesting", query.Limits{Nesting: 20}, `{"where":"` + strings.Repeat("!(", 5) + "doc.n == 1" + strings.Repeat(")", 5) + `"}`, nil},
		{"nesting", query.Limits{Nesting: 20}, `{"where":"` + strings.Repeat("!(", 30) + "doc.n == 1" + strings.Repeat(")", 30) + `"}`, schema.ErrBadQuery},

		{"cost", query.Limits{}, `{"where":"doc.l.all(a, a == 0)"}`, nil},
		{"cost", query.Limits{Cost: 100}, `{"where":"doc.l.all(a, a == 0)"}`, schema.ErrTooLarge},
		{"cost of macros in macros", query.Limits{}, `{"where":"doc.l.all(a, doc.l.all(b, doc.l.all(c, a + b + c == 0)))"}`, schema.ErrTooLarge},
		{"cost of texts", query.Limits{}, `{"where":"doc.l.all(a, doc.s.lowerAscii().reverse().indexOf('x') == -1)"}`, nil},
		{"cost of texts", query.Limits{Cost: 50_000}, `{"where":"doc.l.all(a, doc.s.lowerAscii().reverse().indexOf('x') == -1)"}`, schema.ErrTooLarge},
		{"cost of a result", query.Limits{Cost: 900}, `{"where":"doc.s.split('').size() == 1"}`, schema.ErrTooLarge},
		{"cost of lists", query.Limits{Cost: 1000}, `{"where":"doc.l.exists(a, doc.l + [a] == [])"}`, schema.ErrTooLarge},
	} {
		c.limits.Time = cmp.Or(c.limits.Time, time.Minute) // enough for any machine
		_, _, err := ask(newEngine(t, c.limits), l.store, naiveNow, c.body)
		if c.want == nil && err != nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s, %.100s: %v, want %v", c.name, c.body, err, c.want)
		}
		var fault *schema.Error
		if errors.As(err, &fault) && (fault.Message == "" || strings.Contains(fault.Message, "\n")) {
			t.Errorf("%s: %q is no line that says what to do", c.name, fault.Message)
		}
	}
}

// TestConditionsAreBounded: compiled conditions have a limit in bytes, for all engines that
// share a cache.
func TestConditionsAreBounded(t *testing.T) {
	l := hundred(t, "text")
	conditions := query.NewConditions()
	var engines []*query.Engine
	for range 2 {
		engine, err := query.New(query.Options{Conditions: conditions})
		must(t, err)
		engines = append(engines, engine)
	}
	answer := func(engine *query.Engine, where string) {
		if _, _, err := ask(engine, l.store, naiveNow, `{"where":"`+where+`"}`); err != nil {
			t.Fatal(err)
		}
	}
	answer(engines[0], "doc.s + 'a' == 'texta'")
	before := stress.Heap()
	for n := range 200 {
		answer(engines[n%2], fmt.Sprintf(`doc.n == %d && doc.s.matches('^\\\\pL{100}$')`, n))
	}
	if more := stress.Heap() - before; more > 24<<20 {
		t.Errorf("the heap is %d MiB larger", more>>20)
	}
	runtime.KeepAlive(engines)
}

// TestFullPageIsKept: a page that is full before a limit is exceeded is returned, though
// it is then unknown whether more follows.
func TestFullPageIsKept(t *testing.T) {
	l := hundred(t, "")
	engine := newEngine(t, query.Limits{Scanned: 30})
	p, _, err := ask(engine, l.store, naiveNow, `{"where":"doc.n == 1 || doc.m == 100","limit":1}`)
	if err != nil || len(p.Documents) != 1 || p.Cursor == "" {
		t.Fatalf("%v %v", p, err)
	}
	if _, _, err = ask(engine, l.store, naiveNow, `{"where":"doc.n == 1 || doc.m == 100","limit":1,"cursor":"`+p.Cursor+`"}`); !errors.Is(err, schema.ErrTooLarge) {
		t.Fatalf("the next page: %v", err)
	}
}

func TestCancelled(t *testing.T) {
	l := hundred(t, "")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := newEngine(t, query.Limits{}).Answer(ctx, l.store, query.Ask{Collection: things, Body: []byte(`{"where":"doc.m == 100"}`), Now: func(int64) int64 { return naiveNow }, Room: room})
	if !errors.Is(err, schema.ErrUnavailable) {
		t.Fatal(err)
	}
}
