// Package compose tests docker-compose.yml and the Dockerfile: it reads them as
// docker does and runs their services as plain processes.
package compose

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lapsedb/lapse/test/harness"
)

// secrets is the directory that the keys command made, and environment what its
// .env says.
var (
	secrets     string
	environment = map[string]string{}
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "lapse-compose-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	keys := exec.Command("go", "run", "./deploy/keys", "-dir", dir)
	keys.Dir = filepath.Join("..", "..", "..")
	if out, err := keys.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "keys: %v\n%s", err, out)
		return 1
	}
	secrets = filepath.Join(dir, "secrets")
	text, err := os.ReadFile(filepath.Join(secrets, ".env"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for _, line := range harness.Lines(string(text)) {
		name, value, _ := strings.Cut(line, "=")
		environment[name] = value
	}
	return harness.Main(m)
}
