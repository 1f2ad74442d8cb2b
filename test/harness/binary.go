package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const module = "github.com/lapsedb/lapse"

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
	build := exec.Command("go", "build", "-o", binary, module+"/cmd/lapse")
	// Where the tests are in another module, with the versions of our own.
	where, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		fmt.Fprintf(os.Stderr, "harness: find %s: %v\n", module, err)
		return 1
	}
	build.Dir = strings.TrimSpace(string(where))
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "harness: build lapse: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}
