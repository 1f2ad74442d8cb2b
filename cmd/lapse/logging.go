package main

import (
	"context"
	"io"
	"log/slog"
	"sync"

	"github.com/spf13/pflag"

	"github.com/lapsedb/lapse/processor/observe"
)

// logFlags are the format and level of the log lines.
type logFlags struct{ format, level string }

func (f *logFlags) add(flags *pflag.FlagSet) {
	choiceVar(flags, &f.format, "log-format", "text", "write log lines to standard error in this format", "text", "json")
	choiceVar(flags, &f.level, "log-level", "info", "log this level and above", "debug", "info", "warn", "error")
}

// serverLog is the log of a command that serves.
type serverLog struct {
	*slog.Logger              // limits the rate of each kind of line
	close        func()       // writes what the limit holds back
	always       *slog.Logger // has no limit, and writes at any level
	begin        func()       // writes the first line, as any other line of Logger does before itself
}

// openLog makes log lines of all that the command reports from now on. first has the attributes
// of the first line; none without it. An error that ends the command before that is alone.
func (a *app) openLog(f logFlags, first ...any) *serverLog {
	var level slog.Level
	_ = level.UnmarshalText([]byte(f.level)) // one of the choices, or "" for info
	h := f.handler(a.stderr, level, a.journal)
	a.log.Store(slog.New(h))
	begin := sync.OnceFunc(func() {
		if first != nil {
			slog.New(h).Info("lapse starts", first...)
		}
	})
	limited := observe.LimitLog(beginning{h, begin})
	return &serverLog{slog.New(limited), limited.Close, slog.New(f.handler(a.stderr, slog.LevelInfo, a.journal)), begin}
}

// beginning is a slog.Handler that calls begin before each line.
type beginning struct {
	slog.Handler
	begin func()
}

// Handle implements slog.Handler.
func (b beginning) Handle(ctx context.Context, r slog.Record) error {
	b.begin()
	return b.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (b beginning) WithAttrs(attrs []slog.Attr) slog.Handler {
	return beginning{b.Handler.WithAttrs(attrs), b.begin}
}

// WithGroup implements slog.Handler.
func (b beginning) WithGroup(name string) slog.Handler {
	return beginning{b.Handler.WithGroup(name), b.begin}
}

// handler returns a handler that writes to to, the journal of systemd if journal is set.
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

// inSeconds replaces a duration, which slog writes to JSON in nanoseconds, by its seconds.
func inSeconds(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.Float64Value(a.Value.Duration().Seconds())
	}
	return a
}
