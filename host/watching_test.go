package host

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestListenUnix: a socket that nobody serves any more is replaced. One that another process
// serves, and a file, stay.
func TestListenUnix(t *testing.T) {
	path := filepath.Join(t.TempDir(), "health")
	live, err := listenUnix(path)
	check(t, err)
	if second, err := listenUnix(path); err == nil || !strings.Contains(err.Error(), "another program listens there") {
		t.Errorf("beside a process that serves the socket: %v, %v", second, err)
	}
	nc, err := net.Dial("unix", path)
	if err != nil {
		t.Fatalf("the socket is gone: %v", err)
	}
	_ = nc.Close()
	live.(*net.UnixListener).SetUnlinkOnClose(false) // as after a kill
	_ = live.Close()
	again, err := listenUnix(path)
	if err != nil {
		t.Fatalf("after a kill: %v", err)
	}
	_ = again.Close()
	check(t, os.WriteFile(path, []byte("text"), 0o600))
	if nc, err := listenUnix(path); err == nil || !strings.Contains(err.Error(), "no socket") {
		t.Errorf("instead of a file: %v, %v", nc, err)
	}
	if text, err := os.ReadFile(path); string(text) != "text" {
		t.Errorf("the file has %q, %v", text, err)
	}
}

// TestIndex: / lists the profiles only where they are served.
func TestIndex(t *testing.T) {
	for _, profiles := range []bool{true, false} {
		reply := httptest.NewRecorder()
		index(profiles)(reply, httptest.NewRequest(http.MethodGet, "/", nil))
		if text := reply.Body.String(); strings.Contains(text, "/debug/pprof/") != profiles || !strings.Contains(text, "/metrics ") {
			t.Errorf("with profiles %t it lists\n%s", profiles, text)
		}
	}
}
