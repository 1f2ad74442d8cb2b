package harness

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lapsedb/lapse/test/child"
)

// MainWithKeys is Main with a directory of keys. Before the tests it passes that
// directory and the variables of its .env to use.
func MainWithKeys(m *testing.M, use func(secrets string, environment map[string]string)) int {
	dir, err := os.MkdirTemp("", "lapse-keys-")
	if err == nil {
		defer os.RemoveAll(dir)
		var secrets string
		var environment map[string]string
		secrets, environment, err = makeKeys(dir)
		use(secrets, environment)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return Main(m)
}

// makeKeys runs the keys command into dir, and returns the directory of the keys and the
// variables of its .env.
func makeKeys(dir string) (secrets string, environment map[string]string, err error) {
	if out, err := child.Tool(context.Background(), "go", "run", module+"/deploy/keys", "-dir", dir).CombinedOutput(); err != nil {
		return "", nil, fmt.Errorf("keys: %w\n%s", err, out)
	}
	secrets, environment = filepath.Join(dir, "secrets"), make(map[string]string)
	text, err := os.ReadFile(filepath.Join(secrets, ".env"))
	for _, line := range Lines(string(text)) {
		name, value, _ := strings.Cut(line, "=")
		environment[name] = value
	}
	return secrets, environment, err
}
