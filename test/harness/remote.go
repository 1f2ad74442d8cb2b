package harness

import (
	"io"
	"testing"
)

// ServeRemote starts lapse serve on a NATS that is there already, at url, and
// keeps its projection in dir. What it prints goes to log, too, with all of its
// starts.
func ServeRemote(t testing.TB, url, dir string, log io.Writer, args ...string) *Server {
	t.Helper()
	s := &Server{t: t, Dir: dir, remote: url, log: log, args: args}
	t.Cleanup(func() {
		if s.process != nil {
			s.Kill()
		}
	})
	s.Restart()
	return s
}
