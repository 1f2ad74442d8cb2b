package harness

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// Memory returns the resident memory of the server process and its peak, in bytes. Linux
// only.
func (s *Server) Memory() Memory {
	s.t.Helper()
	return MemoryOf(s.t, s.PID())
}

// MemoryOf is Memory of any process.
func MemoryOf(t testing.TB, pid int) (m Memory) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		var kib int64
		if _, err := fmt.Sscanf(strings.TrimSpace(value), "%d kB", &kib); err != nil {
			continue
		}
		switch name {
		case "VmRSS":
			m.Now = kib << 10
		case "VmHWM":
			m.Most = kib << 10
		}
	}
	return m
}

// Memory is the resident memory of a process and its peak, in bytes.
type Memory struct{ Now, Most int64 }

func (m Memory) String() string { return fmt.Sprintf("%d MiB, at most %d MiB", m.Now>>20, m.Most>>20) }
