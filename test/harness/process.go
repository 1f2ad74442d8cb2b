package harness

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// processTimeout bounds the start and the end of a program: far more than either takes,
// for busy machines.
const processTimeout = time.Minute

var ready = regexp.MustCompile(`\bready\b`)

// Process is a program that a test started, and must end.
type Process struct {
	*exec.Cmd
	Ready chan struct{} // closed when it has printed the word "ready"
	Ended chan struct{} // closed when it has ended and all its output is kept

	log   io.Writer
	mu    sync.Mutex
	text  strings.Builder
	ready bool
}

// StartProcess starts a program. It keeps the output that cmd does not redirect, and
// copies it to log, unless that is nil.
func StartProcess(t testing.TB, cmd *exec.Cmd, log io.Writer) *Process {
	t.Helper()
	p := &Process{Cmd: cmd, log: log, Ready: make(chan struct{}), Ended: make(chan struct{})}
	if cmd.Stdout == nil {
		cmd.Stdout = p
	}
	if cmd.Stderr == nil {
		cmd.Stderr = p
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.Ended)
		_ = cmd.Wait() // the exit code is in ProcessState
	}()
	return p
}

// Write keeps what the program prints.
func (p *Process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.text.Write(b)
	if p.log != nil {
		_, _ = p.log.Write(b)
	}
	if !p.ready && ready.MatchString(p.text.String()) {
		p.ready = true
		close(p.Ready)
	}
	return len(b), nil
}

// Output returns the kept output of the program.
func (p *Process) Output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// End sends a signal, if the program has not ended, and returns its exit code.
func (p *Process) End(signal os.Signal) (code int) {
	_ = p.Process.Signal(signal)
	return p.code()
}

// code waits for the end of the program and returns its exit code, -1 if a signal ended
// it. A program that does not end in time is killed, and -2 returned.
func (p *Process) code() int {
	select {
	case <-p.Ended:
		return p.ProcessState.ExitCode()
	case <-time.After(processTimeout):
		p.Kill()
		return -2
	}
}

// Freeze stops the program until SIGCONT, and returns when it has stopped. The system
// keeps its connections.
func (p *Process) Freeze() error {
	err := p.Process.Signal(freeze)
	for err == nil && !stopped(p.Process.Pid) {
		select {
		case <-p.Ended:
			return os.ErrProcessDone
		case <-time.After(time.Millisecond):
		}
	}
	return err
}

// stopped reports whether all threads of a process are stopped, according to /proc.
// Without /proc it returns true.
func stopped(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, path := range threads {
		stat, err := os.ReadFile(path)
		// The state follows the name, which is in brackets and may hold anything.
		if i := bytes.LastIndexByte(stat, ')'); err == nil && !bytes.HasPrefix(stat[i+1:], []byte(" T")) {
			return false
		}
	}
	return true
}

// Kill ends the program at once, if it has not ended.
func (p *Process) Kill() {
	_ = p.Process.Kill()
	<-p.Ended
}
