package main

import (
	"io"
	"log/slog"
	"strings"

	"github.com/spf13/pflag"
)

// logFlags say how serve writes its log.
type logFlags struct{ format, level string }

func (f *logFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.format, "log-format", "text", "write the log as `text|json`, a line each")
	flags.StringVar(&f.level, "log-level", "info", "leave out of the log what is below `debug|info|warn|error`")
}

// logger returns the logger that the flags ask for. say writes a line that no
// level leaves out.
func (f *logFlags) logger(to io.Writer) (logger *slog.Logger, say func(line string), err error) {
	level, ok := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}[f.level]
	if !ok {
		return nil, nil, usageErrorf("--log-level %q: use debug, info, warn or error", f.level)
	}
	options := &slog.HandlerOptions{Level: level}
	switch f.format {
	case "text":
		return slog.New(slog.NewTextHandler(to, options)), func(line string) { _, _ = io.WriteString(to, "lapse: "+line+"\n") }, nil
	case "json":
		always := slog.New(slog.NewJSONHandler(to, &slog.HandlerOptions{Level: slog.LevelDebug}))
		return slog.New(slog.NewJSONHandler(to, options)), func(line string) { always.Info(strings.TrimSpace(line)) }, nil
	}
	return nil, nil, usageErrorf("--log-format %q: use text or json", f.format)
}
