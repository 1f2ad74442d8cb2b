package main

import (
	"io"
	"log/slog"
	"strings"

	"github.com/spf13/pflag"

	"github.com/lapsedb/lapse/processor/observe"
)

// logFlags say how serve writes its log.
type logFlags struct{ format, level string }

func (f *logFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.format, "log-format", "text", "write log lines as `text|json`, on standard error")
	flags.StringVar(&f.level, "log-level", "info", "log `debug|info|warn|error` and above")
}

// handler returns the handler that the flags ask for, which limits the lines of
// one kind. say writes a line that is never left out.
func (f *logFlags) handler(to io.Writer) (handler *observe.LimitedLog, say func(line string), err error) {
	level, ok := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}[f.level]
	if !ok {
		return nil, nil, usageErrorf("--log-level %q: use debug, info, warn or error", f.level)
	}
	options := &slog.HandlerOptions{Level: level}
	switch f.format {
	case "text":
		return observe.LimitLog(slog.NewTextHandler(to, options)), func(line string) { _, _ = io.WriteString(to, "lapse: "+line+"\n") }, nil
	case "json":
		always := slog.New(slog.NewJSONHandler(to, &slog.HandlerOptions{Level: slog.LevelDebug}))
		return observe.LimitLog(slog.NewJSONHandler(to, options)), func(line string) { always.Info(strings.TrimSpace(line)) }, nil
	}
	return nil, nil, usageErrorf("--log-format %q: use text or json", f.format)
}
