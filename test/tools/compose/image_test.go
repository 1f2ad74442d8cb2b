package compose

import (
	"debug/elf"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/lapsedb/lapse/test/child"
)

// instructions returns the instructions of the Dockerfile, with continued lines joined.
func instructions(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(deploy, "Dockerfile"))
	check(t, err)
	var all []string
	for line := range strings.Lines(strings.ReplaceAll(string(text), "\\\n", " ")) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			all = append(all, line)
		}
	}
	return all
}

// instruction returns the last instruction with this prefix.
func instruction(t *testing.T, start string) string {
	t.Helper()
	found := ""
	for _, line := range instructions(t) {
		if strings.HasPrefix(line, start) {
			found = line
		}
	}
	if found == "" {
		t.Fatalf("the Dockerfile has no %s", start)
	}
	return found
}

// build builds the binary of the image, without the image, and returns its path.
func build(t *testing.T) string {
	t.Helper()
	cmd := child.Tool(t.Context(), filepath.Join(deploy, "image.sh"))
	cmd.Env = append(cmd.Env, "DOCKER=true")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("image.sh: %v\n%s", err, out)
	}
	binary, err := filepath.Abs(filepath.Join(deploy, "..", "build", "image", "lapse"))
	check(t, err)
	return binary
}

// TestContext: the builder gets build/image and nothing else, with which the legacy builder
// of engine 20.10 gets no keys either: it knows no other file than .dockerignore.
func TestContext(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(deploy, "..", ".dockerignore"))
	check(t, err)
	lines := strings.Fields(regexp.MustCompile(`(?m)^#.*`).ReplaceAllString(string(text), ""))
	if !slices.Equal(lines, []string{"*", "!build/image"}) {
		t.Errorf(".dockerignore has %q", lines)
	}
	for _, line := range instructions(t) {
		if strings.HasPrefix(line, "COPY ") && !strings.Contains(line, " build/image/") {
			t.Errorf("%s is not in the context", line)
		}
	}
}

// TestImageIsStatic: the image needs neither shared libraries nor a shell, which
// scratch does not have.
func TestImageIsStatic(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the image is for Linux")
	}
	f, err := elf.Open(build(t))
	check(t, err)
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("the binary has an interpreter")
		}
	}
	if libraries, err := f.ImportedLibraries(); len(libraries) > 0 {
		t.Errorf("the binary needs %q, %v", libraries, err)
	}
	if from := instruction(t, "FROM "); from != "FROM scratch" {
		t.Error(from)
	}
	if user := instruction(t, "USER "); strings.HasPrefix(user, "USER 0") || strings.ContainsAny(user[len("USER "):], "abcdefghijklmnopqrstuvwxyz") {
		t.Errorf("%s: scratch knows no names, and root is too much", user)
	}
	for _, start := range []string{"ENTRYPOINT ", "CMD ", "HEALTHCHECK "} {
		line := instruction(t, start)
		if !strings.HasSuffix(line, "]") || !strings.Contains(line, "[\"") {
			t.Errorf("%s needs a shell", line)
		}
	}
}
