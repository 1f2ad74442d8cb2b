// Package child makes the commands that tests run. None of them has the environment of the
// test process, where the shell of a developer and other tests set variables.
package child

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"testing"
)

// inherited names the variables that every program needs.
var inherited = []string{"PATH", "TMPDIR", "TMP", "TEMP"}

// atStart is the environment before any test changed it.
var atStart = os.Environ()

// Command returns a command whose environment says where programs and temporary files are,
// that its home is an empty directory, and that the time zone is UTC. The caller appends to
// Env what else the program needs.
func Command(t testing.TB, name string, args ...string) *exec.Cmd {
	t.Helper()
	return CommandContext(context.Background(), t, name, args...)
}

// CommandContext is Command for a program that is killed when ctx ends.
func CommandContext(ctx context.Context, t testing.TB, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = []string{"HOME=" + t.TempDir(), "TZ=UTC"}
	for _, variable := range inherited {
		if value, ok := os.LookupEnv(variable); ok {
			cmd.Env = append(cmd.Env, variable+"="+value)
		}
	}
	return cmd
}

// Tool returns a command of the developer's own, such as go or npm, which keeps settings and
// caches in the developer's home: it has the environment in which the tests were started.
func Tool(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = slices.Clone(atStart) // callers append
	return cmd
}
