package test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/lapsedb/lapse/test/attack"
	"github.com/lapsedb/lapse/test/harness"
)

// TestClientLogLines: log lines that a client can cause are rate limited, so that they
// fill no disk. Every omitted line is counted, the last ones when the process ends.
func TestClientLogLines(t *testing.T) {
	t.Parallel()
	const each = 20_000
	s := harness.Serve(t)
	for line, subject := range map[string]string{
		"Publish Violation": "nowhere." + strings.Repeat("x", 3000), "no reader": "lapse.main.api.document.get.c.a",
	} {
		c, err := attack.Dial(s.URL())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		send := c.Send
		if line == "no reader" {
			line, send = "message ignored", c.Publish
		}
		for range each {
			if err := send(subject, nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Ping(); err != nil {
			t.Fatal(err)
		}
		s.Run("collection", "list")
		defer func() {
			text := s.Stderr()
			lines := strings.Count(text, line)
			for _, more := range regexp.MustCompile(regexp.QuoteMeta(line)+`.* more=(\d+)`).FindAllStringSubmatch(text, -1) {
				n, _ := strconv.Atoi(more[1])
				lines += n
			}
			if lines != each {
				t.Errorf("%q: %d of %d lines are there or counted", line, lines, each)
			}
		}()
	}
	s.Stop()
	if n := len(s.Stderr()); n > 128<<10 {
		t.Errorf("%d lines took %d bytes", 2*each, n)
	}
}
