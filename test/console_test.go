package test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/lapsedb/lapse/test/harness"
)

var consoleURL = regexp.MustCompile(`, console: (http://127\.0\.0\.1:\d+) `)

// askConsole sends a GET to a console, and returns the status and the body.
func askConsole(t *testing.T, url, token string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	check(t, err)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := http.DefaultClient.Do(r)
	check(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	check(t, err)
	return response.StatusCode, string(body)
}

// TestServeWithAddressTaken: if the default console address is taken, lapse starts without
// a console, and names the flag that gives it one. It does not start if a given address
// is taken.
func TestServeWithAddressTaken(t *testing.T) {
	t.Parallel()
	taken := harness.Serve(t, "--durability", "os")
	refuses(t, 1, "choose another address with --console", "--listen", "127.0.0.1:0", "--console", taken.Addr)
	refuses(t, 1, "cannot serve metrics at "+taken.Addr+": another program listens there", "--listen", "127.0.0.1:0", "--metrics", taken.Addr)
	if l, err := net.Listen("tcp", "127.0.0.1:8280"); err == nil {
		defer l.Close()
	} // else another process has it, and may leave it at any time
	var printed []string
	eventually(t, "the address is taken", func() bool {
		serve := harness.Command(t, "serve", "--listen", "127.0.0.1:0", "--store-dir", t.TempDir())
		stderr, err := serve.StderrPipe()
		check(t, err)
		check(t, serve.Start())
		printed = nil
		lines := bufio.NewScanner(stderr)
		warned := false
		for ready := false; !warned && lines.Scan(); ready = ready || strings.Contains(lines.Text(), "ready: ") {
			printed = append(printed, lines.Text())
			if warned = ready; strings.Contains(lines.Text(), "console: http") {
				break
			}
		}
		_ = serve.Process.Signal(syscall.SIGTERM)
		_, _ = io.Copy(io.Discard, stderr)
		if err := serve.Wait(); err != nil {
			t.Errorf("%v: %q", err, printed)
		}
		return warned
	})
	text := strings.Join(printed, "\n")
	if !strings.Contains(text, ` msg="ready: database main at nats://127.0.0.1:`) || strings.Count(text, "ready") != 1 ||
		!strings.Contains(printed[len(printed)-1], "choose another address with --console HOST:PORT") {
		t.Errorf("%q", printed)
	}
}

// TestConsoleCommand: lapse console is read-only by default, and asks for a given token.
func TestConsoleCommand(t *testing.T) {
	t.Parallel()
	s := harness.Serve(t)
	file := filepath.Join(t.TempDir(), "token")
	const token = "0123456789abcdef"
	check(t, os.WriteFile(file, []byte(token+"\n"), 0o600))
	c := harness.Command(t, "console", "--server", s.URL(), "--console", "127.0.0.1:0", "--console-token-file", file)
	stderr, err := c.StderrPipe()
	check(t, err)
	check(t, c.Start())
	line, _ := bufio.NewReader(stderr).ReadString('\n')
	found := consoleURL.FindStringSubmatch(line)
	if found == nil || !strings.Contains(line, "ready") || !strings.Contains(line, "read-only") {
		t.Fatalf("it says %q", line)
	}
	if code, text := askConsole(t, found[1]+"/api/console", token); code != 200 || !strings.Contains(text, `"write":false`) {
		t.Errorf("%d %s", code, text)
	}
	if code, _ := askConsole(t, found[1]+"/api/console", ""); code != 401 {
		t.Errorf("without the token: %d", code)
	}
	_ = c.Process.Signal(syscall.SIGTERM)
	if err := c.Wait(); err != nil {
		t.Error(err)
	}
}
