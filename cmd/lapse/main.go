// Command lapse is the server and the command-line client of lapse, documents with a time
// to live over NATS.
//
// There are three kinds of commands. What a script can rely on depends on the kind:
//
//   - Servers: serve, test, console, cosmos, and watch with an action. They run until
//     SIGTERM, SIGINT or a failure, log to standard error, and write one line with the word
//     ready there (test: a line of JSON on standard output) once they serve.
//   - Clients: all commands with the flags of connection (connect.go). They send requests
//     with package client or read the log. What the server checks they do not: its messages
//     fit the version that answers.
//   - Offline: simulate, replay, audit FILE, config, restore and database with --store-dir,
//     snapshot restore on the embedded server. They need files only. version, man and
//     healthcheck need neither.
//
// Output. Standard output has the result and nothing else: on a terminal for people,
// elsewhere, or with --json, one JSON value a line, as the contract gives it. Standard
// error has errors, log lines, progress bars, questions, and what the result lacks
// (output.leftOut). So a pipe never carries anything but results.
//
// Input. Standard input is read for "-", and by a command that needs a body and has none
// (input.go). No other command reads it, so a loop such as `while read id; do lapse …;
// done` keeps its list.
//
// Exit codes. 0: done. 1: the request failed, the check found something, or the output is
// incomplete. 2: wrong usage; other flags would help, repeating does not. 141: the reader
// of the output has closed it. An error is one line that says what to do.
//
// Signals. The first SIGTERM or SIGINT cancels the context of the command, which then has
// stopTimeout to end; the second one ends the process by itself.
//
// Each file has one command, or a part that several share. newApp is what tests replace:
// streams, terminal, clock and host.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// NotifyContext would swallow every further signal. With stop called, the default
	// action is back.
	context.AfterFunc(ctx, stop) // the second signal ends the process at once
	os.Exit(newApp(os.Stdin, os.Stdout, os.Stderr).run(ctx, os.Args[1:]))
}
