package observe

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// Limits of the log. A client can cause lines of many kinds as fast as it can
// send, which must not fill the disk beside the store.
const (
	// logLines is how many lines of one kind are written in logInterval.
	logLines    = 20
	logInterval = 10 * time.Second
	// logText bounds each text of a line in bytes: a client chooses subjects and
	// names. A stack may have more.
	logText  = 1 << 10
	logStack = 16 << 10
)

// LimitedLog is a slog.Handler that writes at most 20 lines of one kind in 10 s.
// When these are over it writes the last of those it left out, with the
// attribute more: how many were left out besides. A line's kind is the place in
// the source that logs it, which nothing in the line can change: however many
// lines of one kind a client causes, no line of another kind is left out.
type LimitedLog struct {
	to slog.Handler
	*logKinds
}

// logKinds is shared by a handler and those made of it with attributes.
type logKinds struct {
	mu     sync.Mutex
	kinds  map[uintptr]*logKind
	closed bool
}

// logKind is what happened to one kind of line since its interval began.
type logKind struct {
	written, left int
	last          slog.Record // of those left out
	to            slog.Handler
	interval      *time.Timer
}

// LimitLog limits the lines that are written by to.
func LimitLog(to slog.Handler) *LimitedLog {
	return &LimitedLog{to, &logKinds{kinds: make(map[uintptr]*logKind)}}
}

// Enabled implements slog.Handler.
func (l *LimitedLog) Enabled(ctx context.Context, level slog.Level) bool {
	return l.to.Enabled(ctx, level)
}

// WithAttrs implements slog.Handler.
func (l *LimitedLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &LimitedLog{l.to.WithAttrs(attrs), l.logKinds}
}

// WithGroup implements slog.Handler.
func (l *LimitedLog) WithGroup(name string) slog.Handler {
	return &LimitedLog{l.to.WithGroup(name), l.logKinds}
}

// Handle implements slog.Handler.
func (l *LimitedLog) Handle(ctx context.Context, r slog.Record) error {
	l.mu.Lock()
	k := l.kinds[r.PC]
	if k == nil {
		k = &logKind{}
		l.kinds[r.PC] = k
	}
	if k.written == logLines && !l.closed {
		k.left++
		k.last, k.to = r.Clone(), l.to
		l.mu.Unlock()
		return nil
	}
	if k.written++; k.written == 1 && !l.closed {
		k.interval = time.AfterFunc(logInterval, func() { l.end(k) })
	}
	l.mu.Unlock()
	return l.to.Handle(ctx, short(r))
}

// end writes what was left out of one kind and begins anew with it.
func (l *logKinds) end(k *logKind) {
	l.mu.Lock()
	left, last, to := k.left, k.last, k.to
	*k = logKind{}
	l.mu.Unlock()
	if left == 0 {
		return
	}
	if last = short(last); left > 1 {
		last.AddAttrs(slog.Int("more", left-1))
	}
	_ = to.Handle(context.Background(), last)
}

// Close writes what was left out. Nothing is left out after it.
func (l *LimitedLog) Close() {
	l.mu.Lock()
	l.closed = true
	var kinds []*logKind
	for _, k := range l.kinds {
		if k.interval != nil && k.interval.Stop() {
			kinds = append(kinds, k)
		}
	}
	l.mu.Unlock()
	for _, k := range kinds {
		l.end(k)
	}
}

// short returns the record with its texts cut.
func short(r slog.Record) slog.Record {
	c := slog.NewRecord(r.Time, r.Level, cut(r.Message, logText), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		most := logText
		if a.Key == "stack" {
			most = logStack
		}
		switch a.Value.Kind() {
		case slog.KindString:
			a.Value = slog.StringValue(cut(a.Value.String(), most))
		case slog.KindAny:
			if text := fmt.Sprint(a.Value.Any()); len(text) > most {
				a.Value = slog.StringValue(cut(text, most))
			}
		}
		c.AddAttrs(a)
		return true
	})
	return c
}

// cut returns a text of at most that many bytes, and how many it had.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return fmt.Sprintf("%s… (%d bytes)", strings.ToValidUTF8(text[:most], ""), len(text))
}
