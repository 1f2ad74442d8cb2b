package harness

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// How long a server may take to start and to stop before a test gives up. They
// are far above what either takes, for machines that do much else.
const (
	startTimeout = 60 * time.Second
	stopTimeout  = 30 * time.Second
)

// Server is a `lapse serve` on a store directory and port of its own. It may
// be ended and started again any number of times; the test's end kills it.
type Server struct {
	t    testing.TB
	Dir  string // --store-dir
	Addr string // --listen
	args []string

	remote string    // --nats-url instead of --listen, if not empty
	log    io.Writer // takes what all its processes print, if not nil

	process *process
}

// process is one run of lapse serve.
type process struct {
	cmd   *exec.Cmd
	log   io.Writer
	ready chan struct{} // closed by the line with "ready"
	ended chan struct{} // closed when it is gone and stderr read to its end

	mu     sync.Mutex
	stderr strings.Builder
}

// Serve starts a server and returns when it is ready. args are those of lapse
// serve besides --store-dir and --listen.
func Serve(t testing.TB, args ...string) *Server {
	t.Helper()
	s := &Server{t: t, Dir: t.TempDir(), Addr: FreeAddr(t), args: args}
	t.Cleanup(func() {
		if s.process != nil {
			s.Kill()
		}
	})
	s.Restart()
	return s
}

// URL is where clients connect.
func (s *Server) URL() string {
	if s.remote != "" {
		return s.remote
	}
	return "nats://" + s.Addr
}

// PID is the process that the server is now.
func (s *Server) PID() int { return s.process.cmd.Process.Pid }

// Args is the command line of the server, without the command's name.
func (s *Server) Args() []string {
	where := []string{"--listen", s.Addr, "--console", "off"}
	if s.remote != "" {
		where = []string{"--nats-url", s.remote}
	}
	return slices.Concat([]string{"serve", "--store-dir", s.Dir}, where, s.args)
}

// Restart starts the server again after Stop, Interrupt or Kill, on the same
// directory and port.
func (s *Server) Restart() {
	s.t.Helper()
	if !s.Start() {
		s.t.Fatalf("serve ended with %d before it was ready:\n%s", s.process.cmd.ProcessState.ExitCode(), s.Stderr())
	}
}

// Start is Restart for a server that may refuse: it returns whether the server
// is ready. One that ends by itself has to do so with exit code 1.
func (s *Server) Start() (ready bool) {
	s.t.Helper()
	p := s.start()
	select {
	case <-p.ready:
		return true
	case <-p.ended:
		if code := p.cmd.ProcessState.ExitCode(); code != 1 {
			s.t.Fatalf("serve ended with %d before it was ready:\n%s", code, p.text())
		}
	case <-time.After(startTimeout):
		s.t.Fatalf("serve was not ready within %s:\n%s", startTimeout, p.text())
	}
	return false
}

func (s *Server) start() *process {
	s.t.Helper()
	p := &process{cmd: exec.Command(binary, s.Args()...), log: s.log, ready: make(chan struct{}), ended: make(chan struct{})}
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.process = p
	go func() {
		defer close(p.ended)
		p.read(stderr)
		_ = p.cmd.Wait() // its code is in ProcessState
	}()
	return p
}

func (p *process) read(stderr io.Reader) {
	ready := p.ready
	for lines := bufio.NewReader(stderr); ; {
		line, err := lines.ReadString('\n')
		p.mu.Lock()
		p.stderr.WriteString(line)
		p.mu.Unlock()
		if p.log != nil {
			_, _ = io.WriteString(p.log, line)
		}
		if ready != nil && strings.Contains(line, "ready") {
			close(ready)
			ready = nil
		}
		if err != nil {
			return
		}
	}
}

func (p *process) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stderr.String()
}

// Stderr is what the server has printed since its last start.
func (s *Server) Stderr() string { return s.process.text() }

// Stop ends the server with SIGTERM and returns how long that took. It fails
// the test unless the server exits with 0.
func (s *Server) Stop() time.Duration {
	s.t.Helper()
	return s.end(syscall.SIGTERM, 0)
}

// With sets the arguments of lapse serve for the next start, as Serve does.
func (s *Server) With(args ...string) { s.args = args }

// Signal sends the server a signal that does not end it.
func (s *Server) Signal(signal os.Signal) {
	s.t.Helper()
	if err := s.process.cmd.Process.Signal(signal); err != nil {
		s.t.Fatalf("%s to serve: %v\n%s", signal, err, s.process.text())
	}
}

// Interrupt is Stop with SIGINT, which is what Ctrl-C sends.
func (s *Server) Interrupt() time.Duration {
	s.t.Helper()
	return s.end(os.Interrupt, 0)
}

// Kill ends the server with SIGKILL, if it has not ended yet.
func (s *Server) Kill() {
	s.t.Helper()
	select {
	case <-s.process.ended:
	default:
		s.end(os.Kill, -1)
	}
}

func (s *Server) end(signal os.Signal, code int) time.Duration {
	s.t.Helper()
	p, began := s.process, time.Now()
	if err := p.cmd.Process.Signal(signal); err != nil {
		s.t.Fatalf("%s to serve: %v\n%s", signal, err, p.text())
	}
	select {
	case <-p.ended:
	case <-time.After(stopTimeout):
		_ = p.cmd.Process.Kill()
		s.t.Fatalf("serve did not end within %s of %s:\n%s", stopTimeout, signal, p.text())
	}
	if got := p.cmd.ProcessState.ExitCode(); got != code {
		s.t.Fatalf("serve exited with %d after %s, want %d:\n%s", got, signal, code, p.text())
	}
	return time.Since(began)
}

// Run runs a client command against the server.
func (s *Server) Run(args ...string) Result {
	s.t.Helper()
	return s.RunInput("", args...)
}

// RunInput is Run with standard input.
func (s *Server) RunInput(stdin string, args ...string) Result {
	s.t.Helper()
	return Run(s.t, strings.NewReader(stdin), append(args, "--server", s.URL())...)
}

// String names the server in messages.
func (s *Server) String() string { return fmt.Sprintf("serve at %s in %s", s.Addr, s.Dir) }

// StartAndSignal starts the server, sends a signal after a while, whether it is
// ready by then or not, and returns the exit code, -1 if the signal ended it.
func (s *Server) StartAndSignal(after time.Duration, signal os.Signal) int {
	s.t.Helper()
	s.start()
	time.Sleep(after)
	if err := s.process.cmd.Process.Signal(signal); err != nil {
		s.t.Fatal(err)
	}
	select {
	case <-s.process.ended:
	case <-time.After(stopTimeout):
		s.Kill()
		s.t.Fatalf("serve did not end within %s of %s:\n%s", stopTimeout, signal, s.process.text())
	}
	return s.process.cmd.ProcessState.ExitCode()
}
