package harness

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/lapsedb/lapse/test/child"
)

const (
	module = "github.com/lapsedb/lapse"

	// NATSServer is the package of nats-server, for Build.
	NATSServer = "github.com/nats-io/nats-server/v2"
)

// binary is the path of the lapse command, set by Main.
var binary string

// Main builds lapse, runs the tests side by side and returns their exit code.
func Main(m *testing.M) int {
	var err error
	if binary, err = Build(module + "/cmd/lapse"); err == nil {
		err = SideBySide()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "harness:", err)
		return 1
	}
	return m.Run()
}

// SideBySide raises -parallel, unless it is given, above the number of processors: for
// packages whose parallel tests mostly wait.
func SideBySide() error {
	given := false
	flag.Parse()
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if given {
		return nil
	}
	return flag.Set("test.parallel", strconv.Itoa(4*runtime.GOMAXPROCS(0)))
}

// Build builds a command with the versions of lapse's go.mod and returns its
// path. go run keeps the binary in the build cache, so that all test packages
// share one. It is built as a release is, without cgo: so Pebble allocates in Go's heap.
func Build(pkg string) (path string, err error) {
	dir, err := child.Tool(context.Background(), "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return "", fmt.Errorf("find %s: %w", module, err)
	}
	// The first run of a new binary uses a temporary copy, the second the cached one.
	for range 2 {
		run := child.Tool(context.Background(), "go", "run", "-exec", "echo", pkg)
		run.Dir = strings.TrimSpace(string(dir))
		run.Stderr, run.Env = os.Stderr, append(run.Env, "CGO_ENABLED=0")
		out, err := run.Output()
		if err != nil {
			return "", fmt.Errorf("build %s: %w", pkg, err)
		}
		path = strings.TrimSpace(string(out))
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("build %s: %s is not in the build cache", pkg, path)
}
