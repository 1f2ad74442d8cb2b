package test

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/test/harness"
)

// TestLapseTest: lapse test prints one line of JSON when it serves, moves the clock, keeps
// nothing on disk, and ends with 0 on SIGTERM.
func TestLapseTest(t *testing.T) {
	dead := filepath.Join(t.TempDir(), "lapse-test-1")
	if err := os.Mkdir(dead, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dead, "lock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := harness.Command(t, "test", "--listen", "127.0.0.1:0", "--at", "2026-01-01T00:00:00Z")
	cmd.Env = append(cmd.Env, "TMPDIR="+filepath.Dir(dead), "LAPSE_STORE_DIR=/nowhere")
	cmd.Dir = t.TempDir()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	lines.Scan()
	var ready struct{ Event, NATS, Console string }
	if err := json.Unmarshal(lines.Bytes(), &ready); err != nil || ready.Event != "ready" || ready.Console != "" {
		t.Errorf("it prints %q: %v", lines.Text(), err)
	}
	nc, err := nats.Connect(ready.NATS, nats.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if r, err := nc.Request("lapse.main.test.advance", []byte(`{"by":"1d"}`), time.Minute); err != nil || string(r.Data) != `{"now":1767312000000,"seq":1,"events":0}` {
		t.Errorf("%+v, %v", r, err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if lines.Scan() {
		t.Errorf("it prints another line, %q", lines.Text())
	}
	if err := cmd.Wait(); err != nil || stderr.Len() > 0 {
		t.Errorf("it ends with %v: %s", err, stderr.String())
	}
	for _, dir := range []string{dead, cmd.Dir} {
		if files, _ := os.ReadDir(dir); len(files) > 0 {
			t.Errorf("%s has %v", dir, files)
		}
	}
	for _, args := range []string{"--store-dir x", "--database x", "--at 1969-12-31T23:59:59Z", "--at 10000-01-01T00:00:00Z", "--at soon",
		"--listen 0.0.0.0:0", "--console 0.0.0.0:0", "--metrics x"} {
		harness.Run(t, nil, append([]string{"test"}, strings.Fields(args)...)...).Exits(2)
	}
}
