package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/lapsedb/lapse/test/harness"
)

func TestMain(m *testing.M) {
	// Commands run in this process: the variables of a developer's shell are not for them.
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(name, variablePrefix) || name == serverVariable || name == contextVariable {
			_ = os.Unsetenv(name)
		}
	}
	_ = os.Setenv("GOGC", "100") // keeps serve from setting it for the whole process
	if err := harness.SideBySide(); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

var check = harness.Check

// lapse runs a command and returns its exit code and all that it prints.
func lapse(t *testing.T, args ...string) (code int, printed string) {
	t.Helper()
	var out bytes.Buffer
	code = newApp(strings.NewReader(""), &out, &out).run(t.Context(), args)
	return code, out.String()
}
