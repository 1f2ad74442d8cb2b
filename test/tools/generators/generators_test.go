package generators

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/child"
	"github.com/lapsedb/lapse/test/tools/npm"
)

// TestGenerators: the official parser finds no error in schema/asyncapi.yaml, and the
// official generator makes models of it in every language that the manual names.
func TestGenerators(t *testing.T) {
	modules := npm.Install(t)
	script, err := filepath.Abs("generate.js")
	if err != nil {
		t.Fatal(err)
	}
	description := filepath.Join(t.TempDir(), "asyncapi.yaml")
	if err := os.WriteFile(description, schema.AsyncAPI, 0o600); err != nil {
		t.Fatal(err)
	}
	node := child.CommandContext(t.Context(), t, "node", script, description)
	node.Env = append(node.Env, "NODE_PATH="+modules)
	out, err := node.Output()
	if err != nil {
		var failed *exec.ExitError
		_ = errors.As(err, &failed)
		t.Fatalf("node: %v\n%s", err, failed.Stderr)
	}
	var result struct {
		Errors []string
		Models map[string][]string
	}
	if err := json.Unmarshal(out, &result); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, text := range result.Errors {
		t.Error(text)
	}
	for _, language := range []string{"typescript", "python", "java", "golang"} {
		for _, model := range []string{"Collection", "DocumentStored", "Error"} {
			if !slices.Contains(result.Models[language], model) {
				t.Errorf("%s has no model %s: %v", language, model, result.Models[language])
			}
		}
	}
}

// installTimeout is how long npm may take before the test is skipped.
