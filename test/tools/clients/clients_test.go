package clients

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/lapsedb/lapse/test/child"
	"github.com/lapsedb/lapse/test/harness"
)

var check = harness.Check

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// patience is far above the duration of a command. The command's own timeout is longer,
// so that a request without a reply fails the test.
const patience = 30 * time.Second

// serve starts lapse with a collection and three documents.
func serve(t *testing.T) *harness.Server {
	t.Helper()
	s := harness.Serve(t, "--durability", "os")
	s.Run("collection", "create", "orders").OK()
	for _, id := range []string{"a", "b", "c"} {
		s.Run("document", "create", "orders", id, `{"total":5}`).OK()
	}
	return s
}

// TestNatsCommand runs the nats command on the log. Its output contains the word after
// the arguments.
func TestNatsCommand(t *testing.T) {
	nats := filepath.Join(t.TempDir(), "nats")
	if out, err := child.Tool(t.Context(), "go", "-C", filepath.Join("..", "nats"), "build", "-o", nats, "github.com/nats-io/natscli/nats").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	s := serve(t)
	const refused = "not permitted: "
	for _, test := range []struct{ args, want string }{
		{"stream info LAPSE_main", "lapse.main.events.>"},
		{"stream state LAPSE_main", "Messages: 5"},
		{"stream get LAPSE_main 3", `{"id":"a","total":5}`},
		{"stream subjects LAPSE_main", "lapse.main.events.orders.DocumentCreated"},
		{"stream ls", "LAPSE_main_MUTATIONS"},
		{"stream report", "LAPSE_main"},
		{"sub --stream LAPSE_main --count 5", "lapse.main.events.orders.DocumentCreated"},
		{"consumer add LAPSE_main billing --pull --defaults", "billing"},
		{"consumer ls LAPSE_main", "billing"},
		{"consumer report LAPSE_main", "billing"},
		{"consumer info LAPSE_main billing", "Pull Mode: true"},
		{"consumer next LAPSE_main billing --count 3", `{"id":"a","total":5}`},
		{"consumer pause LAPSE_main billing 1h -f", "Paused"},
		{"consumer resume LAPSE_main billing -f", "resumed"},
		{"consumer rm LAPSE_main billing -f", ""},
		{"kv ls", "No Key-Value buckets"},
		{"object ls", "No Object Store buckets"},
		{"stream add mine --subjects mine --defaults", refused},
		{"kv add mine", refused},
		{"kv put mine key value", refused},
		{"stream purge LAPSE_main -f", refused},
		{"stream rm LAPSE_main -f", refused},
		{"stream rmm LAPSE_main 1 -f", refused},
		{"stream edit LAPSE_main --description mine -f", refused},
		{"pub -J lapse.main.events.orders.DocumentCreated {}", refused},
		{"stream state LAPSE_main", "Messages: 5"},
		{"--inbox-prefix mine.too stream state LAPSE_main", "Messages: 5"},
		{"--inbox-prefix _MINE sub --stream LAPSE_main --count 5", "lapse.main.events.orders.DocumentCreated"},
		{"--inbox-prefix _MINE req lapse.main.api.status {}", `"database":"main"`},
		{"--inbox-prefix _MINE pub -J lapse.main.mutations.document.upsert.orders.d {}", "LAPSE_main_MUTATIONS"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		args := append([]string{"--server", s.URL(), "--timeout", "1m"}, strings.Fields(test.args)...)
		out, err := child.CommandContext(ctx, t, nats, args...).CombinedOutput()
		cancel()
		if !strings.Contains(string(out), test.want) || (err != nil) != (test.want == refused) {
			t.Errorf("nats %s: %v\n%s", test.args, err, out)
		}
	}
}

// TestNatsJS reads with both APIs of nats.js.
func TestNatsJS(t *testing.T) {
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("needs node and npm: ", err)
		}
	}
	dir := t.TempDir()
	script, err := os.ReadFile(filepath.Join("testdata", "read.mjs"))
	check(t, err)
	check(t, os.WriteFile(filepath.Join(dir, "read.mjs"), script, 0o600))
	install := child.Tool(t.Context(), "npm", "install", "--no-audit", "--no-fund", "--silent", "nats@2.29.3", "@nats-io/jetstream@3.4.0", "@nats-io/transport-node@3.4.0")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		t.Skipf("npm cannot install nats.js: %v\n%s", err, out)
	}
	s := serve(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	read := child.CommandContext(ctx, t, "node", "read.mjs", strings.TrimPrefix(s.URL(), "nats://"))
	read.Dir = dir
	out, err := read.CombinedOutput()
	for _, api := range []string{"@nats-io/jetstream", "nats"} {
		for _, how := range []string{"info lapse.main.events.>", "list LAPSE_main,LAPSE_main_MUTATIONS", "message lapse.main.events.orders.CollectionCreated", "ordered 5", "pulled 5", "refused not permitted"} {
			if !strings.Contains(string(out), api+": "+how+"\n") {
				t.Errorf("%s: no %q", api, how)
			}
		}
	}
	if err != nil || t.Failed() {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestChildProcess: the program of docs/testing.md starts lapse, moves its clock and prints
// what it says that it prints.
func TestChildProcess(t *testing.T) {
	page, err := os.ReadFile("../../../docs/testing.md")
	check(t, err)
	program := regexp.MustCompile("(?ms)^```java\n(.*?)^```$").FindSubmatch(page)
	if program == nil {
		t.Fatal("docs/testing.md has none")
	}
	for _, tool := range []string{"mvn", "java"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("needs ", tool)
		}
	}
	dir := t.TempDir()
	check(t, os.WriteFile(filepath.Join(dir, "Sessions.java"), program[1], 0o600))
	get := child.Tool(t.Context(), "mvn", "-q", "-B", "dependency:copy", "-Dartifact=io.nats:jnats:2.24.1", "-DoutputDirectory=.")
	get.Dir = dir
	if out, err := get.CombinedOutput(); err != nil {
		t.Skipf("mvn: %v\n%s", err, out)
	}
	check(t, os.Symlink(harness.Command(t).Path, filepath.Join(dir, "lapse")))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := child.CommandContext(ctx, t, "java", "-cp", "jnats-2.24.1.jar", "Sessions.java")
	cmd.Dir, cmd.Env = dir, append(cmd.Env, "PATH="+dir+":"+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != `{"id":"a","user":"x"}`+"\n" {
		t.Errorf("%v\n%s", err, out)
	}
}
