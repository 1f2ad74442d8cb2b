package deploy_test

import (
	"os"
	"testing"

	"github.com/lapsedb/lapse/test/harness"
)

// secrets is the directory that the keys command made, and environment holds the
// variables of its .env.
var (
	secrets     string
	environment map[string]string
)

func TestMain(m *testing.M) {
	os.Exit(harness.MainWithKeys(m, func(dir string, values map[string]string) { secrets, environment = dir, values }))
}
