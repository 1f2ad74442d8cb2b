package embedded

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"time"
)

// logger passes the server's warnings and errors on. Its notices are dropped:
// they are its own story, and one of them has the word that `lapse serve` keeps
// for the moment it serves.
type logger struct {
	to     *slog.Logger
	fatal  chan<- string    // the first fatal error; the server returns from Start after it
	failed func(why string) // told why JetStream has stopped taking what is written
}

func (l *logger) Noticef(string, ...any) {}
func (l *logger) Debugf(string, ...any)  {}
func (l *logger) Tracef(string, ...any)  {}

func (l *logger) Warnf(format string, v ...any) {
	// The passwords are ours, made at this start and gone with it.
	if strings.HasPrefix(format, "Plaintext passwords detected") {
		return
	}
	l.log(slog.LevelWarn, fmt.Sprintf(format, v...))
}

func (l *logger) Errorf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	l.log(slog.LevelError, text)
	// What the server says of a client begins with its address and has its name,
	// which may be any of these words, in the format.
	if !strings.HasPrefix(format, "JetStream ") {
		return
	}
	for _, end := range writeErrors {
		if strings.Contains(format, end) {
			l.failed(text)
		}
	}
}

// log writes a line as if the place in the server that has it to say did, so that
// a handler can tell lines of one kind from others by their source.
func (l *logger) log(level slog.Level, text string) {
	h := l.to.Handler()
	if ctx := context.Background(); h.Enabled(ctx, level) {
		_ = h.Handle(ctx, slog.NewRecord(time.Now(), level, "nats: "+text, source()))
	}
}

// source is the place in the server that called a function of its to log.
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

// isLogging reports whether a function of the server only passes on what is to be
// logged.
func isLogging(name string) bool {
	for _, part := range []string{"executeLogCall", "Error", "Warn", "warn"} {
		if strings.Contains(name, ")."+part) || strings.Contains(name, "Limit"+part) || strings.Contains(name, "Format"+part) {
			return true
		}
	}
	return false
}

// writeErrors are the server's words for a stream, or all of JetStream, that is
// only read from then on, until the server starts again: it answers publishers
// nothing, and has no other way to say so.
var writeErrors = []string{"critical write error", "will be DISABLED", resourceLimits}

// resourceLimits are its words when the streams have all of the disk that they
// may take.
const resourceLimits = "resource limits exceeded for server"

func (l *logger) Fatalf(format string, v ...any) {
	select {
	case l.fatal <- fmt.Sprintf(format, v...):
	default:
		l.Errorf(format, v...)
	}
}
