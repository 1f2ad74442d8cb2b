package schema

import "strings"

// Trace is the W3C trace context of a request or mutation, which stands on the events that
// it makes. lapse checks its form, and no part of the state depends on it. Example of a
// traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01.
type Trace struct {
	Parent string // traceparent, "" for none
	State  string // tracestate, "" for none
}

const (
	HeaderTraceParent = "traceparent"
	HeaderTraceState  = "tracestate"

	maxTraceBytes = 512 // of each, so that they fit into HeaderRoom
)

// NewTrace returns a trace context as far as it is legal.
func NewTrace(parent, state string) (t Trace) {
	if isTraceParent(parent) {
		t.Parent = parent
		if len(state) <= maxTraceBytes {
			t.State = state
		}
	}
	return t
}

// Trace returns the trace context in the headers of a request. A header that comes twice
// does not count.
func (h Header) Trace() Trace {
	if h[HeaderTraceParent] == nil {
		return Trace{}
	}
	once := func(name string) string {
		if len(h[name]) != 1 {
			return ""
		}
		return h.value(name)
	}
	return NewTrace(once(HeaderTraceParent), once(HeaderTraceState))
}

// Headers calls set with each header of t.
func (t Trace) Headers(set func(name, value string)) {
	if t.Parent != "" {
		set(HeaderTraceParent, t.Parent)
	}
	if t.State != "" {
		set(HeaderTraceState, t.State)
	}
}

// ID returns the id of the trace, "" if there is none.
func (t Trace) ID() string {
	_, rest, _ := strings.Cut(t.Parent, "-")
	id, _, _ := strings.Cut(rest, "-")
	return id
}

// isTraceParent reports whether text has the form of a traceparent: 00-<trace>-<span>-<flags>
// in lower-case hex. Versions after 00 may have more, after another dash.
func isTraceParent(text string) bool {
	if len(text) < 55 || len(text) > maxTraceBytes || text[2] != '-' || text[35] != '-' || text[52] != '-' {
		return false
	}
	version, trace, span, flags, more := text[:2], text[3:35], text[36:52], text[53:55], text[55:]
	for _, part := range []string{version, trace, span, flags} {
		if strings.Trim(part, "0123456789abcdef") != "" {
			return false
		}
	}
	return version != "ff" && strings.Trim(trace, "0") != "" && strings.Trim(span, "0") != "" &&
		(more == "" || version != "00" && more[0] == '-' && !strings.ContainsFunc(more, func(r rune) bool { return r < ' ' || r > '~' }))
}
