package query_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// naiveTableParams are the params of naiveTable.
const naiveTableParams = `{"min":2,"s":"x","k":"a","i":0,"nil":null,"list":[1,"x",null,[1]],"big":9223372036854775808,"bad":"("}`

// naiveTable has conditions, their CEL, and their results by the rules for the document
// d with _ts 1700000000 and _etag 12.
var naiveTable = []struct {
	cond naiveCond
	cel  string
	doc  string // without its id
	want bool
}{
	// A missing value makes a comparison false, and its negation true.
	{naiveCmp{naiveDocPath("a"), "==", naiveLit(`5`)}, `doc.a == 5`, `"a":5`, true},
	{naiveCmp{naiveDocPath("a"), "==", naiveLit(`5`)}, `doc.a == 5`, `"b":5`, false},
	{naiveCmp{naiveDocPath("a"), "!=", naiveLit(`5`)}, `doc.a != 5`, `"b":5`, false},
	{naiveNot{naiveCmp{naiveDocPath("a"), "!=", naiveLit(`5`)}}, `!(doc.a != 5)`, `"b":5`, true},
	{naiveCmp{naiveDocPath("a", "b", "c"), "!=", naiveLit(`5`)}, `doc.a.b.c != 5`, `"a":{"b":7}`, false},
	{naiveCmp{naiveDocPath("a", "b"), "==", naiveLit(`null`)}, `doc.a.b == null`, `"a":{"b":null}`, true},
	{naiveCmp{naiveDocPath("a", "b"), "==", naiveLit(`null`)}, `doc.a.b == null`, `"a":{}`, false},
	{naiveCmp{naiveDocPath("a"), "==", naiveDocPath("b")}, `doc.a == doc.b`, `"c":1`, false},
	{naiveCmp{naiveDocPath("a"), "==", naiveParamPath("none")}, `doc.a == params.none`, `"a":1`, false},
	{naiveCmp{naiveDocPath("a"), ">=", naiveParamPath("min")}, `doc.a >= params.min`, `"a":2.0`, true},

	// Equality.
	{naiveCmp{naiveDocPath("a"), "!=", naiveLit(`"x"`)}, `doc.a != 'x'`, `"a":5`, true},
	{naiveCmp{naiveDocPath("a"), "==", naiveLit(`"5"`)}, `doc.a == '5'`, `"a":5`, false},
	{naiveCmp{naiveLit(`1.0`), "==", naiveDocPath("a")}, `1.0 == doc.a`, `"a":1`, true},
	{naiveCmp{naiveDocPath("a"), "==", naiveLit(`0`)}, `doc.a == 0`, `"a":-0.0`, true},
	{naiveCmp{naiveDocPath("a"), "==", naiveLit(`1`)}, `doc.a == 1`, `"a":true`, false},
	{naiveCmp{naiveDocPath("a"), "!=", naiveDocPath("b")}, `doc.a != doc.b`, `"a":null,"b":false`, true},
	{naiveCmp{naiveDocPath("a"), "==", naiveLit(`[1,"x"]`)}, `doc.a == [1, 'x']`, `"a":[1.0,"x"]`, true},
	{naiveCmp{naiveDocPath("a"), "==", naiveLit(`[1]`)}, `doc.a == [1]`, `"a":[1,1]`, false},
	{naiveCmp{naiveDocPath("a"), "==", naiveLit(`{"x":1,"y":[]}`)}, `doc.a == {'x': 1, 'y': []}`, `"a":{"y":[],"x":1e0}`, true},
	{naiveCmp{naiveDocPath("a"), "==", naiveLit(`{"x":null}`)}, `doc.a == {'x': null}`, `"a":{"y":null}`, false},
	{naiveCmp{naiveDocPath("a"), "!=", naiveLit(`{}`)}, `doc.a != {}`, `"a":[]`, true},
	{naiveCmp{naiveDocPath("a"), "==", naiveLit(`"é\u0000'\\\n😀"`)}, `doc.a == 'é\u0000\'\\\n😀'`, `"a":"\u00e9\u0000'\\\n\ud83d\ude00"`, true},
	{naiveCmp{naiveDocPath("a"), "==", naiveLit(`2`)}, `doc.a == 2`, `"a":1,"a":2`, true},

	// Numbers are exact.
	{naiveCmp{naiveDocPath("a"), ">", naiveLit(`9007199254740992.0`)}, `doc.a > 9007199254740992.0`, `"a":9007199254740993`, true},
	{naiveCmp{naiveDocPath("a"), "==", naiveLit(`9007199254740992.0`)}, `doc.a == 9007199254740992.0`, `"a":9007199254740993.0`, true},
	{naiveCmp{naiveDocPath("a"), "==", naiveLit(`18446744073709551615`)}, `doc.a == 18446744073709551615u`, `"a":18446744073709551615`, true},
	{naiveCmp{naiveDocPath("a"), "<", naiveLit(`18446744073709551615`)}, `doc.a < 18446744073709551615u`, `"a":18446744073709551616`, false},
	{naiveCmp{naiveDocPath("a"), "==", naiveLit(`18446744073709551616`)}, `doc.a == 18446744073709551616.0`, `"a":18446744073709551617`, true},
	{naiveCmp{naiveDocPath("a"), "<", naiveLit(`-9223372036854775807`)}, `doc.a < -9223372036854775807`, `"a":-9223372036854775808`, true},
	{naiveCmp{naiveDocPath("a"), "==", naiveParamPath("big")}, `doc.a == params.big`, `"a":9223372036854775807.0`, true},
	{naiveCmp{naiveDocPath("a"), "==", naiveDocPath("b")}, `doc.a == doc.b`, `"a":1e999,"b":2e308`, true},

	// Order.
	{naiveCmp{naiveDocPath("a"), "<", naiveLit(`5`)}, `doc.a < 5`, `"a":"4"`, false},
	{naiveNot{naiveCmp{naiveDocPath("a"), "<", naiveLit(`5`)}}, `!(doc.a < 5)`, `"a":"4"`, true},
	{naiveCmp{naiveDocPath("a"), "<", naiveLit(`"10"`)}, `doc.a < '10'`, `"a":"1"`, true},
	{naiveCmp{naiveDocPath("a"), ">", naiveLit(`"\uffff"`)}, "doc.a > '\uffff'", `"a":"😀"`, true},
	{naiveCmp{naiveDocPath("a"), "<", naiveLit(`true`)}, `doc.a < true`, `"a":false`, true},
	{naiveCmp{naiveDocPath("a"), "<=", naiveDocPath("b")}, `doc.a <= doc.b`, `"a":null,"b":null`, false},
	{naiveCmp{naiveDocPath("a"), "<=", naiveDocPath("b")}, `doc.a <= doc.b`, `"a":[1],"b":[1]`, false},
	{naiveCmp{naiveDocPath("a"), ">=", naiveDocPath("b")}, `doc.a >= doc.b`, `"a":{},"b":{}`, false},
	{naiveCmp{naiveLit(`0`), "<=", naiveDocPath("a")}, `0 <= doc.a`, `"a":false`, false},

	// System properties, names, indexes.
	{naiveCmp{naiveDocPath("_ts"), "==", naiveLit(`1700000000`)}, `doc._ts == 1700000000`, ``, true},
	{naiveCmp{naiveDocPath("_etag"), "==", naiveLit(`"12"`)}, `doc._etag == '12'`, ``, true},
	{naiveCmp{naiveDocPath("_etag"), "==", naiveLit(`12`)}, `doc._etag == 12`, ``, false},
	{naiveCmp{naiveDocPath("id"), "==", naiveLit(`"d"`)}, `doc.id == 'd'`, ``, true},
	{naiveCmp{naiveDocPath("a-b", ""), "==", naiveLit(`1`)}, `doc['a-b'][''] == 1`, `"a-b":{"":1}`, true},
	{naiveCmp{naiveDocPath("a.b"), "==", naiveLit(`1`)}, `doc['a.b'] == 1`, `"a":{"b":1}`, false},
	{naiveCmp{naiveDocPath("a", 1), "==", naiveLit(`2`)}, `doc.a[1] == 2`, `"a":[1,2]`, true},
	{naiveCmp{naiveDocPath("a", 2), "!=", naiveLit(`2`)}, `doc.a[2] != 2`, `"a":[1,2]`, false},
	{naiveCmp{naiveDocPath("a", -1), "!=", naiveLit(`7`)}, `doc.a[-1] != 7`, `"a":[1,2]`, false},
	{naiveCmp{naiveDocPath("a", 0), "==", naiveLit(`1`)}, `doc.a[0] == 1`, `"a":{"0":1}`, false},
	{naiveCmp{naiveDocPath(naiveStep{Kind: naiveToParam, Name: "k"}, naiveStep{Kind: naiveToParam, Name: "i"}), "==", naiveLit(`1`)}, `doc[params.k][params.i] == 1`, `"a":[1]`, true},
	{naiveHas{naiveDocPath("a")}, `has(doc.a)`, `"a":null`, true},
	{naiveHas{naiveDocPath("a", "b")}, `has(doc.a.b)`, `"a":[1]`, false},
	{naiveNot{naiveHas{naiveDocPath("a", "b")}}, `!has(doc.a.b)`, ``, true},

	// Two-valued logic.
	{naiveBare{naiveDocPath("flag")}, `doc.flag`, `"flag":true`, true},
	{naiveBare{naiveDocPath("flag")}, `doc.flag`, `"flag":1`, false},
	{naiveNot{naiveBare{naiveDocPath("flag")}}, `!doc.flag`, `"flag":"true"`, true},
	{naiveNot{naiveNot{naiveBare{naiveDocPath("flag")}}}, `!!doc.flag`, `"flag":"true"`, false},
	{naiveOr{naiveCmp{naiveDocPath("zzz"), "==", naiveLit(`1`)}, naiveBare{naiveDocPath("flag")}}, `doc.zzz == 1 || doc.flag`, `"flag":true`, true},
	{naiveAnd{naiveNot{naiveBare{naiveDocPath("zzz")}}, naiveOr{naiveBare{naiveDocPath("a")}, naiveBare{naiveDocPath("b")}}}, `!doc.zzz && (doc.a || doc.b)`, `"a":[],"b":true`, true},
	{naiveIf{naiveBare{naiveDocPath("a")}, naiveBare{naiveDocPath("b")}, naiveCmp{naiveDocPath("c"), "==", naiveLit(`1`)}}, `doc.a ? doc.b : doc.c == 1`, `"a":"x","b":false,"c":1`, true},
	{naiveCmp{naiveChoice{naiveHas{naiveDocPath("a")}, naiveDocPath("a"), naiveDocPath("b")}, "==", naiveParamPath("min")}, `(has(doc.a) ? doc.a : doc.b) == params.min`, `"b":2`, true},

	// in.
	{naiveIsIn{naiveDocPath("a"), naiveLit(`[1,"x",null]`)}, `doc.a in [1, 'x', null]`, `"a":null`, true},
	{naiveIsIn{naiveDocPath("a"), naiveLit(`[1]`)}, `doc.a in [1]`, `"a":1.0`, true},
	{naiveIsIn{naiveDocPath("a"), naiveLit(`[1]`)}, `doc.a in [1]`, ``, false},
	{naiveIsIn{naiveDocPath("a"), naiveParamPath("list")}, `doc.a in params.list`, `"a":[1]`, true},
	{naiveIsIn{naiveLit(`"x"`), naiveDocPath("a")}, `'x' in doc.a`, `"a":{"x":null}`, true},
	{naiveIsIn{naiveLit(`1`), naiveDocPath("a")}, `1 in doc.a`, `"a":{"1":1}`, false},
	{naiveIsIn{naiveLit(`"x"`), naiveDocPath("a")}, `'x' in doc.a`, `"a":"xyz"`, false},
	{naiveIsIn{naiveDocPath("a"), naiveList{naiveLit(`1`), naiveDocPath("b")}}, `doc.a in [1, doc.b]`, `"a":1`, false},
	{naiveIsIn{naiveLit(`"_ts"`), naiveDocPath()}, `'_ts' in doc`, ``, true},

	// Strings and sizes.
	{naiveCall{naiveDocPath("a"), "startsWith", naiveLit(`"x"`)}, `doc.a.startsWith('x')`, `"a":"xy"`, true},
	{naiveCall{naiveDocPath("a"), "endsWith", naiveLit(`""`)}, `doc.a.endsWith('')`, `"a":5`, false},
	{naiveCall{naiveLit(`"xyz"`), "contains", naiveDocPath("a")}, `'xyz'.contains(doc.a)`, `"a":"yz"`, true},
	{naiveCall{naiveDocPath("a"), "contains", naiveLit(`"x"`)}, `doc.a.contains('x')`, `"a":["x"]`, false},
	{naiveCall{naiveDocPath("a"), "matches", naiveLit(`"[0-9]+"`)}, `doc.a.matches('[0-9]+')`, `"a":"x17y"`, true},
	{naiveCall{naiveDocPath("a"), "matches", naiveParamPath("bad")}, `doc.a.matches(params.bad)`, `"a":"("`, false},
	{naiveCmp{naiveSize{naiveDocPath("a")}, "==", naiveLit(`3`)}, `size(doc.a) == 3`, `"a":"é😀x"`, true},
	{naiveCmp{naiveSize{naiveDocPath("a")}, "==", naiveLit(`2`)}, `size(doc.a) == 2`, `"a":{"x":1,"y":2}`, true},
	{naiveCmp{naiveSize{naiveDocPath("a")}, "!=", naiveLit(`0`)}, `size(doc.a) != 0`, `"a":7`, false},

	// Arithmetic.
	{naiveCmp{naiveArith{naiveDocPath("a"), "+", naiveLit(`1`)}, "==", naiveDocPath("b")}, `doc.a + 1 == doc.b`, `"a":1.5,"b":2.5`, true},
	{naiveCmp{naiveArith{naiveDocPath("a"), "/", naiveLit(`2`)}, "==", naiveLit(`-3`)}, `doc.a / 2 == -3`, `"a":-7`, true},
	{naiveCmp{naiveArith{naiveDocPath("a"), "%", naiveLit(`2`)}, "==", naiveLit(`-1`)}, `doc.a % 2 == -1`, `"a":-7`, true},
	{naiveNot{naiveCmp{naiveArith{naiveDocPath("a"), "/", naiveDocPath("b")}, "!=", naiveLit(`1`)}}, `!(doc.a / doc.b != 1)`, `"a":1,"b":0`, true},
	{naiveCmp{naiveArith{naiveDocPath("a"), "+", naiveLit(`1`)}, ">", naiveLit(`0`)}, `doc.a + 1 > 0`, `"a":9223372036854775807`, false},
	{naiveCmp{naiveArith{naiveDocPath("a"), "/", naiveDocPath("b")}, "<", naiveLit(`0`)}, `doc.a / doc.b < 0`, `"a":-9223372036854775808,"b":-1`, false},
	{naiveCmp{naiveArith{naiveDocPath("a"), "*", naiveDocPath("a")}, ">", naiveDocPath("a")}, `doc.a * doc.a > doc.a`, `"a":1e300`, true},
	{naiveCmp{naiveArith{naiveDocPath("a"), "-", naiveArith{naiveDocPath("b"), "-", naiveLit(`-1`)}}, "==", naiveLit(`0`)}, `doc.a - (doc.b - -1) == 0`, `"a":3,"b":2`, true},
	{naiveCmp{naiveArith{naiveArith{naiveDocPath("a"), "+", naiveDocPath("b")}, "*", naiveLit(`2`)}, "==", naiveLit(`6`)}, `(doc.a + doc.b) * 2 == 6`, `"a":1,"b":2`, true},
	{naiveCmp{naiveArith{naiveDocPath("a"), "+", naiveLit(`"y"`)}, "==", naiveLit(`"xy"`)}, `doc.a + 'y' == 'xy'`, `"a":"x"`, true},
	{naiveCmp{naiveArith{naiveDocPath("a"), "+", naiveLit(`"y"`)}, "!=", naiveLit(`"xy"`)}, `doc.a + 'y' != 'xy'`, `"a":1`, false},

	// Macros.
	{naiveMacro{naiveDocPath("tags"), "exists", "t", naiveCmp{naivePathOf("t"), "==", naiveLit(`"x"`)}}, `doc.tags.exists(t, t == 'x')`, `"tags":[1,"x"]`, true},
	{naiveMacro{naiveDocPath("tags"), "exists", "t", naiveBare{naivePathOf("t")}}, `doc.tags.exists(t, t)`, `"tags":[1,"true",[]]`, false},
	{naiveMacro{naiveDocPath("tags"), "all", "t", naiveCmp{naivePathOf("t"), ">", naiveLit(`0`)}}, `doc.tags.all(t, t > 0)`, `"tags":[1,"x"]`, false},
	{naiveMacro{naiveDocPath("tags"), "all", "t", naiveCmp{naivePathOf("t"), ">", naiveLit(`0`)}}, `doc.tags.all(t, t > 0)`, `"tags":[]`, true},
	{naiveMacro{naiveDocPath("tags"), "all", "t", naiveCmp{naivePathOf("t"), ">", naiveLit(`0`)}}, `doc.tags.all(t, t > 0)`, ``, false},
	{naiveMacro{naiveDocPath("tags"), "all", "t", naiveBare{naiveLit(`true`)}}, `doc.tags.all(t, true)`, `"tags":"x"`, false},
	{naiveMacro{naiveDocPath("tags"), "all", "t", naiveNot{naiveCmp{naivePathOf("t", "x"), "==", naiveLit(`1`)}}}, `doc.tags.all(t, !(t.x == 1))`, `"tags":[1,{"x":2}]`, true},
	{naiveMacro{naiveDocPath("a"), "exists", "k", naiveCmp{naivePathOf("k"), "==", naiveLit(`"x"`)}}, `doc.a.exists(k, k == 'x')`, `"a":{"x":0}`, true},
	{naiveMacro{naiveDocPath("items"), "exists_one", "i", naiveCmp{naivePathOf("i", "qty"), "==", naiveDocPath("n")}}, `doc.items.exists_one(i, i.qty == doc.n)`, `"n":1,"items":[{"qty":1},{"sku":"x"},{"qty":1.0}]`, false},
	{naiveMacro{naiveDocPath("items"), "exists_one", "i", naiveAnd{naiveHas{naivePathOf("i", "sku")}, naiveIsIn{naivePathOf("i", "qty"), naiveParamPath("list")}}}, `doc.items.exists_one(i, has(i.sku) && i.qty in params.list)`, `"items":[{"qty":1},7,{"sku":"x","qty":1}]`, true},
	{naiveMacro{naiveDocPath("a"), "exists", "l", naiveMacro{naivePathOf("l"), "exists", "e", naiveCmp{naivePathOf("e"), "==", naiveDocPath("b")}}}, `doc.a.exists(l, l.exists(e, e == doc.b))`, `"a":[1,[],[2,3]],"b":3`, true},
	{naiveCmp{naiveSize{naiveFilter{naiveDocPath("tags"), "t", naiveCmp{naivePathOf("t"), "!=", naiveLit(`1`)}}}, "==", naiveLit(`2`)}, `size(doc.tags.filter(t, t != 1)) == 2`, `"tags":[1,"x",null]`, true},
	{naiveCmp{naiveSize{naiveFilter{naiveDocPath("tags"), "t", naiveBare{naiveLit(`true`)}}}, ">=", naiveLit(`0`)}, `size(doc.tags.filter(t, true)) >= 0`, `"tags":5`, false},
	{naiveNot{naiveParen{naiveMacro{naiveParamPath("none"), "exists", "t", naiveBare{naiveLit(`true`)}}}}, `!(params.none.exists(t, true))`, ``, true},
}

// naiveTableDoc returns the document of a row.
func naiveTableDoc(members string) naiveDoc {
	if members != "" {
		members = "," + members
	}
	return naiveDoc{ID: "d", Body: []byte(`{"id":"d"` + members + `}`), TS: 1_700_000_000, Version: 12}
}

func TestNaiveMatches(t *testing.T) {
	for _, test := range naiveTable {
		if got := test.cond.CEL(); got != test.cel {
			t.Errorf("wrote %s instead of %s", got, test.cel)
		}
		if got := naiveMatches(test.cond, naiveTableDoc(test.doc), []byte(naiveTableParams)); got != test.want {
			t.Errorf("%s is %t for {%s}", test.cel, got, test.doc)
		}
	}
}

// naiveSorted are values in the order over types, equal ones on one line.
var naiveSorted = [][]string{
	{""}, {`null`}, {`false`}, {`true`},
	{`-1e999`, `-2e308`}, {`-9223372036854775809`, `-9223372036854775808`}, {`-1`}, {`0`, `-0`, `-0.0`, `1e-400`}, {`5e-324`}, {`0.1`}, {`1`, `1.0`, `10e-1`},
	{`9007199254740992`, `9007199254740992.0`, `9007199254740993.0`}, {`9007199254740993`},
	{`9223372036854775807`}, {`9223372036854775808`, `9223372036854775807.0`}, {`18446744073709551615`}, {`18446744073709551616`, `18446744073709551615.0`}, {`1e300`}, {`1e999`},
	{`""`}, {`"\u0000"`}, {`"1"`}, {`"10"`}, {`"9"`}, {`"X"`}, {`"x"`, `"\u0078"`}, {`"x\u0000"`}, {`"xy"`}, {`"é"`}, {`"\uffff"`}, {`"😀"`},
	{`[]`}, {`[null]`}, {`[1]`, `[1.0]`}, {`[1,null]`}, {`[1,2]`}, {`[2]`}, {`["a"]`}, {`[[]]`}, {`[{}]`},
	{`{}`}, {`{"a":null}`}, {`{"a":1}`}, {`{"a":1,"b":0}`, `{"b":0,"a":1.0}`}, {`{"a":1,"c":0}`}, {`{"a":2}`}, {`{"b":0}`},
}

func TestNaiveCompare(t *testing.T) {
	value := func(text string) any {
		if text == "" {
			return naiveMissing{}
		}
		return naiveDecode([]byte(text))
	}
	for i, some := range naiveSorted {
		for j, others := range naiveSorted {
			for _, a := range some {
				for _, b := range others {
					if got, want := naiveCompare(value(a), value(b)), min(1, max(-1, i-j)); got != want {
						t.Errorf("%s to %s is %d", a, b, got)
					}
					if a != "" && b != "" && naiveEqual(value(a), value(b)) != (i == j) {
						t.Errorf("%s == %s is %t", a, b, i != j)
					}
				}
			}
		}
	}
}

func TestNaiveQuery(t *testing.T) {
	doc := func(id, members string, version uint64) naiveDoc {
		d := naiveTableDoc(members)
		d.ID, d.Version = id, version
		d.Body = []byte(strings.Replace(string(d.Body), `"d"`, `"`+id+`"`, 1))
		return d
	}
	docs := []naiveDoc{
		doc("c", `"a":1,"b":[1,2]`, 7),
		doc("b", `"b":[1]`, 8),
		doc("B", `"a":1.0,"b":null`, 9),
		doc("a", `"a":"x","b":{"1":1}`, 10),
		doc("é", `"a":1,"b":[1,1]`, 11),
	}
	docs = append(docs, naiveDoc{ID: "gone", Body: []byte(`{"id":"gone","ttl":1}`), TS: 1_699_999_999, TTL: 1, Version: 12})
	for _, test := range []struct {
		orderBy []naiveOrder
		want    string
	}{
		{nil, "B a b c é"},
		{[]naiveOrder{{Path: "/a"}}, "b B c é a"},
		{[]naiveOrder{{Path: "/a", Desc: true}}, "a B c é b"},
		{[]naiveOrder{{Path: "/a"}, {Path: "/b", Desc: true}}, "b c é B a"},
		{[]naiveOrder{{Path: "/b/1"}}, "B b a é c"},
		{[]naiveOrder{{Path: "/b/01", Desc: true}}, "B a b c é"},
		{[]naiveOrder{{Path: "/_etag"}}, "a é c b B"},
		{[]naiveOrder{{Path: "/_ts"}, {Path: "/id", Desc: true}}, "é c b a B"},
	} {
		got := naiveQuery(docs, naiveNever, 1_700_000_000, nil, nil, test.orderBy, nil, 0)
		if strings.Join(got.IDs, " ") != test.want || got.Total != 5 {
			t.Errorf("%+v: %q", test.orderBy, got.IDs)
		}
	}
	got := naiveQuery(docs, 0, 1_700_000_000, naiveHas{naiveDocPath("a")}, nil, nil, []string{"/b", "/_ts"}, 2)
	if want := []string{`{"b":null,"_ts":1700000000}`, `{"b":{"1":1},"_ts":1700000000}`}; got.Total != 4 || fmt.Sprintf("%s", got.Documents) != fmt.Sprint(want) {
		t.Errorf("got %d, %s", got.Total, got.Documents)
	}
}

func TestNaiveSelect(t *testing.T) {
	d := naiveTableDoc(`"a":{"x":1.0,"y":[1,[2,3],{"z":4,"w":5}],"0":null},"b":[],"":{"~/":"\u00e9"},"e":7,"e":8`)
	for _, test := range []struct{ pointers, want string }{
		{"", `{"id":"d","a":{"x":1.0,"y":[1,[2,3],{"z":4,"w":5}],"0":null},"b":[],"":{"~/":"é"},"e":8,"_ts":1700000000,"_etag":"12"}`},
		{"/id", `{"id":"d"}`},
		{"/_etag /b /_ts", `{"b":[],"_ts":1700000000,"_etag":"12"}`},
		{"/a/y/2/w /a/x", `{"a":{"x":1.0,"y":[{"w":5}]}}`},
		{"/a/y/2/z /a/y/0 /a/y/1/1", `{"a":{"y":[1,[3],{"z":4}]}}`},
		{"/a/y/1/0 /a/y /a/y/2", `{"a":{"y":[1,[2,3],{"z":4,"w":5}]}}`},
		{"/a/0 /a/y/9 /a/y/-1 /a/y/00 /a/y/x", `{"a":{"0":null}}`},
		{"/a/zzz /b/0 /zzz /id/x", `{}`},
		{"//~0~1 /e", `{"":{"~/":"é"},"e":8}`},
	} {
		got := d.render(strings.Fields(test.pointers))
		if !naiveSameJSON(got, []byte(test.want)) || !naiveSameText(got, []byte(test.want)) {
			t.Errorf("%s: %s", test.pointers, got)
		}
	}
}

func TestNaiveSame(t *testing.T) {
	for _, test := range []struct {
		a, b       string
		json, text bool
	}{
		{`{"a":1,"b":"\u00e9"}`, ` {"a":1, "b":"é"}`, true, true},
		{`{"a":1,"b":2}`, `{"b":2,"a":1}`, true, false},
		{`[1]`, `[1.0]`, true, false},
		{`9007199254740993`, `9007199254740992.0`, false, false},
		{`{"a":null}`, `{}`, false, false},
		{`[1,2]`, `[2,1]`, false, false},
		{`{"a":1}`, `{"a":1}{`, false, false},
	} {
		a, b := []byte(test.a), []byte(test.b)
		if naiveSameJSON(a, b) != test.json || naiveSameText(a, b) != test.text {
			t.Errorf("%s and %s: %t, %t", a, b, naiveSameJSON(a, b), naiveSameText(a, b))
		}
	}
}

// TestNaiveGenerator: drawn bodies match their documents, no condition depends on what the
// rules leave open, and conditions match some documents but not all.
func TestNaiveGenerator(t *testing.T) {
	draw := rapid.Custom(func(t *rapid.T) naiveCase { return drawNaiveCase(t, 12) })
	var all, live, matched, some, cases int
	for seed := range 600 {
		c := draw.Example(seed)
		if len(c.Docs) == 0 || c.Cond == nil {
			continue
		}
		for _, d := range c.Docs {
			content := d.content()
			if content["id"] != d.ID || fmt.Sprint(content["_ts"]) != fmt.Sprint(d.TS) || content["_etag"] != fmt.Sprint(d.Version) {
				t.Fatalf("%q is not %+v", d.reply(), d)
			}
			if naiveMatches(c.Cond, d, c.Params) == naiveMatches(naiveNot{c.Cond}, d, c.Params) {
				t.Fatalf("%s and its negation are the same", c.Cond.CEL())
			}
			if d.live(c.Policy.DefaultTTL, c.Now) {
				live++
			}
		}
		result := naiveQuery(c.Docs, 0, c.Now, c.Cond, c.Params, c.OrderBy, nil, 0)
		all, matched, cases = all+len(c.Docs), matched+result.Total, cases+1
		if result.Total > 0 && result.Total < len(c.Docs) {
			some++
		}
		if !slices.IsSortedFunc(result.IDs, strings.Compare) && len(c.OrderBy) == 0 {
			t.Fatalf("%q are not in order", result.IDs)
		}
	}
	t.Logf("%d cases: of %d documents %d live and %d match; some but not all match in %d cases", cases, all, live, matched, some)
	if share := float64(matched) / float64(all); share < 0.2 || share > 0.5 {
		t.Errorf("conditions match %.0f %% of the documents", 100*share)
	}
	if 10*some < 3*cases {
		t.Errorf("conditions tell documents apart in only %d of %d cases", some, cases)
	}
}
