package query_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/lapsedb/lapse/projections/query"
	"github.com/lapsedb/lapse/schema"
)

// TestParameters: a condition that names a parameter which params lacks is refused, whatever
// the documents are: its negation would match all of them.
func TestParameters(t *testing.T) {
	engine := newEngine(t, query.Limits{})
	l := collectionOf(t, `{}`)
	for _, row := range []struct{ where, params, lacks string }{
		{`!(doc.total < params.max)`, `{"mx":5}`, "max"},
		{`!(doc.total < params.max)`, `{}`, "max"},
		{`!(doc.total < params.max)`, ``, "max"},
		{`!(doc.total < params.max)`, `{"max":null}`, ""},
		{`!(doc.total < params.max)`, `{"max":5,"more":1}`, ""},
		{`params.a || params.b`, `{"a":true}`, "b"},
		{`true || doc.x == params.b`, `{}`, "b"},
		{`doc.x == params['a-b']`, `{"a":1}`, "a-b"},
		{`doc.x == params["0"]`, `{"0":1}`, ""},
		{`doc.x == params["0"]`, `{"1":1}`, "0"},
		{`doc.x == params[r'a']`, `{}`, "a"},
		{`doc.x in params.list`, `{"List":[]}`, "list"},
		{`doc.tags.exists(t, t == params.tag)`, `{}`, "tag"},
		{`params.list.exists(i, i == doc.x)`, `{}`, "list"},
		{`doc[params.name] == 1`, `{}`, "name"},
		{`params.a.b == 1`, `{"b":1}`, "a"},
		{`params.a.b == 1`, `{"a":{}}`, ""}, // below a parameter is data
		{`params.table[doc.x] == 1`, `{"table":{}}`, ""},
		{`has(params.a.b)`, `{}`, "a"},
		{`has(params.a)`, `{}`, ""},
		{`has(params.a) && doc.x > params.a`, `{}`, ""},
		{`doc.x > params['a'] && has(params.a)`, `{}`, ""},
		{`has(params.a) && doc.x > params.b`, `{}`, "b"},
		{`doc.x == 'params.a' || doc.params.a == 1`, `{}`, ""},
		{`'a' in params || size(params) == 0`, `{}`, ""},
	} {
		body := fmt.Sprintf(`{"count":true,"where":%s`, quoted(row.where))
		if row.params != "" {
			body += `,"params":` + row.params
		}
		want := ""
		if row.lacks != "" {
			want = fmt.Sprintf("names the parameter %q, which params lacks", row.lacks)
		}
		_, _, err := ask(engine, l.store, naiveNow, body+"}")
		if want == "" && err != nil || want != "" && (!errors.Is(err, schema.ErrBadQuery) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s with %s: %v", row.where, row.params, err)
		}
	}
	for _, where := range []string{`doc.x == params[doc.name]`, `doc.x == params['a' + 'b']`, `params.names.exists(n, params[n] == doc.x)`} {
		_, _, err := ask(engine, l.store, naiveNow, fmt.Sprintf(`{"where":%s,"params":{"ab":1,"names":["ab"]}}`, quoted(where)))
		if !errors.Is(err, schema.ErrBadQuery) || !strings.Contains(err.Error(), "has to be a literal") {
			t.Errorf("%s: %v", where, err)
		}
	}
}

func quoted(text string) string {
	raw, _ := json.Marshal(text)
	return string(raw)
}
