package main

import (
	"fmt"
	"log/slog"
	"regexp"
	"strings"

	"github.com/spf13/pflag"

	"github.com/lapsedb/lapse/processor/observe"
)

// ready writes the line that says what is served, and by which process. Its last address is
// followed by a space, also where the line is in quotes: programs read it.
func (l *serverLog) ready(what string) {
	host, pid := observe.ThisProcess()
	l.always.Info(fmt.Sprintf("ready: %s (process %d on %s)", what, pid, host))
}

// configuration returns what serve logs first: the version, where it listens, and the options
// that are not defaults.
func (f *serveFlags) configuration(flags *pflag.FlagSet) (attrs []any) {
	add := func(to *[]any, name, value string) {
		if value != "" {
			*to = append(*to, slog.String(name, withoutReady(value)))
		}
	}
	add(&attrs, "version", version)
	add(&attrs, "commit", commit)
	listening := map[string]string{"listen": f.Listen, "console": f.Console.Address, "cosmos": f.Cosmos.URL, "metrics": f.Metrics, "health-socket": f.HealthSocket}
	var options []any
	flags.VisitAll(func(flag *pflag.Flag) {
		if address, ok := listening[flag.Name]; ok {
			add(&attrs, flag.Name, address)
		} else if f.environment.source(flag) != "default" {
			add(&options, flag.Name, f.loggable(flag))
		}
	})
	return append(attrs, slog.Group("options", options...))
}

// userInfo matches the login in a URL.
var userInfo = regexp.MustCompile(`//[^@/]*@`)

// loggable returns the value of a flag without logins, for all who may read the log.
func (f *serveFlags) loggable(flag *pflag.Flag) string {
	switch flag.Name {
	case "nats-url":
		return userInfo.ReplaceAllString(f.inForce(flag), "//")
	case "user", "operator-nkey":
		return hidden
	}
	return f.inForce(flag)
}

// hidden stands for a value that is left out of the log.
const hidden = "…"

// withoutReady hides a value with the letters by which programs recognize the ready line.
func withoutReady(value string) string {
	if strings.Contains(strings.ToLower(value), "ready") {
		return hidden
	}
	return value
}
