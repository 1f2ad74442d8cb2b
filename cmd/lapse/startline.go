package main

import (
	"log/slog"
	"regexp"

	"github.com/spf13/pflag"
)

// configuration returns what serve logs first: the version, where it listens, and the
// options that are not defaults. A log that somebody sends with a question then says how
// lapse was started. Addresses are there even if they are defaults, since the first
// question is where it listens.
//
//	msg="lapse starts" version=0.4.0 listen=127.0.0.1:4222 options.retain=30d
func (f *serveFlags) configuration(flags *pflag.FlagSet) (attrs []any) {
	add := func(to *[]any, name, value string) {
		if value != "" {
			*to = append(*to, slog.String(name, value))
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
	// Whoever reads the log learns that there are users, but not which.
	case "user", "operator-nkey":
		return hidden
	}
	return f.inForce(flag)
}

// hidden stands for what is left out of the log.
const hidden = "…"
