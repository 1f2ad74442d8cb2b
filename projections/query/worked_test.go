package query

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema/values"
)

// TestWorkReportedWithinDocument: an evaluation that reads a large document, or computes
// much on it, reports its work throughout, so that it can yield before the end.
func TestWorkReportedWithinDocument(t *testing.T) {
	const elements = 20_000
	var list strings.Builder
	for n := range elements {
		fmt.Fprintf(&list, `{"n":%d,"text":"some text of %d"},`, n, n)
	}
	body := `{"list":[` + list.String() + `null],"objects":{"deep":[` + list.String() + `{}]},"last":5}`
	record := projections.Record{Body: []byte(body), Meta: projections.Meta{Version: 1, TTL: 0}}
	c, err := newCompiler(Limits{}.EnsureDefaults())
	if err != nil {
		t.Fatal(err)
	}
	digits := "[0" + strings.Repeat(",0", 99) + "]"
	for where, calls := range map[string]int{
		"doc.last == 7":                            len(body) / passedOften,
		"doc.last + 1 == 7":                        len(body) / passedOften,
		"has(doc.nothing)":                         len(body) / passedOften,
		"doc.objects.none == 1":                    len(body) / passedOften,
		"doc.list.exists(e, e.n == -1)":            elements,
		"doc.list.all(e, true)":                    elements,
		"size(doc.list) == 1":                      elements,
		"doc.objects.deep.exists(e, e == 1)":       elements,
		"size(doc.list.filter(e, e.n == -1)) == 7": elements,
		"doc.nothing.all(a, true) || " + digits + ".exists(a, " + digits + ".exists(b, a + b == 1))": 10_000,
		"params.n.exists(a, params.n.exists(b, a + b == 1))":                                         10_000,
	} {
		condition, err := c.compile(where)
		if err != nil {
			t.Fatalf("%s: %v", where, err)
		}
		called, most := 0, 0
		e, _ := condition.evaluate(t.Context(), values.Value(`{"n":`+digits+`}`), func(bytes int) {
			called++
			most = max(most, bytes)
		})
		if _, err := e.matches(record); err != nil {
			t.Errorf("%.80s: %v", where, err)
		}
		if called < calls || most > passedOften {
			t.Errorf("%.80s: %d calls for at most %d bytes each, want %d for %d", where, called, most, calls, passedOften)
		}
	}
	called := 0
	s := newSorter([]order{{path: values.Pointer{"last"}}}, func(int) { called++ })
	if _, err := s.of(record); err != nil || called < len(body)/passedOften {
		t.Errorf("order: %d calls, %v", called, err)
	}
}

// passedOften is the largest number of bytes between two calls.
const passedOften = sliceBytes / 2
