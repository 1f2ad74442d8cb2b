// Package npm installs npm packages for tests.
package npm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/lapsedb/lapse/test/child"
)

const installTimeout = 3 * time.Minute

// Install installs the packages of package.json in the working directory, once for each user and version of that
// file, and returns the directory of the modules. It skips the test if they cannot be
// installed.
func Install(t testing.TB) string {
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
	dir := filepath.Join(cache, fmt.Sprintf("lapse-npm-%x", sha256.Sum256(packages))[:32])
	modules := filepath.Join(dir, "node_modules")
	if _, err := os.Stat(modules); err == nil {
		return modules
	}
	if err := os.MkdirAll(cache, 0o700); err != nil {
		t.Skipf("cannot write to the cache directory: %v", err)
	}
	making, err := os.MkdirTemp(cache, "lapse-npm-new-")
	if err != nil {
		t.Skipf("cannot write to the cache directory: %v", err)
	}
	defer os.RemoveAll(making)
	if err := os.WriteFile(filepath.Join(making, "package.json"), packages, 0o600); err != nil {
		t.Skipf("cannot write to the cache directory: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), installTimeout)
	defer cancel()
	npm := child.Tool(ctx, "npm", "install", "--ignore-scripts", "--omit=optional", "--no-audit", "--no-fund", "--no-package-lock", "--fetch-retries=1")
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
