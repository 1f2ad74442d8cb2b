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

// function is a function of its arguments' values.
type function struct {
	least, most int // arguments
	of          func(args []values.Value) values.Value
}

// many is the most arguments of a function that has any number.
const many = math.MaxInt

// tooLong is the result of a function that would be longer than maxValueBytes.
var tooLong = values.Value("!")

// functions has the functions of values, by their names in upper case. Those without of
// are in call.
var functions = map[string]function{
	"STARTSWITH": {2, 3, search(bytes.HasPrefix)}, "ENDSWITH": {2, 3, search(bytes.HasSuffix)}, "CONTAINS": {2, 3, search(bytes.Contains)}, "STRINGEQUALS": {2, 3, search(bytes.Equal)},
	"LOWER": {1, 1, ofText(func(s string) values.Value { return encode(strings.ToLower(s)) })}, "UPPER": {1, 1, ofText(func(s string) values.Value { return encode(strings.ToUpper(s)) })},
	"LENGTH": {1, 1, ofText(func(s string) values.Value { return encode(len(units(s))) })}, "REVERSE": {1, 1, ofText(reverse)},
	"TRIM": {1, 2, trim(strings.TrimSpace, strings.Trim)}, "LTRIM": {1, 2, trim(trimLeft, strings.TrimLeft)}, "RTRIM": {1, 2, trim(trimRight, strings.TrimRight)},
	"CONCAT": {2, many, concat}, "INDEX_OF": {2, 3, indexOf}, "SUBSTRING": {3, 3, substring}, "LEFT": {2, 2, left}, "RIGHT": {2, 2, right},
	"REPLACE": {3, 3, replace}, "REPLICATE": {2, 2, replicate}, "STRINGJOIN": {2, 2, stringJoin}, "STRINGSPLIT": {2, 2, stringSplit}, "TOSTRING": {1, 1, toString},
	"STRINGTOARRAY": {1, 1, parsed(values.Array)}, "STRINGTOOBJECT": {1, 1, parsed(values.Object)}, "STRINGTONUMBER": {1, 1, parsed(values.Number)},
	"STRINGTOBOOLEAN": {1, 1, parsed(values.True, values.False)}, "STRINGTONULL": {1, 1, parsed(values.Null)},

	"REGEXMATCH": {2, 3, nil}, "IIF": {3, 3, nil},

	"ABS": numeric(math.Abs), "CEILING": numeric(math.Ceil), "FLOOR": numeric(math.Floor), "ROUND": numeric(math.Round), "TRUNC": numeric(math.Trunc), "SQRT": numeric(math.Sqrt), "EXP": numeric(math.Exp), "LOG10": numeric(math.Log10),
	"SIGN": numeric(sign), "SQUARE": numeric(func(f float64) float64 { return f * f }), "POWER": {2, 2, arithmetic(math.Pow)}, "PI": {0, 0, func([]values.Value) values.Value { return encode(math.Pi) }},
	"LOG": {1, 2, func(args []values.Value) values.Value {
		return arithmetic(func(f, base float64) float64 { return math.Log(f) / math.Log(base) })(append(args, encode(math.E))[:2])
	}},
	"SIN": numeric(math.Sin), "COS": numeric(math.Cos), "TAN": numeric(math.Tan), "COT": numeric(func(f float64) float64 { return 1 / math.Tan(f) }), "ASIN": numeric(math.Asin), "ACOS": numeric(math.Acos), "ATAN": numeric(math.Atan),
	"ATN2": {2, 2, arithmetic(math.Atan2)}, "DEGREES": numeric(func(f float64) float64 { return 180 / math.Pi * f }), "RADIANS": numeric(func(f float64) float64 { return math.Pi * f / 180 }),
	"NUMBERBIN": {1, 2, func(args []values.Value) values.Value {
		return arithmetic(func(f, size float64) float64 { return math.Floor(f/size) * size })(append(args, encode(1))[:2])
	}},

	"ARRAY_CONTAINS": {2, 3, arrayContains}, "ARRAY_CONTAINS_ANY": {2, many, containsSome(true)}, "ARRAY_CONTAINS_ALL": {2, many, containsSome(false)}, "ARRAY_CONCAT": {2, many, arrayConcat},
	"ARRAY_LENGTH": {1, 1, func(args []values.Value) values.Value {
		if args[0].Kind() != values.Array {
			return nil
		}
		return encode(args[0].Len())
	}},
	"ARRAY_SLICE": {2, 3, arraySlice}, "SETINTERSECT": {2, 2, setIntersect}, "SETUNION": {2, 2, setUnion}, "CHOOSE": {2, many, choose}, "OBJECTTOARRAY": {1, 3, objectToArray},

	"IS_DEFINED": {1, 1, func(args []values.Value) values.Value { return boolean(len(args[0]) > 0) }}, "IS_NULL": kinds(values.Null), "IS_ARRAY": kinds(values.Array), "IS_BOOL": kinds(values.True, values.False),
	"IS_NUMBER": kinds(values.Number), "IS_FINITE_NUMBER": kinds(values.Number), "IS_OBJECT": kinds(values.Object), "IS_STRING": kinds(values.String), "IS_PRIMITIVE": kinds(values.Null, values.True, values.False, values.Number, values.String),
	"IS_INTEGER": {1, 1, func(args []values.Value) values.Value {
		f := args[0].Float()
		magnitude, negative, exact := args[0].Integer()
		return boolean(args[0].Kind() == values.Number && f == math.Trunc(f) && math.Abs(f) <= 1<<63 && !(exact && !negative && magnitude > math.MaxInt64))
	}},

	"GETCURRENTDATETIME": {}, "GETCURRENTTICKS": {}, "GETCURRENTTIMESTAMP": {}, "GETCURRENTDATETIMESTATIC": {}, "GETCURRENTTICKSSTATIC": {}, "GETCURRENTTIMESTAMPSTATIC": {},
	"DATETIMEADD": {3, 3, onDates("pid", dateAdd)}, "DATETIMEDIFF": {3, 3, onDates("pdd", dateDiff)}, "DATETIMEPART": {2, 2, onDates("pd", datePart)}, "DATETIMEFROMPARTS": {3, 7, onDates("iiiiiii", dateFromParts)}, "DATETIMEBIN": {2, 4, onDates("dpid", dateBin)},
	"DATETIMETOTICKS": {1, 1, onDates("d", func(args []int) values.Value { return encode(args[0]) })}, "DATETIMETOTIMESTAMP": {1, 1, onDates("d", func(args []int) values.Value { return encode(floorDivide(args[0], second/1000)) })},
	"TICKSTODATETIME": {1, 1, onDates("i", func(args []int) values.Value { return dateOf(args[0]) })}, "TIMESTAMPTODATETIME": {1, 1, onDates("i", func(args []int) values.Value { return dateOf(min(max(args[0], -1<<48), 1<<48) * (second / 1000)) })},
}

// numeric is a function of a number in float64.
func numeric(f func(float64) float64) function {
	return function{1, 1, func(args []values.Value) values.Value {
		if args[0].Kind() != values.Number {
			return nil
		}
		return encode(f(args[0].Float()) + 0) // -0 is 0
	}}
}

func sign(f float64) float64 {
	if f == 0 {
		return 0
	}
	return math.Copysign(1, f)
}

// kinds reports whether a value is of some kinds.
func kinds(any ...values.Kind) function {
	return function{1, 1, func(args []values.Value) values.Value { return boolean(slices.Contains(any, args[0].Kind())) }}
}

// all reports whether all values are of a kind.
func all(kind values.Kind, list []values.Value) bool {
	return !slices.ContainsFunc(list, func(v values.Value) bool { return v.Kind() != kind })
}

// whole returns an integer, at most ±2^62; ok is false for other values.
func whole(v values.Value) (n int, ok bool) {
	const most = 1 << 62
	if magnitude, negative, exact := v.Integer(); exact && magnitude <= most {
		if negative {
			return -int(magnitude), v.Kind() == values.Number
		}
		return int(magnitude), v.Kind() == values.Number
	}
	f := v.Float()
	return int(max(min(f, most), -most)), v.Kind() == values.Number && f == math.Trunc(f)
}

// units returns a string in UTF-16, whose units are the characters of .NET.
func units(s string) []uint16 { return utf16.Encode([]rune(s)) }

func reverse(s string) values.Value {
	runes := []rune(s)
	slices.Reverse(runes)
	return encode(string(runes))
}

func trimLeft(s string) string  { return strings.TrimLeft(s, " \t\r\n\v\f") }
func trimRight(s string) string { return strings.TrimRight(s, " \t\r\n\v\f") }

// trim removes white space, or the characters of a second argument.
func trim(space func(string) string, some func(s, characters string) string) func([]values.Value) values.Value {
	return func(args []values.Value) values.Value {
		switch {
		case !all(values.String, args):
			return nil
		case len(args) == 1:
			return encode(space(string(args[0].Text())))
		}
		return encode(some(string(args[0].Text()), string(args[1].Text())))
	}
}

func concat(args []values.Value) values.Value {
	if !all(values.String, args) {
		return nil
	}
	var s strings.Builder
	for _, arg := range args {
		s.Write(arg.Text())
	}
	return encode(s.String())
}

// indexOf returns the position of a string in another, from a third argument on, or -1.
func indexOf(args []values.Value) values.Value {
	from := 0
	ok := all(values.String, args[:2])
	if len(args) == 3 && ok {
		from, ok = whole(args[2])
	}
	if !ok {
		return nil
	}
	s := units(string(args[0].Text()))
	from = min(max(from, 0), len(s))
	before, _, found := strings.Cut(string(utf16.Decode(s[from:])), string(args[1].Text()))
	if !found {
		return encode(-1)
	}
	return encode(from + len(units(before)))
}

// part returns up to n of the elements from a position on, none from a negative one.
func part[T any](list []T, from, n int) []T {
	if from < 0 || from >= len(list) || n <= 0 {
		return nil
	}
	return list[from : from+min(n, len(list)-from)]
}

func substring(args []values.Value) values.Value {
	from, ok := whole(args[1])
	n, okToo := whole(args[2])
	if !ok || !okToo || args[0].Kind() != values.String {
		return nil
	}
	return encode(string(utf16.Decode(part(units(string(args[0].Text())), from, n))))
}

func left(args []values.Value) values.Value {
	return substring([]values.Value{args[0], encode(0), args[1]})
}

func right(args []values.Value) values.Value {
	n, ok := whole(args[1])
	if !ok || args[0].Kind() != values.String {
		return nil
	}
	length := len(units(string(args[0].Text())))
	return substring([]values.Value{args[0], encode(max(length-n, 0)), encode(length)})
}

func replace(args []values.Value) values.Value {
	if !all(values.String, args) || len(args[1].Text()) == 0 {
		return nil
	}
	s, before, after := args[0].Text(), args[1].Text(), args[2].Text()
	if bytes.Count(s, before)*len(after) > maxValueBytes {
		return tooLong
	}
	return encode(string(bytes.ReplaceAll(s, before, after)))
}

// maxReplicated is the longest result of REPLICATE in Cosmos DB.
const maxReplicated = 10_000

func replicate(args []values.Value) values.Value {
	n, ok := whole(args[1])
	s := string(args[0].Text())
	if !ok || n < 0 || args[0].Kind() != values.String || s != "" && n > maxReplicated/len(units(s)) {
		return nil
	}
	if s == "" {
		n = 0
	}
	return encode(strings.Repeat(s, n))
}

func stringJoin(args []values.Value) values.Value {
	list := elements(args[0])
	if args[0].Kind() != values.Array || args[1].Kind() != values.String || !all(values.String, list) {
		return nil
	}
	separator := args[1].Text()
	if len(list)*len(separator) > maxValueBytes {
		return tooLong
	}
	var texts [][]byte
	for _, v := range list {
		texts = append(texts, v.Text())
	}
	return encode(string(bytes.Join(texts, separator)))
}

func stringSplit(args []values.Value) values.Value {
	if !all(values.String, args) || len(args[1].Text()) == 0 {
		return nil
	}
	return encode(strings.Split(string(args[0].Text()), string(args[1].Text())))
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
	var text bytes.Buffer
	_ = json.Compact(&text, v) // it is JSON
	return encode(text.String())
}

// parsed is a function of a string that is JSON of some kinds, undefined for others.
func parsed(kinds ...values.Kind) func([]values.Value) values.Value {
	return func(args []values.Value) values.Value {
		v := values.Value(bytes.TrimSpace(args[0].Text()))
		if args[0].Kind() != values.String || !json.Valid(v) || !slices.Contains(kinds, v.Kind()) || v.Kind() == values.Number && math.IsInf(v.Float(), 0) {
			return nil
		}
		var text bytes.Buffer
		_ = json.Compact(&text, v)
		return text.Bytes()
	}
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

func arrayConcat(args []values.Value) values.Value {
	if !all(values.Array, args) {
		return nil
	}
	var list []values.Value
	for _, arg := range args {
		list = append(list, elements(arg)...)
	}
	return arrayOf(list)
}

func arraySlice(args []values.Value) values.Value {
	from, ok := whole(args[1])
	n, okToo := math.MaxInt, true
	if len(args) == 3 {
		n, okToo = whole(args[2])
	}
	if !ok || !okToo || args[0].Kind() != values.Array {
		return nil
	}
	list := elements(args[0])
	if from < 0 {
		from = max(from+len(list), 0)
	}
	return arrayOf(part(list, from, n))
}

// containsSome looks in an array for values: whether it has any, or all.
func containsSome(any bool) func([]values.Value) values.Value {
	return func(args []values.Value) values.Value {
		if args[0].Kind() != values.Array || slices.ContainsFunc(args, func(v values.Value) bool { return len(v) == 0 }) {
			return nil
		}
		has := keysOf(elements(args[0]))
		return boolean(slices.ContainsFunc(args[1:], func(v values.Value) bool { return has[string(values.AppendKey(nil, v))] == any }) == any)
	}
}

func keysOf(list []values.Value) map[string]bool {
	keys := make(map[string]bool)
	for _, v := range list {
		keys[string(values.AppendKey(nil, v))] = true
	}
	return keys
}

// distinct returns an array of the elements that keep holds for, the first of equal ones.
func distinct(list []values.Value, keep func(key string) bool) values.Value {
	seen := make(map[string]bool)
	return arrayOf(slices.DeleteFunc(list, func(v values.Value) bool {
		key := string(values.AppendKey(nil, v))
		drop := seen[key] || !keep(key)
		seen[key] = true
		return drop
	}))
}

func setIntersect(args []values.Value) values.Value {
	if !all(values.Array, args) {
		return nil
	}
	first := keysOf(elements(args[0]))
	return distinct(elements(args[1]), func(key string) bool { return first[key] })
}

func setUnion(args []values.Value) values.Value {
	if !all(values.Array, args) {
		return nil
	}
	return distinct(append(elements(args[0]), elements(args[1])...), func(string) bool { return true })
}

// choose returns the argument at a position from 1 on.
func choose(args []values.Value) values.Value {
	n, ok := whole(args[0])
	if !ok || n < 1 || n >= len(args) {
		return nil
	}
	return args[n]
}

// objectToArray returns an object's members as objects, with names for name and value.
func objectToArray(args []values.Value) values.Value {
	names := append(args[1:], encode("k"), encode("v"))
	if len(args) == 2 {
		names[1] = encode("v")
	}
	if args[0].Kind() != values.Object || !all(values.String, args[1:]) {
		return nil
	}
	var list []values.Value
	args[0].Members(func(name []byte, v values.Value) bool {
		list = append(list, slices.Concat([]byte{'{'}, names[0], []byte{':'}, encode(string(name)), []byte{','}, names[1], []byte{':'}, v, []byte{'}'}))
		return true
	})
	return arrayOf(list)
}

// maxPattern is the longest pattern of LIKE and REGEXMATCH, in bytes.
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
