package action

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"slices"
	"strings"

	"github.com/lapsedb/lapse/client"
)

// Exec runs a command by /bin/sh -c, with the event as JSON on standard input. It is done if
// the command exits with 0. The command has no secrets of lapse: its environment is a
// short list (passed), and what it prints goes where the caller says.
type Exec struct {
	Command        string
	Environment    []string  // NAME=VALUE, of which the command gets those that it may have
	Stdout, Stderr io.Writer // of the command; nil for none
}

// passed are the variables that a command gets, and those that begin with LC_. All others may
// be credentials.
var passed = []string{"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR"}

// environment returns the variables of the command, with LAPSE_SEQ for the event.
func (x Exec) environment(e *client.Event) (own []string) {
	for _, variable := range x.Environment {
		if name, _, _ := strings.Cut(variable, "="); slices.Contains(passed, name) || strings.HasPrefix(name, "LC_") {
			own = append(own, variable)
		}
	}
	return append(own, fmt.Sprintf("LAPSE_SEQ=%d", e.Seq))
}

// Preview implements Action.
func (x Exec) Preview(e *client.Event) (any, error) {
	return map[string]any{"exec": x.Command, "environment": x.environment(e), "input": e}, nil
}

// Try implements Action. A command that still runs when ctx is done gets SIGTERM, and SIGKILL
// after 5 s, each with the commands that it has started. A command that leaves processes
// behind in the background does not keep the event: after killDelay its standard streams
// are closed, and it counts by its exit code.
func (x Exec) Try(ctx context.Context, e *client.Event) error {
	input, err := e.MarshalJSON()
	if err != nil {
		return err
	}
	cmd := exec.Command("/bin/sh", "-c", x.Command)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(append(input, '\n')), x.Stdout, x.Stderr
	cmd.Env = x.environment(e)
	cmd.WaitDelay = killDelay // for what the command left behind with its standard streams
	ownGroup(cmd)
	// Linux kills the command if the thread that started it ends before, as after kill -9.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		if errors.Is(err, exec.ErrWaitDelay) {
			return nil // it has exited with 0
		}
		return err
	case <-ctx.Done():
	}
	endGroup(cmd)
	<-ended
	return fmt.Errorf("the command was ended: %w", context.Cause(ctx))
}
