package observe

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestLogLimit: lines of one kind are limited per interval, whatever they contain; its
// end logs how many were dropped. Lines of other kinds are not dropped.
func TestLogLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out buffer
		limited := LimitLog(slog.NewTextHandler(&out, nil))
		logger := slog.New(limited)
		flood := func(n int) {
			for i := range n {
				logger.With("client", i).Error(fmt.Sprint("refused ", i), "subject", fmt.Sprint("x.", i))
			}
		}
		flood(100_000)
		logger.Warn("another kind")
		if n := strings.Count(out.String(), "refused"); n != logLines {
			t.Errorf("%d lines at once", n)
		}
		if !strings.Contains(out.String(), "another kind") {
			t.Error("a line of another kind is dropped")
		}
		time.Sleep(logInterval)
		synctest.Wait()
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if last := lines[len(lines)-1]; len(lines) != logLines+2 || !strings.HasSuffix(last, `msg="refused 99999" client=99999 subject=x.99999 more=99979`) {
			t.Errorf("%d lines, at last %s", len(lines), last)
		}
		out.Reset()
		time.Sleep(10 * logInterval)
		if out.String() != "" {
			t.Errorf("nothing was logged, and it writes %s", out.String())
		}
		flood(logLines + 1) // one over the limit: none is lost
		time.Sleep(logInterval)
		synctest.Wait()
		if text := out.String(); strings.Count(text, "\n") != logLines+1 || strings.Contains(text, "more") {
			t.Errorf("of %d lines there are\n%s", logLines+1, text)
		}
		// Close writes the last dropped line.
		out.Reset()
		flood(1000)
		limited.Close()
		flood(1)
		if text := out.String(); strings.Count(text, "\n") != logLines+2 || !strings.Contains(text, "more=979") {
			t.Errorf("at the end:\n%s", text)
		}
	})
}

// TestLogTextsAreCut: a log line has a bounded length and no control characters,
// whatever a client sends.
func TestLogTextsAreCut(t *testing.T) {
	long := strings.Repeat("\x1b[2J\n\x00é", 1<<20)
	for name, handler := range map[string]func(*bytes.Buffer) slog.Handler{
		"text": func(b *bytes.Buffer) slog.Handler { return slog.NewTextHandler(b, nil) },
		"json": func(b *bytes.Buffer) slog.Handler { return slog.NewJSONHandler(b, nil) },
	} {
		var out bytes.Buffer
		slog.New(LimitLog(handler(&out))).Error(long, "subject", long, "err", errors.New(long), "panic", []string{long}, "stack", long)
		text := out.String()
		if len(text) > 6*(4*logText+logStack) {
			t.Errorf("%s: a line of %d bytes", name, len(text))
		}
		if strings.Count(text, "\n") != 1 || strings.ContainsAny(text, "\x00\x1b") {
			t.Errorf("%s: control characters in %.100q", name, text)
		}
		if n := strings.Count(text, fmt.Sprintf("(%d bytes)", len(long))); n < 4 {
			t.Errorf("%s: %d texts say how long they were", name, n)
		}
	}
}

// buffer is a bytes.Buffer that a timer writes to while a test reads it.
type buffer struct {
	mu    sync.Mutex
	bytes bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bytes.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bytes.String()
}

func (b *buffer) Reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bytes.Reset()
}
