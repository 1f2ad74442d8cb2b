package query_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/lapsedb/lapse/internal/model"
)

// The naive reference is a second implementation of section 6 of the contract, as plain as
// maps and loops can be. It shares no code with the engine, has no plans or indexes, and
// reads every document for every query. Which documents are live, package model says.

// naiveDoc is a stored document: Body is compact JSON with the id and without system
// properties.
type naiveDoc struct {
	ID      string
	Body    []byte
	TS      int64  // seconds
	Version uint64 // _etag is its decimal string
	// TTL is the body's member ttl: seconds, naiveNever, or 0 if it is absent, null or
	// not a legal ttl.
	TTL int64
}

// naiveNever is the ttl -1 of a document and the defaultTtl -1 of a collection.
const naiveNever = -1

// naiveOrder is one entry of orderBy.
type naiveOrder struct {
	Path string `json:"path"` // a JSON pointer
	Desc bool   `json:"desc,omitempty"`
}

// naiveResult is a page, and the number of documents without a limit.
type naiveResult struct {
	IDs       []string
	Documents [][]byte // as in the reply, in the order of IDs
	Total     int
}

// naiveQuery answers a query at second now. defaultTTL is seconds, naiveNever, or 0 if
// TTL is off. A nil cond matches every document, an empty sel selects whole documents,
// and a limit of 0 or less is none.
func naiveQuery(docs []naiveDoc, defaultTTL, now int64, cond naiveNode, params []byte, orderBy []naiveOrder, sel []string, limit int) naiveResult {
	var found []naiveDoc
	for _, d := range docs {
		if d.live(defaultTTL, now) && (cond == nil || naiveMatches(cond, d, params)) {
			found = append(found, d)
		}
	}
	slices.SortFunc(found, func(a, b naiveDoc) int { return naiveCompareDocs(a, b, orderBy) })
	result := naiveResult{Total: len(found)}
	if limit > 0 && limit < len(found) {
		found = found[:limit]
	}
	for _, d := range found {
		result.IDs = append(result.IDs, d.ID)
		result.Documents = append(result.Documents, d.render(sel))
	}
	return result
}

// naiveWithPrefix returns the documents whose ids begin with a prefix.
func naiveWithPrefix(docs []naiveDoc, idPrefix string) (kept []naiveDoc) {
	for _, d := range docs {
		if strings.HasPrefix(d.ID, idPrefix) {
			kept = append(kept, d)
		}
	}
	return kept
}

// naiveMatches reports whether cond is true for the document, live or expired, and
// params, a JSON object or empty.
func naiveMatches(cond naiveNode, d naiveDoc, params []byte) bool {
	env := naiveEnv{"doc": d.content(), "params": map[string]any{}}
	if len(params) > 0 {
		env["params"] = naiveDecode(params)
	}
	return naiveHolds(cond, env)
}

// live reports whether the document is live at now.
func (d naiveDoc) live(defaultTTL, now int64) bool {
	seconds := func(ttl int64) any {
		if ttl == 0 {
			return nil
		}
		return float64(ttl)
	}
	return !model.DeadlineOf(seconds(defaultTTL), seconds(d.TTL), d.TS).Passed(now)
}

// reply returns the whole document as clients see it.
func (d naiveDoc) reply() []byte {
	body := strings.TrimSuffix(string(d.Body), "}")
	return fmt.Appendf(nil, `%s,"_ts":%d,"_etag":"%d"}`, body, d.TS, d.Version)
}

// content returns the whole document as conditions and orders see it.
func (d naiveDoc) content() map[string]any { return naiveDecode(d.reply()).(map[string]any) }

// naiveDecode decodes JSON; it panics if that is invalid.
func naiveDecode(data []byte) any {
	var v any
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	if err := decoder.Decode(&v); err != nil {
		panic(fmt.Sprintf("%s: %v", data, err))
	}
	if decoder.More() {
		panic(fmt.Sprintf("%s: more than one value", data))
	}
	return v
}

// naiveNumber is a number: an integer if int is not nil, else float.
type naiveNumber struct {
	int   *big.Int
	float float64
}

func naiveInt(n int64) naiveNumber     { return naiveNumber{int: big.NewInt(n)} }
func naiveFloat(f float64) naiveNumber { return naiveNumber{float: f} }

// naiveNumberOf returns the number of a decoded value, or of a computed one, which is a
// naiveNumber already.
func naiveNumberOf(v any) (n naiveNumber, ok bool) {
	switch v := v.(type) {
	case naiveNumber:
		return v, true
	case json.Number:
		if !strings.ContainsAny(v.String(), ".eE") {
			i, _ := new(big.Int).SetString(v.String(), 10)
			if i.IsInt64() || i.IsUint64() {
				return naiveNumber{int: i}, true
			}
		}
		f, _ := strconv.ParseFloat(v.String(), 64) // out of range is ±Inf
		return naiveFloat(f), true
	}
	return naiveNumber{}, false
}

func (n naiveNumber) isNaN() bool { return n.int == nil && math.IsNaN(n.float) }

// compare compares numbers exactly; neither may be NaN.
func (n naiveNumber) compare(m naiveNumber) int {
	exact := func(n naiveNumber) *big.Float {
		if n.int != nil {
			return new(big.Float).SetPrec(200).SetInt(n.int)
		}
		return new(big.Float).SetPrec(200).SetFloat64(n.float)
	}
	return exact(n).Cmp(exact(m))
}

// naiveEqual is == of two values that are not missing.
func naiveEqual(a, b any) bool {
	if n, ok := naiveNumberOf(a); ok {
		m, ok := naiveNumberOf(b)
		return ok && !n.isNaN() && !m.isNaN() && n.compare(m) == 0
	}
	switch a := a.(type) {
	case nil:
		return b == nil
	case bool:
		other, ok := b.(bool)
		return ok && a == other
	case string:
		other, ok := b.(string)
		return ok && a == other
	case []any:
		other, ok := b.([]any)
		return ok && slices.EqualFunc(a, other, naiveEqual)
	case map[string]any:
		other, ok := b.(map[string]any)
		if !ok || len(a) != len(other) {
			return false
		}
		for name, value := range a {
			if second, there := other[name]; !there || !naiveEqual(value, second) {
				return false
			}
		}
		return true
	}
	panic(fmt.Sprintf("a value of type %T", a))
}

// naiveMissing is the value at a path that does not exist, for orders.
type naiveMissing struct{}

// naiveRank returns the rank of a value's type in the order over types.
func naiveRank(v any) int {
	switch v := v.(type) {
	case naiveMissing:
		return 0
	case nil:
		return 1
	case bool:
		if !v {
			return 2
		}
		return 3
	case json.Number:
		return 4
	case string:
		return 5
	case []any:
		return 6
	case map[string]any:
		return 7
	}
	panic(fmt.Sprintf("a value of type %T", v))
}

// naiveCompare compares any two values in the order over all values.
func naiveCompare(a, b any) int {
	if c := cmp.Compare(naiveRank(a), naiveRank(b)); c != 0 {
		return c
	}
	switch a := a.(type) {
	case json.Number:
		n, _ := naiveNumberOf(a)
		m, _ := naiveNumberOf(b)
		return n.compare(m)
	case string:
		return strings.Compare(a, b.(string))
	case []any:
		return slices.CompareFunc(a, b.([]any), naiveCompare)
	case map[string]any:
		return slices.CompareFunc(naiveMembers(a), naiveMembers(b.(map[string]any)), func(m, n naiveMember) int {
			return cmp.Or(strings.Compare(m.name, n.name), naiveCompare(m.value, n.value))
		})
	}
	return 0
}

// naiveMember is a member of an object in which members have an order.
type naiveMember struct {
	name  string
	value any
}

// naiveMembers returns the members of an object sorted by name.
func naiveMembers(object map[string]any) []naiveMember {
	var members []naiveMember
	for name, value := range object {
		members = append(members, naiveMember{name, value})
	}
	slices.SortFunc(members, func(m, n naiveMember) int { return strings.Compare(m.name, n.name) })
	return members
}

// naiveCompareDocs compares documents in the order of a query.
func naiveCompareDocs(a, b naiveDoc, orderBy []naiveOrder) int {
	for _, by := range orderBy {
		c := naiveCompare(naiveAt(a.content(), by.Path), naiveAt(b.content(), by.Path))
		if by.Desc {
			c = -c
		}
		if c != 0 {
			return c
		}
	}
	return strings.Compare(a.ID, b.ID)
}

// naiveAt returns the value that a JSON pointer addresses, or naiveMissing.
func naiveAt(v any, pointer string) any {
	for _, token := range naiveTokens(pointer) {
		switch parent := v.(type) {
		case map[string]any:
			member, ok := parent[token]
			if !ok {
				return naiveMissing{}
			}
			v = member
		case []any:
			i, ok := naiveIndex(token)
			if !ok || i >= len(parent) {
				return naiveMissing{}
			}
			v = parent[i]
		default:
			return naiveMissing{}
		}
	}
	return v
}

// naiveTokens returns the unescaped tokens of a JSON pointer.
func naiveTokens(pointer string) []string {
	if pointer == "" {
		return nil
	}
	tokens := strings.Split(pointer[1:], "/")
	for i, token := range tokens {
		tokens[i] = strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
	}
	return tokens
}

// naiveIndex reads a token as an index: digits without leading zeros.
func naiveIndex(token string) (int, bool) {
	i, err := strconv.Atoi(token)
	return i, err == nil && i >= 0 && strconv.Itoa(i) == token
}

// naiveObject is an object whose members keep their order.
type naiveObject []naiveMember

// naiveOrdered decodes JSON into naiveObject, []any and leaves. Of members with the same
// name it keeps the last.
func naiveOrdered(data []byte) any {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	return naiveNext(decoder)
}

func naiveNext(decoder *json.Decoder) any {
	token, err := decoder.Token()
	if err != nil {
		panic(err)
	}
	switch token {
	case json.Delim('['):
		list := []any{}
		for decoder.More() {
			list = append(list, naiveNext(decoder))
		}
		_, _ = decoder.Token()
		return list
	case json.Delim('{'):
		object := naiveObject{}
		for decoder.More() {
			name, _ := decoder.Token()
			object = slices.DeleteFunc(object, func(m naiveMember) bool { return m.name == name })
			object = append(object, naiveMember{name.(string), naiveNext(decoder)})
		}
		_, _ = decoder.Token()
		return object
	}
	return token
}

// naiveEncode is the inverse of naiveOrdered.
func naiveEncode(v any) []byte {
	var parts [][]byte
	switch v := v.(type) {
	case naiveObject:
		for _, m := range v {
			parts = append(parts, slices.Concat(naiveEncode(m.name), []byte(":"), naiveEncode(m.value)))
		}
		return slices.Concat([]byte("{"), bytes.Join(parts, []byte(",")), []byte("}"))
	case []any:
		for _, element := range v {
			parts = append(parts, naiveEncode(element))
		}
		return slices.Concat([]byte("["), bytes.Join(parts, []byte(",")), []byte("]"))
	}
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}

// render returns the document as in a reply with select.
func (d naiveDoc) render(sel []string) []byte {
	if len(sel) == 0 {
		return d.reply()
	}
	var paths [][]string
	for _, pointer := range sel {
		paths = append(paths, naiveTokens(pointer))
	}
	kept, ok := naiveSelect(naiveOrdered(d.reply()), paths)
	if !ok {
		return []byte("{}")
	}
	return naiveEncode(kept)
}

// naiveSelect returns the parts of v that the paths select, and whether there are any.
func naiveSelect(v any, paths [][]string) (any, bool) {
	for _, path := range paths {
		if len(path) == 0 {
			return v, true // the wider path wins
		}
	}
	below := func(takes func(token string) bool) (rest [][]string) {
		for _, path := range paths {
			if takes(path[0]) {
				rest = append(rest, path[1:])
			}
		}
		return rest
	}
	switch v := v.(type) {
	case naiveObject:
		kept := naiveObject{}
		for _, m := range v {
			if value, ok := naiveSelect(m.value, below(func(token string) bool { return token == m.name })); ok {
				kept = append(kept, naiveMember{m.name, value})
			}
		}
		return kept, len(kept) > 0
	case []any:
		kept := []any{}
		for i, element := range v {
			if value, ok := naiveSelect(element, below(func(token string) bool { return token == strconv.Itoa(i) })); ok {
				kept = append(kept, value)
			}
		}
		return kept, len(kept) > 0
	}
	return nil, false
}

// naiveSameText reports whether two JSON texts are the same but for white space and the
// escapes of strings: with members in one order, and numbers in one notation. Its
// treatment of the order of repeated names is not part of the rules.
func naiveSameText(a, b []byte) bool {
	return json.Valid(a) && json.Valid(b) && reflect.DeepEqual(naiveOrdered(a), naiveOrdered(b))
}
