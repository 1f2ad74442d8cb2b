package cosmos

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lapsedb/lapse/test/child"
	"github.com/lapsedb/lapse/test/tools/npm"
)

// wellKnownKey is the account key of all emulators.
const wellKnownKey = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="

// launcher returns the command that runs a program with an SDK, which trusts the certificate in
// the file cert; "" for none. Arguments are the caller's.
type launcher func(ctx context.Context, t *testing.T, program, cert string) *exec.Cmd

// languages have an SDK. Each launcher skips the test where its tools are missing.
var languages = []struct {
	name    string
	samples string // program
	open    func(t *testing.T) launcher
}{
	{"go", "testdata/azcosmos/main.go", openGo},
	{"js", "samples.js", openJavaScript},
	{"python", "samples.py", openPython},
	{"java", "Samples.java", openJava},
}

// leftOut skips a test for want of a tool.
func leftOut(t *testing.T, format string, args ...any) {
	t.Helper()
	t.Skip("LEFT OUT: " + fmt.Sprintf(format, args...))
}

// needs skips a test without all these programs; without CI, which make long sets, too.
func needs(t *testing.T, programs ...string) {
	t.Helper()
	if os.Getenv("CI") == "" {
		leftOut(t, "it takes a while, CI=true runs it")
	}
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			leftOut(t, "%v", err)
		}
	}
}

// openGo compiles programs within a copy of the SDK, so that they need no further modules.
func openGo(t *testing.T) launcher {
	sdk := copySDK(t)
	return func(ctx context.Context, t *testing.T, program, cert string) *exec.Cmd {
		dir := filepath.Join(sdk, filepath.Base(t.TempDir()))
		copyTo(t, program, filepath.Join(dir, "main.go"))
		binary := filepath.Join(dir, "program")
		compile := child.Tool(t.Context(), "go", "build", "-o", binary, ".")
		compile.Dir = dir
		if out, err := compile.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		cmd := child.CommandContext(ctx, t, binary)
		cmd.Env = append(cmd.Env, "SSL_CERT_FILE="+cert)
		return cmd
	}
}

func copyTo(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(to), 0o700)
	}
	if err == nil {
		err = os.WriteFile(to, text, 0o600)
	}
	check(t, err)
}

func openJavaScript(t *testing.T) launcher {
	modules := npm.Install(t)
	return func(ctx context.Context, t *testing.T, program, cert string) *exec.Cmd {
		dir := t.TempDir() // import looks for modules beside the program alone
		check(t, os.Symlink(modules, filepath.Join(dir, "node_modules")))
		script := filepath.Join(dir, filepath.Base(program))
		copyTo(t, program, script)
		cmd := child.CommandContext(ctx, t, "node", script)
		cmd.Env = append(cmd.Env, "NODE_EXTRA_CA_CERTS="+cert)
		return cmd
	}
}

// openPython installs the SDK once for each user and requirements.txt.
func openPython(t *testing.T) launcher {
	needs(t, "python3")
	requirements, err := os.ReadFile("requirements.txt")
	check(t, err)
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = t.TempDir()
	}
	dir := filepath.Join(cache, fmt.Sprintf("lapse-cosmos-%x", sha256.Sum256(requirements))[:32])
	complete := filepath.Join(dir, "complete")
	if _, err := os.Stat(complete); err != nil {
		for _, command := range [][]string{
			{"python3", "-m", "venv", "--clear", dir},
			{filepath.Join(dir, "bin/pip"), "install", "-q", "--disable-pip-version-check", "-r", "requirements.txt"},
		} {
			if out, err := child.Tool(t.Context(), command[0], command[1:]...).CombinedOutput(); err != nil {
				leftOut(t, "%s: %v: %s", strings.Join(command, " "), err, out)
			}
		}
		check(t, os.WriteFile(complete, nil, 0o600))
	}
	return func(ctx context.Context, t *testing.T, program, _ string) *exec.Cmd {
		return child.CommandContext(ctx, t, filepath.Join(dir, "bin/python"), "-W", "ignore", program)
	}
}

// openJava has Maven fetch the SDK.
func openJava(t *testing.T) launcher {
	needs(t, "java", "keytool", "mvn")
	file := filepath.Join(t.TempDir(), "classpath")
	out, err := child.Tool(t.Context(), "mvn", "-q", "-B", "dependency:build-classpath", "-Dmdep.outputFile="+file).CombinedOutput()
	if err != nil {
		leftOut(t, "mvn: %v: %s", err, out)
	}
	classpath, err := os.ReadFile(file)
	check(t, err)
	return func(ctx context.Context, t *testing.T, program, cert string) *exec.Cmd {
		property := "-DCOSMOS.HTTP_CONNECTION_WITHOUT_TLS_ALLOWED=true"
		if cert != "" {
			store := filepath.Join(t.TempDir(), "trust.p12")
			property = "-Djavax.net.ssl.trustStore=" + store
			if out, err := child.Command(t, "keytool", "-importcert", "-noprompt", "-file", cert, "-keystore", store, "-storepass", "changeit").CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		}
		return child.CommandContext(ctx, t, "java", property, "-Djavax.net.ssl.trustStorePassword=changeit", "-cp", string(classpath), program)
	}
}

// TestSamples: a program with each SDK finds what Cosmos DB's page about time to live says, and
// what else programs use, over http and https.
func TestSamples(t *testing.T) {
	for _, l := range languages {
		t.Run(l.name, func(t *testing.T) {
			launch := l.open(t)
			for _, scheme := range []string{"http", "https"} {
				args, cert := []string{"--cosmos", scheme + "://localhost:0"}, ""
				if scheme == "https" {
					cert = filepath.Join(t.TempDir(), "cert.pem")
					args = append(args, "--cosmos-cert-out", cert)
				}
				url := serve(t, args...).Cosmos
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				cmd := launch(ctx, t, l.samples, cert)
				cmd.Args = append(cmd.Args, url, cert)
				cmd.Env = append(cmd.Env, "COSMOS_KEY="+wellKnownKey)
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%s: %v\n%s", scheme, err, out)
				}
			}
		})
	}
}
