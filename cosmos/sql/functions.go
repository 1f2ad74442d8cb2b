package sql

import (
	"bytes"
	"encoding/json"
	"math"
	"regexp"
	"slices"
	"strings"
	"unicode/utf16"

	"github.com/lapsedb/lapse/schema/values"
)

// function is a function of its arguments' values. All arguments are evaluated before. A
// function has no error: what it is not defined for has the result undefined.
type function struct {
	least, most int // arguments
	of          func(args []values.Value) values.Value
}

// many is the most arguments of a function that has any number.
const many = math.MaxInt

// tooLong is the result of a function that would be longer than maxValueBytes. No JSON
// begins like that, so no value equals it.
var tooLong = values.Value("!")

// functions has the functions of values, by their names in upper case. Those without of are in
// call. Names and meanings are those of Cosmos DB's reference. Whatever is missing here is
// refused by its name when the query is parsed.
var functions = map[string]function{
	"STARTSWITH": {2, 3, search(bytes.HasPrefix)}, "ENDSWITH": {2, 3, search(bytes.HasSuffix)}, "CONTAINS": {2, 3, search(bytes.Contains)}, "STRINGEQUALS": {2, 3, search(bytes.Equal)},
	"LOWER": {1, 1, ofText(strings.ToLower)}, "UPPER": {1, 1, ofText(strings.ToUpper)}, "REVERSE": {1, 1, ofText(reverse)}, "CONCAT": {2, many, concat}, "TOSTRING": {1, 1, toString},
	"TRIM": {1, 2, trim(strings.Trim)}, "LTRIM": {1, 2, trim(strings.TrimLeft)}, "RTRIM": {1, 2, trim(strings.TrimRight)}, "REGEXMATCH": {2, 3, nil},
	"LENGTH":    {1, 1, typed("s", func(a []argument) values.Value { return encode(len(units(a[0].text))) })},
	"INDEX_OF":  {2, 3, typed("ssi", indexOf)},
	"SUBSTRING": {3, 3, typed("sii", func(a []argument) values.Value { return substring(a[0].text, a[1].n, a[2].n) })},
	"LEFT":      {2, 2, typed("si", func(a []argument) values.Value { return substring(a[0].text, 0, a[1].n) })},
	"RIGHT": {2, 2, typed("si", func(a []argument) values.Value {
		return substring(a[0].text, max(len(units(a[0].text))-a[1].n, 0), many)
	})},
	"REPLACE": {3, 3, typed("s", replace)}, "REPLICATE": {2, 2, typed("si", replicate)},
	"STRINGTOARRAY": {1, 1, parsed(values.Array)}, "STRINGTOOBJECT": {1, 1, parsed(values.Object)}, "STRINGTONUMBER": {1, 1, parsed(values.Number)},
	"STRINGTOBOOLEAN": {1, 1, parsed(values.True, values.False)}, "STRINGTONULL": {1, 1, parsed(values.Null)},

	"ABS": numeric(math.Abs), "CEILING": numeric(math.Ceil), "FLOOR": numeric(math.Floor), "ROUND": numeric(math.Round), "TRUNC": numeric(math.Trunc), "SQRT": numeric(math.Sqrt), "EXP": numeric(math.Exp), "LOG10": numeric(math.Log10),
	"SIGN": numeric(func(f float64) float64 { return f / max(math.Abs(f), math.SmallestNonzeroFloat64) }), "SQUARE": numeric(func(f float64) float64 { return f * f }), "POWER": {2, 2, arithmetic(math.Pow)},
	"PI": {0, 0, func([]values.Value) values.Value { return encode(math.Pi) }},
	"LOG": {1, 2, typed("n", func(a []argument) values.Value {
		return encode(math.Log(a[0].f)/math.Log(append(a, argument{f: math.E})[1].f) + 0)
	})},
	"SIN": numeric(math.Sin), "COS": numeric(math.Cos), "TAN": numeric(math.Tan), "COT": numeric(func(f float64) float64 { return 1 / math.Tan(f) }), "ASIN": numeric(math.Asin), "ACOS": numeric(math.Acos), "ATAN": numeric(math.Atan),
	"ATN2": {2, 2, arithmetic(math.Atan2)}, "DEGREES": numeric(func(f float64) float64 { return 180 / math.Pi * f }), "RADIANS": numeric(func(f float64) float64 { return math.Pi * f / 180 }),

	"ARRAY_CONTAINS": {2, 3, arrayContains},
	"ARRAY_LENGTH":   {1, 1, typed("a", func(a []argument) values.Value { return encode(len(a[0].list)) })},
	"ARRAY_SLICE":    {2, 3, typed("aii", arraySlice)},
	"ARRAY_CONCAT":   {2, many, typed("a", arrayConcat)},

	"IS_DEFINED": {1, 1, func(args []values.Value) values.Value { return boolean(len(args[0]) > 0) }}, "IS_NULL": kinds(values.Null), "IS_ARRAY": kinds(values.Array), "IS_BOOL": kinds(values.True, values.False),
	"IS_NUMBER": kinds(values.Number), "IS_FINITE_NUMBER": kinds(values.Number), "IS_OBJECT": kinds(values.Object), "IS_STRING": kinds(values.String), "IS_PRIMITIVE": kinds(values.Null, values.True, values.False, values.Number, values.String),
	"IS_INTEGER": {1, 1, func(args []values.Value) values.Value {
		f := args[0].Float()
		magnitude, negative, exact := args[0].Integer()
		return boolean(args[0].Kind() == values.Number && f == math.Trunc(f) && math.Abs(f) <= 1<<63 && !(exact && !negative && magnitude > math.MaxInt64))
	}},
	"IIF": {3, 3, nil},

	"GETCURRENTDATETIME": {}, "GETCURRENTTICKS": {}, "GETCURRENTTIMESTAMP": {}, "GETCURRENTDATETIMESTATIC": {}, "GETCURRENTTICKSSTATIC": {}, "GETCURRENTTIMESTAMPSTATIC": {},
	"DATETIMEADD": {3, 3, typed("pid", dateAdd)}, "DATETIMEDIFF": {3, 3, typed("pdd", dateDiff)}, "DATETIMEPART": {2, 2, typed("pd", datePart)}, "DATETIMEFROMPARTS": {3, 7, typed("i", dateFromParts)},
	"DATETIMETOTICKS":     {1, 1, typed("d", func(a []argument) values.Value { return encode(a[0].n) })},
	"DATETIMETOTIMESTAMP": {1, 1, typed("d", func(a []argument) values.Value { return encode(floorDivide(a[0].n, second/1000)) })},
	"TICKSTODATETIME":     {1, 1, typed("i", func(a []argument) values.Value { return dateOf(a[0].n) })},
	"TIMESTAMPTODATETIME": {1, 1, typed("i", func(a []argument) values.Value { return dateOf(min(max(a[0].n, -1<<48), 1<<48) * (second / 1000)) })},
}

// argument is an argument of a known type. One field is set, by the letter.
type argument struct {
	text string
	f    float64
	n    int // an integer, ticks of a date, or the size of a part of dates
	list []values.Value
}

// typed is a function that is undefined unless its arguments have the types that letters say:
// string, number, integer, array, date, part of a date. The last letter is that of all
// others. An example: typed("sii", f) is undefined for SUBSTRING("abc", "1", 2).
func typed(letters string, f func([]argument) values.Value) func([]values.Value) values.Value {
	return func(args []values.Value) values.Value {
		given := make([]argument, len(args), len(args)+1)
		for i, v := range args {
			a, ok := &given[i], false
			switch letters[min(i, len(letters)-1)] {
			case 's':
				a.text, ok = string(v.Text()), v.Kind() == values.String
			case 'n':
				a.f, ok = v.Float(), v.Kind() == values.Number
			case 'i':
				a.n, ok = whole(v)
			case 'a':
				a.list, ok = elements(v), v.Kind() == values.Array
			case 'd':
				a.n, ok = date(v)
			case 'p':
				a.n, ok = parts[string(v.Text())]
			}
			if !ok {
				return nil
			}
		}
		return f(given)
	}
}

// numeric is a function of a number in float64.
func numeric(f func(float64) float64) function {
	return function{1, 1, typed("n", func(a []argument) values.Value { return encode(f(a[0].f) + 0) })} // -0 is 0
}

// kinds reports whether a value is of some kinds.
func kinds(any ...values.Kind) function {
	return function{1, 1, func(args []values.Value) values.Value { return boolean(slices.Contains(any, args[0].Kind())) }}
}

// whole returns an integer, at most ±2^62; ok is false for other values. Beyond that the
// result is the bound: it is used for positions, counts and ticks, where both mean the
// same.
func whole(v values.Value) (n int, ok bool) {
	const most = 1 << 62
	if magnitude, negative, exact := v.Integer(); exact && magnitude <= most {
		if n = int(magnitude); negative {
			n = -n
		}
		return n, v.Kind() == values.Number
	}
	f := v.Float()
	return int(max(min(f, most), -most)), v.Kind() == values.Number && f == math.Trunc(f)
}

// ofText is a function of a string.
func ofText(f func(string) string) func([]values.Value) values.Value {
	return typed("s", func(a []argument) values.Value { return encode(f(a[0].text)) })
}

// units returns a string in UTF-16, whose units are the characters of .NET. LENGTH of a
// character beyond 16 bits is 2, as in Cosmos DB.
func units(s string) []uint16 { return utf16.Encode([]rune(s)) }

// reverse reverses characters, not units: half of a pair is no string.
func reverse(s string) string {
	runes := []rune(s)
	slices.Reverse(runes)
	return string(runes)
}

// trim removes white space, or the characters of a second argument.
func trim(some func(s, characters string) string) func([]values.Value) values.Value {
	return typed("s", func(a []argument) values.Value {
		return encode(some(a[0].text, append(a, argument{text: " \t\r\n\v\f"})[1].text))
	})
}

// concat is CONCAT and the operator ||.
var concat = typed("s", func(a []argument) values.Value {
	var s strings.Builder
	for _, arg := range a {
		s.WriteString(arg.text)
	}
	return encode(s.String())
})

// indexOf returns the position of a string in another, from a third argument on, or -1.
func indexOf(a []argument) values.Value {
	s := units(a[0].text)
	from := min(max(append(a, argument{})[2].n, 0), len(s))
	before, _, found := strings.Cut(string(utf16.Decode(s[from:])), a[1].text)
	if !found {
		return encode(-1)
	}
	return encode(from + len(units(before)))
}

// part returns up to n of the elements from a position on, none from a negative one. part
// is what SUBSTRING and ARRAY_SLICE have in common.
func part[T any](list []T, from, n int) []T {
	if from < 0 || from >= len(list) || n <= 0 {
		return nil
	}
	return list[from : from+min(n, len(list)-from)]
}

// substring returns up to n units of a string. A pair that is cut becomes U+FFFD.
func substring(s string, from, n int) values.Value {
	return encode(string(utf16.Decode(part(units(s), from, n))))
}

// replace is REPLACE. It counts before it replaces, since the result may be far larger
// than s.
func replace(a []argument) values.Value {
	s, before, after := a[0].text, a[1].text, a[2].text
	switch {
	case before == "":
		return nil
	case strings.Count(s, before)*len(after) > maxValueBytes:
		return tooLong
	}
	return encode(strings.ReplaceAll(s, before, after))
}

// maxReplicated is the longest result of REPLICATE in Cosmos DB.
const maxReplicated = 10_000

func replicate(a []argument) values.Value {
	s, n := a[0].text, a[1].n
	switch {
	case n < 0 || s != "" && n > maxReplicated/len(units(s)):
		return nil
	case s == "":
		return encode("")
	}
	return encode(strings.Repeat(s, n))
}

// toString writes a value as JSON does, but a string as it is.
func toString(args []values.Value) values.Value {
	v := args[0]
	_, _, exact := v.Integer()
	switch kind := v.Kind(); {
	case kind == values.Missing, kind == values.String:
		return v
	case kind == values.Number && !exact:
		v = encode(v.Float())
	}
	return encode(string(compact(v)))
}

// compact returns JSON without white space.
func compact(v values.Value) values.Value {
	var text bytes.Buffer
	_ = json.Compact(&text, v) // it is JSON
	return text.Bytes()
}

// parsed is a function of a string that is JSON of some kinds, undefined for others.
func parsed(kinds ...values.Kind) func([]values.Value) values.Value {
	return typed("s", func(a []argument) values.Value {
		v := values.Value(strings.TrimSpace(a[0].text))
		if !json.Valid(v) || !slices.Contains(kinds, v.Kind()) || v.Kind() == values.Number && math.IsInf(v.Float(), 0) {
			return nil
		}
		return compact(v)
	})
}

func elements(v values.Value) (list []values.Value) {
	v.Elements(func(e values.Value) bool {
		list = append(list, e)
		return true
	})
	return list
}

// arrayOf is an array of elements, without those that are undefined.
func arrayOf(list []values.Value) values.Value {
	out := values.Value{'['}
	for _, v := range list {
		if len(v) > 0 && len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, v...)
	}
	return append(out, ']')
}

func arrayConcat(a []argument) values.Value {
	var list []values.Value
	for _, arg := range a {
		list = append(list, arg.list...)
	}
	return arrayOf(list)
}

// arraySlice is ARRAY_SLICE; a negative position counts from the end.
func arraySlice(a []argument) values.Value {
	list, from := a[0].list, a[1].n
	if from < 0 {
		from = max(from+len(list), 0)
	}
	return arrayOf(part(list, from, append(a, argument{n: many})[2].n))
}

// maxPattern is the longest pattern of LIKE and REGEXMATCH, in bytes. It bounds the time
// to compile one for each item.
const maxPattern = 500

// blanks matches what the modifier x drops of a pattern, and what it keeps with blanks.
var blanks = regexp.MustCompile(`\\.|\[[^\]]*\]|\s+`)

// regexOf compiles the pattern of REGEXMATCH with its modifiers.
func regexOf(pattern, modifiers string) (*regexp.Regexp, error) {
	if strings.Contains(modifiers, "x") {
		pattern = blanks.ReplaceAllStringFunc(pattern, strings.TrimSpace)
	}
	if modifiers = strings.ReplaceAll(modifiers, "x", ""); modifiers != "" {
		pattern = "(?" + modifiers + ")" + pattern
	}
	return regexp.Compile(pattern)
}
