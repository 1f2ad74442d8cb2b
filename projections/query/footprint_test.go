package query

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/lapsedb/lapse/test/stress"
)

// TestFootprint: the estimate is no less than what compiled conditions have.
func TestFootprint(t *testing.T) {
	c, err := newCompiler(Limits{}.EnsureDefaults())
	if err != nil {
		t.Fatal(err)
	}
	for times, parts := range map[int][]string{
		20: {
			"doc.a%d == 1", "doc.a%d", "doc.a%d.b.c.d.e.f.g", "doc.a in params.a%d", "doc.a%d in [1, 2, 'a', 3]", "doc.a%d == '" + strings.Repeat("x", 300) + "'",
			"params.a", "params.a%d", "dyn(0)", "1 < 2", "doc.a + 1 == 2", "-doc.a < 1", "int('%d') == 1", "doc.a == [{%d: 1}]", "doc.a + 1 in [[%d], {}]",
			"[1].all(x, true)", "[1].exists_one(x, x == %d)", "doc.l.map(x, x + 1) == []", "math.least([doc.a, doc.b, %d]) == 1",
			"doc.s.matches('a%d')", "doc.s.matches('[^a-c]{99}')", "doc.s.matches('.{60}')", "matches(doc.s, '^a{99}$')", "doc.s.matches(string('^[a-z]{30}$'))",
			"doc.s.matches(string(b'(?i)abc%d'))", "doc.s.matches('^(?i)a{60}$')", "doc.s.matches('^(a?b*c+){9}$')", "doc.l.all(x, x.matches('^a{99}$'))",
			`doc.s.matches(r'\pL')`, `doc.s.matches(r'(?i)\pL+')`,
		},
		2: {`doc.s.matches(r'\A\pL{60}\z')`, `doc.s.matches(r'^1?2?3?4?5?6?7?8?9?\pL$')`, `doc.s.matches(r'^(a|b|c|d|e|\pL{9})$')`},
	} {
		for _, part := range parts {
			compiled := make([]*condition, 5)
			compile := func(n int) int {
				where := fmt.Sprintf("doc.n%d", n)
				for i := range times {
					where += " || " + strings.ReplaceAll(part, "%d", fmt.Sprint(100*n+i))
				}
				if compiled[n], err = c.compile(where); err != nil {
					t.Fatalf("%s: %v", part, err)
				}
				return compiled[n].footprint
			}
			compile(0) // allocates what CEL and regexp share
			bytes, before := 0, stress.Heap()
			for n := range compiled {
				bytes += compile(n)
			}
			if more := int(stress.Heap() - before); more > bytes {
				t.Errorf("%s: has %d bytes, estimated are %d", part, more, bytes)
			}
			runtime.KeepAlive(compiled)
		}
	}
}
