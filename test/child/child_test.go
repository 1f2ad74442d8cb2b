package child

import (
	"slices"
	"strings"
	"testing"
)

// TestCommand: a command has the variables that every program needs, an empty home, and no
// other variable of the shell.
func TestCommand(t *testing.T) {
	for _, variable := range []string{"HOME", "LAPSE_STORE_DIR", "NATS_URL", "TZ", "XDG_CONFIG_HOME"} {
		t.Setenv(variable, "/of/the/shell")
	}
	t.Setenv("PATH", "/bin")
	environment := Command(t, "true").Env
	if !slices.Contains(environment, "PATH=/bin") || !slices.Contains(environment, "TZ=UTC") {
		t.Errorf("it has %q", environment)
	}
	for _, variable := range environment {
		name, value, _ := strings.Cut(variable, "=")
		if value == "/of/the/shell" || !slices.Contains(append(inherited, "HOME", "TZ"), name) {
			t.Errorf("it inherits %s", variable)
		}
	}
}

// TestTool: a tool of the developer has no variable that a test set.
func TestTool(t *testing.T) {
	t.Setenv("LAPSE_STORE_DIR", "/of/a/test")
	if environment := Tool(t.Context(), "true").Env; slices.Contains(environment, "LAPSE_STORE_DIR=/of/a/test") {
		t.Errorf("it has %q", environment)
	}
}
