package values

import (
	"bytes"
	"encoding/json"
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// ascending lists values in ascending order; those on one line are equal.
var ascending = [][]string{
	{""},
	{"null"},
	{"false"},
	{"true"},
	{"-1e400", "-1e999"},
	{"-1e300"},
	{"-18446744073709551616"},
	{"-9223372036854775808", "-9223372036854775808.0"},
	{"-9223372036854775807"},
	{"-9007199254740993"},
	{"-9007199254740992", "-9007199254740992.0", "-9007199254740993.0"},
	{"-2"},
	{"-1.5"},
	{"-1", "-1.0", "-1e0", "-10e-1"},
	{"-1e-300"},
	{"0", "-0", "0.0", "-0.0", "0e9"},
	{"5e-324"},
	{"0.1", "1e-1"},
	{"1"},
	{"9007199254740991"},
	{"9007199254740992", "9007199254740993.0"},
	{"9007199254740993"},
	{"9223372036854775806"},
	{"9223372036854775807"},
	{"9223372036854775808", "9223372036854775807.0"},
	{"18446744073709551614"},
	{"18446744073709551615"},
	{"18446744073709551616", "18446744073709551617", "1.8446744073709551616e19"},
	{"1e400"},
	{`""`},
	{`"\u0000"`},
	{`"\u0000a"`},
	{`"\u0001"`},
	{`"a"`, `"\u0061"`},
	{`"a\u0000"`},
	{`"a\u0000b"`},
	{`"a\u0001"`},
	{`"a\""`},
	{`"aa"`},
	{`"b\/"`, `"b/"`},
	{`"é"`, `"\u00e9"`},
	{`"` + "\uffee" + `"`},
	{`"\ufffd"`, `"\ud800"`, `"\udc00"`},
	{`"😀"`, `"\ud83d\ude00"`},
	{`[]`, `[ ]`},
	{`[null]`},
	{`[1]`, `[1.0]`},
	{`[1,null]`},
	{`[1,2]`, "[1 ,\t2]"},
	{`[2]`},
	{`["a"]`},
	{`[[]]`},
	{`[{}]`},
	{`{}`},
	{`{"":1}`},
	{`{"a":1}`, `{ "a" : 1 }`, `{"a":2,"a":1}`},
	{`{"a":1,"b":0}`, `{"b":0,"a":1}`},
	{`{"a":2}`},
	{`{"a\u0000":0}`},
	{`{"ab":0}`},
}

func TestKeysSortAsValuesDo(t *testing.T) {
	var before []byte
	for i, equals := range ascending {
		first := AppendKey(nil, Value(equals[0]))
		for _, v := range equals {
			if key := AppendKey(nil, Value(v)); !bytes.Equal(key, first) {
				t.Errorf("%s has the key %x, %s has %x: they are equal", v, key, equals[0], first)
			}
		}
		if i > 0 && bytes.Compare(before, first) >= 0 {
			t.Errorf("%s has the key %x, which is not after %x of %s", equals[0], first, before, ascending[i-1][0])
		}
		if i > 0 && bytes.HasPrefix(first, before) {
			t.Errorf("the key of %s begins with that of %s", equals[0], ascending[i-1][0])
		}
		before = first
	}
}

func TestKeyPrefix(t *testing.T) {
	for _, equals := range append(ascending, []string{`"` + strings.Repeat("x", 3000) + `"`}, []string{"[" + strings.Repeat(`"ab",`, 500) + "1]"}) {
		v := Value(equals[0])
		key := AppendKey(nil, v)
		for limit := range len(key) + 2 {
			prefix, whole := AppendKeyPrefix([]byte("before"), v, limit)
			prefix = prefix[len("before"):]
			if !bytes.HasPrefix(key, prefix) || whole != (len(prefix) == len(key)) || len(prefix) > limit || !whole && len(prefix) != limit {
				t.Fatalf("%.40s with limit %d: %x (whole: %v) of %x", v, limit, prefix, whole, key)
			}
		}
	}
	for text, others := range map[string][]string{"": {"", "\x00", "x"}, "a": {"a", "ab", "a\x00", "a\xff"}, "a\x00": {"a\x00", "a\x00b"}} {
		for _, other := range others {
			if key := AppendTextKey(nil, []byte(other)); !bytes.HasPrefix(key, AppendTextPrefixKey(nil, []byte(text))) {
				t.Errorf("the key of %q does not begin as that of %q", other, text)
			}
		}
	}
}

// exact returns a number as a big.Float, an independent reference for Real.
func exact(text string) *big.Float {
	f := new(big.Float).SetPrec(200)
	if n, ok := new(big.Int).SetString(text, 10); ok && (n.IsInt64() || n.IsUint64()) {
		return f.SetInt(n)
	}
	g := Value(text).Float()
	return f.SetFloat64(g)
}

func TestNumbers(t *testing.T) {
	number := rapid.OneOf(
		rapid.StringMatching(`-?(0|[1-9][0-9]{0,20})`),
		rapid.StringMatching(`-?(0|[1-9][0-9]{0,20})(\.[0-9]{1,3})?([eE][+-]?[0-9]{1,2})?`),
		rapid.SampledFrom([]string{"9007199254740992", "9007199254740993", "9223372036854775807", "9223372036854775808", "18446744073709551615", "18446744073709551616"}),
	)
	rapid.Check(t, func(t *rapid.T) {
		a, b := number.Draw(t, "a"), number.Draw(t, "b")
		want := exact(a).Cmp(exact(b))
		if got := Value(a).Real().Compare(Value(b).Real()); got != want {
			t.Errorf("%s compares to %s as %d, not %d", a, b, got, want)
		}
		if got := bytes.Compare(AppendKey(nil, Value(a)), AppendKey(nil, Value(b))); got != want {
			t.Errorf("the keys of %s and %s compare as %d, not %d", a, b, got, want)
		}
	})
	if f := Value("1e400").Float(); !math.IsInf(f, 1) {
		t.Errorf("1e400 is %v", f)
	}
}

func pointers(t *testing.T, all ...string) (p []Pointer) {
	t.Helper()
	for _, s := range all {
		pointer, err := ParsePointer(s)
		if err != nil {
			t.Fatal(err)
		}
		if pointer.String() != s {
			t.Errorf("%s is written as %s", s, pointer)
		}
		p = append(p, pointer)
	}
	return p
}

func TestPaths(t *testing.T) {
	p := pointers(t, "/a", "/a/b", "/a/b/0", "/list/1", "/list/1/x", "/~1~0", "/_ts", "/_etag", "/a/b", "/é", "/a//c", `/a\b`)
	paths := NewPaths(p)
	var f Found
	for _, c := range []struct {
		body string
		want []string
	}{
		{`{}`, []string{"", "", "", "", "", "", "7", `"9"`, "", "", ""}},
		{`{"a":1,"list":[1,2],"/~":true}`, []string{"1", "", "", "2", "", "true", "7", `"9"`, "", "", ""}},
		{`{"a":{"b":[5,6],"":{"c":0}}}`, []string{`{"b":[5,6],"":{"c":0}}`, "[5,6]", "5", "", "", "", "7", `"9"`, "[5,6]", "", "0"}},
		{`{"a":{"b":{"0":3}},"list":{"1":{"x":4}}}`, []string{`{"b":{"0":3}}`, `{"0":3}`, "3", `{"x":4}`, "4", "", "7", `"9"`, `{"0":3}`, "", ""}},
		{`{"a":{"b":[1]},"\u0061":{"c":2}}`, []string{`{"c":2}`, "", "", "", "", "", "7", `"9"`, "", "", ""}},
		{`{"a\b":1}`, []string{"", "", "", "", "", "", "7", `"9"`, "", "", ""}},
		{`{"a":{"b":[1]},"a":2}`, []string{`2`, "", "", "", "", "", "7", `"9"`, "", "", ""}},
		{`{"z":"\"}","\u00e9":" ","y":[{"a":1}]}`, []string{"", "", "", "", "", "", "7", `"9"`, "", `" "`, ""}},
		{` { "a" : { "b" : [ 1 , 2 ] , "c" : 0 } , "list" : [ 3 , 4 ] } `, []string{`{ "b" : [ 1 , 2 ] , "c" : 0 }`, "[ 1 , 2 ]", "1", "4", "", "", "7", `"9"`, "[ 1 , 2 ]", "", ""}},
	} {
		paths.Find([]byte(c.body), 7, 9, &f)
		for slot, want := range append(c.want, "") {
			if got := string(f.Values[slot]); got != want {
				t.Errorf("%s at %s is %q, not %q", c.body, p[slot], got, want)
			}
		}
	}
	if paths.Find([]byte(`{"a\\b":1}`), 7, 9, &f); string(f.Values[len(p)-1]) != "1" {
		t.Error("a name with a backslash is not found")
	}
	for _, bad := range []string{"", "a", "/a~", "/a~2", "/" + strings.Repeat("x", 255)} {
		if p, err := ParsePointer(bad); err == nil {
			t.Errorf("%q is accepted as %v", bad, p)
		}
	}
	if pointers(t, "/a/0")[0].Plain() || !pointers(t, "/a/00/x1")[0].Plain() {
		t.Error("Plain is wrong")
	}
}

func TestUnquote(t *testing.T) {
	for quoted, want := range map[string]string{
		`ttl`: "ttl", `\u0074tl`: "ttl", `a\/b`: "a/b", `\ud83d\ude00`: "😀", `\"`: `"`, ``: "",
		`\ud800`: "\uFFFD", // half a pair is no character
	} {
		if got := string(Unquote([]byte(quoted))); got != want {
			t.Errorf("%s: got %q, want %q", quoted, got, want)
		}
	}
}

// lookup finds a pointer in a decoded document.
func lookup(v any, p Pointer) (any, bool) {
	for _, token := range p {
		switch parent := v.(type) {
		case map[string]any:
			child, ok := parent[token]
			if !ok {
				return nil, false
			}
			v = child
		case []any:
			at, ok := index(token)
			if !ok || at >= len(parent) {
				return nil, false
			}
			v = parent[at]
		default:
			return nil, false
		}
	}
	return v, true
}

func decode(t testing.TB, data []byte) (v any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%q: %v", data, err)
	}
	return v
}

// FuzzValues: Find, Elements and Members agree with encoding/json, and no input causes a
// panic or an endless loop.
func FuzzValues(f *testing.F) {
	for _, equals := range ascending {
		f.Add([]byte(equals[0]), "/a")
	}
	f.Add([]byte(`{"a":{"b":[1,{"c":"\ud83d\ude00\\\""}],"b":2},"a":[{"b":3}]}`), "/a/0/b")
	f.Add([]byte(`{"a":`), "/a/b")
	f.Add([]byte(`["`), "/0")
	f.Fuzz(func(t *testing.T, data []byte, path string) {
		v := Value(bytes.Trim(data, " \t\r\n"))
		key := AppendKey(nil, v)
		AppendKeyPrefix(nil, v, 10)
		pointer, err := ParsePointer(path)
		if err != nil {
			return
		}
		var found Found
		NewPaths([]Pointer{pointer, {"_ts"}}).Find(v, 1, 2, &found)
		if !json.Valid(data) || !bytes.Equal(bytes.ToValidUTF8(data, nil), data) {
			return
		}
		decoded := decode(t, v)
		if object, ok := decoded.(map[string]any); ok && path != "/_etag" {
			want, ok := lookup(object, pointer)
			got := found.Values[0]
			if path == "/_ts" {
				want, ok = json.Number("1"), true
			}
			if ok != (got.Kind() != Missing) {
				t.Fatalf("%s in %s: found %q, want %v %v", path, v, got, want, ok)
			}
			if ok {
				if again, _ := json.Marshal(want); !bytes.Equal(AppendKey(nil, got), AppendKey(nil, again)) {
					t.Fatalf("%s in %s: found %s, want %s", path, v, got, again)
				}
			}
		}
		again, err := json.Marshal(decoded)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(key, AppendKey(nil, Value(again))) {
			t.Fatalf("%s and %s have different keys", v, again)
		}
		switch decoded := decoded.(type) {
		case string:
			if string(v.Text()) != decoded {
				t.Fatalf("%s is %q, not %q", v, v.Text(), decoded)
			}
		case []any:
			n := 0
			v.Elements(func(Value) bool { n++; return true })
			if n != len(decoded) || v.Len() != n {
				t.Fatalf("%s has %d elements, not %d", v, n, len(decoded))
			}
		case map[string]any:
			var names []string
			v.Members(func(name []byte, _ Value) bool { names = append(names, string(name)); return true })
			slices.Sort(names)
			if names = slices.Compact(names); len(names) != len(decoded) || v.Len() != len(names) {
				t.Fatalf("%s has the members %q", v, names)
			}
		}
	})
}
