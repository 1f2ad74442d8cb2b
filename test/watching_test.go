package test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/lapsedb/lapse/test/harness"
)

// get sends a GET to the address of --metrics.
func get(t *testing.T, address, path, accept string) (code int, body string) {
	t.Helper()
	request, err := http.NewRequest(http.MethodGet, "http://"+address+path, nil)
	check(t, err)
	request.Header.Set("Accept", accept)
	response, err := http.DefaultClient.Do(request)
	check(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	check(t, err)
	return response.StatusCode, string(text)
}

// TestMetricsEndpoints: a real server answers the health, metrics and status requests of
// its monitoring.
func TestMetricsEndpoints(t *testing.T) {
	t.Parallel()
	metrics := harness.FreeAddr(t)
	s := harness.Serve(t, "--durability", "os", "--metrics", metrics, "--debug")
	s.Run("collection", "create", "orders", `{"defaultTtl":3600}`).OK()
	s.Run("document", "create", "orders", "a", `{}`).OK()

	for _, path := range []string{"/healthz", "/readyz"} {
		if code, text := get(t, metrics, path, ""); code != 200 || text != "ok\n" {
			t.Errorf("%s says %d %q", path, code, text)
		}
		if code, text := get(t, metrics, path, "application/json"); code != 200 || text != `{"ok":true,"reasons":[]}`+"\n" {
			t.Errorf("%s says %d %q to who wants JSON", path, code, text)
		}
	}
	if code, text := get(t, metrics, "/metrics", ""); code != 200 || !strings.Contains(text, "\nlapse_documents{database=\"main\"} 1\n") ||
		!strings.Contains(text, "\ngo_goroutines ") || !strings.Contains(text, "\nprocess_open_fds ") {
		t.Errorf("/metrics says %d:\n%s", code, text)
	}
	_, index := get(t, metrics, "/", "")
	var paths []string
	for _, line := range harness.Lines(index) {
		path := strings.Fields(line)[0]
		paths = append(paths, path)
		if code, _ := get(t, metrics, path, ""); code != 200 {
			t.Errorf("/ lists %s, which is %d", path, code)
		}
	}
	if want := []string{"/metrics", "/healthz", "/readyz", "/status", "/debug/pprof/"}; !slices.Equal(paths, want) {
		t.Errorf("/ lists %v, want %v", paths, want)
	}
	for path, want := range map[string]int{"/nothing": 404, "/readyz?database=a%2": 400, "/readyz?database=main": 200, "/readyz?database=other": 503} {
		if code, _ := get(t, metrics, path, ""); code != want {
			t.Errorf("%s is %d", path, code)
		}
	}
	var status struct {
		Database, Role         string
		Documents, LogEnd, Seq uint64
	}
	for _, text := range []string{s.Run("status").OK(), harness.Run(t, nil, "status", "--of", metrics).OK()} {
		if err := json.Unmarshal([]byte(text), &status); err != nil || status.Database != "main" || status.Role != "writer" ||
			status.Documents != 1 || status.LogEnd != status.Seq || status.Seq == 0 {
			t.Errorf("the status is %s: %v", text, err)
		}
	}
	var process struct {
		ID, Version, Role     string
		Seq, Requests, Errors uint64
	}
	all := s.Run("status", "--all").OK()
	if err := json.Unmarshal([]byte(all), &process); err != nil || process.Role != "writer" || process.Seq != status.Seq || process.Requests < 3 || process.ID == "" {
		t.Errorf("the processes are %s: %v", all, err)
	}
	s.Stop()
	result := harness.Run(t, nil, "status", "--of", metrics).Exits(1)
	if !strings.Contains(result.Stderr, "no lapse answers at "+metrics) {
		t.Errorf("status --of says %s", result.Stderr)
	}
}

// TestStatusWatch: --watch continues, with a message, while no server answers, and Ctrl-C
// ends it with 0.
func TestStatusWatch(t *testing.T) {
	t.Parallel()
	s := harness.Serve(t, "--durability", "os")
	var stdout, stderr synced
	watch := harness.Command(t, "status", "--watch", "100ms", "--server", s.URL())
	watch.Stdout, watch.Stderr = &stdout, &stderr
	check(t, watch.Start())
	defer func() { _ = watch.Process.Kill(); _ = watch.Wait() }()
	eventually(t, "it is shown again and again", func() bool { return strings.Count(stdout.String(), "\n") > 2 })
	for _, line := range harness.Lines(stdout.String()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("it shows %q", line)
		}
	}
	s.Stop()
	eventually(t, "it says that nobody answers", func() bool { return strings.Contains(stderr.String(), "lapse: ") })
	before := strings.Count(stdout.String(), "\n")
	s.Restart()
	eventually(t, "it goes on", func() bool { return strings.Count(stdout.String(), "\n") > before })
	check(t, watch.Process.Signal(os.Interrupt))
	if err := watch.Wait(); err != nil {
		t.Errorf("Ctrl-C ends it with %v", err)
	}
}

// TestLogFormat: with json every line is JSON, and a level omits the levels below it.
func TestLogFormat(t *testing.T) {
	t.Parallel()
	s := harness.Serve(t, "--durability", "os", "--log-format", "json", "--log-level", "debug")
	s.Stop()
	s.With("--durability", "os", "--log-format", "json", "--log-level", "error")
	debug := harness.Lines(s.Stderr())
	s.Restart()
	s.Stop()
	quiet := harness.Lines(s.Stderr())
	ready := 0
	for _, line := range append(debug, quiet...) {
		var entry struct{ Time, Level, Msg string }
		if err := json.Unmarshal([]byte(line), &entry); err != nil || entry.Time == "" || entry.Msg == "" {
			t.Errorf("the log has the line %q", line)
		}
		if strings.HasPrefix(entry.Msg, "ready: database main at") {
			ready++
		}
	}
	if ready != 2 || len(quiet) != 1 || !strings.Contains(strings.Join(debug, ""), `"msg":"the fence moved"`) {
		t.Errorf("the logs are\n%s\n\n%s", strings.Join(debug, "\n"), strings.Join(quiet, "\n"))
	}
}

// synced collects the output of a process while a test reads it.
type synced struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *synced) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(text)
}

func (s *synced) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
