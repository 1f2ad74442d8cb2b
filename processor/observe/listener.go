package observe

import (
	"log/slog"
	"time"
)

// Event is something an operator may want to know. Its types are those in this
// package with a Log method.
type Event interface {
	// Log writes the event's lines: errors need an operator, warnings may need a
	// look, frequent or minor events are info or debug.
	Log(to *slog.Logger)
}

// EventListener receives each event as it happens, from many goroutines, some of
// which decide and reply: it must not block, nor call the Processor. Switch on the
// type of the event and ignore the others.
type EventListener func(Event)

// EnsureDefaults returns l, or a listener that does nothing if l is nil.
func (l EventListener) EnsureDefaults() EventListener {
	if l == nil {
		return func(Event) {}
	}
	return l
}

// TeeEventListener returns a listener that calls a, then b; either may be nil.
func TeeEventListener(a, b EventListener) EventListener {
	a, b = a.EnsureDefaults(), b.EnsureDefaults()
	return func(e Event) { a(e); b(e) }
}

// LoggingEventListener returns a listener that logs each event.
func LoggingEventListener(to *slog.Logger) EventListener {
	return func(e Event) { e.Log(to) }
}

// brief rounds a duration to three or four significant digits.
func brief(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(10 * time.Microsecond)
	}
	return d.Round(time.Millisecond)
}

// Timestamp formats a time for operators: UTC, in seconds.
func Timestamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
