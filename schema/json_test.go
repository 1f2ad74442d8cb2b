package schema

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/lapsedb/lapse/schema/values"
)

// jsonSeeds are valid and invalid texts for every rule of the grammar.
var jsonSeeds = []string{
	`{}`, "{}\n", ` {}`, `{ }`, `{"a b":" "}`, `[]`, `""`, `0`, `-0`, `-1.5e+10`, `1E-2`, `true`, `false`, `null`, " \t\r\n[ ] \n",
	`{"a":[1,{"b":null}],"a":"\ud83d\ude00\/\b\f\n\r\t\"\\"}`, `"\ud800"`, `"é€😀"`, "\"\x7f\"",
	``, ` `, `{`, `[`, `"`, `-`, `+1`, `01`, `-01`, `1.`, `.5`, `1e`, `1e+`, `1.e1`, `0x1`, `tru`, `nul`, `truee`, `NaN`, `Infinity`,
	`{"a"}`, `{"a":}`, `{"a":1,}`, `{,}`, `{a:1}`, `{'a':1}`, `[1,]`, `[,1]`, `[1 2]`, `{"a":1 "b":2}`, `{"a":1}}`, `{"a":1}{}`, `1 2`,
	`"\x"`, `"\u12"`, `"\u12g4"`, `"\`, `"\u`, "\"\x00\"", "\"\n\"", "\"\x1f\"", "\"\xff\"", "\"\xed\xa0\x80\"", "\ufeff{}", "{}\x00", "\x00",
	"[1]\u00a0", "/*c*/{}", `{"a":1}//`,
}

// nested returns the nesting depth of valid JSON, by counting brackets.
func nested(data []byte) (deepest int) {
	depth, inString := 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			depth++
			deepest = max(deepest, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	return deepest
}

func checkAgainstStandardLibrary(t *testing.T, data []byte) {
	t.Helper()
	want := json.Valid(data) && utf8.Valid(data) && nested(data) <= MaxDepth
	if got := ValidJSON(data); got != want {
		t.Fatalf("%.200q: valid %v, want %v", data, got, want)
	}
	first := bytes.TrimLeft(data, " \t\r\n")
	spaces, err := members(data, func(name, value []byte) error { return nil })
	if isObject := want && first[0] == '{'; (err == nil) != isObject {
		t.Fatalf("%.200q: object %v, got error %v", data, isObject, err)
	}
	if !want {
		return
	}
	var compacted bytes.Buffer
	if err := json.Compact(&compacted, data); err != nil {
		t.Fatal(err)
	}
	if got := compact(data); !bytes.Equal(got, compacted.Bytes()) {
		t.Fatalf("%q compacts to %q, want %q", data, got, compacted.Bytes())
	}
	if err == nil && spaces != (compacted.Len() < len(data)) {
		t.Fatalf("%q: white space %v", data, spaces)
	}
}

func TestScannerErrors(t *testing.T) {
	for text, want := range map[string]string{
		``:                 "byte 0: the JSON ends early, an object expected",
		`[]`:               `byte 0: '[' found, an object expected`,
		`{"a":1,}`:         `byte 7: '}' found, a member name expected`,
		`{"a" 1}`:          `byte 5: '1' found, ':' expected`,
		`{"a":1 2}`:        `byte 7: '2' found, ',' or '}' expected`,
		`{"a":[1;2]}`:      `byte 7: ';' found, ',' or ']' expected`,
		`{"a":tru}`:        `byte 5: 't' found, a value expected`,
		`{"a":-}`:          `byte 6: '}' found, a digit expected`,
		`{"a":"\x"}`:       `byte 7: malformed escape in a string`,
		`{"a":"\u00"}`:     `byte 10: malformed \u escape`,
		"{\"a\":\"\n\"}":   `byte 6: control character in a string`,
		`{"a":"b`:          `byte 7: the JSON ends early, '"' expected`,
		`{"a":1}x`:         `byte 7: 'x' found, the end expected`,
		"{\"a\":\"\xff\"}": `it is not UTF-8`,
	} {
		_, err := members([]byte(text), func(name, value []byte) error { return nil })
		if err == nil || err.Error() != want {
			t.Errorf("%q:\n got %v\nwant %v", text, err, want)
		}
	}
}

func TestMembersAreVisitedAsWritten(t *testing.T) {
	const text = ` { "a" : 1.0 , "\u0062":{ "x" : [ ] }, "":"y\n" } `
	var got []string
	spaces, err := members([]byte(text), func(name, value []byte) error {
		got = append(got, string(name)+"|"+string(value))
		return nil
	})
	want := []string{`a|1.0`, `\u0062|{ "x" : [ ] }`, `|"y\n"`}
	if err != nil || !spaces || strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Fatalf("got %q, %v, %v", got, spaces, err)
	}
}

func TestAppendStringReadsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })).Draw(t, "s")
		quoted := AppendString(nil, s)
		var back string
		if err := json.Unmarshal(quoted, &back); err != nil {
			t.Fatalf("%q became %s: %v", s, quoted, err)
		}
		// The conversion to runes replaces each byte that is not UTF-8.
		if want := string([]rune(s)); back != want {
			t.Fatalf("%q became %s, that is %q", s, quoted, back)
		}
		if got := string(values.Unquote(quoted[1 : len(quoted)-1])); got != back {
			t.Fatalf("%s is %q to unquote and %q to the standard library", quoted, got, back)
		}
	})
}

func TestShownIsOneShortLine(t *testing.T) {
	for value, want := range map[string]string{
		`5`:                             `5`,
		"[\n  1,\n  \"a b\"\n]":         `[1,"a b"]`,
		`"` + strings.Repeat("€", 99):   `"` + strings.Repeat("€", 13) + "…",
		"[" + strings.Repeat(" ", 999):  "[…",
		`"` + strings.Repeat(`\\`, 999): `"` + strings.Repeat(`\\`, 19) + `\` + "…",
	} {
		if got := Shown([]byte(value)); got != want {
			t.Errorf("%.60q: got %q, want %q", value, got, want)
		}
	}
}

func FuzzJSON(f *testing.F) {
	for _, seed := range jsonSeeds {
		f.Add([]byte(seed))
	}
	f.Add(bytes.Repeat([]byte("["), MaxDocumentBytes)) // refused without recursion to its depth
	for _, depth := range []int{127, 128, 129, 500} {
		f.Add([]byte(strings.Repeat(`{"a":[`, depth/2) + strings.Repeat("]}", depth/2)))
		f.Add([]byte(strings.Repeat("[", depth) + strings.Repeat("]", depth)))
		f.Add([]byte(strings.Repeat("[", depth) + "0" + strings.Repeat("]", depth)))
		f.Add([]byte(strings.Repeat(`{"a":`, depth) + "0" + strings.Repeat("}", depth)))
		f.Add([]byte(`"` + strings.Repeat("[", depth) + `"`))
	}
	f.Fuzz(checkAgainstStandardLibrary)
}
