package harness

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lapsedb/lapse/test/child"
)

// commandTimeout bounds a command that should end by itself, and each wait for a line.
const commandTimeout = 60 * time.Second

// Result is the exit code and output of a command.
type Result struct {
	t      testing.TB
	line   string
	Code   int
	Stdout string
	Stderr string
}

// Run runs a lapse command to its end, with stdin, which may be nil.
func Run(t testing.TB, stdin io.Reader, args ...string) Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := child.CommandContext(ctx, t, binary, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &stdout, &stderr
	err := cmd.Run()
	r := Result{t: t, line: "lapse " + strings.Join(args, " "), Code: cmd.ProcessState.ExitCode(),
		Stdout: stdout.String(), Stderr: stderr.String()}
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && (!exited || ctx.Err() != nil) {
		t.Fatalf("%s: %v\n%s", r.line, errors.Join(err, ctx.Err()), r.Stderr)
	}
	return r
}

// Command returns a lapse command for a test that starts and ends it itself.
func Command(t testing.TB, args ...string) *exec.Cmd { return child.Command(t, binary, args...) }

// Exits fails the test unless the command ended with code and, if code is not 0, wrote
// one line to stderr, not counting what serve logs of its start.
func (r Result) Exits(code int) Result {
	r.t.Helper()
	if r.Code != code {
		r.t.Fatalf("%s: exit %d, want %d\n%s%.4000s", r.line, r.Code, code, r.Stderr, r.Stdout)
	}
	problems := slices.DeleteFunc(Lines(r.Stderr), func(line string) bool { return strings.Contains(line, "level=INFO") })
	if code != 0 && (len(problems) != 1 || !strings.HasSuffix(r.Stderr, "\n")) {
		r.t.Fatalf("%s: exit %d with\n%s\nwant one line", r.line, code, r.Stderr)
	}
	return r
}

// OK fails the test unless the command ended with 0. It returns stdout.
func (r Result) OK() string {
	r.t.Helper()
	return r.Exits(0).Stdout
}

// Lines returns the lines of s without their ends.
func Lines(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(s, "\n"), "\n")
}
