package harness

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lapsedb/lapse/test/child"
)

// Server is a `lapse serve` on a store directory and port of its own. It may
// be ended and started again any number of times; the test's end kills it.
type Server struct {
	t    testing.TB
	Dir  string // --store-dir
	Addr string // --listen
	args []string

	remote string    // --nats-url instead of --listen, if not empty
	log    io.Writer // gets the stderr of all its processes, if not nil

	group string // the control group of its processes, if not empty

	process *Process
}

// Serve starts a server and returns when it is ready. args are those of lapse
// serve besides --store-dir and --listen.
func Serve(t testing.TB, args ...string) *Server {
	t.Helper()
	return ServeIn(t, t.TempDir(), args...)
}

// ServeIn is Serve with an existing store directory.
func ServeIn(t testing.TB, dir string, args ...string) *Server {
	t.Helper()
	return (&Server{t: t, Dir: dir, Addr: FreeAddr(t), args: args}).serve()
}

// ServeRemote is ServeIn on an existing NATS server, at url: dir has the projection. The
// stderr of all starts also goes to log.
func ServeRemote(t testing.TB, url, dir string, log io.Writer, args ...string) *Server {
	t.Helper()
	return (&Server{t: t, Dir: dir, remote: url, log: log, args: args}).serve()
}

// serve starts the server until the test ends. A test that fails logs the stderr of the
// last start.
func (s *Server) serve() *Server {
	s.t.Helper()
	s.t.Cleanup(func() {
		if s.process == nil {
			return
		}
		s.Kill()
		if s.t.Failed() {
			s.t.Logf("%s printed\n%s", s, s.Stderr())
		}
	})
	s.Restart()
	return s
}

// URL returns the URL for clients.
func (s *Server) URL() string {
	if s.remote != "" {
		return s.remote
	}
	return "nats://" + s.Addr
}

// PID returns the ID of the server's current process.
func (s *Server) PID() int { return s.process.Process.Pid }

// Args returns the command line of the server, without the command's name.
func (s *Server) Args() []string {
	where := []string{"--listen", s.Addr}
	if s.remote != "" {
		where = []string{"--nats-url", s.remote}
	} else if !slices.Contains(s.args, "--console") {
		where = append(where, "--console", "off")
	}
	return slices.Concat([]string{"serve", "--store-dir", s.Dir}, where, s.args)
}

// Restart starts the server again after Stop, Interrupt or Kill, on the same
// directory and port.
func (s *Server) Restart() {
	s.t.Helper()
	if !s.Start() {
		s.t.Fatalf("serve ended with %d before it was ready:\n%s", s.process.ProcessState.ExitCode(), s.Stderr())
	}
}

// Start is Restart for a server that may refuse to start: it reports whether the server
// is ready. A server that ends by itself must exit with 1.
func (s *Server) Start() (ready bool) {
	s.t.Helper()
	p := s.start()
	select {
	case <-p.Ready:
		return true
	case <-p.Ended:
		if code := p.ProcessState.ExitCode(); code != 1 {
			s.t.Fatalf("serve ended with %d before it was ready:\n%s", code, p.Output())
		}
	case <-time.After(processTimeout):
		s.t.Fatalf("serve was not ready within %s:\n%s", processTimeout, p.Output())
	}
	return false
}

func (s *Server) start() *Process {
	s.t.Helper()
	cmd := child.Command(s.t, binary, s.Args()...)
	if s.group != "" {
		enter := append([]string{"-c", `echo $$ > "$0" && exec "$@"`, filepath.Join(s.group, "cgroup.procs")}, cmd.Args...)
		cmd.Path, cmd.Args = "/bin/sh", append([]string{"sh"}, enter...)
	}
	cmd.Stdout = io.Discard
	s.process = StartProcess(s.t, cmd, s.log)
	return s.process
}

// Stderr returns the stderr of the server since its last start.
func (s *Server) Stderr() string { return s.process.Output() }

// Stop ends the server with SIGTERM and returns how long that took. It fails
// the test unless the server exits with 0.
func (s *Server) Stop() time.Duration {
	s.t.Helper()
	return s.end(syscall.SIGTERM, 0)
}

// With sets the arguments of lapse serve for the next start, as Serve does.
func (s *Server) With(args ...string) { s.args = args }

// Freeze stops the server until SIGCONT, and returns when it has stopped.
func (s *Server) Freeze() {
	s.t.Helper()
	if err := s.process.Freeze(); err != nil {
		s.t.Fatalf("freeze serve: %v\n%s", err, s.process.Output())
	}
}

// Signal sends a signal to the server, which must run.
func (s *Server) Signal(signal os.Signal) {
	s.t.Helper()
	if err := s.process.Process.Signal(signal); err != nil {
		s.t.Fatalf("%s to serve: %v\n%s", signal, err, s.process.Output())
	}
}

// Interrupt is Stop with SIGINT, which is what Ctrl-C sends.
func (s *Server) Interrupt() time.Duration {
	s.t.Helper()
	return s.end(os.Interrupt, 0)
}

// Hangup is Stop with SIGHUP, which is what the end of a terminal sends.
func (s *Server) Hangup() time.Duration {
	s.t.Helper()
	return s.end(syscall.SIGHUP, 0)
}

// Kill ends the server with SIGKILL, if it has not ended yet.
func (s *Server) Kill() {
	s.t.Helper()
	select {
	case <-s.process.Ended:
	default:
		s.end(os.Kill, -1)
	}
}

func (s *Server) end(signal os.Signal, code int) time.Duration {
	s.t.Helper()
	began := time.Now()
	s.Signal(signal)
	if got := s.process.code(); got != code {
		s.t.Fatalf("serve exited with %d after %s, want %d:\n%s", got, signal, code, s.Stderr())
	}
	return time.Since(began)
}

// Run runs a client command against the server.
func (s *Server) Run(args ...string) Result {
	s.t.Helper()
	return Run(s.t, nil, append(args, "--server", s.URL())...)
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
	s.Signal(signal)
	return s.process.code()
}
