package observe

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// Limits of the log. A client can cause log lines as fast as it can send; they must not
// fill the disk of the store.
const (
	// logLines is the number of lines of one kind written per logInterval.
	logLines    = 20
	logInterval = 10 * time.Second
	// logText bounds each text of a line, in bytes: clients choose subjects and names.
	// logStack bounds a stack trace.
	logText  = 1 << 10
	logStack = 16 << 10
)

// LimitedLog is a slog.Handler that writes at most 20 lines of one kind in 10 s. It then
// writes the last line it dropped, with the attribute more: how many others it dropped.
// The kind is the place in the source that logs, so lines of one kind, however many a
// client causes, displace no line of another.
type LimitedLog struct {
	to slog.Handler
	*logKinds
}

// logKinds is shared by a handler and those derived with attributes or groups.
type logKinds struct {
	mu     sync.Mutex
	kinds  map[uintptr]*logKind
	closed bool
}

// logKind counts the lines of one kind in the current interval.
type logKind struct {
	written, dropped int
	last             slog.Record // the last one dropped
	to               slog.Handler
	interval         *time.Timer
}

// LimitLog returns a handler that writes to to within the limits. Close it at the end.
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
		k.dropped++
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

// end writes the last dropped line of a kind and begins a new interval.
func (l *logKinds) end(k *logKind) {
	l.mu.Lock()
	dropped, last, to := k.dropped, k.last, k.to
	*k = logKind{}
	l.mu.Unlock()
	if dropped == 0 {
		return
	}
	if last = short(last); dropped > 1 {
		last.AddAttrs(slog.Int("more", dropped-1))
	}
	_ = to.Handle(context.Background(), last)
}

// Close ends all intervals. Later lines are not limited.
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

// short returns the record with its texts truncated.
func short(r slog.Record) slog.Record {
	c := slog.NewRecord(r.Time, r.Level, cut(r.Message, logText), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		limit := logText
		if a.Key == "stack" {
			limit = logStack
		}
		switch a.Value.Kind() {
		case slog.KindString:
			a.Value = slog.StringValue(cut(a.Value.String(), limit))
		case slog.KindAny:
			if text := fmt.Sprint(a.Value.Any()); len(text) > limit {
				a.Value = slog.StringValue(cut(text, limit))
			}
		}
		c.AddAttrs(a)
		return true
	})
	return c
}

// cut truncates a text to limit bytes and appends its original length.
func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return fmt.Sprintf("%s… (%d bytes)", strings.ToValidUTF8(text[:limit], ""), len(text))
}
