package main

import (
	"bytes"
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/lapsedb/lapse/host"
)

// TestNoAuth: without --no-auth serve listens on loopback only, and says what to do. An
// external NATS server has users of its own.
func TestNoAuth(t *testing.T) {
	const remote = "--nats-url nats://n1"
	for args, refused := range map[string]bool{
		"":                               false,
		"--listen 127.0.0.1:0":           false,
		"--listen 127.1.2.3:0":           false,
		"--listen [::1]:0":               false,
		"--listen localhost:0":           false,
		"--listen 0.0.0.0:0":             true,
		"--listen :0":                    true,
		"--listen [::]:0":                true,
		"--listen 192.0.2.1:0":           true,
		"--listen db.example.com:0":      true,
		"--listen 0.0.0.0:0 --no-auth":   false,
		"--no-auth":                      false,
		remote:                           false,
		remote + " --listen 0.0.0.0:0":   false,
		remote + " --no-auth --listen :": false,
	} {
		started, code, line := serveWith(t, args)
		if refused {
			if started != nil || code != exitUsage || !strings.Contains(line, "--nats-config") || !strings.Contains(line, "--no-auth") {
				t.Errorf("serve %s: exit %d, %s", args, code, line)
			}
		} else if started == nil || code != exitDone || line != "" {
			t.Errorf("serve %s: exit %d, %s", args, code, line)
		}
	}
}

// TestReadyLine: the ready line has the address that is listened on, also if clients dial
// another one.
func TestReadyLine(t *testing.T) {
	f := &serveFlags{Options: host.Options{StoreDir: "data"}}
	ready := host.Ready{URL: "nats://127.0.0.1:4222", Address: "[::]:4222", Databases: []host.Served{{Name: "main", Role: "writer"}}}
	if got, want := readyLine(f, ready), "database main at nats://[::]:4222, kept in data, the log for ever"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// serveWith is startWith of serve.
func serveWith(t *testing.T, args string, environment ...string) (started *host.Options, code int, printed string) {
	t.Helper()
	return startWith(t, "serve "+args, environment...)
}

// startWith runs a command, serve until it would start. It returns the options of that
// start, nil without one, the exit code and what was printed, without the first and last line of serve.
func startWith(t *testing.T, args string, environment ...string) (started *host.Options, code int, printed string) {
	t.Helper()
	var output bytes.Buffer
	a := newApp(strings.NewReader(""), &output, &output)
	a.environment = environment
	a.host = func(_ context.Context, o host.Options) error {
		started = &o
		return nil
	}
	code = a.run(t.Context(), strings.Fields(args))
	return started, code, ownLines.ReplaceAllString(output.String(), "")
}

// ownLines matches the first and last line of serve.
var ownLines = regexp.MustCompile(`.*"lapse (starts|has stopped)".*\n`)

func joined[T ~string](names []T) string {
	var all []string
	for _, name := range names {
		all = append(all, string(name))
	}
	return strings.Join(all, " ")
}
