package embedded

import (
	"fmt"
	"log/slog"
	"strings"
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
	l.to.Warn("nats: " + fmt.Sprintf(format, v...))
}

func (l *logger) Errorf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	l.to.Error("nats: " + text)
	for _, end := range writeErrors {
		if strings.Contains(format, end) {
			l.failed(text)
		}
	}
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
