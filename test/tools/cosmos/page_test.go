package cosmos

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/lapsedb/lapse/test/harness"
)

var (
	codeBlock = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$")
	printed   = regexp.MustCompile(`→ (.*)\n`)
)

// wrap makes a program of a block, by its language: the page leaves out what every program of
// that language has.
var wrap = map[string]struct{ file, before, after string }{
	"js":     {file: "page.mjs"},
	"python": {file: "page.py"},
	"go": {"page.go", `package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

func main() {
	ctx := context.Background()
`, "}\n"},
	"java": {"Page.java", `import com.azure.cosmos.*;
import com.azure.cosmos.models.*;
import com.fasterxml.jackson.databind.JsonNode;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;
import java.util.Map;

class Page {
    public static void main(String[] args) throws Exception {
`, "System.exit(0);\n}\n}\n"},
}

// TestPage: the programs of docs/cosmos.md print what the page says, and the log has what it
// shows. No SDK for C# is here.
func TestPage(t *testing.T) {
	text, err := os.ReadFile("../../../docs/cosmos.md")
	check(t, err)
	blocks := map[string][]string{}
	for _, found := range codeBlock.FindAllStringSubmatch(string(text), -1) {
		blocks[found[1]] = append(blocks[found[1]], found[2])
	}
	for _, l := range languages {
		t.Run(l.name, func(t *testing.T) {
			if len(blocks[l.name]) != 1 {
				t.Fatalf("%d programs", len(blocks[l.name]))
			}
			launch, block := l.open(t), blocks[l.name][0]
			s := serve(t, "--cosmos", "http://localhost:0")
			w := wrap[l.name]
			program := filepath.Join(t.TempDir(), w.file)
			check(t, os.WriteFile(program, []byte(w.before+strings.ReplaceAll(block, "http://localhost:8081", s.Cosmos)+w.after), 0o600))
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			cmd := launch(ctx, t, program, "")
			cmd.Env = append(cmd.Env, "COSMOS_KEY="+wellKnownKey)
			cmd.Stderr = t.Output()
			out, err := cmd.Output()
			var want []string
			for _, line := range printed.FindAllStringSubmatch(block, -1) {
				want = append(want, line[1])
			}
			if got := strings.TrimSpace(string(out)); err != nil || want == nil || got != strings.Join(want, "\n") {
				t.Errorf("it prints %q, want %q: %v", got, want, err)
			}
			checkHistory(t, s, blocks["sh"], blocks["text"])
		})
	}
}

// checkHistory runs the page's command for the history of the item.
func checkHistory(t *testing.T, s ready, commands, shown []string) {
	t.Helper()
	args := strings.Fields(commands[len(commands)-1])
	if len(args) < 2 || args[1] != "history" {
		t.Fatalf("no history: %q", args)
	}
	out, err := harness.Command(t, append(args[1:], "--server", s.NATS)...).Output()
	want := strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSpace(shown[len(shown)-1])), "…", ".*")
	if err != nil || !regexp.MustCompile("^"+want+"$").Match([]byte(strings.TrimSpace(string(out)))) {
		t.Errorf("%q prints %s (%v), and the page says %s", args, out, err, shown[len(shown)-1])
	}
}
