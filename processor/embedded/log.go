package embedded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// NATS reports some failures nowhere but in its log: that a stream has become read-only
// after a failed write, or that an account is out of space. Publishers get no reply then.
// So the logger reads the lines it passes on, and reports those as failures of the server;
// the words it looks for (writeErrors) are those of the nats-server version in go.mod, so
// an upgrade has to compare them.

// logger passes on the server's warnings and errors. It drops notices: they concern only
// NATS, and one has the word with which `lapse serve` reports that it serves.
type logger struct {
	to     *slog.Logger
	fatal  chan<- string    // the first fatal error; the server returns from Start after it
	failed func(why string) // called with the reason when JetStream stops taking writes
}

func (l *logger) Noticef(string, ...any) {}
func (l *logger) Debugf(string, ...any)  {}
func (l *logger) Tracef(string, ...any)  {}

func (l *logger) Warnf(format string, v ...any) {
	// The passwords are ours, generated for this run only.
	if strings.HasPrefix(format, "Plaintext passwords detected") {
		return
	}
	l.log(slog.LevelWarn, fmt.Sprintf(format, v...))
}

func (l *logger) Errorf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	if wasInMemory(v) {
		l.log(slog.LevelWarn, strings.TrimSpace(text)+": the rest of the batch was in memory, and nothing of it acknowledged")
		return
	}
	l.log(slog.LevelError, text)
	// In a line about a client, the format begins with its address and has its name,
	// which may be any of these words.
	if !strings.HasPrefix(format, "JetStream ") {
		return
	}
	for _, end := range writeErrors {
		if strings.Contains(format, end) {
			l.failed(text)
		}
	}
}

// wasInMemory reports whether a line is about a batch that the server cannot complete,
// since it was staged in memory and a power cut took it: see staging.
func wasInMemory(v []any) bool {
	for _, arg := range v {
		if err, ok := arg.(*fs.PathError); ok && errors.Is(err, fs.ErrNotExist) && filepath.Base(filepath.Dir(err.Path)) == "batches" {
			_, err := os.Readlink(err.Path)
			return err == nil
		}
	}
	return false
}

// log writes a line whose source is the line of the server's code that logs, so that a
// handler can tell kinds of lines apart by their source. observe.LimitLog limits the rate
// of each kind: with one source for all, a flood of one would hide the others.
func (l *logger) log(level slog.Level, text string) {
	h := l.to.Handler()
	if ctx := context.Background(); h.Enabled(ctx, level) {
		_ = h.Handle(ctx, slog.NewRecord(time.Now(), level, "nats: "+text, source()))
	}
}

// source returns the place in the server that called one of its logging functions. It walks
// up the stack, past this file and the helpers of the server, 16 frames at most. Lines are
// rare, so the cost does not matter.
func source() uintptr {
	var callers [16]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(3, callers[:])])
	for {
		f, more := frames.Next()
		name := f.Function[strings.LastIndexByte(f.Function, '/')+1:]
		if !more || !strings.HasPrefix(name, "embedded.(*logger)") && !isLogging(name) {
			return f.PC
		}
	}
}

// isLogging reports whether a function of the server only passes on a line to log.
func isLogging(name string) bool {
	for _, part := range []string{"executeLogCall", "Error", "Warn", "warn"} {
		if strings.Contains(name, ")."+part) || strings.Contains(name, "Limit"+part) || strings.Contains(name, "Format"+part) {
			return true
		}
	}
	return false
}

// writeErrors are the server's words for a stream, or all of JetStream, that is read-only
// until the server restarts. It does not reply to publishers then, and reports it nowhere
// else.
var writeErrors = []string{"critical write error", "will be DISABLED", resourceLimits}

// resourceLimits are its words when the streams have used up their share of the disk.
const resourceLimits = "resource limits exceeded for server"

func (l *logger) Fatalf(format string, v ...any) {
	select {
	case l.fatal <- fmt.Sprintf(format, v...):
	default:
		l.Errorf(format, v...)
	}
}
