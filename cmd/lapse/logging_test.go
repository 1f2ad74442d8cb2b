package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/lapsedb/lapse/host"
	"github.com/lapsedb/lapse/processor/observe"
)

// logOf returns what serve logs while run stands in for the host.
func logOf(t *testing.T, args string, journal bool, run func(host.Options) error, environment ...string) (code int, printed string) {
	t.Helper()
	var output bytes.Buffer
	a := newApp(strings.NewReader(""), &output, &output)
	a.environment, a.journal = environment, journal
	a.host = func(_ context.Context, o host.Options) error { return run(o) }
	code = a.run(t.Context(), strings.Fields("serve "+args))
	return code, output.String()
}

func opened(o host.Options) error {
	o.Events(host.Opened{})
	return nil
}

// TestFirstLine: the first line has the version, the addresses, and the options that are not
// defaults, but no login, and not the letters of the ready line.
func TestFirstLine(t *testing.T) {
	user, err := nkeys.CreateUser()
	check(t, err)
	nkey, err := user.PublicKey()
	check(t, err)
	password := filepath.Join(t.TempDir(), "password")
	check(t, os.WriteFile(password, []byte("secret\n"), 0o600))
	for args, want := range map[string]string{
		"--user alice=" + password: "listen=127.0.0.1:4222 console=127.0.0.1:8280 options.user=…",
		"":                         "listen=127.0.0.1:4222 console=127.0.0.1:8280",
		"--listen 127.0.0.1:1 --console off --metrics 127.0.0.1:2 --health-socket /s": "health-socket=/s listen=127.0.0.1:1 metrics=127.0.0.1:2",
		"--database a,b --durability os --no-auth --retain 30d":                       "listen=127.0.0.1:4222 console=127.0.0.1:8280 options.database=a,b options.durability=os options.no-auth=true options.retain=30d",
		"--store-dir /al/already/DIR --database ready --listen 127.0.0.1:0":           "listen=127.0.0.1:0 console=127.0.0.1:8280 options.database=… options.store-dir=/al/al…/DIR",
		"--nats-url nats://alice:secret@n1,nats://secret@n2 --nkey log=file":          "options.nats-url=nats://n1,nats://n2 options.nkey=\"log=file\"",
		"--operator-nkey " + nkey + " --cache-bytes 1GiB":                             "listen=127.0.0.1:4222 console=127.0.0.1:8280 options.cache-bytes=1GiB options.operator-nkey=…",
	} {
		_, printed := logOf(t, args, false, opened)
		first, _, _ := strings.Cut(printed, "\n")
		words := strings.Fields(first)
		for _, word := range strings.Fields(want) {
			if i := slices.Index(words, word); i < 0 {
				t.Errorf("serve %s: %s is not in\n%s", args, word, first)
			} else {
				words[i] = ""
			}
		}
		rest := strings.TrimSpace(strings.Join(words, " "))
		if !regexp.MustCompile(`^time=\S+ level=INFO msg="lapse starts" version=\S+( commit=\S+)?$`).MatchString(rest) {
			t.Errorf("serve %s: more than %s is in\n%s", args, want, first)
		}
		if regexp.MustCompile(`(?i)ready|alice|secret`).MatchString(printed) || strings.Contains(printed, nkey) {
			t.Errorf("serve %s: it says\n%s", args, printed)
		}
	}
	if _, printed := logOf(t, "", false, opened, "LAPSE_RETAIN=1h"); !strings.Contains(printed, " options.retain=1h\n") {
		t.Errorf("an option of the environment is not in\n%s", printed)
	}
}

// TestFirstLineIsFirst: a line of the start comes after the first line, and has not the letters
// of the ready line. Only an error that ends the start before anything else is alone.
func TestFirstLineIsFirst(t *testing.T) {
	code, printed := logOf(t, "", false, func(o host.Options) error {
		o.Processor.Logger.With("database", "READY-a").WithGroup("g").Warn("a warning", "b", "\"ready\"")
		o.Events(host.Opened{})
		o.Events(host.Ready{})
		o.Processor.Logger.Warn("another", "database", "ready-a")
		return errors.New("it \"fails\"")
	})
	want := `^time=\S+ level=INFO msg="lapse starts" .*\n` +
		`time=\S+ level=WARN msg="a warning" database=…-a g.b="\\"…\\""\n` +
		`time=\S+ level=INFO msg="ready: .*\n` +
		`time=\S+ level=WARN msg=another database=ready-a\n` +
		`time=\S+ level=ERROR msg="it \\"fails\\"" ran=\S+s\n$`
	if code != exitFailed || !regexp.MustCompile(want).MatchString(printed) {
		t.Errorf("exit %d:\n%s", code, printed)
	}
	code, printed = logOf(t, "", false, func(host.Options) error { return usageErrorf("no") })
	if code != exitUsage || !regexp.MustCompile(`^time=\S+ level=ERROR msg=no ran=\S+s\n$`).MatchString(printed) {
		t.Errorf("exit %d:\n%s", code, printed)
	}
}

// TestLogIsJSON: with json every line is JSON, and lengths of time are numbers of seconds.
func TestLogIsJSON(t *testing.T) {
	_, printed := logOf(t, "--log-format json", false, func(o host.Options) error {
		observe.LogReachable{After: 1500 * time.Millisecond}.Log(o.Processor.Logger)
		o.Events(host.Ready{Process: "OURS", Databases: []host.Served{{Name: "main", Role: "writer"}}})
		o.Events(host.NotServed{Err: errors.New("database b is not served")})
		return nil
	})
	type line struct {
		Msg, Level string
		After      float64
		Ran        *float64
	}
	var lines []line
	for text := range strings.Lines(printed) {
		var l line
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		lines = append(lines, l)
	}
	if len(lines) != 5 || lines[1].After != 1.5 || !regexp.MustCompile(`^ready: .* \(process OURS, pid \d+ on .+\)$`).MatchString(lines[2].Msg) || lines[3].Level != "ERROR" || lines[4].Ran == nil {
		t.Errorf("it says\n%s", printed)
	}
}

// TestLogLevel: of the lines below the level, the log has the ready line only.
func TestLogLevel(t *testing.T) {
	_, printed := logOf(t, "--log-level error", false, func(o host.Options) error {
		o.Events(host.Opened{})
		o.Processor.Logger.Warn("a warning")
		o.Events(host.Ready{Databases: []host.Served{{Name: "main", Role: "writer"}}})
		return nil
	})
	if !regexp.MustCompile(`^time=\S+ level=INFO msg="ready: .*\n$`).MatchString(printed) {
		t.Errorf("it says\n%s", printed)
	}
}

// TestJournal: lines for the journal of systemd begin with their priority, whatever they are.
func TestJournal(t *testing.T) {
	_, printed := logOf(t, "--log-level debug", true, func(o host.Options) error {
		for _, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
			o.Processor.Logger.With("a", 1).WithGroup("g").Log(t.Context(), level, "line")
		}
		o.Events(host.Ready{})
		return errors.New("it fails")
	})
	var got string
	for text := range strings.Lines(printed) {
		if p := regexp.MustCompile(`^(<\d>)time=`).FindStringSubmatch(text); p != nil {
			got += p[1]
		}
	}
	if want := "<6><7><6><4><3><6><3>"; got != want {
		t.Errorf("priorities are %s, want %s:\n%s", got, want, printed)
	}
	if _, printed := logOf(t, "--retain x", true, opened); !strings.HasPrefix(printed, "<3>lapse: ") {
		t.Errorf("wrong usage: %s", printed)
	}
}
