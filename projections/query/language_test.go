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

// languageParams are the params of language.
const languageParams = `{"min":2,"s":"x","k":"a","i":0,"nil":null,"list":[1,"x",null,[1]],"big":9223372036854775808,"bad":"("}`

// language has conditions and their results by the rules for the document
// d with _ts 1700000000 and _etag 12.
var language = []struct {
	cel  string
	doc  string // without its id
	want bool
}{
	// A missing value makes a comparison false, and its negation true.
	{`doc.a == 5`, `"a":5`, true},
	{`doc.a == 5`, `"b":5`, false},
	{`doc.a != 5`, `"b":5`, false},
	{`!(doc.a != 5)`, `"b":5`, true},
	{`doc.a.b.c != 5`, `"a":{"b":7}`, false},
	{`doc.a.b == null`, `"a":{"b":null}`, true},
	{`doc.a.b == null`, `"a":{}`, false},
	{`doc.a == doc.b`, `"c":1`, false},
	{`doc.a == params.none || has(params.none)`, `"a":1`, false},
	{`!(doc.a < params.none) && !has(params.none)`, `"a":1`, true},
	{`doc.a >= params.min`, `"a":2.0`, true},

	// Equality.
	{`doc.a != 'x'`, `"a":5`, true},
	{`doc.a == '5'`, `"a":5`, false},
	{`1.0 == doc.a`, `"a":1`, true},
	{`doc.a == 0`, `"a":-0.0`, true},
	{`doc.a == 1`, `"a":true`, false},
	{`doc.a != doc.b`, `"a":null,"b":false`, true},
	{`doc.a == [1, 'x']`, `"a":[1.0,"x"]`, true},
	{`doc.a == [1]`, `"a":[1,1]`, false},
	{`doc.a == {'x': 1, 'y': []}`, `"a":{"y":[],"x":1e0}`, true},
	{`doc.a == {'x': null}`, `"a":{"y":null}`, false},
	{`doc.a != {}`, `"a":[]`, true},
	{`doc.a == 'é\u0000\'\\\n😀'`, `"a":"\u00e9\u0000'\\\n\ud83d\ude00"`, true},
	{`doc.a == 2`, `"a":1,"a":2`, true},

	// Numbers are exact.
	{`doc.a > 9007199254740992.0`, `"a":9007199254740993`, true},
	{`doc.a == 9007199254740992.0`, `"a":9007199254740993.0`, true},
	{`doc.a == 18446744073709551615u`, `"a":18446744073709551615`, true},
	{`doc.a < 18446744073709551615u`, `"a":18446744073709551616`, false},
	{`doc.a == 18446744073709551616.0`, `"a":18446744073709551617`, true},
	{`doc.a < -9223372036854775807`, `"a":-9223372036854775808`, true},
	{`doc.a == params.big`, `"a":9223372036854775807.0`, true},
	{`doc.a == doc.b`, `"a":1e999,"b":2e308`, true},

	// Order.
	{`doc.a < 5`, `"a":"4"`, false},
	{`!(doc.a < 5)`, `"a":"4"`, true},
	{`doc.a < '10'`, `"a":"1"`, true},
	{"doc.a > '\uffff'", `"a":"😀"`, true},
	{`doc.a < true`, `"a":false`, true},
	{`doc.a <= doc.b`, `"a":null,"b":null`, false},
	{`doc.a <= doc.b`, `"a":[1],"b":[1]`, false},
	{`doc.a >= doc.b`, `"a":{},"b":{}`, false},
	{`0 <= doc.a`, `"a":false`, false},

	// System properties, names, indexes.
	{`doc._ts == 1700000000`, ``, true},
	{`doc._etag == '12'`, ``, true},
	{`doc._etag == 12`, ``, false},
	{`doc.id == 'd'`, ``, true},
	{`doc['a-b'][''] == 1`, `"a-b":{"":1}`, true},
	{`doc['a.b'] == 1`, `"a":{"b":1}`, false},
	{`doc.a[1] == 2`, `"a":[1,2]`, true},
	{`doc.a[2] != 2`, `"a":[1,2]`, false},
	{`doc.a[-1] != 7`, `"a":[1,2]`, false},
	{`doc.a[0] == 1`, `"a":{"0":1}`, false},
	{`doc[params.k][params.i] == 1`, `"a":[1]`, true},
	{`has(doc.a)`, `"a":null`, true},
	{`has(doc.a.b)`, `"a":[1]`, false},
	{`!has(doc.a.b)`, ``, true},

	// Two-valued logic.
	{`doc.flag`, `"flag":true`, true},
	{`doc.flag`, `"flag":1`, false},
	{`!doc.flag`, `"flag":"true"`, true},
	{`!!doc.flag`, `"flag":"true"`, false},
	{`doc.zzz == 1 || doc.flag`, `"flag":true`, true},
	{`!doc.zzz && (doc.a || doc.b)`, `"a":[],"b":true`, true},
	{`doc.a ? doc.b : doc.c == 1`, `"a":"x","b":false,"c":1`, true},
	{`(has(doc.a) ? doc.a : doc.b) == params.min`, `"b":2`, true},

	// in.
	{`doc.a in [1, 'x', null]`, `"a":null`, true},
	{`doc.a in [1]`, `"a":1.0`, true},
	{`doc.a in [1]`, ``, false},
	{`doc.a in params.list`, `"a":[1]`, true},
	{`'x' in doc.a`, `"a":{"x":null}`, true},
	{`1 in doc.a`, `"a":{"1":1}`, false},
	{`'x' in doc.a`, `"a":"xyz"`, false},
	{`doc.a in [1, doc.b]`, `"a":1`, false},
	{`'_ts' in doc`, ``, true},

	// Strings and sizes.
	{`doc.a.startsWith('x')`, `"a":"xy"`, true},
	{`doc.a.endsWith('')`, `"a":5`, false},
	{`'xyz'.contains(doc.a)`, `"a":"yz"`, true},
	{`doc.a.contains('x')`, `"a":["x"]`, false},
	{`doc.a.matches('[0-9]+')`, `"a":"x17y"`, true},
	{`doc.a.matches(params.bad)`, `"a":"("`, false},
	{`size(doc.a) == 3`, `"a":"é😀x"`, true},
	{`size(doc.a) == 2`, `"a":{"x":1,"y":2}`, true},
	{`size(doc.a) != 0`, `"a":7`, false},

	{`doc.a.lowerAscii() == 'ann é'`, `"a":"ANN é"`, true},
	{`doc.a.lowerAscii() == 'é'`, `"a":"É"`, false}, // ASCII only
	{`doc.a.upperAscii().startsWith('ANN')`, `"a":"anna"`, true},
	{`doc.a.trim() == 'x'`, `"a":" \t\u2003x\n"`, true},
	{`doc.a.reverse() == 'c😀a'`, `"a":"a😀c"`, true},
	{`doc.a.charAt(1) == 'é' && doc.a.charAt(3) == ''`, `"a":"😀éx"`, true},
	{`doc.a.charAt(4) == '' || doc.a.charAt(-1) == ''`, `"a":"😀éx"`, false},
	{`doc.a.substring(1, 2) + doc.a.substring(2) == 'éx'`, `"a":"😀éx"`, true},
	{`doc.a.substring(params.min) == 'x'`, `"a":"😀éx"`, true},
	{`doc.a.substring(2, 1) == '' || doc.a.substring(4) == ''`, `"a":"😀éx"`, false},
	{`doc.a.indexOf('x') == 2 && doc.a.indexOf('x', 3) == 4 && doc.a.indexOf('x', 5) == -1`, `"a":"😀éxyx"`, true},
	{`doc.a.indexOf('') == 0 && doc.a.indexOf('', 2) == 2 && doc.a.indexOf('', 9) == 5`, `"a":"😀éxyx"`, true},
	{`doc.a.indexOf('', -1) == 0 || doc.a.lastIndexOf('', -1) == 0`, `"a":"x"`, false},
	{`doc.a.lastIndexOf('xé') == 3 && doc.a.lastIndexOf('xé', 2) == 1 && doc.a.lastIndexOf('x', 9) == -1`, `"a":"😀xéxé"`, true},
	{`doc.a.lastIndexOf('') == 2 && doc.a.lastIndexOf('', 1) == 1 && doc.a.lastIndexOf('', 9) == 2`, `"a":"éx"`, true},
	{`doc.a.replace('l', 'é') == 'heééo' && doc.a.replace('l', '', 1) == 'helo' && doc.a.replace('l', '', 0) == doc.a`, `"a":"hello"`, true},
	{`doc.a.replace('', '_') == '_é_x_'`, `"a":"éx"`, true},
	{`doc.a.split(',') == ['x', '', 'y'] && doc.a.split(',', 2)[1] == ',y' && doc.a.split(',', 0) == []`, `"a":"x,,y"`, true},
	{`doc.a.split('') == ['é', 'x'] && size(doc.a.split(',', -1)) == 1`, `"a":"éx"`, true},
	{`doc.a.split(', ').exists(s, s.lowerAscii() == 'ann')`, `"a":"Bob, Ann"`, true},
	{`'Ann' in doc.a.split(', ')`, `"a":"Bob, Ann"`, true},
	{`doc.a.join('-') == 'x-y' && doc.a.join() == 'xy'`, `"a":["x","y"]`, true},
	{`doc.a.join('-') == ''`, `"a":[]`, true},
	{`doc.a.join('-') != 'x'`, `"a":["x",1]`, false},
	{`strings.quote(doc.a) == '"\\"\\n"'`, `"a":"\"\n"`, true},

	// What is of another type, or missing, makes a comparison false, as for startsWith.
	{`doc.a.lowerAscii() != 'x'`, `"a":5`, false},
	{`!(doc.a.lowerAscii() == 'x')`, `"b":5`, true},
	{`doc.a.split(',') != [] || doc.a.split(',').all(s, true)`, `"a":["x"]`, false},
	{`doc.a.replace('x', doc.b) != ''`, `"a":"x","b":1`, false},
	{`doc.a.charAt(doc.b) != 'y'`, `"a":"x","b":0.0`, false}, // an index is an integer
	{`math.abs(doc.a) >= 0 || math.ceil(doc.a) >= 0 || math.greatest(doc.a, 1) >= 0`, `"a":"5"`, false},
	{`math.least(doc.a, doc.b) <= 1`, `"a":1`, false},
	{`math.least(doc.a) <= 1 || math.greatest(doc.b) >= 1`, `"a":[],"b":[1,"x",2]`, false},
	{`math.isNaN(doc.a) == false && !math.isFinite(doc.a)`, `"a":"x"`, true},

	// Math, on whatever kind of number.
	{`math.greatest(doc.a, doc.b) > 3 && math.least(doc.a, doc.b) < 3`, `"a":2,"b":3.5`, true},
	{`math.greatest(doc.a, 1, doc.b, 2.5) == doc.b && math.least(doc.a, 1, doc.b, 2.5) == doc.a`, `"a":-1e300,"b":18446744073709551615`, true},
	{`math.greatest(doc.a) == 18446744073709551615u && math.least(doc.a) == -7`, `"a":[1,2.5,-7,18446744073709551615,3]`, true},
	{`math.greatest(doc.a, doc.b) == 9007199254740993`, `"a":9007199254740992,"b":9007199254740993`, true},
	{`math.abs(doc.a) == 1 && math.abs(doc.b) < 1`, `"a":-1,"b":-0.5`, true},
	{`math.abs(doc.a) == doc.a`, `"a":18446744073709551615`, true},
	{`math.abs(doc.a) > 0`, `"a":-9223372036854775808`, false}, // overflows
	{`math.sign(doc.a) == -1 && math.sign(doc.b) == 0 && math.sign(doc.c) == 1`, `"a":-2.5,"b":0,"c":18446744073709551615`, true},
	{`math.ceil(doc.a) == 2 && math.floor(doc.a) == 1 && math.round(doc.a) == 2 && math.trunc(doc.a) == 1`, `"a":1.5`, true},
	{`math.ceil(doc.a) == doc.a && math.floor(doc.a) == doc.a && math.round(doc.a) == doc.a && math.trunc(doc.a) == doc.a`, `"a":9007199254740993`, true},
	{`math.round(doc.a) == 18446744073709551615u`, `"a":18446744073709551615`, true},
	{`math.sqrt(doc.a) == 3 && math.sqrt(doc.b) == 1.5`, `"a":9,"b":2.25`, true},
	{`math.isInf(doc.a) && !math.isFinite(doc.a) && !math.isInf(doc.b) && math.isFinite(doc.b)`, `"a":1e999,"b":7`, true},
	{`math.isNaN(doc.a - doc.a) && !math.isNaN(doc.b)`, `"a":1e999,"b":18446744073709551615`, true},
	{`math.bitAnd(doc.a, 4) == 4 && math.bitOr(doc.a, 1) == 7 && math.bitXor(doc.a, 2) == 4 && math.bitNot(doc.a) == -7`, `"a":6`, true},
	{`math.bitAnd(doc.a, 1) == 1 && math.bitOr(2, doc.a) == 9223372036854775811u && math.bitAnd(doc.a, 9u) == 1`, `"a":9223372036854775809`, true},
	{`math.bitAnd(doc.a, 4u) == 4 && math.bitShiftRight(doc.a, 1) == 3 && math.bitShiftLeft(doc.a, 1) == 12`, `"a":6`, true},
	{`math.bitAnd(doc.a, doc.b) >= 0`, `"a":-1,"b":9223372036854775809`, false},
	{`math.bitAnd(doc.a, 1) == 1 || math.bitShiftLeft(3, -1) != 0`, `"a":1.0`, false},

	// Arithmetic.
	{`doc.a + 1 == doc.b`, `"a":1.5,"b":2.5`, true},
	{`doc.a / 2 == -3`, `"a":-7`, true},
	{`doc.a % 2 == -1`, `"a":-7`, true},
	{`!(doc.a / doc.b != 1)`, `"a":1,"b":0`, true},
	{`doc.a + 1 > 0`, `"a":9223372036854775807`, false},
	{`doc.a / doc.b < 0`, `"a":-9223372036854775808,"b":-1`, false},
	{`doc.a * doc.a > doc.a`, `"a":1e300`, true},
	{`doc.a - (doc.b - -1) == 0`, `"a":3,"b":2`, true},
	{`(doc.a + doc.b) * 2 == 6`, `"a":1,"b":2`, true},
	{`doc.a + 'y' == 'xy'`, `"a":"x"`, true},
	{`doc.a + 'y' != 'xy'`, `"a":1`, false},

	// Macros.
	{`doc.tags.exists(t, t == 'x')`, `"tags":[1,"x"]`, true},
	{`doc.tags.exists(t, t)`, `"tags":[1,"true",[]]`, false},
	{`doc.tags.all(t, t > 0)`, `"tags":[1,"x"]`, false},
	{`doc.tags.all(t, t > 0)`, `"tags":[]`, true},
	{`doc.tags.all(t, t > 0)`, ``, false},
	{`doc.tags.all(t, true)`, `"tags":"x"`, false},
	{`doc.tags.all(t, !(t.x == 1))`, `"tags":[1,{"x":2}]`, true},
	{`doc.a.exists(k, k == 'x')`, `"a":{"x":0}`, true},
	{`doc.items.exists_one(i, i.qty == doc.n)`, `"n":1,"items":[{"qty":1},{"sku":"x"},{"qty":1.0}]`, false},
	{`doc.items.exists_one(i, has(i.sku) && i.qty in params.list)`, `"items":[{"qty":1},7,{"sku":"x","qty":1}]`, true},
	{`doc.a.exists(l, l.exists(e, e == doc.b))`, `"a":[1,[],[2,3]],"b":3`, true},
	{`size(doc.tags.filter(t, t != 1)) == 2`, `"tags":[1,"x",null]`, true},
	{`size(doc.tags.filter(t, true)) >= 0`, `"tags":5`, false},
	{`!(params.none.exists(t, true)) || has(params.none)`, ``, true},
}

// TestLanguage: the conditions of the table have its results.
func TestLanguage(t *testing.T) {
	engine := newEngine(t, query.Limits{})
	for i, row := range language {
		body := `{"id":"d"}`
		if row.doc != "" {
			body = `{"id":"d",` + row.doc + `}`
		}
		l := newLedger(t)
		l.write(schema.Event{Type: schema.CollectionCreated, Collection: things})
		l.write(schema.Event{Seq: 12, Type: schema.DocumentCreated, Collection: things, ID: "d", Body: []byte(body)})
		where, _ := json.Marshal(row.cel)
		p, _, err := ask(engine, l.store, naiveNow, `{"count":true,"where":`+string(where)+`,"params":`+string(languageParams)+`}`)
		if err != nil || *p.Count == 1 != row.want {
			t.Errorf("row %d: %s of %s: %v %v, want %v", i, row.cel, body, p.Count, err, row.want)
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
		"doc.a.lower() == 'x'":          "undeclared reference to 'lower' (did you mean 'lowerAscii'?)",
		"doc.a.split() == []":           "no matching overload for 'split'",
		"doc.a.split(1) == []":          "no matching overload for 'split'",
		"doc.a.replace('a') == 'x'":     "no matching overload for 'replace'",
		"doc.a.format([1]) == 'x'":      "format is not available",
		"math.nothing(doc.a) == 1":      "line 1, column 1: undeclared reference to 'math.nothing'",
		"strings.nothing(doc.a) == 1":   "undeclared reference to 'strings.nothing'",
		"other.nothing(doc.a) == 1":     "undeclared reference to 'other': write doc.other ",
		"math > 1":                      "undeclared reference to 'math': write doc.math ",
		"math.abs() > 1":                "no matching overload for 'math.abs'",
		"math.greatest() > 1":           "math.greatest() requires at least one argument",
		"math.least('x', doc.a) > 1":    "math.least() simple literal arguments must be numeric",
		"math.least(doc.a.trim()) > 1":  "no matching overload for 'math.least'",
		"doc.a.trim()":                  "of type string",
		"doc.l.all(params, true)":       "params is taken",
		"doc.a.matches('(')":            "regexp",
		"doc.a\n==\n\n*":                "line 4",
		strings.Repeat("!", 9000) + "x": "at most 8192",
		strings.Repeat("(", 100) + "true" + strings.Repeat(")", 100):                  "nests too deep",
		strings.Repeat("math.least(", 100) + "1" + strings.Repeat(")", 100) + " == 1": "nests too deep",
		"doc.a == " + strings.Repeat("[", 100) + strings.Repeat("]", 100):             "nests too deep",
	} {
		text, _ := json.Marshal(where)
		_, _, err := ask(engine, l.store, naiveNow, `{"where":`+string(text)+`}`)
		if !errors.Is(err, schema.ErrBadQuery) || !strings.Contains(err.Error(), want) || strings.ContainsAny(err.Error(), "\n@") && !strings.Contains(where, "@") {
			t.Errorf("%.60s: %v, want something with %q", where, err, want)
		}
	}
}
