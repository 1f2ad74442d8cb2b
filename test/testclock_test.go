package test

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/test/harness"
)

// exportedLog has the lines of a log, without the internal event at its beginning.
var exportedLog = []string{
	`{"seq":2,"time":"2026-01-01T00:00:00.000Z","type":"CollectionCreated","collection":"s","body":{"defaultTtl":60,"indexingPolicy":{"indexingMode":"consistent","includedPaths":[]},"previousImages":true}}` + "\n",
	`{"seq":3,"time":"2026-01-01T00:00:05.000Z","type":"DocumentCreated","collection":"s","id":"a","body":{"id":"a","user":"x"}}` + "\n",
	`{"seq":4,"time":"2026-01-01T00:01:05.000Z","type":"DocumentExpired","collection":"s","id":"a","previous":3,"deadline":1767225665,"ttl":60,"rule":"collection","body":{"id":"a","user":"x"}}` + "\n",
}

// TestLapseTest: lapse test prints one line of JSON when it serves, moves the clock, keeps
// nothing on disk, and ends with 0 on SIGTERM.
func TestLapseTest(t *testing.T) {
	dead := filepath.Join(t.TempDir(), "lapse-test-1")
	check(t, os.Mkdir(dead, 0o700))
	check(t, os.WriteFile(filepath.Join(dead, "lock"), nil, 0o600))
	cmd := harness.Command(t, "test", "--listen", "127.0.0.1:0", "--at", "2026-01-01T00:00:00Z")
	cmd.Env = append(cmd.Env, "TMPDIR="+filepath.Dir(dead), "LAPSE_STORE_DIR=/nowhere")
	cmd.Dir = t.TempDir()
	out, err := cmd.StdoutPipe()
	check(t, err)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	check(t, cmd.Start())
	lines := bufio.NewScanner(out)
	lines.Scan()
	var ready struct{ Event, NATS, Console string }
	if err := json.Unmarshal(lines.Bytes(), &ready); err != nil || ready.Event != "ready" || ready.Console != "" {
		t.Errorf("it prints %q: %v", lines.Text(), err)
	}
	nc, err := nats.Connect(ready.NATS, nats.Timeout(time.Minute))
	check(t, err)
	defer nc.Close()
	if r, err := nc.Request("lapse.main.test.advance", []byte(`{"by":"1d"}`), time.Minute); err != nil || string(r.Data) != `{"now":1767312000000,"seq":1,"events":0}` {
		t.Errorf("%+v, %v", r, err)
	}
	readMoved(t, nc, ready.NATS)
	check(t, cmd.Process.Signal(syscall.SIGTERM))
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
		"--load - --at now", "--listen 0.0.0.0:0", "--console 0.0.0.0:0", "--metrics x"} {
		harness.Run(t, nil, append([]string{"test"}, strings.Fields(args)...)...).Exits(2)
	}
	for _, wrong := range []struct{ args, log, says string }{
		{"--load -", "", "there is no event: give the output of `lapse export`"},
		{"--load -", `{"user":"x"}`, "line 1 is no event"},
		{"--load -", exportedLog[1], "line 1: DocumentCreated 3 is not the first event of a log: load the whole log from its beginning"},
		{"--load -", exportedLog[0] + exportedLog[2], "1 of 4 events do not fit the events before them: load the whole log from its beginning"},
		{"--load -", exportedLog[1] + exportedLog[0], "is not the first event"},
		{"--load -", exportedLog[0] + exportedLog[0], "line 2: event 2 comes after event 2"},
		{"--load " + filepath.Join(cmd.Dir, "none"), "", "no such file or directory"},
	} {
		refusal(t, harness.Run(t, strings.NewReader(wrong.log), append([]string{"test", "--listen", "127.0.0.1:0"}, strings.Fields(wrong.args)...)...), wrong.says)
	}
}

// readMoved writes to a lapse test, moves its clock, and reads by commands, which count from
// that clock.
func readMoved(t *testing.T, nc *nats.Conn, url string) {
	t.Helper()
	mustAsk(t, nc, 201, "collection.create.s", `{"defaultTtl":60}`)
	mustAsk(t, nc, 201, "document.create.s.a", `{}`)
	if _, err := nc.Request("lapse.main.test.advance", []byte(`{"by":"10d"}`), time.Minute); err != nil {
		t.Fatal(err)
	}
	mustAsk(t, nc, 201, "document.create.s.b", `{}`)
	run := func(args ...string) string { return harness.Run(t, nil, append(args, "--server", url)...).OK() }
	log := run("export")
	if n := len(harness.Lines(log)); n != 4 || len(harness.Lines(run("export", "--until", "9d"))) != 3 {
		t.Errorf("it exports %d events, of which 3 are older than 9 days:\n%s", n, log)
	}
	run("audit")
	if digest := strings.TrimSpace(harness.Run(t, strings.NewReader(log), "replay", "-").OK()); !strings.Contains(run("status", "--json"), digest) {
		t.Errorf("status has not digest %s", digest)
	}
	watch := harness.Command(t, "watch", "--since", "9d", "--json", "--server", url)
	out, err := watch.StdoutPipe()
	if err == nil {
		err = watch.Start()
	}
	check(t, err)
	if lines := bufio.NewScanner(out); !lines.Scan() || !strings.Contains(lines.Text(), `"id":"b"`) {
		t.Errorf("watch begins with %s", lines.Text())
	}
	if err := errors.Join(watch.Process.Signal(os.Interrupt), watch.Wait()); err != nil {
		t.Error(err)
	}
}
