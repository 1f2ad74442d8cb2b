package host

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestNodeName: a process keeps its name over restarts. A damaged one is renewed, with a line.
func TestNodeName(t *testing.T) {
	dir := t.TempDir()
	var lines bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&lines, nil))
	named := func() string {
		name, err := nodeName(dir, logger)
		if err != nil || !validNode.MatchString(name) {
			t.Fatalf("%q, %v", name, err)
		}
		return name
	}
	first := named()
	if again := named(); again != first || lines.Len() > 0 {
		t.Errorf("%s, then %s: %s", first, again, lines.String())
	}
	for _, damaged := range []string{"", "\n", "a.b", "a b", "\x00\x01", strings.Repeat("A", 70_000), strings.Repeat("A", 2<<20)} {
		lines.Reset()
		check(t, os.WriteFile(filepath.Join(dir, "node"), []byte(damaged), 0o600))
		if name := named(); name == first || name != named() || strings.Count(lines.String(), "\n") != 1 {
			t.Errorf("after %.20q: %s: %s", damaged, name, lines.String())
		}
	}
}
