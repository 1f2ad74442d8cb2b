//go:build unix

package test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lapsedb/lapse/test/harness"
)

// TestClockSetWhileDown: a process that starts does not trust a clock two hours ahead of
// the time expected from the machine's boot, until the operator accepts it. The test
// moves the expected time, not the clock.
func TestClockSetWhileDown(t *testing.T) {
	t.Parallel()
	metrics := harness.FreeAddr(t)
	s := harness.Serve(t, "--durability", "os", "--metrics", metrics)
	ready := func() bool { code, _ := get(t, metrics, "/readyz", ""); return code == 200 }
	s.Run("collection", "create", "orders", `{"defaultTtl":600}`).OK()
	s.Run("document", "create", "orders", "a", `{}`).OK()
	ahead := func() {
		t.Helper()
		path := filepath.Join(s.Dir, "clock")
		text, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) && runtime.GOOS != "linux" {
			t.Skip("the boot of this machine has no name")
		}
		var file struct {
			Boot   string    `json:"boot"`
			Origin time.Time `json:"origin"`
		}
		if err == nil {
			err = json.Unmarshal(text, &file)
		}
		file.Origin = file.Origin.Add(-2 * time.Hour)
		if err == nil {
			text, err = json.Marshal(file)
		}
		if err == nil {
			err = os.WriteFile(path, text, 0o600)
		}
		check(t, err)
	}
	for _, end := range []func(){func() { s.Stop() }, s.Kill} {
		end()
		ahead()
		s.Restart()
		refused := s.Run("document", "upsert", "orders", "b", `{}`)
		refusal(t, refused, "unavailable")
		if !strings.Contains(refused.Stderr, "2h0m0s ahead of what it should say") {
			t.Error(refused.Stderr)
		}
		s.Run("document", "get", "orders", "a").OK()
		// status --of is the health check of a container.
		if not := harness.Run(t, nil, "status", "--of", metrics).Exits(1); ready() || !strings.Contains(not.Stderr, "is not ready: the clock is not trusted: ") {
			t.Errorf("it is ready: %s", not.Stderr)
		}
		if code, text := get(t, metrics, "/healthz", ""); code != 200 {
			t.Errorf("/healthz says %d %q", code, text)
		}
		s.Signal(syscall.SIGUSR1)
		eventually(t, "the clock is accepted", ready)
		s.Run("document", "upsert", "orders", "a", `{}`).OK()
		s.Signal(syscall.SIGUSR1)
		eventually(t, "the signal is answered", func() bool { return strings.Contains(s.Stderr(), "nothing to accept") })
		s.Stop()
		s.Restart()
		s.Run("document", "upsert", "orders", "a", `{}`).OK()
	}
	s.Stop()
	ahead()
	s.With("--durability", "os", "--metrics", metrics, "--max-clock-step", "3h")
	s.Restart()
	s.Run("document", "upsert", "orders", "a", `{}`).OK()
}
