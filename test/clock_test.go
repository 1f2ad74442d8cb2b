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

	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/processor/embedded"
	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/harness"
)

// TestClockSetWhileDown: a process that starts does not trust a clock two hours ahead of
// the time expected from the machine's boot, until the operator accepts it. The test
// moves the expected time, not the clock.
func TestClockSetWhileDown(t *testing.T) {
	t.Parallel()
	s := harness.Serve(t, "--durability", "os")
	s.Run("collection", "create", "orders", `{"defaultTtl":600}`).OK()
	s.Run("document", "create", "orders", "a", `{}`).OK()
	for _, end := range []func(){func() { s.Stop() }, s.Kill} {
		end()
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
		if err != nil {
			t.Fatal(err)
		}
		s.Restart()
		refused := s.Run("document", "upsert", "orders", "b", `{}`)
		refusal(t, refused, "unavailable")
		if !strings.Contains(refused.Stderr, "2h0m0s ahead of what it should say") {
			t.Error(refused.Stderr)
		}
		s.Run("document", "get", "orders", "a").OK()
		s.Signal(syscall.SIGUSR1)
		eventually(t, "the clock is accepted", func() bool { return s.Run("document", "upsert", "orders", "a", `{}`).Code == 0 })
		s.Stop()
		s.Restart()
		s.Run("document", "upsert", "orders", "a", `{}`).OK()
	}
}

// writeAt writes a document into the store of a server that is down, with a clock that is
// ahead by that much.
func writeAt(t *testing.T, dir string, ahead time.Duration) {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	server, err := embedded.Start(embedded.Options{StoreDir: dir, Listen: "127.0.0.1:0", Databases: []schema.DatabaseName{"main"}})
	check(err)
	defer server.Shutdown()
	logConn, err := server.ConnectLog()
	check(err)
	defer logConn.Close()
	serviceConn, err := server.ConnectService()
	check(err)
	defer serviceConn.Close()
	began := time.Now()
	p, err := processor.Start(t.Context(), eventlog.Connections{Log: logConn, Service: serviceConn}, processor.Options{
		Dir: filepath.Join(dir, "projection", "main"), Durability: processor.OS, AcceptClock: true, SameClock: true,
		Clock: func() (time.Time, time.Duration) { return time.Now().Add(ahead), time.Since(began) },
	})
	check(err)
	nc := harness.Dial(t, server.URL())
	defer nc.Close()
	mustAsk(t, nc, 201, "document.create.orders.late", `{}`)
	check(p.Stop())
}
