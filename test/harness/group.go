package harness

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// ServeWithin is Serve in a control group that may take so many bytes of memory, its files'
// pages included. It skips the test where it cannot make one.
func ServeWithin(t testing.TB, bytes int64, args ...string) *Server {
	t.Helper()
	group, err := makeGroup(bytes)
	if err != nil {
		t.Skipf("LEFT OUT: a control group of %d MiB cannot be made here: %v", bytes>>20, err)
	}
	t.Cleanup(func() {
		// It is busy until the kernel has ended its processes.
		for end := time.Now().Add(processTimeout); os.Remove(group) != nil && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond)
		}
	})
	return (&Server{t: t, Dir: t.TempDir(), Addr: FreeAddr(t), args: args, group: group}).serve()
}

// makeGroup makes a control group with a memory limit: of version 1 below that of the test,
// of version 2 below the nearest that shares memory out.
func makeGroup(bytes int64) (dir string, err error) {
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	err = os.ErrNotExist
	for line := range strings.Lines(string(groups)) {
		_, line, _ = strings.Cut(strings.TrimSpace(line), ":")
		controllers, own, _ := strings.Cut(line, ":")
		if controllers == "memory" {
			return limitedGroup(filepath.Join("/sys/fs/cgroup/memory", own), "memory.limit_in_bytes", bytes)
		}
		for above := own; controllers == "" && err != nil; above = filepath.Dir(above) {
			parent := filepath.Join("/sys/fs/cgroup", above)
			if shared, _ := os.ReadFile(filepath.Join(parent, "cgroup.subtree_control")); strings.Contains(string(shared), "memory") {
				dir, err = limitedGroup(parent, "memory.max", bytes)
			}
			if above == "/" {
				break
			}
		}
	}
	return dir, err
}

func limitedGroup(parent, file string, bytes int64) (dir string, err error) {
	if dir, err = os.MkdirTemp(parent, "lapse-test-"); err != nil {
		return "", err
	}
	if err = os.WriteFile(filepath.Join(dir, file), []byte(strconv.FormatInt(bytes, 10)), 0o600); err != nil {
		_ = os.Remove(dir)
	}
	return dir, err
}
