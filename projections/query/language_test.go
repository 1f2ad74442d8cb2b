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

// collectionOf returns a ledger with documents d0, d1, …; each is given as its members
// without an id.
func collectionOf(t testing.TB, properties string, documents ...string) *ledger {
	t.Helper()
	l := newLedger(t)
	t.Cleanup(l.close)
	l.write(schema.Event{Type: schema.CollectionCreated, Collection: things, Body: []byte(properties)})
	for i, members := range documents {
		l.put(schema.DocumentCreated, fmt.Sprint("d", i), members, 0)
	}
	return l
}

func (l *ledger) put(t schema.EventType, id, members string, previous uint64) uint64 {
	body := `{"id":"` + id + `"}`
	if members != "" {
		body = `{"id":"` + id + `",` + members + `}`
	}
	return l.write(schema.Event{Type: t, Collection: things, ID: schema.DocumentID(id), Previous: schema.Version(previous), Body: []byte(body)})
}

// TestNaiveTable: the engine gives the results of the naive reference's table.
func TestNaiveTable(t *testing.T) {
	engine := newEngine(t, query.Limits{})
	for i, row := range naiveTable {
		d := naiveTableDoc(row.doc)
		l := newLedger(t)
		l.write(schema.Event{Type: schema.CollectionCreated, Collection: things})
		l.write(schema.Event{Seq: d.Version, Time: d.TS * 1000, Type: schema.DocumentCreated, Collection: things, ID: schema.DocumentID(d.ID), Body: d.Body})
		where, _ := json.Marshal(row.cel)
		p, _, err := ask(engine, l.store, d.TS, `{"count":true,"where":`+string(where)+`,"params":`+string(naiveTableParams)+`}`)
		if err != nil || *p.Count == 1 != row.want {
			t.Errorf("row %d: %s of %s: %v %v, want %v", i, row.cel, d.Body, p.Count, err, row.want)
		}
		l.close()
	}
}

func TestConditions(t *testing.T) {
	l := collectionOf(t, `{}`, `"n":1.5,"s":"a","l":[1,"b",{"x":2}],"m":{"k":null}`)
	engine := newEngine(t, query.Limits{})
	for where, want := range map[string]bool{
		// JSON numbers are one type, in arithmetic too.
		"doc.n * 2 == 3":                       true,
		"doc.n + 1 == 2.5":                     true,
		"(doc.n + 1) * 1.5 > 3":                true,
		"1 + 1.5 == doc.n + 1":                 true,
		"doc.n % 1 == 0.5":                     true,
		"size(doc.l) + 0.5 == 3.5":             true,
		"doc.n + 'x' == 'x'":                   false,
		"!(doc.n + 'x' == 'x')":                true,
		"doc.s + 'x' == 'ax'":                  true,
		"doc.n / 0 == 1":                       false,
		"9223372036854775807 + int(doc.n) > 0": false, // overflows

		// An expression that fails is false wherever it stands.
		"(doc.x == 1) == false":                 true,
		"[doc.x == 1, true].exists(b, b)":       true,
		"(doc.x > 1 ? 'yes' : 'no') == 'no'":    true,
		"doc.x":                                 false,
		"!doc.x":                                true,
		"!(doc.x && doc.y)":                     true,
		"doc.s.startsWith('a') == true":         true,
		"doc.x.startsWith('a') == false":        true,
		"doc.n.startsWith('a')":                 false,
		"doc.s.matches(doc.x)":                  false,
		"doc.l.exists(e, e.x == 2)":             true,
		"doc.l.all(e, e.x == 2)":                false,
		"!doc.l.all(e, e.x == 2)":               true,
		"doc.l.filter(e, e.x == 2).size() == 1": true,
		"doc.l.map(e, e.x).size() == 3":         false, // the map as a whole fails
		"doc.l[2].x == 2 && doc.l[3] != 1":      false,
		"doc.x.all(e, true)":                    false,

		// Times as in RFC 3339.
		"timestamp('2016-12-31T23:59:60Z') == timestamp('2017-01-01T00:00:00Z')":     true,
		"timestamp(timestamp('2016-12-31t18:59:60-05:00')) == timestamp(1483228800)": true,
		"timestamp('2016-12-31T23:58:60Z') > timestamp(0)":                           false,
		"timestamp('2020-01-01T00:00:00+24:00') > timestamp(0)":                      false,
		"timestamp('0000-01-01T00:00:00Z') < timestamp(0)":                           false,
		"timestamp(doc.none) < timestamp(0) || timestamp(doc.l) < timestamp(0)":      false,

		// The whole document.
		"size(doc) == 7":                                               true,
		"'s' in doc && !('x' in doc)":                                  true,
		"doc.exists(name, name == '_etag')":                            true,
		"doc[params.name] == 'a'":                                      true,
		"doc == doc":                                                   true,
		"doc != {'a': 1}":                                              true,
		"type(doc.s) == string":                                        true,
		"has(doc.m.k) && doc.m.k == null":                              true,
		"has(doc.l[2].x) && !has(doc.l[0].x)":                          true,
		"timestamp('2020-01-01T00:00:00Z') < timestamp(doc._ts)":       true,
		"duration('1s') < duration('2s')":                              true,
		"1 == 'a' || 1 < 'a' || doc.n < [1] || doc.n >= {} || doc > 1": false,
		"1 != 'a' && !(doc.l < [1])":                                   true,
		"1 in 1 || 'a' in 'abc'":                                       false,
		"true || doc.x":                                                true,
		"doc.s in ['b', params.name, 'a']":                             true,
		"doc.s in params.object":                                       false,
		"params.name in params.object":                                 true,
	} {
		text, _ := json.Marshal(where)
		p, _, err := ask(engine, l.store, naiveNow, `{"count":true,"where":`+string(text)+`,"params":{"name":"s","object":{"s":1}}}`)
		if err != nil || (*p.Count == 1) != want {
			t.Errorf("%s: %v %v, want %v", where, p.Count, err, want)
		}
	}
}

// TestInvalidConditions: an error is one line that states the fault and contains none of
// our internal names.
func TestInvalidConditions(t *testing.T) {
	l := collectionOf(t, `{}`)
	engine := newEngine(t, query.Limits{})
	for where, want := range map[string]string{
		"doc.a ==":                      "Syntax error",
		"doc.a == 1)":                   "Syntax error",
		"doc.a = 1":                     "Syntax error",
		"nothing > 1":                   "undeclared reference to 'nothing': write doc.nothing for a member of the document, params.nothing for a parameter, 'nothing' for a text",
		"document.a > 1":                "undeclared reference to 'document': write doc.document ",
		"doc.a == 1 && !b":              "line 1, column 16: undeclared reference to 'b': write doc.b ",
		"path(doc, 1) == 1":             "undeclared reference to 'path'",
		"@path(doc, 1) == 1":            "Syntax error",
		"doc.a.nothing()":               "undeclared reference to 'nothing'",
		"1":                             "of type int",
		"doc.a + 1":                     "it is a number or a string",
		"size(1) > 1":                   "no matching overload",
		"doc.l.exists(doc, true)":       "doc is taken",
		"doc.l.all(params, true)":       "params is taken",
		"doc.a.matches('(')":            "regexp",
		"doc.a\n==\n\n*":                "line 4",
		strings.Repeat("!", 9000) + "x": "at most 8192",
		strings.Repeat("(", 100) + "true" + strings.Repeat(")", 100):      "nests too deep",
		"doc.a == " + strings.Repeat("[", 100) + strings.Repeat("]", 100): "nests too deep",
	} {
		text, _ := json.Marshal(where)
		_, _, err := ask(engine, l.store, naiveNow, `{"where":`+string(text)+`}`)
		if !errors.Is(err, schema.ErrBadQuery) || !strings.Contains(err.Error(), want) || strings.ContainsAny(err.Error(), "\n@") && !strings.Contains(where, "@") {
			t.Errorf("%.60s: %v, want something with %q", where, err, want)
		}
	}
}
