package schema

import (
	"encoding/json"
	"math/bits"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const lastEventType = endOfTypes - 1

func TestEventTypeNames(t *testing.T) {
	for kind := CollectionCreated; kind <= lastEventType; kind++ {
		if back := ParseEventType(kind.String()); back != kind {
			t.Errorf("%s is read as %s", kind, back)
		}
	}
	for _, name := range []string{"", "documentCreated", "DocumentCreated ", "NoEvent"} {
		if kind := ParseEventType(name); kind != NoEvent {
			t.Errorf("%q is accepted as %s", name, kind)
		}
	}
}

// TestEventTypeProperties: each type has a name and says what it is about, and an event of a
// document what becomes of the content.
func TestEventTypeProperties(t *testing.T) {
	one := func(p property) bool { return bits.OnesCount16(uint16(p)) == 1 }
	for kind := NoEvent + 1; kind < endOfTypes; kind++ {
		is := eventTypes[kind].properties
		if kind.String() == "" || kind != MutationRejected && !one(is&(internal|onCollection|onDocument)) {
			t.Errorf("type %d, %s, has no row in the table, or it does not say what the event is about", kind, kind)
		}
		if one(is&(makesContent|keepsContent|endsContent)) != kind.OnDocument() {
			t.Errorf("%s: what becomes of the content?", kind)
		}
		if kind.MakesVersion() && !kind.StartsTTL() || is&makesContent != 0 && !kind.MakesVersion() || is&withBody != 0 && is&withoutBody != 0 {
			t.Errorf("%s has properties that contradict each other: %b", kind, is)
		}
		if strings.HasPrefix(kind.String(), "Document") != kind.OnDocument() || strings.HasPrefix(kind.String(), "Collection") != kind.OnCollection() {
			t.Errorf("%s is not about what its name says", kind)
		}
	}
}

// samples are events of each type, with their headers and JSON line, as subscribers and
// export receive them: the external contract.
var samples = []struct {
	event   Event
	headers map[string]string
	line    string
}{
	{Event{Seq: 1, Time: 1_431_857_103_000, Type: CollectionCreated, Collection: "orders", Body: []byte(`{"defaultTtl":3600}`)}, map[string]string{"Lapse-Time": "1431857103000"},
		`{"seq":1,"time":"2015-05-17T10:05:03.000Z","type":"CollectionCreated","collection":"orders","body":{"defaultTtl":3600}}`},
	{Event{Seq: 2, Time: 1_431_857_103_001, Type: CollectionReplaced, Collection: "orders", Cause: 4, Body: []byte(`{"defaultTtl":null}`)}, map[string]string{"Lapse-Time": "1431857103001", "Lapse-Cause": "mutations/4"},
		`{"seq":2,"time":"2015-05-17T10:05:03.001Z","type":"CollectionReplaced","collection":"orders","cause":"mutations/4","body":{"defaultTtl":null}}`},
	{Event{Seq: 3, Time: 1_431_857_103_010, Type: CollectionDeleted, Collection: "orders", Body: []byte(`{}`)}, map[string]string{"Lapse-Time": "1431857103010"},
		`{"seq":3,"time":"2015-05-17T10:05:03.010Z","type":"CollectionDeleted","collection":"orders","body":{}}`},
	{Event{Seq: 4, Time: 0, Type: DocumentCreated, Collection: "sessions", ID: "83.149.9.216", MsgID: "m 1", Body: []byte(`{"id":"83.149.9.216","u":"<é>"}`)}, map[string]string{"Lapse-Time": "0", "Lapse-Id": "83%2E149%2E9%2E216", "Lapse-Msg-Id": "m 1"},
		`{"seq":4,"time":"1970-01-01T00:00:00.000Z","type":"DocumentCreated","collection":"sessions","id":"83.149.9.216","body":{"id":"83.149.9.216","u":"<é>"}}`},
	{Event{Seq: 5, Time: 1_431_857_103_999, Type: DocumentReplaced, Collection: "orders", ID: `a"é`, Previous: 4, Cause: 18446744073709551615, Body: []byte(`{"id":"a\"é"}`)}, map[string]string{"Lapse-Time": "1431857103999", "Lapse-Id": "a%22%C3%A9", "Lapse-Previous": "4", "Lapse-Cause": "mutations/18446744073709551615"},
		`{"seq":5,"time":"2015-05-17T10:05:03.999Z","type":"DocumentReplaced","collection":"orders","id":"a\"é","previous":4,"cause":"mutations/18446744073709551615","body":{"id":"a\"é"}}`},
	{Event{Seq: 6, Time: 1_431_857_104_000, Type: DocumentDeleted, Collection: "orders", ID: "a", Previous: 5}, map[string]string{"Lapse-Time": "1431857104000", "Lapse-Id": "a", "Lapse-Previous": "5"},
		`{"seq":6,"time":"2015-05-17T10:05:04.000Z","type":"DocumentDeleted","collection":"orders","id":"a","previous":5}`},
	{Event{Seq: 7, Time: 1_431_857_105_000, Type: DocumentExpired, Collection: "orders", ID: "a", Previous: 6, Deadline: Deadline{At: 1_431_857_105, TTL: 30, Rule: RuleDocument}, Body: []byte(`{"id":"a"}`)}, map[string]string{"Lapse-Time": "1431857105000", "Lapse-Id": "a", "Lapse-Previous": "6", "Lapse-Deadline": "1431857105", "Lapse-Ttl": "30", "Lapse-Rule": "document"},
		`{"seq":7,"time":"2015-05-17T10:05:05.000Z","type":"DocumentExpired","collection":"orders","id":"a","previous":6,"deadline":1431857105,"ttl":30,"rule":"document","body":{"id":"a"}}`},
	{Event{Seq: 8, Time: 253_402_300_799_999, Type: DocumentExpired, Collection: "orders", ID: "a", Previous: 6, Deadline: Deadline{At: 253_402_300_799, TTL: MaxTTL, Rule: RuleCollection}}, map[string]string{"Lapse-Time": "253402300799999", "Lapse-Id": "a", "Lapse-Previous": "6", "Lapse-Deadline": "253402300799", "Lapse-Ttl": "2147483647", "Lapse-Rule": "collection"},
		`{"seq":8,"time":"9999-12-31T23:59:59.999Z","type":"DocumentExpired","collection":"orders","id":"a","previous":6,"deadline":253402300799,"ttl":2147483647,"rule":"collection"}`},
	{Event{Seq: 9, Time: 1_431_857_104_000, Type: DocumentExpiring, Collection: "orders", ID: "a", Previous: 6, Deadline: Deadline{At: 1_431_857_105, TTL: 30, Rule: RuleDocument}, Body: []byte(`{"id":"a"}`)}, map[string]string{"Lapse-Time": "1431857104000", "Lapse-Id": "a", "Lapse-Previous": "6", "Lapse-Deadline": "1431857105", "Lapse-Ttl": "30", "Lapse-Rule": "document"},
		`{"seq":9,"time":"2015-05-17T10:05:04.000Z","type":"DocumentExpiring","collection":"orders","id":"a","previous":6,"deadline":1431857105,"ttl":30,"rule":"document","body":{"id":"a"}}`},
	{Event{Seq: 9, Time: 1_431_857_105_000, Type: MutationRejected, Collection: InvalidCollection, Cause: 9, Body: []byte(`{"code":400}`)}, map[string]string{"Lapse-Time": "1431857105000", "Lapse-Cause": "mutations/9"},
		`{"seq":9,"time":"2015-05-17T10:05:05.000Z","type":"MutationRejected","collection":"_invalid","cause":"mutations/9","body":{"code":400}}`},
	{Event{Seq: 10, Time: 1_431_857_105_000, Type: WriterStarted, Collection: InternalCollection}, map[string]string{"Lapse-Time": "1431857105000"},
		`{"seq":10,"time":"2015-05-17T10:05:05.000Z","type":"WriterStarted","collection":"_"}`},
	{Event{Seq: 11, Time: 1_431_857_105_000, Type: MutationRepeated, Collection: InternalCollection, Cause: 11}, map[string]string{"Lapse-Time": "1431857105000", "Lapse-Cause": "mutations/11"},
		`{"seq":11,"time":"2015-05-17T10:05:05.000Z","type":"MutationRepeated","collection":"_","cause":"mutations/11"}`},
	{Event{Seq: 12, Time: 1_431_857_105_000, Type: LogPadded, Collection: InternalCollection, Body: []byte(`{"padding":"."}`)}, map[string]string{"Lapse-Time": "1431857105000"},
		`{"seq":12,"time":"2015-05-17T10:05:05.000Z","type":"LogPadded","collection":"_","body":{"padding":"."}}`},
	{Event{Seq: 13, Time: 1_431_857_105_000, Type: LogTrimmed, Collection: InternalCollection, Body: []byte(`{"first":7}`)}, map[string]string{"Lapse-Time": "1431857105000"},
		`{"seq":13,"time":"2015-05-17T10:05:05.000Z","type":"LogTrimmed","collection":"_","body":{"first":7}}`},
	{Event{Seq: 14, Time: 1_431_857_105_000, Type: WriterPresent, Collection: InternalCollection}, map[string]string{"Lapse-Time": "1431857105000"},
		`{"seq":14,"time":"2015-05-17T10:05:05.000Z","type":"WriterPresent","collection":"_"}`},
	{Event{Seq: 15, Time: 1_431_857_105_000, Type: WriterResumed, Collection: InternalCollection}, map[string]string{"Lapse-Time": "1431857105000"},
		`{"seq":15,"time":"2015-05-17T10:05:05.000Z","type":"WriterResumed","collection":"_"}`},
	{Event{Seq: 16, Time: 1_431_857_105_000, Type: DocumentTouched, Collection: "orders", ID: "a", Previous: 6}, map[string]string{"Lapse-Time": "1431857105000", "Lapse-Id": "a", "Lapse-Previous": "6"},
		`{"seq":16,"time":"2015-05-17T10:05:05.000Z","type":"DocumentTouched","collection":"orders","id":"a","previous":6}`},
	{Event{Seq: 17, Time: 1_431_857_105_000, Type: DocumentHeld, Collection: "orders", ID: "a", Previous: 6, Body: []byte(`{"reason":"case 7"}`)}, map[string]string{"Lapse-Time": "1431857105000", "Lapse-Id": "a", "Lapse-Previous": "6"},
		`{"seq":17,"time":"2015-05-17T10:05:05.000Z","type":"DocumentHeld","collection":"orders","id":"a","previous":6,"body":{"reason":"case 7"}}`},
	{Event{Seq: 18, Time: 1_431_857_105_000, Type: DocumentReleased, Collection: "orders", ID: "a", Previous: 6, Body: []byte(`{}`)}, map[string]string{"Lapse-Time": "1431857105000", "Lapse-Id": "a", "Lapse-Previous": "6"},
		`{"seq":18,"time":"2015-05-17T10:05:05.000Z","type":"DocumentReleased","collection":"orders","id":"a","previous":6,"body":{}}`},
}

func headersOf(e *Event) map[string]string {
	headers := make(map[string]string)
	e.Headers(func(name, value string) { headers[name] = value })
	return headers
}

// throughLog returns e as a reader of the log decodes it.
func throughLog(e *Event) (*Event, error) {
	headers := headersOf(e)
	collection, eventType, _ := SplitEventSubject("lapse.main.events." + e.EventTokens())
	return DecodeEvent(e.Seq, collection, eventType, func(name string) string { return headers[name] }, e.Body)
}

func TestEventFormats(t *testing.T) {
	seen := make(map[EventType]bool)
	for _, sample := range samples {
		seen[sample.event.Type] = true
		t.Run(sample.event.Type.String(), func(t *testing.T) {
			e := sample.event
			if got := headersOf(&e); !reflect.DeepEqual(got, sample.headers) {
				t.Errorf("headers:\n got %v\nwant %v", got, sample.headers)
			}
			if got := string(e.AppendJSON([]byte("prefix "))); got != "prefix "+sample.line {
				t.Errorf("line:\n got %s\nwant %s", got, sample.line)
			}
			back, err := throughLog(&e)
			if err != nil || !reflect.DeepEqual(*back, e) {
				t.Errorf("read from the log as %+v, %v", back, err)
			}
			var read Event
			err = json.Unmarshal([]byte(sample.line), &read)
			read.MsgID = e.MsgID // not in the line
			if err != nil || !reflect.DeepEqual(read, e) {
				t.Errorf("read from its line as %+v, %v", read, err)
			}
		})
	}
	for kind := CollectionCreated; kind <= lastEventType; kind++ {
		if !seen[kind] {
			t.Errorf("no sample of %s", kind)
		}
	}
}

func anyEvent() *rapid.Generator[Event] {
	return rapid.Custom(func(t *rapid.T) Event {
		e := Event{
			Seq:        rapid.Uint64Min(1).Draw(t, "seq"),
			Time:       rapid.Int64Range(minTime, MaxTime).Draw(t, "time"),
			Type:       EventType(rapid.IntRange(int(CollectionCreated), int(lastEventType)).Draw(t, "type")),
			Collection: CollectionName(rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9_-]{0,63}`).Draw(t, "collection")),
			Cause:      rapid.Uint64().Draw(t, "cause"),
		}
		if e.Type.Internal() {
			e.Collection = InternalCollection
		} else if e.Type == MutationRejected && rapid.Bool().Draw(t, "invalid") {
			e.Collection = InvalidCollection
		}
		if e.Type.OnDocument() {
			e.ID = anyID().Draw(t, "id")
		}
		if e.Type.is(withPrevious) {
			e.Previous = Version(rapid.Uint64Min(1).Draw(t, "previous"))
		}
		if e.Type.HasDeadline() {
			e.Deadline = Deadline{
				At:   rapid.Int64().Draw(t, "deadline"),
				TTL:  rapid.Int32Range(1, MaxTTL).Draw(t, "ttl"),
				Rule: rapid.SampledFrom([]Rule{RuleDocument, RuleCollection}).Draw(t, "rule"),
			}
		}
		if e.Type.is(withRestored) && rapid.Bool().Draw(t, "restored") {
			e.Restored = Version(rapid.Uint64Min(1).Draw(t, "version"))
		}
		if e.Type.is(withoutBody) {
			return e // it has no body
		}
		if e.Type.is(withBody|onCollection) || rapid.Bool().Draw(t, "image") {
			e.Body = append(AppendString([]byte(`{"id":`), rapid.String().Draw(t, "text")), '}')
		}
		return e
	})
}

func TestEveryEventSurvivesTheLog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := anyEvent().Draw(t, "event")
		e.MsgID = rapid.StringMatching(`[ -~]{0,40}`).Draw(t, "msgID")
		if e.Type.is(withContent) {
			e.Content = Version(rapid.Uint64().Draw(t, "content"))
		}
		back, err := throughLog(&e)
		if err != nil || !reflect.DeepEqual(*back, e) {
			t.Fatalf("%+v became %+v, %v", e, back, err)
		}
	})
}

func TestEveryEventSurvivesItsLine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := anyEvent().Draw(t, "event")
		line := e.AppendJSON(nil)
		if !json.Valid(line) || strings.ContainsAny(string(line), "\r\n") {
			t.Fatalf("the line is %q", line)
		}
		var back Event
		if err := json.Unmarshal(line, &back); err != nil || !reflect.DeepEqual(back, e) {
			t.Fatalf("%s became %+v, %v", line, back, err)
		}
	})
}

// legal returns the headers of a DocumentExpired; each test case spoils one of them.
func legal() map[string]string {
	return map[string]string{"Lapse-Time": "1000", "Lapse-Id": "a", "Lapse-Previous": "6", "Lapse-Deadline": "1", "Lapse-Ttl": "30", "Lapse-Rule": "document", "Lapse-Cause": "mutations/4"}
}

func TestDecodeEventRefuses(t *testing.T) {
	refuse := func(collection, eventType, header, value, body string) {
		t.Helper()
		headers := legal()
		headers[header] = value
		e, err := DecodeEvent(7, collection, eventType, func(name string) string { return headers[name] }, []byte(body))
		if err == nil || e != nil || !strings.HasPrefix(err.Error(), "event 7: ") {
			t.Errorf("%s %s with %s %q and %q: got %+v, %v", collection, eventType, header, value, body, e, err)
		}
	}
	for header, values := range map[string][]string{
		"Lapse-Time":     {"", "now", "1.5", "9223372036854775808", "253402300800000", "-62167219200001"},
		"Lapse-Id":       {"", "a.b"},
		"Lapse-Previous": {"", "0", "-1"},
		"Lapse-Deadline": {""},
		"Lapse-Ttl":      {"", "0", "-1", "4294967326"}, // the last is 30 in 32 bits
		"Lapse-Rule":     {"", "database"},
		"Lapse-Cause":    {"4", "mutations/", "mutations/0", "mutations/-4", "requests/4"},
	} {
		for _, value := range values {
			refuse("orders", "DocumentExpired", header, value, "")
		}
	}
	for eventType, collections := range map[string][]string{"": {"orders"}, "DocumentRenamed": {"orders"}, "DocumentExpired": {"", "a b", "_", "_invalid"}, "WriterStarted": {"orders"}} {
		for _, collection := range collections {
			refuse(collection, eventType, "", "", "")
		}
	}
	for eventType, bodies := range map[string][]string{"DocumentCreated": {"", "[]", "{", `{"id":"a"`}, "DocumentReplaced": {""}, "MutationRejected": {""}, "DocumentExpired": {"5"}} {
		for _, body := range bodies {
			refuse("orders", eventType, "", "", body)
		}
	}
	refuse("orders", "DocumentTouched", "Lapse-Content", "x", "")
	refuse("orders", "DocumentCreated", "Lapse-Restored", "-4", "{}")
	// The unspoilt headers are accepted, so no case is refused for another reason.
	headers := legal()
	if _, err := DecodeEvent(7, "orders", "DocumentExpired", func(name string) string { return headers[name] }, nil); err != nil {
		t.Error(err)
	}
}

func TestUnmarshalEventRefuses(t *testing.T) {
	const head, document = `{"seq":7,"time":"2015-05-17T10:05:03.000Z",`, `"collection":"orders","id":"a"`
	for _, line := range []string{
		``, `[]`, head + `"collection":"orders"}`, head + `"type":"DocumentRenamed",` + document + `}`,
		head + `"type":"DocumentDeleted","collection":"orders","previous":6}`, head + `"type":"DocumentDeleted","collection":"orders","id":"\n","previous":6}`,
		head + `"type":"DocumentDeleted",` + document + `}`, head + `"type":"DocumentDeleted","id":"a","previous":6}`,
		`{"seq":7,"time":1,"type":"DocumentDeleted",` + document + `,"previous":6}`,
		head + `"type":"DocumentExpired",` + document + `,"previous":6,"deadline":1,"ttl":4294967326,"rule":"document"}`,
		head + `"type":"DocumentExpired",` + document + `,"previous":6,"deadline":1,"ttl":30,"rule":"x"}`,
		head + `"type":"DocumentDeleted",` + document + `,"previous":6,"cause":"4"}`,
		head + `"type":"DocumentCreated",` + document + `}`, head + `"type":"DocumentCreated",` + document + `,"body":null}`,
	} {
		var e Event
		if err := json.Unmarshal([]byte(line), &e); err == nil {
			t.Errorf("%s: got %+v", line, e)
		}
	}
}

func FuzzDecodeEvent(f *testing.F) {
	for _, sample := range samples {
		h := sample.headers
		f.Add(string(sample.event.Collection), sample.event.Type.String(), h[HeaderTime], h[HeaderID], h[HeaderPrevious],
			h[HeaderDeadline], h[HeaderTTL], h[HeaderRule], h[HeaderCause], h[HeaderMsgID], sample.event.Body)
	}
	f.Fuzz(func(t *testing.T, collection, eventType, ms, id, previous, deadline, ttl, rule, cause, msgID string, body []byte) {
		headers := map[string]string{HeaderTime: ms, HeaderID: id, HeaderPrevious: previous, HeaderDeadline: deadline,
			HeaderTTL: ttl, HeaderRule: rule, HeaderCause: cause, HeaderMsgID: msgID}
		e, err := DecodeEvent(7, collection, eventType, func(name string) string { return headers[name] }, body)
		if err != nil {
			return
		}
		// A decoded event survives encoding and decoding.
		again, err := throughLog(e)
		if err != nil || !reflect.DeepEqual(again, e) {
			t.Fatalf("%+v became %+v, %v", e, again, err)
		}
		if len(body) > 0 && !json.Valid(body) {
			return // the fold refuses it
		}
		line := e.AppendJSON(nil)
		var read Event
		if err := json.Unmarshal(line, &read); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if string(read.AppendJSON(nil)) != string(line) {
			t.Fatalf("%q became %q", line, read.AppendJSON(nil))
		}
	})
}

func FuzzUnmarshalEvent(f *testing.F) {
	for _, sample := range samples {
		f.Add([]byte(sample.line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		var e, again Event
		if e.UnmarshalJSON(line) != nil {
			return
		}
		written := e.AppendJSON(nil)
		if err := json.Unmarshal(written, &again); err != nil || !reflect.DeepEqual(again, e) {
			t.Fatalf("%q is %+v, written as %q and read as %+v, %v", line, e, written, again, err)
		}
	})
}

// TestAppendTime: appendTime agrees with time.Format, also for times outside the range
// of events.
func TestAppendTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ms := rapid.OneOf(
			rapid.Int64Range(minTime-2, MaxTime+2),
			rapid.Int64Range(-1e18, 1e18),
			rapid.SampledFrom([]int64{minTime, minTime - 1, MaxTime, MaxTime + 1, -1, 0}),
		).Draw(t, "ms")
		if got, want := string(appendTime(nil, ms)), time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z"); got != want {
			t.Fatalf("%d is written %s, want %s", ms, got, want)
		}
	})
}
