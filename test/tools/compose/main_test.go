// Package compose tests docker-compose.yml and the Dockerfile: it reads them as
// docker does and runs their services as plain processes.
package compose

import (
	"fmt"
	"os"
	"testing"

	"github.com/lapsedb/lapse/test/harness"
)

// secrets is the directory that the keys command made, and environment what its
// .env says.
var (
	secrets     string
	environment map[string]string
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "lapse-compose-")
	if err == nil {
		defer os.RemoveAll(dir)
		secrets, environment, err = harness.MakeKeys(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return harness.Main(m)
}
