// Package server runs lapse serve for the tests of the examples.
package server

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/test/child"
)

// patience bounds the start of the server: far more than it takes, for busy machines.
const patience = time.Minute

// binary builds lapse in the build cache, with the versions of lapse's go.mod.
var binary = sync.OnceValues(func() (path string, err error) {
	dir, err := child.Tool(context.Background(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/lapsedb/lapse").Output()
	if err != nil {
		return "", fmt.Errorf("find lapse: %w", err)
	}
	// The first run of a new binary uses a temporary copy, the second the cached one.
	for range 2 {
		run := child.Tool(context.Background(), "go", "run", "-exec", "echo", "./cmd/lapse")
		run.Dir, run.Stderr = strings.TrimSpace(string(dir)), os.Stderr
		out, err := run.Output()
		if err != nil {
			return "", fmt.Errorf("build lapse: %w", err)
		}
		path = strings.TrimSpace(string(out))
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("build lapse: %s is not in the build cache", path)
})

var ready = regexp.MustCompile(`\bready\b.*?(127\.0\.0\.1:\d+)`)

// Start starts lapse serve on an empty database until the test ends, and returns its URL.
func Start(t testing.TB) (url string) {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := child.Command(t, path, "serve", "--store-dir", t.TempDir(), "--listen", "127.0.0.1:0", "--console", "off", "--durability", "os")
	stderr, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	addr := make(chan string, 1)
	read := make(chan struct{})
	var printed bytes.Buffer
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			fmt.Fprintln(&printed, lines.Text())
			if m := ready.FindStringSubmatch(lines.Text()); m != nil {
				select {
				case addr <- m[1]:
				default:
				}
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-read
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("lapse serve printed\n%s", printed.Bytes())
		}
	})
	select {
	case a := <-addr:
		return "nats://" + a
	case <-read:
		t.Fatal("lapse serve ended before it was ready")
	case <-time.After(patience):
		t.Fatalf("lapse serve was not ready within %s", patience)
	}
	return ""
}

// Connect starts lapse serve and returns a client of it, closed at the end of the test.
func Connect(t testing.TB) *client.Client {
	t.Helper()
	return Client(t, Start(t))
}

// Client returns a client of a server, closed at the end of the test.
func Client(t testing.TB, url string) *client.Client {
	t.Helper()
	c, err := client.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}
