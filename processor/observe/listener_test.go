package observe

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestEventListener: a nil listener ignores events; of two that are joined both
// receive each event, the first one first.
func TestEventListener(t *testing.T) {
	EventListener(nil).EnsureDefaults()(Failed{})
	TeeEventListener(nil, nil)(Failed{})
	var got []string
	named := func(name string) EventListener {
		return func(e Event) {
			if _, ok := e.(LogTrimmed); ok {
				got = append(got, name)
			}
		}
	}
	TeeEventListener(TeeEventListener(named("first"), nil), named("second"))(LogTrimmed{First: 7})
	if want := []string{"first", "second"}; !slices.Equal(got, want) {
		t.Errorf("received by %q, want %q", got, want)
	}
}

// TestLoggingEventListener: an event is logged as one line with its fields.
func TestLoggingEventListener(t *testing.T) {
	var logs bytes.Buffer
	withoutTime := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	LoggingEventListener(slog.New(slog.NewTextHandler(&logs, &slog.HandlerOptions{ReplaceAttr: withoutTime})))(LogTrimmed{First: 7})
	if want := "level=INFO msg=\"log trimmed\" first=7\n"; logs.String() != want {
		t.Errorf("logged %q, want %q", logs.String(), want)
	}
}

// TestTakeoverFailedSaysWhy: only the error says why a takeover failed.
func TestTakeoverFailedSaysWhy(t *testing.T) {
	var logs bytes.Buffer
	TakeoverFailed{Err: context.DeadlineExceeded}.Log(slog.New(slog.NewTextHandler(&logs, nil)))
	if text := logs.String(); !strings.Contains(text, "deadline exceeded") || strings.Contains(text, "another") {
		t.Errorf("logged %q", text)
	}
}

// TestRoleChangedIsLogged: the log has each role, the first one, too.
func TestRoleChangedIsLogged(t *testing.T) {
	for _, e := range []RoleChanged{{To: Standby, Why: "it has started"}, {From: Standby, To: Writer}, {From: Writer, To: Standby}} {
		var logs bytes.Buffer
		e.Log(slog.New(slog.NewTextHandler(&logs, nil)))
		if text := logs.String(); !strings.Contains(text, "level=INFO") || !strings.Contains(text, "role="+string(e.To)) {
			t.Errorf("from %q to %s it logs %q", e.From, e.To, text)
		}
	}
}

// TestSlowIsTraced: the line of a slow request leads to its trace.
func TestSlowIsTraced(t *testing.T) {
	for id, want := range map[string]string{"4bf9": "what=query took=2s trace_id=4bf9\n", "": "what=query took=2s\n"} {
		var logs bytes.Buffer
		Slow{What: "query", Took: 2 * time.Second, TraceID: id}.Log(slog.New(slog.NewTextHandler(&logs, nil)))
		if text := logs.String(); !strings.HasSuffix(text, want) {
			t.Errorf("logged %q, want …%q", text, want)
		}
	}
}
