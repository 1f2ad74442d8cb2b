package cosmos

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
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

// sdk is the module whose emulator tests run here. They are read from the module cache.
const sdk = "github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos@v1.5.0"

// patience is far above the duration of a test.
const patience = 5 * time.Minute

// mayFail are tests that ask for what lapse does not serve, with the reason.
var mayFail = map[string]string{
	"TestContainerFullTextSearch": "runs FullTextContains",
	"TestCrossPartitionQuery":     "wants items in the order of their creation",
	"TestItemIdEncodingComputeGW": "needs a second gateway",
}

// enough of the tests have to pass.
const enough = 40

// ready is the line that a server for tests prints.
type ready struct{ NATS, Cosmos string }

// serve starts a server for tests with a gateway.
func serve(t *testing.T, args ...string) (r ready) {
	t.Helper()
	cmd := harness.Command(t, append([]string{"test", "--listen", "127.0.0.1:0"}, args...)...)
	out, err := cmd.StdoutPipe()
	check(t, err)
	cmd.Stderr = t.Output()
	check(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	lines.Scan()
	if err := json.Unmarshal(lines.Bytes(), &r); err != nil || r.Cosmos == "" {
		t.Fatalf("it prints %q: %v", lines.Text(), err)
	}
	return r
}

// copySDK returns a directory with the sources of Go's SDK.
func copySDK(t *testing.T) string {
	t.Helper()
	out, err := child.Tool(t.Context(), "go", "mod", "download", "-json", sdk).Output()
	var module struct{ Dir string }
	if err != nil || json.Unmarshal(out, &module) != nil {
		leftOut(t, "cannot download %s: %v: %s", sdk, err, out)
	}
	dir := t.TempDir()
	check(t, os.CopyFS(dir, os.DirFS(module.Dir)))
	return dir
}

// build compiles the SDK's tests so that they ask the gateway at $EMULATOR, and returns the
// program and the names of its emulator tests.
func build(t *testing.T) (program string, names []string) {
	t.Helper()
	dir := copySDK(t)
	files, err := filepath.Glob(filepath.Join(dir, "emulator_*test.go"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		names = append(names, redirect(t, file)...)
	}
	program = filepath.Join(t.TempDir(), "azcosmos.test")
	compile := child.Tool(t.Context(), "go", "test", "-c", "-o", program, ".")
	compile.Dir = dir
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program, names
}

var (
	address = regexp.MustCompile(`"https://(localhost|127\.0\.0\.1):8081/"`)
	test    = regexp.MustCompile(`(?m)^func (Test\w+)\(t `)
)

// redirect points a file of tests to $EMULATOR, and returns the names of its tests.
func redirect(t *testing.T, file string) (names []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	check(t, err)
	for _, found := range test.FindAllSubmatch(text, -1) {
		names = append(names, string(found[1]))
	}
	changed := ""
	for line := range strings.Lines(string(text)) {
		if !strings.Contains(line, `"idp"`) { // of a token, within a string
			line = address.ReplaceAllString(line, "emulatorURL")
		}
		changed += line
	}
	if filepath.Base(file) == "emulator_test.go" {
		changed += "\nvar emulatorURL = os.Getenv(\"EMULATOR\")\n"
	}
	check(t, os.Chmod(file, 0o600))
	check(t, os.WriteFile(file, []byte(changed), 0o600))
	return names
}

// TestAzcosmos: the emulator tests of Go's SDK pass, over http and https.
func TestAzcosmos(t *testing.T) {
	program, names := build(t)
	for _, scheme := range []string{"http", "https"} {
		t.Run(scheme, func(t *testing.T) {
			args := []string{"--at", "now", "--cosmos", scheme + "://localhost:0"}
			cert := filepath.Join(t.TempDir(), "cert.pem")
			if scheme == "https" {
				args = append(args, "--cosmos-cert-out", cert)
			}
			url := serve(t, args...).Cosmos
			passed := 0
			for _, name := range names {
				if out, err := run(t, program, name, url, cert); err == nil {
					passed++
				} else if reason := mayFail[name]; reason != "" {
					t.Logf("%s fails: it %s", name, reason)
				} else {
					t.Errorf("%s: %v\n%s", name, err, out)
				}
			}
			t.Logf("%d of %d pass", passed, len(names))
			if passed < enough {
				t.Errorf("%d tests pass, of at least %d", passed, enough)
			}
		})
	}
}

// run runs one test.
func run(t *testing.T, program, name, url, cert string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := child.CommandContext(ctx, t, program, "-test.run", "^"+name+"$", "-test.v")
	cmd.Env = append(cmd.Env, "EMULATOR="+url+"/", "SSL_CERT_FILE="+cert)
	return cmd.CombinedOutput()
}
