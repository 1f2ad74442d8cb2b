package query_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"pgregory.net/rapid"
)

// naiveCase is a collection and a query on it.
type naiveCase struct {
	Policy   naivePolicy
	Now      int64 // seconds
	Docs     []naiveDoc
	IDPrefix string    // empty: none
	Cond     naiveNode // nil: no where
	Params   []byte    // a JSON object
	OrderBy  []naiveOrder
	Select   []string // empty: none
	Limit    int      // 0: none
	Room     int      // bytes of a page
}

func (c naiveCase) query() naiveResult {
	return naiveQuery(naiveWithPrefix(c.Docs, c.IDPrefix), c.Policy.DefaultTTL, c.Now, c.Cond, c.Params, c.OrderBy, c.Select, c.Limit)
}

// where returns the condition, which may name params.zzz: params never have it.
func (c naiveCase) where() string {
	if c.Cond == nil {
		return ""
	}
	where := c.Cond.CEL()
	if strings.Contains(where, "params.zzz") {
		where = "(" + where + ") || has(params.zzz)"
	}
	return where
}

// String returns the case as a failing test shows it.
func (c naiveCase) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%+v, now %d\nprefix  %q\nwhere   %s\nparams  %s\norderBy %+v\nselect  %q\nlimit   %d, room %d\n", c.Policy, c.Now, c.IDPrefix, c.where(), c.Params, c.OrderBy, c.Select, c.Limit, c.Room)
	for _, d := range c.Docs {
		fmt.Fprintf(&b, "%s (ttl %d)\n", d.reply(), d.TTL)
	}
	return b.String()
}

// naivePolicy has the properties of a collection that a query depends on.
type naivePolicy struct {
	DefaultTTL int64 // seconds, naiveNever, or 0 for off
	Mode       string
	Paths      []string // includedPaths
}

const naiveNow = 1_700_000_000

// drawNaiveCase draws a case with at most maxDocs documents.
func drawNaiveCase(t *rapid.T, maxDocs int) naiveCase {
	c := naiveCase{Policy: drawNaivePolicy(t), Now: naiveNow, Docs: drawNaiveDocs(t, maxDocs)}
	c.Params = drawNaiveParams(t, c.Docs)
	if !naiveOneIn(t, 16) {
		c.Cond = drawNaiveCond(t, c.Docs, c.Params)
	}
	c.drawPages(t)
	return c
}

// drawPages draws which documents are asked for beside the condition, and how.
func (c *naiveCase) drawPages(t *rapid.T) {
	if naiveOneIn(t, 4) {
		c.IDPrefix = rapid.SampledFrom(naivePrefixes).Draw(t, "idPrefix")
	}
	c.OrderBy = drawNaiveOrderBy(t)
	c.Select = drawNaiveSelect(t)
	c.Limit = rapid.SampledFrom([]int{0, 0, 0, 1, 2, 3, 5, 100}).Draw(t, "limit")
	c.Room = room
	if naiveOneIn(t, 2) {
		c.Room = rapid.IntRange(200, 4000).Draw(t, "room")
	}
}

// naiveOneIn draws true once in n times.
func naiveOneIn(t *rapid.T, n int) bool {
	return rapid.SampledFrom(append(make([]bool, n-1), true)).Draw(t, fmt.Sprint("one in ", n))
}

// naiveIndexed are the paths to index, most used in conditions first.
var naiveIndexed = []string{
	"/a", "/b", "/c", "/n", "/nested/x", "/nested", "/tags", "/tags/0", "/items/0/qty", "/items/0/sku",
	"/a-b", "/a.b", "/a~1b~0c", "/flag", "/nested/0", "/nested/x/0", "/_ts", "/_etag", "/id", "/ttl", "/zzz",
}

func drawNaivePolicy(t *rapid.T) naivePolicy {
	p := naivePolicy{
		DefaultTTL: rapid.SampledFrom([]int64{0, 0, naiveNever, 5, 10, 1000, 1<<31 - 1}).Draw(t, "defaultTtl"),
		Mode:       "consistent",
		Paths:      rapid.SliceOfNDistinct(rapid.SampledFrom(naiveIndexed), 0, 5, rapid.ID).Draw(t, "includedPaths"),
	}
	if naiveOneIn(t, 6) {
		p.Mode = "lazy"
		if p.DefaultTTL == 0 && naiveOneIn(t, 2) {
			p.Mode = "none"
		}
	}
	return p
}

// Scalars as JSON. Those in naiveCommon are drawn far more often.
var (
	naiveCommon = []string{`1`, `2`, `0`, `"x"`, `true`, `1.0`, `null`, `"y"`, `-1`, `false`, `"xy"`, `""`}

	naiveLong = strings.Repeat("long", 150)

	naiveStrings = []string{
		`"x"`, `"y"`, `"xy"`, `"X"`, `""`, `"yx"`, `"1"`, `"10"`, `"9"`, `"true"`, `"null"`, `"\u0078"`,
		`"\u0000"`, `"x\u0000"`, `"x\u0000y"`, `"x\u0001"`, `"\"'\\\/\b\f\n\r\t"`, `"\u007f{}[],:"`,
		`"\u00e9"`, `"é"`, `"e\u0301"`, `"😀"`, `"\ud83d\ude00"`, `"\uffff"`, `"x😀y"`, `"<&>"`, `" x"`,
		`"` + naiveLong + `"`, `"` + naiveLong + `a"`, `"` + naiveLong + `b"`, `"` + naiveLong + `a\u0000"`, `"` + naiveLong + naiveLong + `"`,
	}

	// naiveNumbers are the numbers for which arithmetic is defined.
	naiveNumbers = []string{
		`1`, `2`, `0`, `1.0`, `3`, `-1`, `1.5`, `0.5`, `-0.0`, `-0`, `2.0`, `10e-1`, `1E+2`, `100`, `0.1`, `5`,
		`9007199254740991`, `9007199254740992`, `9007199254740993`, `9007199254740992.0`, `9007199254740994`, `-9007199254740993`, `-9007199254740992.0`,
		`9223372036854775807`, `9223372036854775806`, `9223372036854775807.0`, `-9223372036854775807`,
		`1e300`, `-1e300`, `1e308`, `5e-324`, `1e-400`, `18446744073709551616`, `-9223372036854775809`, `123456789012345678901234567890`,
	}

	// naiveWild are numbers that are only compared: the rules leave arithmetic on them
	// open.
	naiveWild = []string{
		`9223372036854775808`, `18446744073709551615`, `18446744073709551614`, `18446744073709551615.0`, `9223372036854775808.0`,
		`-9223372036854775808`, `-9.223372036854775808e18`, `1e999`, `-1e999`, `9223372036854775809`,
	}
)

// drawNaiveScalar draws a scalar as JSON; a tame one has no number of naiveWild.
func drawNaiveScalar(t *rapid.T, tame bool) string {
	kind := rapid.SampledFrom([]string{"common", "common", "common", "common", "common", "string", "number", "wild"}).Draw(t, "kind")
	switch {
	case kind == "common":
		return rapid.SampledFrom(naiveCommon).Draw(t, "common")
	case kind == "string":
		return rapid.SampledFrom(naiveStrings).Draw(t, "string")
	case kind == "number" || tame:
		return rapid.SampledFrom(naiveNumbers).Draw(t, "number")
	}
	return rapid.SampledFrom(naiveWild).Draw(t, "wild")
}

// drawNaiveValue draws any value as JSON, at most depth levels of containers.
func drawNaiveValue(t *rapid.T, depth int, tame bool) string {
	kinds := []string{"scalar", "scalar", "scalar", "scalar", "list", "object"}
	if depth == 0 {
		kinds = kinds[:1]
	}
	switch rapid.SampledFrom(kinds).Draw(t, "value") {
	case "list":
		return drawNaiveList(t, depth-1, tame)
	case "object":
		names := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"x", "y", "sku", "xy", "0", "", "a-b", "qty"}), 0, 3, rapid.ID).Draw(t, "names")
		var members []string
		for _, name := range names {
			members = append(members, naiveMemberJSON(name, drawNaiveValue(t, depth-1, tame)))
		}
		return "{" + strings.Join(members, ",") + "}"
	}
	return drawNaiveScalar(t, tame)
}

func drawNaiveList(t *rapid.T, depth int, tame bool) string {
	var elements []string
	for range rapid.IntRange(0, 3).Draw(t, "elements") {
		elements = append(elements, drawNaiveValue(t, depth, tame))
	}
	return "[" + strings.Join(elements, ",") + "]"
}

func naiveMemberJSON(name, value string) string {
	return string(naiveEncode(name)) + ":" + value
}

var naiveIDs = []string{
	"a", "b", "c", "ab", "A", "aa", "1", "2", "10", "9", "a-b", "a b", "a.b", "a/b", "a%2Fb", `a"b`, `a\b`, "a*", ">", "é", "e\u0301",
	"😀", "\uffff", "\u20ac", "a\u00a0", "<b>", "SO05", "SO06", "zz", "~", strings.Repeat("i", 255), strings.Repeat("i", 254), strings.Repeat("i", 254) + "j",
}

var naivePrefixes = []string{
	"a", "ab", "abc", "A", "1", "a-", "a%", "e", "é", "e\u0301", "😀", "\uffff", "\u0000", "S", "SO0", "SO05", "zzz",
	"i", strings.Repeat("i", 254), strings.Repeat("i", 255), strings.Repeat("i", 254) + "j",
}

// drawNaiveDocs draws at most maxDocs documents, and at most 30; some are expired under
// most policies.
func drawNaiveDocs(t *rapid.T, maxDocs int) []naiveDoc {
	maxDocs = min(maxDocs, 30)
	minDocs := rapid.SampledFrom([]int{0, 3, maxDocs / 2, maxDocs * 3 / 4}).Draw(t, "minDocs")
	ids := rapid.SliceOfNDistinct(rapid.SampledFrom(naiveIDs), min(minDocs, maxDocs), maxDocs, rapid.ID).Draw(t, "ids")
	var docs []naiveDoc
	version := rapid.Uint64Range(1, 12).Draw(t, "version")
	for _, id := range ids {
		docs = append(docs, drawNaiveDoc(t, id, version))
		version += rapid.Uint64Range(1, 3).Draw(t, "version")
	}
	return docs
}

func drawNaiveDoc(t *rapid.T, id string, version uint64) naiveDoc {
	d := naiveDoc{ID: id, Version: version, TS: naiveNow - rapid.Int64Range(0, 15).Draw(t, "age")}
	var members []string
	// add appends a member most of the time, rarely after another of the same name.
	add := func(name string, value func() string) {
		if naiveOneIn(t, 5) {
			return
		}
		if naiveOneIn(t, 24) {
			members = append(members, naiveMemberJSON(name, drawNaiveValue(t, 1, true)))
		}
		members = append(members, naiveMemberJSON(name, value()))
	}
	anything := func() string { return drawNaiveValue(t, 3, false) }
	tame := func() string { return drawNaiveValue(t, 2, true) }
	for _, name := range []string{"a", "b", "c"} {
		add(name, anything)
	}
	add("n", func() string {
		if naiveOneIn(t, 6) {
			return tame()
		}
		return rapid.SampledFrom(naiveNumbers).Draw(t, "n")
	})
	add("flag", func() string {
		return rapid.SampledFrom([]string{`true`, `false`, `null`, `1`, `"true"`}).Draw(t, "flag")
	})
	add("tags", func() string {
		if naiveOneIn(t, 6) {
			return anything()
		}
		return drawNaiveList(t, 1, false)
	})
	add("nested", func() string {
		if naiveOneIn(t, 6) {
			return tame()
		}
		return `{"x":` + tame() + `,"y":` + tame() + `}`
	})
	add("items", func() string {
		if naiveOneIn(t, 6) {
			return tame()
		}
		var items []string
		for range rapid.IntRange(0, 3).Draw(t, "items") {
			switch rapid.SampledFrom([]string{"both", "both", "both", "sku", "qty", "neither"}).Draw(t, "item") {
			case "both":
				items = append(items, `{"sku":`+rapid.SampledFrom(naiveStrings[:5]).Draw(t, "sku")+`,"qty":`+rapid.SampledFrom(naiveNumbers).Draw(t, "qty")+`}`)
			case "sku":
				items = append(items, `{"sku":`+drawNaiveScalar(t, true)+`}`)
			case "qty":
				items = append(items, `{"qty":`+drawNaiveScalar(t, true)+`}`)
			case "neither":
				items = append(items, tame())
			}
		}
		return "[" + strings.Join(items, ",") + "]"
	})
	if !naiveOneIn(t, 2) {
		for _, name := range []string{"a-b", "a.b", "", "a/b~c"} {
			add(name, func() string { return drawNaiveValue(t, 1, false) })
		}
	}
	// A client may write the id anywhere, and with escapes.
	at := rapid.IntRange(0, len(members)).Draw(t, "at")
	if naiveOneIn(t, 3) {
		members = slices.Insert(members, at, `"\u0069d":`+string(naiveEncode(id)))
	} else {
		members = slices.Insert(members, 0, `"id":`+string(naiveEncode(id)))
	}
	ttl := rapid.SampledFrom([]struct {
		json string
		ttl  int64
	}{
		{"", 0}, {"", 0}, {"", 0}, {"5", 5}, {"10", 10}, {"-1", naiveNever}, {"1000", 1000}, {"1", 1}, {"null", 0}, {"5.0", 5}, {"1e1", 10},
		{"2147483647", 1<<31 - 1}, {`"5"`, 0}, {"0", 0}, {"[5]", 0}, {"1.5", 0}, {"-2", 0}, {"2147483648", 0},
	}).Draw(t, "ttl")
	if ttl.json != "" {
		members = append(members, `"ttl":`+ttl.json)
	}
	d.TTL = ttl.ttl
	d.Body = []byte("{" + strings.Join(members, ",") + "}")
	return d
}

// drawNaiveParams draws p, q (any value, often of a document), n (a number for
// arithmetic), s (a string), i (a small integer), k (a name), re, list, obj.
func drawNaiveParams(t *rapid.T, docs []naiveDoc) []byte {
	scope := newNaiveScope(docs)
	value := func() string {
		if at, ok := scope.sample(t, rapid.SampledFrom(naivePaths).Draw(t, "of")); ok {
			return string(naiveJSON(at))
		}
		return drawNaiveValue(t, 2, false)
	}
	list := []string{drawNaiveScalar(t, false)}
	for range rapid.IntRange(0, 3).Draw(t, "list") {
		list = append(list, value())
	}
	return []byte("{" + strings.Join([]string{
		`"p":` + value(),
		`"q":` + value(),
		`"n":` + rapid.SampledFrom(naiveNumbers).Draw(t, "n"),
		`"s":` + rapid.SampledFrom(naiveStrings).Draw(t, "s"),
		`"i":` + strconv.Itoa(rapid.IntRange(-1, 2).Draw(t, "i")),
		`"k":` + rapid.SampledFrom([]string{`"a"`, `"b"`, `"x"`, `"a-b"`, `""`, `"id"`, `"zzz"`}).Draw(t, "k"),
		`"re":` + rapid.SampledFrom([]string{`"^x"`, `"x"`, `"y$"`, `""`, `"^[a-z]+$"`, `"("`, `"^x.*y$"`, `"^.$"`}).Draw(t, "re"),
		`"list":[` + strings.Join(list, ",") + `]`,
		`"obj":{"x":` + value() + `,"y":` + value() + `}`,
	}, ",") + "}")
}

// naiveJSON writes a decoded value.
func naiveJSON(v any) []byte {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		panic(err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// naivePointers are paths for orderBy and select, with numeric tokens also for objects
// and names also for arrays.
var naivePointers = []string{
	"/a", "/b", "/c", "/n", "/nested", "/nested/x", "/nested/y", "/tags", "/tags/0", "/tags/1", "/items", "/items/0", "/items/1", "/items/0/qty", "/items/1/qty",
	"/items/1/sku", "/items/0/sku", "/id", "/_ts", "/_etag", "/a-b", "/a.b", "/a~1b~0c", "/flag", "/ttl", "/zzz", "/zzz/0", "/nested/0", "/nested/x/0", "/a/0", "/a/x",
	"/a/0/x", "/tags/2", "/tags/x", "/items/0/zzz", "/items/01", "/items/-", "/b/1",
}

func drawNaiveOrderBy(t *rapid.T) []naiveOrder {
	var orderBy []naiveOrder
	for _, path := range rapid.SliceOfNDistinct(rapid.SampledFrom(naivePointers), 0, 3, rapid.ID).Draw(t, "orderBy") {
		orderBy = append(orderBy, naiveOrder{path, rapid.Bool().Draw(t, "desc")})
	}
	return orderBy
}

func drawNaiveSelect(t *rapid.T) []string {
	if rapid.Bool().Draw(t, "no select") {
		return nil
	}
	return rapid.SliceOfNDistinct(rapid.SampledFrom(naivePointers), 1, 6, rapid.ID).Draw(t, "select")
}
