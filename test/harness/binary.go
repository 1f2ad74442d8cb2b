package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// binary is the lapse that Main built.
var binary string

// Main builds lapse, runs the tests and returns their exit code.
func Main(m *testing.M) int {
	dir, err := os.MkdirTemp("", "lapse-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "harness:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "lapse")
	build := exec.Command("go", "build", "-o", binary, "github.com/lapsedb/lapse/cmd/lapse")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "harness: build lapse: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}
