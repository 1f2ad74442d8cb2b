package test

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/test/harness"
)

// readersOf returns the names of the consumers by which clients read the log for a short
// time.
func readersOf(t *testing.T, nc *nats.Conn) (names []string) {
	t.Helper()
	m, err := nc.Request("$JS.API.CONSUMER.NAMES.LAPSE_main", nil, patience)
	var page struct{ Consumers []string }
	if err != nil || json.Unmarshal(m.Data, &page) != nil {
		t.Fatalf("%+v, %v", m, err)
	}
	for _, name := range page.Consumers {
		if strings.HasPrefix(name, "lapse_reader_") {
			names = append(names, name)
		}
	}
	return names
}

// TestCommandsLeaveNoReaders: however a command that reads the log ends, it leaves no
// consumer.
func TestCommandsLeaveNoReaders(t *testing.T) {
	t.Parallel()
	s := harness.Serve(t)
	nc := dial(t, s)
	mustAsk(t, nc, 201, "collection.create.orders", "")
	const broken = 128 + int(syscall.SIGPIPE) // as a shell reports the signal
	large := strings.Repeat("x", 1<<20)       // more than a pipe holds
	for n := range 4 {
		mustAsk(t, nc, 201, fmt.Sprint("document.create.orders.", n), `{"text":"`+large+`"}`)
	}
	all := func(_ *testing.T, _ *os.Process, out io.ReadCloser) { _, _ = io.Copy(io.Discard, out) }
	leave := func(_ *testing.T, _ *os.Process, out io.ReadCloser) { out.Close() }
	signal := func(signal os.Signal) func(*testing.T, *os.Process, io.ReadCloser) {
		return func(t *testing.T, p *os.Process, out io.ReadCloser) {
			_ = p.Signal(signal)
			// It is still writing the large line that the pipe cannot hold.
			eventually(t, "no readers", func() bool { return len(readersOf(t, nc)) == 0 })
			all(t, p, out)
		}
	}
	for name, c := range map[string]struct {
		args string
		code int
		end  func(*testing.T, *os.Process, io.ReadCloser) // once it prints
	}{
		"export":              {"export", 0, all},
		"export, error":       {"export --until x", 2, all},
		"export, Ctrl-C":      {"export", 1, signal(os.Interrupt)},
		"export, broken pipe": {"export", broken, leave},
		"audit":               {"audit", 0, all},
		"audit by an auditor": {"audit --inbox-prefix _INBOX.auditor", 0, all}, // who may not delete consumers of others
		"history":             {"history orders 1", 0, all},
		"watch, Ctrl-C":       {"watch --since 1", 0, signal(os.Interrupt)},
		"watch, SIGTERM":      {"watch --since 1", 0, signal(syscall.SIGTERM)},
		"watch, broken pipe":  {"watch --since 1", broken, leave},
	} {
		t.Run(name, func(t *testing.T) {
			var stderr strings.Builder
			cmd := harness.Command(t, append(strings.Fields(c.args), "--server", s.URL())...)
			cmd.Stderr = &stderr
			out, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			check(t, err)
			_, _ = out.Read(make([]byte, 1))
			c.end(t, cmd.Process, out)
			_ = cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); code != c.code || (stderr.Len() > 0) != (code == 1 || code == 2) {
				t.Errorf("exit %d, want %d: %s", code, c.code, stderr.String())
			}
			if readers := readersOf(t, nc); len(readers) > 0 {
				t.Errorf("it leaves %v", readers)
			}
		})
	}
}
