package attack

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Message is a malformed, hostile or odd request, mutation or event. Tail is the
// end of its subject, after the prefix of its operation.
type Message struct {
	Tail, Body string
	Headers    map[string][]string
}

func (m Message) String() string {
	return fmt.Sprintf("%.300q %.300q %.300q", m.Tail, m.Body, fmt.Sprint(m.Headers))
}

// Source draws messages at random. The same seed gives the same messages.
type Source struct{ *rand.Rand }

// Of draws one of several.
func Of[T any](s Source, from ...T) T { return from[s.IntN(len(from))] }

var (
	mutations = []string{"collection.create", "collection.replace", "collection.delete",
		"collection.create", "collection.create", "document.create", "document.create", "document.replace", "document.replace",
		"document.upsert", "document.upsert", "document.upsert", "document.upsert", "document.patch", "document.patch", "document.delete", "document.delete"}
	reads = []string{"collection.get", "collection.list", "document.get", "batch", "batch", "query", "query", "query", "forecast", "history", "status"}
	odd   = []string{"", "document", "collection", "Document.upsert", "document.upsert ", "batch.batch", "document.>", "*", ">", "$JS", "_", "_INBOX", "api", "\x00", "\xff\xfe", "é", "%", "..", "INFO"}
	names = []string{"d", "d", "gone", "_", "_invalid", "-", "*", ">", "%63", "C", "\x7f", strings.Repeat("n", 64), strings.Repeat("n", 65), strings.Repeat("n", 2000)}
	ids   = []string{"x", "%61", "%2e", "%2E%2e", "%", "%6", "%zz", "%00", "%C2%85", "%ff", "%F0%9F%98%80", "*", ">", "a.b", "\x80", "~", strings.Repeat("i", 255), strings.Repeat("i", 256), strings.Repeat("%22", 255), strings.Repeat("%2", 900)}
)

var documents = []string{
	`{}`, `{"id":"a"}`, `{"id":"b","n":1}`, `{"n":7,"s":"text","l":[1,2,{"x":[]}],"o":{"p":null,"q":{"r":true}},"ttl":3600}`,
	`{"ttl":-1}`, `{"ttl":null}`, `{"ttl":0}`, `{"ttl":1e2}`, `{"_ts":1,"_etag":"x","_rid":{},"_self":[],"_attachments":null}`,
	`{"n":1,"n":2}`, `{"id":"a","id":"a"}`, `{"\u0069d":"a"}`, `{"ttl":5,"\u0074tl":6}`, `{"s":"\ud83d\ude00"}`, `{"s":"\ud83d"}`, `{"s":"\u0000"}`,
	`{"n":1e400}`, `{"n":-0}`, `{"n":12345678901234567890123456789012345678901234567890}`, `{"n":0.` + strings.Repeat("1", 400) + `}`, `{"":{"":{"":""}}}`,
	"\ufeff{}", " {\t}\n", `[]`, `null`, `"a"`, `1`, `{"a":}`, `{'a':1}`, `{a:1}`, `{"a":1,}`, `{"a":undefined}`, `NaN`, `{}{}`, "{\"a\":\"\x00\"}", "{\"a\":\"\xff\"}", "\x00", "",
}

var properties = []string{
	``, `{}`, `{"defaultTtl":-1}`, `{"defaultTtl":3600}`, `{"defaultTtl":3600.0,"indexingPolicy":{"indexingMode":"lazy","includedPaths":[{"path":"/n"},{"path":"/o/q"}]},"previousImages":false}`,
	`{"indexingPolicy":{"indexingMode":"none"}}`, `{"defaultTtl":1,"indexingPolicy":{"indexingMode":"none"}}`, `{"indexingPolicy":{"includedPaths":[{"path":"/~2"}]}}`,
	`{"indexingPolicy":null,"previousImages":null,"defaultTtl":null}`, `{"indexingPolicy":{"includedPaths":[{}]}}`, `{"indexingPolicy":[]}`, `{"id":"c","_ts":1}`, `{"defaultTtl":2,"warnBefore":1}`, `{"metadata":{"a":"b"}}`, `{"warnBefore":0}`, `{"defaultTtl":0}`, `{"defaultTTL":1}`,
}

var batches = []string{
	`{"operations":[]}`, `{"operations":[{"op":"get","id":"a"}]}`, `{"operations":[{"op":"upsert","id":"a","body":{"n":1},"ifMatch":"7"},{"op":"get","id":"b"}],"atomic":false}`,
	`{"atomic":true,"operations":[{"op":"upsert","id":"a","body":{}},{"op":"patch","id":"a","body":{"n":null}},{"op":"delete","id":"nobody"}]}`,
	`{"atomic":true,"operations":[{"op":"create","id":"x","body":{"ttl":1}},{"op":"delete","id":"x"}]}`, `{"operations":[{"op":"upsert","id":"\u0000","body":{}}]}`,
	`{"operations":[{"op":"upsert","id":"a"},{"id":"a"},{"op":1},[],null,{"op":"get","id":"a","id":"b"}]}`, `{"operations":{}}`, `{"atomic":1,"operations":[]}`, `{"operations":[` + strings.Repeat(`{},`, 1000) + `{}]}`,
}

var queries = []string{
	``, `{}`, `{"where":"doc.n > params.min && doc.s == 'text'","params":{"min":1},"orderBy":[{"path":"/n","desc":true}],"select":["/id","/n"],"limit":10,"explain":true}`,
	`{"count":true}`, `{"count":true,"where":"1 in doc.l"}`, `{"where":"doc.l.exists(x, x > 1)"}`, `{"where":"doc.s.matches('(a+)+$')"}`, `{"where":"1 / 0 == doc.n"}`, `{"where":"doc"}`, `{"where":"'"}`,
	`{"where":"doc.n == 1e400"}`, `{"limit":0}`, `{"limit":1001}`, `{"cursor":"AAAA"}`, `{"cursor":""}`, `{"orderBy":[{"path":"n"}]}`, `{"orderBy":[{"path":"/~"}]}`, `{"select":[""]}`, `{"params":[]}`, `{"where":"\ud800"}`,
	`{"where":"[1,2,3].all(a, [1,2,3].all(b, [1,2,3].all(c, a + b + c > doc.n)))"}`, `{"where":"doc.s + doc.s + doc.s == ''"}`, `{"where":"` + strings.Repeat("!", 3000) + `true"}`, `{"where":"` + strings.Repeat("(", 300) + `"}`,
}

var forecasts = []string{``, `{}`, `{"next":"24h","bucket":"1h"}`, `{"next":60,"bucket":7,"defaultTtl":5}`, `{"defaultTtl":null}`, `{"defaultTtl":-1,"next":2147483647}`, `{"next":0}`, `{"next":1e400}`, `{"next":"1e9h"}`,
	`{"next":"\u0000"}`, `{"bucket":"\ud800"}`, `{"next":"24h","bucket":1}`, `{"defaultTtl":0}`, `{"next":{}}`, `{"unknown":1}`, `[]`}

var histories = []string{``, `{}`, `{"limit":1}`, `{"limit":1000}`, `{"limit":0}`, `{"limit":1e400}`, `{"limit":"1"}`, `{"limit":null}`, `[]`}

var headers = map[string][]string{
	"If-Match":      {"", "*", "0", "1", "7", `"7"`, "18446744073709551615", "18446744073709551616", "-1", " 3 ", "\x00", "é", strings.Repeat("9", 5000)},
	"Lapse-Min-Seq": {"", "0", "1", " 1", "-1", "1.5", "x", "18446744073709551616", "٣", "0x1", strings.Repeat("0", 5000)},
	"Nats-Msg-Id":   {"", "m", "m", "n", " ", "m\x00", "é", strings.Repeat("m", 255), strings.Repeat("m", 256), strings.Repeat("m", 5000)},
	"Status":        {"", "100", "404", "409", "503"}, "Description": {"", "Consumer Deleted", "No Messages"},
	"Nats-Service-Error": {"x"}, "Nats-Service-Error-Code": {"200"}, "Lapse-Status": {"200"}, "Lapse-Seq": {"0"},
	"Lapse-Time": {"1", "x"}, "Lapse-Id": {"a"}, "Lapse-Cause": {"mutations/1"}, "Lapse-Msg-Id": {"m"}, "X": {"", "\xff"}, "if-match": {"0"},
}

var headerNames = []string{"If-Match", "If-Match", "Lapse-Min-Seq", "Nats-Msg-Id", "Nats-Msg-Id", "Status", "Description", "Nats-Service-Error", "Nats-Service-Error-Code",
	"Lapse-Status", "Lapse-Seq", "Lapse-Time", "Lapse-Id", "Lapse-Cause", "Lapse-Msg-Id", "X", "if-match"}

// eventHeaders are the headers of an event, with right and wrong values. None is valid
// and yet blocks later events: a time far ahead, or a cause that is yet to come.
var eventHeaders = []struct {
	name         string
	right, wrong []string
}{
	{"Lapse-Time", []string{"1", "1000"}, []string{"", "x", "1e3", "253402300800000", "-62167219200001", "9223372036854775808"}},
	{"Lapse-Id", []string{"a", "b", "%2E"}, ids},
	{"Lapse-Previous", []string{"4", "5", "6", "7", "8", "9", "10", "11", "12"}, []string{"", "0", "18446744073709551615", "18446744073709551616", "x"}},
	{"Lapse-Deadline", []string{"1", "-1", "9223372036854775807"}, []string{"", "x", "1.5"}},
	{"Lapse-Ttl", []string{"1", "2147483647"}, []string{"", "0", "-1", "2147483648", "x"}},
	{"Lapse-Rule", []string{"document", "collection"}, []string{"", "x"}},
	{"Lapse-Cause", nil, []string{"", "mutations/", "mutations/0", "mutations/-1", "mutations/x", "x"}},
	{"Lapse-Msg-Id", []string{"m", "n"}, []string{"", strings.Repeat("m", 5000), "\x00"}},
	{"Status", nil, []string{"100", "404", "409"}},
}

// name draws the name of a collection, often an invalid one.
func (s Source) name() string {
	if s.IntN(5) > 0 {
		return "c"
	}
	return Of(s, names...)
}

// id draws an id as in a subject, often an invalid one.
func (s Source) id() string {
	if s.IntN(4) > 0 {
		return Of(s, "a", "b")
	}
	return Of(s, ids...)
}

// Request draws a request; its Tail follows lapse.<db>.api. in the subject.
func (s Source) Request() Message {
	if s.IntN(3) > 0 {
		op := Of(s, reads...)
		return s.message(op)
	}
	return s.Mutation()
}

// Mutation draws a mutation; its Tail follows lapse.<db>.mutations. in the subject.
func (s Source) Mutation() Message { return s.message(Of(s, mutations...)) }

func (s Source) message(op string) Message {
	m := Message{Tail: op, Headers: s.headers()}
	switch op {
	case "collection.list", "status":
		if s.IntN(4) == 0 {
			m.Tail += "." + s.name()
		}
	case "batch", "query", "forecast", "collection.get", "collection.create", "collection.replace", "collection.delete":
		m.Tail += "." + s.name()
	default:
		m.Tail += "." + s.name() + "." + s.id()
	}
	switch op {
	case "batch":
		m.Body = s.Bytes(batches...)
	case "query":
		m.Body = s.Bytes(queries...)
	case "history":
		m.Body = s.Bytes(histories...)
	case "forecast":
		m.Body = s.Bytes(forecasts...)
	case "collection.create", "collection.replace":
		m.Body = s.Bytes(properties...)
	default:
		m.Body = s.Bytes(documents...)
	}
	switch s.IntN(24) {
	case 0:
		m.Tail = Of(s, odd...) + "." + m.Tail
	case 1:
		m.Tail = Of(s, odd...)
	case 2:
		m.Tail += "." + Of(s, odd...)
	case 3:
		m.Tail = s.mutate(m.Tail)
	case 4: // a body for another operation
		m.Body = s.Bytes(Of(s, documents, properties, batches, queries, forecasts, histories)...)
	}
	m.Tail = Subject(m.Tail)
	return m
}

// Event draws a message for the subject of an event: its Tail is a collection and a type.
// Its time and its causes are never both well formed and wrong.
func (s Source) Event() Message {
	m := Message{Headers: make(map[string][]string), Body: s.Bytes(Of(s, documents[:4], documents, properties)...)}
	m.Tail = s.name() + "." + Of(s, "CollectionCreated", "CollectionReplaced", "CollectionDeleted", "DocumentCreated", "DocumentCreated", "DocumentReplaced", "DocumentReplaced", "DocumentDeleted", "DocumentExpired",
		"MutationRejected", "MutationRepeated", "Foreign", "documentcreated", "")
	for _, h := range eventHeaders {
		switch s.IntN(12) {
		case 0:
		case 1:
			m.Headers[h.name] = []string{Of(s, h.wrong...)}
		case 2:
			m.Headers[h.name] = []string{s.header(Of(s, ids...))}
		default:
			if len(h.right) > 0 {
				m.Headers[h.name] = []string{Of(s, h.right...)}
			}
		}
	}
	if s.IntN(12) == 0 {
		m.Tail = s.mutate(m.Tail)
	}
	m.Tail = Subject(m.Tail)
	return m
}

func (s Source) headers() map[string][]string {
	all := make(map[string][]string)
	for s.IntN(5) == 0 {
		name := Of(s, headerNames...)
		all[name] = append(all[name], Of(s, headers[name]...))
		if s.IntN(5) == 0 {
			all[name] = append(all[name], s.header(all[name][0]))
		}
	}
	return all
}

// header changes the value of a header. JetStream takes 64 KiB of headers with a message.
func (s Source) header(value string) string {
	value = s.mutate(value)
	return value[:min(len(value), 8000)]
}

// Bytes draws one of the examples, unchanged, mutated or replaced.
func (s Source) Bytes(examples ...string) string {
	b := Of(s, examples...)
	switch s.IntN(32) {
	case 0: // random bytes
		noise := make([]byte, s.IntN(200))
		for i := range noise {
			noise[i] = byte(s.Uint32())
		}
		return string(noise)
	case 1: // deeply nested
		n := Of(s, 120, 127, 128, 129, 1000, 50_000)
		return `{"p":` + strings.Repeat(Of(s, "[", `{"p":`), n) + b
	case 2: // wrapped
		return fmt.Sprintf(Of(s, `{"p":%s}`, `[%s]`, `{"operations":[{"op":"upsert","id":"a","body":%s}]}`, `{"params":%s}`), b)
	case 3: // long
		return `{"p":"` + strings.Repeat(Of(s, "x", "é", `\u0001`, `\"`, "\x01", "\xff"), 1+s.IntN(20_000)) + `"}`
	case 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19:
		return b
	}
	for range 1 + s.IntN(4) {
		b = s.mutate(b)
	}
	return b
}

// mutate changes text in one place. It never grows beyond 1 MiB.
func (s Source) mutate(text string) string {
	b := []byte(text)
	from := s.IntN(len(b) + 1)
	to := from + s.IntN(len(b)-from+1)
	if s.IntN(2) == 0 {
		to = min(len(b), from+s.IntN(4))
	}
	part := string(b[from:to])
	switch s.IntN(8) {
	case 0: // drop it
		part = ""
	case 1: // repeat it, twice or often
		part = strings.Repeat(part, Of(s, 2, 2, 3, 50))
	case 2: // drop all from here on
		return text[:from]
	case 3: // flip a bit
		if len(part) > 0 {
			flipped := []byte(part)
			flipped[0] ^= 1 << s.IntN(8)
			part = string(flipped)
		}
	case 4:
		part = Of(s, "\x00", "\xff", "\xc0\x80", "\xed\xa0\x80", "\ufeff", "\u2028", "\x7f", `\u`, `\ud800`, `"`, `\`, "'", "{", "}", "[", "]", ",", ":")
	case 5:
		part = Of(s, "-", "0", "00", "1e999", "-1e-999", "9223372036854775808", "0x10", "1_0", ".5", "5.", "NaN", "null", "true", "[]", "{}", `""`)
	case 6:
		part += Of(s, documents...)
	case 7: // copy from another part of text
		if len(b) > 0 {
			at := s.IntN(len(b))
			part = string(b[at:min(len(b), at+8)])
		}
	}
	text = text[:from] + part + text[to:]
	return text[:min(len(text), 1<<20)]
}

// Subject makes s the end of a subject that a NATS client can send: no blanks,
// no empty tokens, not too long.
func Subject(s string) string {
	s = strings.Map(func(r rune) rune {
		if r == ' ' || r >= '\t' && r <= '\r' {
			return '_'
		}
		return r
	}, strings.ToValidUTF8(s, "\xff"))
	var tokens []string
	for token := range strings.SplitSeq(s[:min(len(s), 3000)], ".") {
		if token != "" {
			tokens = append(tokens, token)
		}
	}
	if len(tokens) == 0 {
		return "_"
	}
	return strings.Join(tokens, ".")
}
