package harness

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/lapsedb/lapse/test/child"
)

// Follower is a client command that runs until it is interrupted, such as watch.
type Follower struct {
	t      testing.TB
	cmd    *exec.Cmd
	lines  chan string
	stderr bytes.Buffer
}

// Follow starts a client command against the server.
func (s *Server) Follow(args ...string) *Follower {
	s.t.Helper()
	return Follow(s.t, append(args, "--server", s.URL())...)
}

// Follow starts a client command.
func Follow(t testing.TB, args ...string) *Follower {
	t.Helper()
	f := &Follower{t: t, cmd: child.Command(t, binary, args...), lines: make(chan string, 1024)}
	f.cmd.Stderr = &f.stderr
	stdout, err := f.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := f.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(f.lines)
		for scanner := bufio.NewScanner(stdout); scanner.Scan(); {
			f.lines <- scanner.Text()
		}
	}()
	t.Cleanup(func() { _ = f.cmd.Process.Kill(); _ = f.cmd.Wait() })
	return f
}

// Line waits for the next line that the command prints.
func (f *Follower) Line() string {
	f.t.Helper()
	select {
	case line, ok := <-f.lines:
		if ok {
			return line
		}
		_ = f.cmd.Wait()
		f.t.Fatalf("%v ended with %d:\n%s", f.cmd.Args[1:], f.cmd.ProcessState.ExitCode(), f.stderr.String())
	case <-time.After(commandTimeout):
		f.t.Fatalf("%v printed no line within %s", f.cmd.Args[1:], commandTimeout)
	}
	return ""
}

// Interrupt sends Ctrl-C and returns the result of the command, with the output that
// Line has not read.
func (f *Follower) Interrupt() Result {
	f.t.Helper()
	if err := f.cmd.Process.Signal(os.Interrupt); err != nil {
		f.t.Fatal(err)
	}
	var rest bytes.Buffer
	for line := range f.lines {
		rest.WriteString(line + "\n")
	}
	_ = f.cmd.Wait()
	return Result{t: f.t, line: "lapse " + f.cmd.Args[1], Code: f.cmd.ProcessState.ExitCode(),
		Stdout: rest.String(), Stderr: f.stderr.String()}
}
