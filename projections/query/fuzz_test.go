package query_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/lapsedb/lapse/projections/query"
	"github.com/lapsedb/lapse/schema"
)

// FuzzCondition: any text is refused or is a condition with an answer, which is the same
// with and without an index.
func FuzzCondition(f *testing.F) {
	for _, row := range language {
		f.Add(row.cel)
	}
	for _, where := range []string{"doc.l.map(x, x * 2).exists(y, y > 2)", "doc['a']['b'] == params['c']", "-doc.n < 3u", "b'abc' == doc.s", "doc.s.size() > 1 ? doc.f : !doc.f",
		"timestamp(doc.s).getFullYear() == 2020", "{'a': doc.n}.a == 1", "[[doc.n]] == [[1]]", `doc.s.matches(r"\d+")`, "type(doc.n) == int", "doc in [doc]"} {
		f.Add(where)
	}
	documents := []string{`"n":1,"s":"abc","f":true,"l":[1,2,{"x":[]}],"a":{"b":{"c":null}}`, `"n":"1","s":7,"l":{"x":1}`, ``, `"a":[],"n":1e400,"s":"\u0000"`}
	plain := collectionOf(f, `{}`, documents...)
	indexed := collectionOf(f, `{"indexingPolicy":{"includedPaths":[{"path":"/n"},{"path":"/s"},{"path":"/a"},{"path":"/l"},{"path":"/f"}]}}`, documents...)
	engine := newEngine(f, query.Limits{Cost: 10_000, Time: time.Minute})
	f.Fuzz(func(t *testing.T, where string) {
		text, _ := json.Marshal(where)
		body := `{"count":true,"params":{"c":1,"s":"abc","list":[1]},"where":` + string(text) + `}`
		a, _, err := ask(engine, plain.store, naiveNow, body)
		var fault *schema.Error
		if err != nil && !errors.As(err, &fault) {
			t.Fatalf("%q: %v", where, err)
		}
		b, _, errIndexed := ask(engine, indexed.store, naiveNow, body)
		if err == nil && errIndexed == nil && *a.Count != *b.Count {
			t.Fatalf("%q: %d without an index, %d with", where, *a.Count, *b.Count)
		}
		if err == nil && errIndexed != nil {
			t.Fatalf("%q: with an index %v", where, errIndexed)
		}
	})
}

// FuzzRequest: any body gets an error or a JSON reply.
func FuzzRequest(f *testing.F) {
	l := hundred(f, "x")
	engine := newEngine(f, query.Limits{Cost: 10_000, Time: time.Minute})
	p, _, err := ask(engine, l.store, naiveNow, `{"limit":1}`)
	must(f, err)
	f.Add([]byte(`{"cursor":"` + p.Cursor + `"}`))
	for _, body := range []string{`{}`, ``, ` {"where":"doc.n > params.n","params":{"n":3},"orderBy":[{"path":"/s","desc":true},{"path":"/l/0"}],"select":["/id","/l/0","/_ts"],"limit":3,"explain":true}`,
		`{"count":true,"where":"0 in doc.l"}`, `{"where":"\ud800"}`, `{"limit":1e3,"cursor":""}`, `[`, `{"orderBy":[{"path":"/~0~1"}]}`} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		reply, err := engine.Answer(context.Background(), l.store, query.Ask{Collection: things, Body: body, Now: func(int64) int64 { return naiveNow }, Room: room})
		var fault *schema.Error
		if err == nil && !json.Valid(reply.Body) || err != nil && !errors.As(err, &fault) {
			t.Fatalf("%q: %q %v", body, reply.Body, err)
		}
	})
}
