package schema

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"
)

const sampleParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// traceVectors are the forms of the headers that vectors/pure/traces.json has.
func traceVectors(t *testing.T) (vectors []struct {
	Name                    string
	Headers                 [][2]string
	TraceParent, TraceState string
}) {
	text, err := os.ReadFile("vectors/pure/traces.json")
	if err == nil {
		err = json.Unmarshal(text, &vectors)
	}
	if err != nil || len(vectors) == 0 {
		t.Fatalf("%d vectors: %v", len(vectors), err)
	}
	return vectors
}

// TestTraceForms: of the headers of requests and mutations only legal ones count.
func TestTraceForms(t *testing.T) {
	for _, v := range traceVectors(t) {
		headers := make(Header)
		for _, h := range v.Headers {
			headers[h[0]] = append(headers[h[0]], h[1])
		}
		want := Trace{Parent: v.TraceParent, State: v.TraceState}
		own, fault := OwnHeaders(headers)
		if got := own.Trace(); fault != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", v.Name, got, fault, want)
		}
		if mu := PublishedMutation(1, "document.upsert.c.a", headers, []byte("{}")); mu.Trace != want || mu.Fault != nil {
			t.Errorf("%s: as a mutation %+v, %v, want %+v", v.Name, mu.Trace, mu.Fault, want)
		}
	}
	for _, long := range []string{"01" + sampleParent[2:] + "-" + strings.Repeat("x", maxTraceBytes), "01" + sampleParent[2:] + "-\x01", "01" + sampleParent[2:] + "-ä"} {
		if got := NewTrace(long, "a=1"); got != (Trace{}) {
			t.Errorf("%q is a trace: %+v", long, got)
		}
	}
}

// TestTraceOfEvent: the log keeps both headers, a line the traceparent. Neither counts on the
// events of deadlines, or in another form.
func TestTraceOfEvent(t *testing.T) {
	e := Event{Seq: 4, Type: DocumentCreated, Collection: "c", ID: "a", Trace: Trace{Parent: sampleParent, State: "a=1"}, Body: []byte(`{"id":"a"}`)}
	if id := e.Trace.ID(); id != "4bf92f3577b34da6a3ce929d0e0e4736" {
		t.Errorf("the id of the trace is %q", id)
	}
	if back, err := throughLog(&e); err != nil || !reflect.DeepEqual(*back, e) {
		t.Errorf("read from the log as %+v, %v", back, err)
	}
	line := `{"seq":4,"time":"1970-01-01T00:00:00.000Z","type":"DocumentCreated","collection":"c","id":"a","traceparent":"` + sampleParent + `","body":{"id":"a"}}`
	if got := string(e.AppendJSON(nil)); got != line {
		t.Errorf("its line is\n%s, want\n%s", got, line)
	}
	for _, c := range []struct{ line, want string }{
		{line, sampleParent},
		{strings.Replace(line, "00-", "ff-", 1), ""},
		{`{"seq":5,"time":"1970-01-01T00:00:00.000Z","type":"DocumentExpired","collection":"c","id":"a","previous":4,"deadline":0,"ttl":1,"rule":"document","traceparent":"` + sampleParent + `"}`, ""},
	} {
		if _, read, err := ParseEventLine([]byte(c.line)); err != nil || read.Trace != (Trace{Parent: c.want}) {
			t.Errorf("%s: %+v, %v", c.line, read.Trace, err)
		}
	}
}

// TestHeadersFit: the longest headers of an event, and those that its append adds, fit into
// HeaderRoom.
func TestHeadersFit(t *testing.T) {
	const most = 1<<64 - 1
	for kind := NoEvent + 1; kind < endOfTypes; kind++ {
		e := Event{Time: minTime, Type: kind, ID: DocumentID(strings.Repeat(".", MaxIDBytes)), Previous: most, Restored: most, Content: most, Cause: most,
			Deadline: Deadline{At: -1 << 63, TTL: MaxTTL, Rule: RuleCollection}, MsgID: strings.Repeat("m", 255), MsgOp: CollectionReplace}
		e.Trace = NewTrace("01"+sampleParent[2:]+"-"+strings.Repeat("x", maxTraceBytes-len(sampleParent)-1), strings.Repeat("x", maxTraceBytes))
		if len(e.Trace.Parent) != maxTraceBytes || len(e.Trace.State) != maxTraceBytes {
			t.Fatalf("%+v is not the longest trace", e.Trace)
		}
		bytes := len("NATS/1.0\r\n\r\n") + appendHeaders
		e.Headers(func(name, value string) { bytes += len(name) + len(": \r\n") + len(value) })
		if bytes > HeaderRoom {
			t.Errorf("%s: the headers have %d bytes, HeaderRoom is %d", kind, bytes, HeaderRoom)
		}
	}
}

// appendHeaders is more than what package eventlog adds: five headers of JetStream, names and
// values of at most 70 bytes together, with their line ends.
const appendHeaders = 5 * 80
