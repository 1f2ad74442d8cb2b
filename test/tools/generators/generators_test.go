package generators

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/lapsedb/lapse/schema"
)

// TestGenerators: the official parser finds no error in schema/asyncapi.yaml, and the
// official generator makes models of it in every language that the manual names.
func TestGenerators(t *testing.T) {
	modules := install(t)
	script, err := filepath.Abs("generate.js")
	if err != nil {
		t.Fatal(err)
	}
	description := filepath.Join(t.TempDir(), "asyncapi.yaml")
	if err := os.WriteFile(description, schema.AsyncAPI, 0o600); err != nil {
		t.Fatal(err)
	}
	node := exec.CommandContext(t.Context(), "node", script, description)
	node.Env = append(os.Environ(), "NODE_PATH="+modules)
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
const installTimeout = 3 * time.Minute

// install installs the packages of package.json, once for each user and version of that
// file, and returns the directory of the modules. It skips the test if they cannot be
// installed.
func install(t *testing.T) string {
	t.Helper()
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("needs Node.js with npm: %v", err)
		}
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = t.TempDir()
	}
	packages, err := os.ReadFile("package.json")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, fmt.Sprintf("lapse-generators-%x", sha256.Sum256(packages))[:32])
	modules := filepath.Join(dir, "node_modules")
	if _, err := os.Stat(modules); err == nil {
		return modules
	}
	if err := os.MkdirAll(cache, 0o700); err != nil {
		t.Skipf("cannot write to the cache directory: %v", err)
	}
	making, err := os.MkdirTemp(cache, "lapse-generators-new-")
	if err != nil {
		t.Skipf("cannot write to the cache directory: %v", err)
	}
	defer os.RemoveAll(making)
	if err := os.WriteFile(filepath.Join(making, "package.json"), packages, 0o600); err != nil {
		t.Skipf("cannot write to the cache directory: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), installTimeout)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", "install", "--ignore-scripts", "--omit=optional", "--no-audit", "--no-fund", "--no-package-lock", "--fetch-retries=1")
	npm.Dir = making
	npm.WaitDelay = time.Second // child processes may keep the output open
	if out, err := npm.CombinedOutput(); err != nil {
		t.Skipf("npm cannot install the packages (%v): %s", err, bytes.TrimSpace(out[max(0, len(out)-400):]))
	}
	// A concurrent run may have been first: then its modules are used.
	if err := os.Rename(making, dir); err != nil {
		if _, err := os.Stat(modules); err != nil {
			t.Fatal(err)
		}
	}
	return modules
}
