//go:build unix

package action

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/lapsedb/lapse/client"
)

// TestExec: the event is on standard input, its sequence and the harmless variables are in
// the environment, and exit code 0 is success.
func TestExec(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	environment := []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "LAPSE_CREDS=/secret", "NATS_URL=nats://a:secret@b", "CREDENTIALS_DIRECTORY=/secret"}
	x := Exec{Command: `cat; echo "$LAPSE_SEQ $LC_ALL"; env | grep -c secret; exit 0`, Environment: environment, Stdout: &out}
	e := anEvent(t)
	if err := x.Try(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	text, err := e.MarshalJSON()
	if want := string(text) + "\n7 C\n0\n"; err != nil || out.String() != want {
		t.Errorf("got %s, want %s, %v", out.String(), want, err)
	}
	for command, want := range map[string]string{"exit 3": "exit status 3", "kill -9 $$": "signal: killed", "no-such-command": "exit status 127", "true": "", "exec <&-": ""} {
		err := Exec{Command: command, Environment: environment}.Try(t.Context(), e)
		if err == nil && want != "" || err != nil && err.Error() != want {
			t.Errorf("%s: %v, want %q", command, err, want)
		}
	}
}

// TestExecEnds: a command that takes too long is ended with the commands that it has started,
// also those that ignore SIGTERM.
func TestExecEnds(t *testing.T) {
	t.Parallel()
	for name, command := range map[string]string{
		"a command":      `sleep 1000 & echo $! >pids; sleep 1000`,
		"that traps":     `trap 'echo ended >trapped; exit 0' TERM; sleep 1000 & echo $! >pids; wait`,
		"ignores signal": `trap '' TERM; sleep 1000 & echo $! >pids; sleep 1000`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			ctx, cancel := context.WithCancelCause(t.Context())
			done := make(chan error, 1)
			go func() {
				done <- Exec{Command: "cd " + dir + "; " + command, Environment: []string{"PATH=" + os.Getenv("PATH")}}.Try(ctx, anEvent(t))
			}()
			pid := 0
			for pid == 0 {
				text, _ := os.ReadFile(filepath.Join(dir, "pids"))
				pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
			}
			late := errors.New("too late")
			cancel(late)
			if err := <-done; !errors.Is(err, late) {
				t.Error(err)
			}
			for syscall.Kill(pid, 0) == nil && !zombie(pid) {
			}
			if _, err := os.Stat(filepath.Join(dir, "trapped")); (err == nil) != (name == "that traps") {
				t.Errorf("the trap: %v", err)
			}
		})
	}
}

// zombie reports whether a process has ended and its parent has not noticed.
func zombie(pid int) bool {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return strings.Contains(string(stat), ") Z ")
}

// TestPoisonFile: each event is a line, also after a line that was cut.
func TestPoisonFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "aside")
	for _, cut := range []string{"", `{"durable":"d","se`} {
		file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		put := PoisonFile(file, "d")
		for range 2 {
			if _, err := file.WriteString(cut); err != nil {
				t.Fatal(err)
			}
			if err := put(t.Context(), anEvent(t), errors.New("no")); err != nil {
				t.Fatal(err)
			}
			cut = ""
		}
		file.Close()
		if err := put(t.Context(), anEvent(t), errors.New("no")); err == nil {
			t.Error("it writes to a closed file")
		}
	}
	checkWhole(t, path, 4)
}

// checkWhole checks how many lines of a file are whole events.
func checkWhole(t *testing.T, path string, want int) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	whole := 0
	for line := range strings.Lines(string(text)) {
		var u struct {
			Durable, Error string
			Seq            uint64
			Event          *client.Event
		}
		if json.Unmarshal([]byte(line), &u) == nil && u.Seq == 7 && u.Error == "no" && u.Event.ID == "ann" {
			whole++
		}
	}
	if whole != want {
		t.Errorf("%d of %d lines are whole: %s", whole, want, text)
	}
}
