package main

import (
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"sync"
	"sync/atomic"

	"github.com/spf13/pflag"

	"github.com/lapsedb/lapse/processor/observe"
)

// The log of the commands that serve. Two rules shape it:
//
// Programs wait for a line on standard error that has the word "ready". So no line before
// that may have it, not even in a path such as --store-dir /srv/ready or in an error of
// NATS: untilReady replaces the letters until the line itself has been written.
//
// A fault repeats, and a log that repeats it a thousand times a second fills the disk on
// which lapse writes. So each kind of line has a limit (observe.LimitLog); what the limit
// holds back is counted and written by close. Lines that somebody waits for, such as ready,
// go to always, which has no limit.

// logFlags are the format and level of the log lines.
type logFlags struct{ format, level string }

func (f *logFlags) add(flags *pflag.FlagSet) {
	choiceVar(flags, &f.format, "log-format", "text", "write log lines to standard error in this format", "text", "json")
	choiceVar(flags, &f.level, "log-level", "info", "log this level and above", "debug", "info", "warn", "error")
}

// serverLog is the log of a command that serves. Call close before the process ends.
type serverLog struct {
	*slog.Logger              // limits the rate of each kind of line
	close        func()       // writes what the limit holds back
	always       *slog.Logger // has no limit, and writes at any level
	to           *untilReady
}

// ready writes the line that says what is served, and by which process; its id is "" for a
// gateway. Its last address is followed by a space, also where the line is in quotes: programs
// read it.
func (l *serverLog) ready(what, id string) {
	host, pid := observe.ThisProcess()
	l.to.over.Store(true)
	if id != "" {
		id += ", pid "
	}
	l.always.Info(fmt.Sprintf("ready: %s (process %s%d on %s)", what, id, pid, host))
}

// untilReady writes lines, after what begin writes once. Until over is set they lack the
// letters by which programs recognize the ready line, even in a path. over is never unset:
// a later line may have the word, since nobody waits for it any more.
type untilReady struct {
	to    io.Writer
	begin func()
	over  atomic.Bool
}

var lettersOfReady = regexp.MustCompile("(?i)ready")

func (w *untilReady) Write(line []byte) (int, error) {
	w.begin()
	written := line
	if !w.over.Load() {
		written = lettersOfReady.ReplaceAllLiteral(line, []byte(hidden))
	}
	if _, err := w.to.Write(written); err != nil {
		return 0, err
	}
	// Whoever writes counts the bytes of its own line, not those of the replacement.
	return len(line), nil
}

// openLog makes log lines of all that the command reports from now on. first has the attributes
// of the first line; none without it. An error that ends the command before that is alone.
func (a *app) openLog(f logFlags, first ...any) *serverLog {
	var level slog.Level
	_ = level.UnmarshalText([]byte(f.level)) // one of the choices, or "" for info
	a.log.Store(slog.New(f.handler(a.stderr, level, a.journal)))
	to := &untilReady{to: a.stderr, begin: sync.OnceFunc(func() {
		if first != nil {
			slog.New(f.handler(&untilReady{to: a.stderr, begin: func() {}}, level, a.journal)).Info("lapse starts", first...)
		}
	})}
	limited := observe.LimitLog(f.handler(to, level, a.journal))
	return &serverLog{slog.New(limited), limited.Close, slog.New(f.handler(to, slog.LevelInfo, a.journal)), to}
}

// handler returns a handler that writes to to; with journal each line begins with its
// priority, for the journal of systemd.
func (f *logFlags) handler(to io.Writer, level slog.Level, journal bool) slog.Handler {
	ahead := &prefixed{to: to}
	var h slog.Handler
	if options := (&slog.HandlerOptions{Level: level}); f.format == "json" {
		options.ReplaceAttr = inSeconds
		h = slog.NewJSONHandler(ahead, options)
	} else {
		h = slog.NewTextHandler(ahead, options)
	}
	if journal {
		return prioritized{h, ahead}
	}
	return h
}

// inSeconds replaces a duration, which slog writes to JSON in nanoseconds, by its seconds:
// 1500000000 reads as anything. Text has units.
func inSeconds(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.Float64Value(a.Value.Duration().Seconds())
	}
	return a
}
