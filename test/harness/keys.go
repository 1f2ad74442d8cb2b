package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// MakeKeys runs the keys command into dir, and returns the directory with the keys and
// what its .env says.
func MakeKeys(dir string) (secrets string, environment map[string]string, err error) {
	if out, err := exec.Command("go", "run", module+"/deploy/keys", "-dir", dir).CombinedOutput(); err != nil {
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
