package sql_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/lapsedb/lapse/cosmos/sql"
)

// now is the time of the tests' runs, in ms.
const now = 1_795_883_400_123

// expressions are what Microsoft's reference says of functions and operators, with data of our
// own. Undefined is the empty text.
var expressions = []struct{ expression, want string }{
	// Strings.
	{`CONCAT("par", "cel", "s")`, `"parcels"`}, {`CONCAT("a", 1)`, ``}, {`CONCAT(c.s, c.none)`, ``}, {`c.s || "-" || "x"`, `"crate-x"`}, {`c.s || 1`, ``}, {`c.none || "a"`, ``}, {`"a" || "b" IN ("ab")`, `true`}, {`("a" || "b") = "ab"`, `true`},
	{`INDEX_OF("crate", "at")`, `2`}, {`INDEX_OF("crate", "CR")`, `-1`}, {`INDEX_OF("aXa", "a", 1)`, `2`}, {`INDEX_OF("crate", "c", 2)`, `-1`}, {`INDEX_OF("😀x", "x")`, `2`}, {`INDEX_OF("crate", 1)`, ``}, {`INDEX_OF("a", "a", "b")`, ``}, {`INDEX_OF("", "")`, `0`},
	{`SUBSTRING("crate", 1, 3)`, `"rat"`}, {`SUBSTRING("crate", 3, 99)`, `"te"`}, {`SUBSTRING("crate", 0, -1)`, `""`}, {`SUBSTRING("crate", -1, 2)`, `""`}, {`SUBSTRING("crate", 5, 1)`, `""`}, {`SUBSTRING("crate", 0.5, 1)`, ``}, {`SUBSTRING(c.n, 0, 1)`, ``}, {`SUBSTRING("crate", 1, c.none)`, ``},
	{`LEFT("crate", 2)`, `"cr"`}, {`LEFT("crate", 0)`, `""`}, {`LEFT("crate", 100)`, `"crate"`}, {`LEFT("crate", -1)`, `""`}, {`RIGHT("crate", 2)`, `"te"`}, {`RIGHT("crate", 0)`, `""`}, {`RIGHT("crate", 9)`, `"crate"`}, {`RIGHT("crate", -1)`, `""`}, {`RIGHT(null, 1)`, ``}, {`LEFT("a", "b")`, ``},
	{`REPLACE("ship to ship", "ship", "van")`, `"van to van"`}, {`REPLACE("a", "", "b")`, ``}, {`REPLACE("a", "a", null)`, ``}, {`REPLICATE("ab", 3)`, `"ababab"`}, {`REPLICATE("ab", 0)`, `""`}, {`REPLICATE("ab", -1)`, ``}, {`REPLICATE("ab", 5001)`, ``}, {`REPLICATE("", 1e18)`, `""`}, {`LENGTH(REPLICATE("ab", 5000))`, `10000`},
	{`REVERSE("crate")`, `"etarc"`}, {`REVERSE(1)`, ``}, {`TRIM("  a b ")`, `"a b"`}, {`TRIM("--a-b-", "-")`, `"a-b"`}, {`TRIM("_-x-_", "-_")`, `"x"`}, {`LTRIM("  a ")`, `"a "`}, {`LTRIM("overdue", "ver")`, `"overdue"`}, {`LTRIM("overdue", "over")`, `"due"`}, {`LTRIM("a", "")`, `"a"`}, {`RTRIM(" a  ")`, `" a"`}, {`RTRIM("crate", "ate")`, `"cr"`}, {`TRIM("a", 1)`, ``}, {`TRIM(c.none)`, ``},
	{`STRINGEQUALS("a", "a")`, `true`}, {`StringEquals("a", "A")`, `false`}, {`StringEquals("a", "A", true)`, `true`}, {`StringEquals("a", 1)`, ``},
	{`ToString(12)`, `"12"`}, {`ToString(0.50)`, `"0.5"`}, {`ToString(false)`, `"false"`}, {`ToString([1, {"a": "b"}])`, `"[1,{\"a\":\"b\"}]"`}, {`ToString("a")`, `"a"`}, {`ToString(undefined)`, ``}, {`ToString(c.big)`, `"9007199254740993"`},
	{`StringToNumber(" 60 ")`, `60`}, {`StringToNumber("-1.5e3")`, `-1.5e3`}, {`StringToNumber("six")`, ``}, {`StringToNumber("+1")`, ``}, {`StringToNumber("1e999")`, ``}, {`StringToNumber(null)`, ``}, {`StringToBoolean(" true ")`, `true`}, {`StringToBoolean("True")`, ``}, {`StringToBoolean(true)`, ``}, {`StringToNull(" null")`, `null`}, {`StringToNull("NULL")`, ``},
	{`StringToArray('[ 1, ["x"] ]')`, `[1,["x"]]`}, {`StringToArray("[ 'a' ]")`, ``}, {`StringToArray("{}")`, ``}, {`StringToObject('{"a": {"b": 1}}')`, `{"a":{"b":1}}`}, {`StringToObject("{'a': 1}")`, ``}, {`StringToObject(undefined)`, ``},
	{`RegexMatch("abcd", "ABC")`, `false`}, {`RegexMatch("abcd", "ABC", "i")`, `true`}, {`RegexMatch("abcd", "ab  c", "x")`, `true`}, {`RegexMatch("a b", "a[ ]b", "ix")`, `true`}, {`RegexMatch("03a", "^[0-9]+$")`, `false`}, {`RegexMatch("salt3", "salt{1}")`, `true`}, {`RegexMatch(1, "1")`, ``}, {`RegexMatch("crate", c.s)`, `true`}, {`RegexMatch("a", c.n)`, ``}, {`RegexMatch("a\nb", "^b$", "m")`, `true`},
	// LIKE.
	{`c.s LIKE "cr%"`, `true`}, {`c.s LIKE "%at%"`, `true`}, {`c.s LIKE "Cr%"`, `false`}, {`c.s LIKE "cr_te"`, `true`}, {`c.s LIKE "c_e"`, `false`}, {`c.s LIKE "cr[a-c]te"`, `true`}, {`c.s LIKE "cr[^a-c]te"`, `false`}, {`c.s LIKE "crate"`, `true`}, {`c.s LIKE "rat"`, `false`}, {`c.s NOT LIKE "x%"`, `true`}, {`c.n LIKE "1"`, ``}, {`c.n NOT LIKE "2"`, ``}, {`c.none LIKE "%"`, ``},
	{`"20% off" LIKE "20^% %" ESCAPE "^"`, `true`}, {`"200 off" LIKE "20^% %" ESCAPE "^"`, `false`}, {`"20-30%" LIKE "20-30[%]"`, `true`}, {`"20-300" LIKE "20-30[%]"`, `false`}, {`"_n" LIKE "[_]n"`, `true`}, {`"xn" LIKE "[_]n"`, `false`}, {`"[" LIKE "[[]"`, `true`}, {`"]" LIKE "]"`, `true`}, {`"a.b" LIKE "a.b"`, `true`}, {`"axb" LIKE "a.b"`, `false`}, {"\"a\nb\" LIKE \"a%b\"", `true`}, {`"a\\b" LIKE "a[\\]b"`, `true`}, {`"" LIKE "%"`, `true`}, {`"ab" LIKE @like`, `true`}, {`c.s LIKE c.s`, `true`}, {`c.s LIKE c.n`, ``}, {`"a" LIKE "a" = true`, ``},
	// Numbers.
	{`ABS(-1.5)`, `1.5`}, {`CEILING(-1.5)`, `-1`}, {`FLOOR(-1.5)`, `-2`}, {`ROUND(2.5)`, `3`}, {`ROUND(-2.5)`, `-3`}, {`TRUNC(-2.78)`, `-2`}, {`TRUNC(-0.1)`, `0`}, {`SIGN(-2)`, `-1`}, {`SIGN(0)`, `0`}, {`SQRT(9)`, `3`}, {`SQRT(-1)`, ``}, {`SQUARE(3)`, `9`}, {`POWER(2, 10)`, `1024`}, {`POWER(null, 3)`, ``}, {`EXP(0)`, `1`}, {`LOG(1)`, `0`}, {`LOG(8, 2)`, `3`}, {`LOG(0)`, ``}, {`LOG10(1000)`, `3`}, {`PI()`, `3.141592653589793`},
	{`SIN(0)`, `0`}, {`COS(0)`, `1`}, {`TAN(0)`, `0`}, {`COT(PI() / 4) > 0.99`, `true`}, {`ASIN(0)`, `0`}, {`ACOS(1)`, `0`}, {`ACOS(2)`, ``}, {`ATAN(0)`, `0`}, {`ATN2(0, 1)`, `0`}, {`DEGREES(PI())`, `180`}, {`RADIANS(180)`, `3.141592653589793`}, {`ABS("1")`, ``}, {`ABS(c.none)`, ``},
	// Arrays.
	{`ARRAY_LENGTH(c.l)`, `4`}, {`ARRAY_LENGTH("a")`, ``}, {`ARRAY_LENGTH([])`, `0`}, {`ARRAY_SLICE(c.l, 1)`, `[2,"v",null]`}, {`ARRAY_SLICE(c.l, -1)`, `[null]`}, {`ARRAY_SLICE(c.l, -99, 1)`, `[1]`}, {`ARRAY_SLICE(c.l, 1, 2)`, `[2,"v"]`}, {`ARRAY_SLICE(c.l, 0, 12)`, `[1,2,"v",null]`}, {`ARRAY_SLICE(c.l, 9)`, `[]`}, {`ARRAY_SLICE(c.l, 0, -1)`, `[]`}, {`ARRAY_SLICE(c.l, 0.5)`, ``}, {`ARRAY_SLICE(c.l, "1")`, ``}, {`ARRAY_SLICE("a", 1)`, ``},
	{`ARRAY_CONCAT(c.l, ["x"], [])`, `[1,2,"v",null,"x"]`}, {`ARRAY_CONCAT(c.l, "x")`, ``},
	{`[1, c.none, "a", [c.n]]`, `[1,"a",[1]]`}, {`{"a": c.none, b: {}}`, `{"b":{}}`},
	// Types.
	{`IS_ARRAY(c.l)`, `true`}, {`IS_BOOL(false)`, `true`}, {`IS_BOOL(0)`, `false`}, {`IS_NUMBER(c.n)`, `true`}, {`IS_NUMBER("1")`, `false`}, {`IS_OBJECT({})`, `true`}, {`IS_OBJECT([])`, `false`}, {`IS_STRING(c.s)`, `true`}, {`IS_PRIMITIVE(null)`, `true`}, {`IS_PRIMITIVE([])`, `false`}, {`IS_PRIMITIVE(c.none)`, `false`}, {`IS_ARRAY(undefined)`, `false`}, {`IS_FINITE_NUMBER(1.5)`, `true`}, {`IS_FINITE_NUMBER(8.9 / 0.0)`, `false`},
	{`IS_INTEGER(3454.123)`, `false`}, {`IS_INTEGER(2.0)`, `true`}, {`IS_INTEGER(9223372036854775807)`, `true`}, {`IS_INTEGER(-9223372036854775808)`, `true`}, {`IS_INTEGER(18446744073709551615)`, `false`}, {`IS_INTEGER(9223372036854775808)`, `false`}, {`IS_INTEGER("1")`, `false`},
	// Choices.
	{`IIF(true, 1, 2)`, `1`}, {`IIF(1, 1, 2)`, `2`}, {`IIF(c.none, 1, 2)`, `2`}, {`c.t ? "on" : "off"`, `"on"`}, {`c.n ? 1 : 2`, `2`}, {`c.none ? 1 : 2`, `2`}, {`true ? c.none : 2`, ``}, {`false ? 1 : true ? 2 : 3`, `2`}, {`true ? 1 : true ? 2 : 3`, `1`}, {`true ? false ? 1 : 2 : 3`, `2`}, {`c.n = 1 AND c.t ? 1 + 1 : 0`, `2`}, {`c.n > 0 ?.5 : 1`, `0.5`},
	{`c.none ?? "d"`, `"d"`}, {`c.z ?? "d"`, `null`}, {`c.n ?? "d"`, `1`}, {`c.none ?? c.nor ?? 3`, `3`}, {`c.none ?? undefined`, ``}, {`(c.none ?? false) ? 1 : 2`, `2`}, {`c.none ?? (c.t ? 1 : 2)`, `1`}, {`(c.none ?? 2) + 1`, `3`},
	// Dates.
	{`DateTimeAdd("yyyy", 1, "2020-02-29T00:00:00.0000000Z")`, `"2021-02-28T00:00:00.0000000Z"`}, {`DateTimeAdd("mm", 1, "2020-01-31")`, `"2020-02-29T00:00:00.0000000Z"`}, {`DateTimeAdd("month", -1, "2020-01-15T01:02:03Z")`, `"2019-12-15T01:02:03.0000000Z"`}, {`DateTimeAdd("dd", 30, "2026-11-28T16:30:00.123Z")`, `"2026-12-28T16:30:00.1230000Z"`}, {`DateTimeAdd("hh", -1, "1970-01-01T00:00:00")`, `"1969-12-31T23:00:00.0000000Z"`}, {`DateTimeAdd("ns", 250, "2020-01-01")`, `"2020-01-01T00:00:00.0000002Z"`},
	{`DateTimeAdd("week", 1, "2020-01-01")`, ``}, {`DateTimeAdd("dd", 1.5, "2020-01-01")`, ``}, {`DateTimeAdd("dd", 1, "2020-02-30")`, ``}, {`DateTimeAdd("dd", 1, "2020-01-01T00:00:00+02:00")`, ``}, {`DateTimeAdd("dd", 1, c.none)`, ``}, {`DateTimeAdd("yyyy", 8000, "2020-01-01")`, ``}, {`DateTimeAdd("yyyy", -2020, "2020-01-01")`, ``}, {`DateTimeAdd("dd", 1e30, "2020-01-01")`, ``}, {`DateTimeAdd("m", 1e30, "2020-01-01")`, ``}, {`DateTimeAdd("dd", -1, "0001-01-01")`, ``}, {`DateTimeAdd("ss", 1, "9999-12-31T23:59:59.9999999Z")`, ``},
	{`DateTimeDiff("day", "2020-01-01T23:59:59.1234527Z", "2020-01-03T00:00:00.0000000Z")`, `2`}, {`DateTimeDiff("yyyy", "2019-02-04T16:00:00", "2018-03-05T05:00:00")`, `-1`}, {`DateTimeDiff("mm", "2019-02-04T16:00:00", "2018-03-05T05:00:00")`, `-11`}, {`DateTimeDiff("hh", "2018-03-05T05:00:00", "2019-02-04T16:00:00")`, `8075`}, {`DateTimeDiff("hh", "2020-01-01T01:00:00.1Z", "2020-01-01T01:59:59.9Z")`, `0`}, {`DateTimeDiff("ss", "1969-12-31T23:59:59.5Z", "1970-01-01")`, `1`}, {`DateTimeDiff("ns", "2020-01-01", "2020-01-01T00:00:00.0000001")`, `100`}, {`DateTimeDiff("ns", "1600-01-01", "2000-01-01")`, `12622780800000000000`}, {`DateTimeDiff("ns", "9999-12-31", "0001-01-01")`, `-315537811200000000000`}, {`DateTimeDiff("ns", "1710-01-01T00:00:00.0000001", "2000-01-01")`, `9151487999999999900`}, {`DateTimeDiff("d", "a", "2020-01-01")`, ``},
	{`DateTimePart("yyyy", "2016-05-29T08:30:07.1301617")`, `2016`}, {`DateTimePart("m", "2016-05-29T08:30:07.1301617")`, `5`}, {`DateTimePart("dd", "2016-05-29T08:30:07.1301617")`, `29`}, {`DateTimePart("hh", "2016-05-29T08:30:07.1301617")`, `8`}, {`DateTimePart("mi", "2016-05-29T08:30:07.1301617")`, `30`}, {`DateTimePart("ss", "2016-05-29T08:30:07.1301617")`, `7`}, {`DateTimePart("ms", "2016-05-29T08:30:07.1301617")`, `130`}, {`DateTimePart("mcs", "2016-05-29T08:30:07.1301617")`, `130161`}, {`DateTimePart("ns", "2016-05-29T08:30:07.1301617")`, `130161700`}, {`DateTimePart("d", "1600-02-29")`, `29`}, {`DateTimePart("d", "1900-02-29")`, ``},
	{`DateTimeFromParts(2017, 4, 20)`, `"2017-04-20T00:00:00.0000000Z"`}, {`DateTimeFromParts(2017, 4, 20, 13, 15, 20, 3456789)`, `"2017-04-20T13:15:20.3456789Z"`}, {`DateTimeFromParts(-2000, 1, 1)`, ``}, {`DateTimeFromParts(2017, 4, 31)`, ``}, {`DateTimeFromParts(2017, 4, "1")`, ``},
	{`DateTimeToTimestamp("2015-05-19T12:00:00.0000000")`, `1432036800000`}, {`DateTimeToTicks("2015-05-19T12:00:00.0000001Z")`, `14320368000000001`}, {`TimestampToDateTime(1597360794300)`, `"2020-08-13T23:19:54.3000000Z"`}, {`TimestampToDateTime(-11644473600000)`, `"1601-01-01T00:00:00.0000000Z"`}, {`TicksToDateTime(15973607943002653)`, `"2020-08-13T23:19:54.3002653Z"`}, {`TimestampToDateTime(c._ts * 1000)`, `"2026-11-28T16:30:00.0000000Z"`}, {`TimestampToDateTime(1e300)`, ``}, {`TicksToDateTime("1")`, ``}, {`DateTimeToTicks("2015-5-19")`, ``},
	{`GetCurrentTimestamp()`, `1795883400123`}, {`GetCurrentDateTime()`, `"2026-11-28T16:30:00.1230000Z"`}, {`GetCurrentTicks()`, `17958834001230000`}, {`GetCurrentTimestampStatic() / 1000 > c._ts`, `true`},
}

func TestReference(t *testing.T) {
	const item = `{"id":"a","n":1,"big":9007199254740993,"s":"crate","t":true,"z":null,"l":[1,2,"v",null],"_ts":1795883400}`
	for _, test := range expressions {
		q, err := sql.Parse("SELECT VALUE "+test.expression+" FROM c", []sql.Parameter{param("@like", `"a_"`)})
		if err != nil {
			t.Errorf("%s: %v", test.expression, err)
			continue
		}
		if q.Now != nil {
			*q.Now = now
		}
		if got := rows(t, q, items(item)); got != test.want {
			t.Errorf("%s: %s, want %s", test.expression, got, test.want)
		}
	}
}

// TestValuesAreBounded: no expression makes a value much longer than an item.
func TestValuesAreBounded(t *testing.T) {
	item := `{"s":"` + strings.Repeat("s", 1<<20) + `"}`
	for _, expression := range []string{`REPLACE(c.s, "s", c.s)`, `CONCAT(c.s` + strings.Repeat(", c.s", 20) + `)`,
		`[c.s` + strings.Repeat(", c.s", 20) + `]`, `{x: c.s, l: [[c.s, c.s, c.s, c.s, c.s, c.s], [c.s, c.s, c.s, c.s, c.s, c.s]], m: [[c.s, c.s, c.s, c.s, c.s, c.s]]}`} {
		for row, err := range mustParse(t, "SELECT VALUE LENGTH(ToString("+expression+")) FROM c").Run(items(item), room) {
			if !errors.Is(err, sql.ErrTooLarge) || row != nil {
				t.Errorf("%.40s: %s, %v", expression, row, err)
			}
		}
	}
}
