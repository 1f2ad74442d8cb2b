package harness

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Terminate sends SIGTERM.
func (s *Server) Terminate() {
	s.t.Helper()
	s.Signal(syscall.SIGTERM)
}

// Ended returns a channel that is closed when the server has ended.
func (s *Server) Ended() <-chan struct{} { return s.process.Ended }

// Fails waits for the server to end with code 1 and returns the last line that
// it printed, which says why.
func (s *Server) Fails() string {
	s.t.Helper()
	p := s.process
	select {
	case <-p.Ended:
	case <-time.After(processTimeout):
		s.t.Fatalf("serve did not end within %s:\n%s", processTimeout, p.Output())
	}
	lines := Lines(p.Output())
	if code := p.ProcessState.ExitCode(); code != 1 || len(lines) == 0 || !strings.Contains(lines[len(lines)-1], " level=ERROR ") {
		s.t.Fatalf("serve exited with %d, want 1 and a line that says why:\n%s", code, p.Output())
	}
	return lines[len(lines)-1]
}

// SmallDisk creates dir and mounts an empty disk of that many bytes there until the test
// ends. It skips the test where mounting is not allowed.
func SmallDisk(t testing.TB, dir string, bytes int) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := mountMemory(dir, bytes); err != nil {
		t.Skipf("a disk to fill cannot be mounted: %v", err)
	}
	t.Cleanup(func() {
		if err := unmount(dir); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
}
