package embedded_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lapsedb/lapse/processor/embedded"
)

// sources has a slog.Handler that collects lines by the place that logs them.
type sources struct {
	mu    sync.Mutex
	lines map[uintptr][]string
}

func (s *sources) handler() slog.Handler {
	return &sourced{Handler: slog.NewTextHandler(&bytes.Buffer{}, nil), to: s}
}

// TestClientLogLines: lines of one kind have one source, whatever clients do and are
// called, and no client's name is mistaken for a disk error.
func TestClientLogLines(t *testing.T) {
	t.Parallel()
	const clients, violations = 8, 50
	seen := &sources{lines: make(map[uintptr][]string)}
	s := start(t, embedded.Options{Logger: slog.New(seen.handler())})
	for n := range clients {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL(), "nats://"))
		check(t, err)
		defer conn.Close()
		fmt.Fprintf(conn, "CONNECT {\"verbose\":false,\"name\":\"JetStream %d critical write error, will be DISABLED: resource limits exceeded for server %%s %%d\"}\r\n", n)
		for i := range violations {
			fmt.Fprintf(conn, "PUB nowhere.%d.%d 0\r\n\r\nSUB lapse.%d.%%s.>  %d\r\nPUB lapse.main.api.status $JS.ACK.%d 0\r\n\r\n", n, i, i, i, i)
		}
		fmt.Fprintf(conn, "nonsense%d\r\n", n)
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		for buf := make([]byte, 1<<16); err == nil; { // until the server ends it
			_, err = conn.Read(buf)
		}
	}
	select {
	case err := <-s.Failed():
		t.Errorf("a client's name is mistaken for a failure: %v", err)
	default:
	}
	seen.mu.Lock()
	defer seen.mu.Unlock()
	of := func(text string) (kinds, lines int) {
		for _, all := range seen.lines {
			n := 0
			for _, line := range all {
				if strings.Contains(line, text) {
					n++
				}
			}
			if lines += n; n > 0 {
				kinds++
			}
			if n > 0 && n < len(all) {
				t.Errorf("lines of %q are not distinguished from others: %q", text, all)
			}
		}
		return kinds, lines
	}
	for _, text := range []string{"Publish Violation - Subject", "Subscription Violation", "Publish Violation - Reply"} {
		if kinds, lines := of(text); kinds != 1 || lines != clients*violations {
			t.Errorf("%s: %d lines of %d kinds", text, lines, kinds)
		}
	}
	if kinds, _ := of("Unknown Protocol"); kinds > 2 {
		t.Errorf("protocol errors are of %d kinds", kinds)
	}
	for pc := range seen.lines {
		if pc == 0 {
			t.Error("lines without a source")
		}
	}
}

type sourced struct {
	slog.Handler
	to *sources
}

func (h *sourced) Handle(_ context.Context, r slog.Record) error {
	h.to.mu.Lock()
	defer h.to.mu.Unlock()
	h.to.lines[r.PC] = append(h.to.lines[r.PC], r.Message)
	return nil
}
