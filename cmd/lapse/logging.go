package main

import (
	"io"
	"log/slog"
	"strings"

	"github.com/spf13/pflag"

	"github.com/lapsedb/lapse/processor/observe"
)

// logFlags are the format and level of the log lines.
type logFlags struct{ format, level string }

func (f *logFlags) add(flags *pflag.FlagSet) {
	choiceVar(flags, &f.format, "log-format", "text", "write log lines to standard error in this format", "text", "json")
	choiceVar(flags, &f.level, "log-level", "info", "log this level and above", "debug", "info", "warn", "error")
}

// handler returns a handler that limits the rate of each kind of line. say writes a
// line at any level, without a limit.
func (f *logFlags) handler(to io.Writer) (handler *observe.LimitedLog, say func(line string)) {
	var level slog.Level
	_ = level.UnmarshalText([]byte(f.level)) // one of the choices
	options := &slog.HandlerOptions{Level: level}
	if f.format == "json" {
		always := slog.New(slog.NewJSONHandler(to, nil))
		return observe.LimitLog(slog.NewJSONHandler(to, options)), func(line string) { always.Info(strings.TrimSpace(line)) }
	}
	return observe.LimitLog(slog.NewTextHandler(to, options)), func(line string) { _, _ = io.WriteString(to, "lapse: "+line+"\n") }
}
