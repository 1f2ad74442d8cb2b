package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestContext(t *testing.T) {
	s := newStandin(t)
	s.answer("status", 200, `{"database":"main"}`, false)
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	contexts := filepath.Join(dir, "nats", "context")
	if err := os.MkdirAll(contexts, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(contexts, "here.json"), fmt.Appendf(nil, `{"url":%q}`, s.server.ClientURL()), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"here": "{\"database\":\"main\"}\n", "there": "lapse: NATS context \"there\": unknown context \"there\": list the contexts with `nats context ls`\n"} {
		var out bytes.Buffer
		newApp(strings.NewReader(""), &out, &out).run(t.Context(), []string{"status", "--context", name})
		if out.String() != want {
			t.Errorf("%s: got %q, want %q", name, out.String(), want)
		}
	}
}

func TestVersion(t *testing.T) {
	var out bytes.Buffer
	code := newApp(strings.NewReader(""), &out, &out).run(t.Context(), []string{"--version"})
	if code != 0 || out.String() != "lapse "+version+"\n" {
		t.Errorf("%d %q", code, out.String())
	}
}
