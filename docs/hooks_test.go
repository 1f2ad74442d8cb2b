package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestCommitMessage: the hook of `make hooks` checks what CONTRIBUTING.md says of commit
// subjects.
func TestCommitMessage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "message")
	for message, refused := range map[string]string{
		"writer: coalesce synced appends":                                   "",
		"client, cmd/lapse: let zero be a limit\n\nWhy: it is one.\n# note": "",
		"# note\n\ndocs: say why: a reader asks":                            "",
		"gate: embed the proxy, feed it, and process what it needs":         "",
		"x: say " + strings.Repeat("ü", 65):                                 "",
		"x: say " + strings.Repeat("ü", 66):                                 "at most 72",
		"Merge branch 'a'":                                                  "",
		`Revert "writer: coalesce synced appends"`:                          "",
		"coalesce synced appends":                                           "scope",
		"writer:coalesce synced appends":                                    "scope",
		"the writer: coalesce appends":                                      "scope",
		"":                                                                  "scope",
		"writer: the appends are coalesced":                                 "imperative",
		"writer: coalesced appends":                                         "imperative",
		"writer: coalescing appends":                                        "imperative",
		"writer: coalesces appends":                                         "imperative",
		"writer: coalesce appends.":                                         "dot",
		"writer: coalesce appends\nand more":                                "second line",
	} {
		if err := os.WriteFile(file, []byte(message), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("../.githooks/commit-msg", file).CombinedOutput()
		if (err != nil) != (refused != "") || !strings.Contains(string(out), refused) {
			t.Errorf("%q: %v, %q, want %q", message, err, out, refused)
		}
	}
}
