package release

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	goversion "go/version"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

const root = "../.."

// command runs a program at the root of the repository, or fails the test.
func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// need skips the test if a program is missing.
func need(t *testing.T, programs ...string) {
	t.Helper()
	for _, one := range programs {
		if _, err := exec.LookPath(one); err != nil {
			t.Skip(err)
		}
	}
}

// TestRelease: a release has all its files; two runs give the same bytes; the binaries are
// of at most 50 MiB and name version and commit; the deb can be installed, upgraded and
// removed, and data stay.
func TestRelease(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds six binaries twice")
	}
	command(t, "test/release/release.sh")
	sums := read(t, "dist/SHA256SUMS")
	command(t, "test/release/release.sh")
	if again := read(t, "dist/SHA256SUMS"); again != sums {
		t.Errorf("two runs differ:\n%s\n%s", sums, again)
	}
	t.Run("files", func(t *testing.T) { testFiles(t, sums) })
	t.Run("packages", testPackages)
	t.Run("binaries", testBinaries)
	t.Run("sbom", testSBOM)
	t.Run("deb", testDeb)
	t.Run("rpm", testRPM)
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	check(t, err)
	return string(text)
}

// one returns the only file below dist that matches.
func one(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(root, "dist", pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: %q %v", pattern, found, err)
	}
	path, err := filepath.Abs(found[0])
	check(t, err)
	return path
}

// testFiles: SHA256SUMS has every file, with its sum, and an archive has what it should.
func testFiles(t *testing.T, sums string) {
	want := []string{}
	for _, arch := range []string{"amd64", "arm64"} {
		want = append(want, "linux_"+arch+".tar.gz", "darwin_"+arch+".tar.gz", "windows_"+arch+".zip", "linux_"+arch+".deb", "linux_"+arch+".rpm",
			"linux_"+arch+".cdx.json", "darwin_"+arch+".cdx.json", "windows_"+arch+".cdx.json")
	}
	for i := range want {
		want[i] = "lapse_*_" + want[i]
	}
	want = append(want, "lapsedb-lapse-*.tgz", "lapsedb-[0-9]*.whl", "lapsedb-[0-9]*.tar.gz", "lapsedb-lapse.cdx.json", "lapsedb.cdx.json")
	lines := strings.Split(strings.TrimSpace(sums), "\n")
	if len(lines) != len(want) {
		t.Errorf("%d sums, want %d:\n%s", len(lines), len(want), sums)
	}
	for _, pattern := range want {
		file := one(t, pattern)
		content, err := os.ReadFile(file)
		check(t, err)
		sum := sha256.Sum256(content)
		if line := hex.EncodeToString(sum[:]) + "  " + filepath.Base(file); !strings.Contains(sums, line) {
			t.Errorf("SHA256SUMS lacks %s", line)
		}
	}
	list := command(t, "tar", "-tf", one(t, "lapse_*_linux_amd64.tar.gz"))
	for _, file := range []string{"/lapse\n", "/man/lapse-serve.1\n", "/completions/lapse.bash\n", "/completions/_lapse\n", "/LICENSE\n", "/CHANGELOG.md\n"} {
		if !strings.Contains(list, file) {
			t.Errorf("the archive lacks %s:\n%s", file, list)
		}
	}
}

// testPackages: the packages of other languages have their licence, the version of the
// release, and nothing for their developers; their lists name what they are built on.
func testPackages(t *testing.T) {
	version := command(t, "sed", "-nE", `s/^## ([0-9.]+) .*/\1/p;T;q`, "CHANGELOG.md")
	version = strings.TrimSpace(version)
	for pattern, has := range map[string][]string{
		"lapsedb-lapse-" + version + ".tgz":        {"package/LICENSE\n", "package/dist/index.d.ts\n", "package/dist/express.js\n"},
		"lapsedb-" + version + ".tar.gz":           {"/LICENSE\n", "/src/lapse/plugin.py\n"},
		"lapsedb-" + version + "-py3-none-any.whl": {"/licenses/LICENSE\n", "lapse/py.typed\n", "/entry_points.txt\n"},
	} {
		list := []string{"tar", "-tf"}
		if strings.HasSuffix(pattern, ".whl") {
			list = []string{"python3", "-c", "import sys, zipfile; print(*zipfile.ZipFile(sys.argv[1]).namelist(), sep='\\n')"}
		}
		files := command(t, list[0], append(list[1:], one(t, pattern))...)
		for _, file := range has {
			if !strings.Contains(files, file) {
				t.Errorf("%s lacks %q:\n%s", pattern, file, files)
			}
		}
		if regexp.MustCompile(`(?m)/tests?/|\.test\.|node_modules|/ci$|lock`).MatchString(files) {
			t.Errorf("%s has files of its developers:\n%s", pattern, files)
		}
	}
	for file, dependency := range map[string]string{"lapsedb-lapse.cdx.json": "pkg:npm/%40nats-io/nats-core@", "lapsedb.cdx.json": "pkg:pypi/nats-py"} {
		if text := read(t, "dist/"+file); !strings.Contains(text, dependency) || !strings.Contains(text, "@"+version+`"`) {
			t.Errorf("%s:\n%s", file, text)
		}
	}
}

// TestToolchain: releases are built with Go's newest patch release.
func TestToolchain(t *testing.T) {
	if testing.Short() {
		t.Skip("it asks the module proxy")
	}
	out, err := exec.Command("go", "list", "-m", "-versions", "golang.org/toolchain").CombinedOutput()
	if err != nil {
		t.Skipf("%v: %s", err, out)
	}
	pinned := regexp.MustCompile(`(?m)^toolchain go(1\.\d+)\.(\d+)$`).FindStringSubmatch(read(t, "test/release/go.mod"))
	if pinned == nil {
		t.Fatal("test/release/go.mod names no toolchain")
	}
	for _, m := range regexp.MustCompile(`-go`+regexp.QuoteMeta(pinned[1])+`\.(\d+)\.linux-amd64`).FindAllSubmatch(out, -1) {
		if is, served := pinned[1]+"."+pinned[2], pinned[1]+"."+string(m[1]); goversion.Compare("go"+is, "go"+served) < 0 {
			t.Errorf("Go %s is out, and test/release/go.mod names %s", served, is)
		}
	}
}

func testBinaries(t *testing.T) {
	found, err := filepath.Glob(filepath.Join(root, "dist/lapse_*/lapse*"))
	if err != nil || len(found) != 6 {
		t.Fatalf("%q %v", found, err)
	}
	for _, file := range found {
		info, err := os.Stat(file)
		check(t, err)
		t.Logf("%s: %.1f MiB", file, float64(info.Size())/(1<<20))
		if info.Size() > 50<<20 {
			t.Errorf("%s has %d bytes", file, info.Size())
		}
	}
	if runtime.GOOS != "linux" {
		return
	}
	line := command(t, one(t, "lapse_linux_"+runtime.GOARCH+"*/lapse"), "--version")
	commit := strings.TrimSpace(command(t, "git", "rev-parse", "HEAD"))
	toolchain := regexp.MustCompile(`(?m)^toolchain (go\S+)$`).FindStringSubmatch(read(t, "test/release/go.mod"))
	if !regexp.MustCompile(`^lapse \d+\.\d+\.\d+\S*, commit `+commit[:12]+`, 20\d\d-\d\d-\d\dT`).MatchString(line) || !strings.Contains(line, toolchain[1]+" ") {
		t.Errorf("--version says %s", line)
	}
}

// testSBOM: it names the modules of the binary, and no time and serial number.
func testSBOM(t *testing.T) {
	text, err := os.ReadFile(one(t, "lapse_*_linux_amd64.cdx.json"))
	check(t, err)
	var d map[string]any
	check(t, json.Unmarshal(text, &d))
	metadata, _ := d["metadata"].(map[string]any)
	if d["bomFormat"] != "CycloneDX" || d["serialNumber"] != nil || metadata["timestamp"] != nil {
		t.Errorf("%.300s", text)
	}
	for _, module := range []string{"github.com/nats-io/nats-server/v2", "github.com/cockroachdb/pebble/v2", `"std"`} {
		if !bytes.Contains(text, []byte(module)) {
			t.Errorf("it lacks %s", module)
		}
	}
}

// TestDebKeepsEnvironment: an upgrade without a terminal keeps a changed lapse.env beside a
// new version of it, which only root may read, and a purge removes it.
func TestDebKeepsEnvironment(t *testing.T) {
	need(t, "dpkg", "dpkg-deb")
	if os.Getuid() != 0 {
		t.Skip("dpkg needs root")
	}
	for line := range strings.Lines(read(t, ".goreleaser.yaml")) {
		if strings.Contains(line, "dst: /etc/") && !strings.Contains(line, "packager: rpm") {
			t.Errorf("dpkg may ask about this file: %s", line)
		}
	}
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) {
		t.Helper()
		file := filepath.Join(dir, strings.Replace(name, "@.", "@mails.", 1))
		check(t, os.MkdirAll(filepath.Dir(file), 0o755))
		check(t, os.WriteFile(file, []byte(text), mode))
	}
	build := func(version, environment string) (deb string) {
		t.Helper()
		write("tree/DEBIAN/control", "Package: lapse\nVersion: "+version+"\nArchitecture: all\nMaintainer: x <x@example.com>\nDescription: x\n", 0o644)
		for script, file := range map[string]string{"postinst": "postinstall", "prerm": "preremove", "postrm": "postremove"} {
			write("tree/DEBIAN/"+script, read(t, "deploy/packages/"+file+".sh"), 0o755)
		}
		write("tree/usr/share/lapse/lapse.env", environment, 0o644)
		deb = filepath.Join(dir, version+".deb")
		command(t, "dpkg-deb", "--build", filepath.Join(dir, "tree"), deb)
		return deb
	}
	write("root/var/lib/dpkg/status", "", 0o644)
	check(t, os.Mkdir(filepath.Join(dir, "root/var/lib/dpkg/updates"), 0o755))
	dpkg := func(args ...string) {
		t.Helper()
		command(t, "dpkg", append([]string{"--root=" + filepath.Join(dir, "root"), "--force-script-chrootless"}, args...)...)
	}
	file := filepath.Join(dir, "root/etc/lapse/lapse.env")
	is := func(want string) {
		t.Helper()
		text, err := os.ReadFile(file)
		info, statErr := os.Stat(file)
		if err != nil || statErr != nil || string(text) != want || info.Mode().Perm() != 0o640 {
			t.Errorf("%v %v %v, it has %q, want %q", err, statErr, info, text, want)
		}
	}
	dpkg("--install", build("1", read(t, "deploy/systemd/lapse.env")))
	is(read(t, "deploy/systemd/lapse.env"))
	check(t, os.WriteFile(file, []byte("LAPSE_RETAIN=30d\n"), 0o640))
	dpkg("--install", build("2", "# of the next version\n"))
	is("LAPSE_RETAIN=30d\n")
	dpkg("--remove", "lapse")
	is("LAPSE_RETAIN=30d\n")
	dpkg("--purge", "lapse")
	if _, err := os.Stat(filepath.Dir(file)); !os.IsNotExist(err) {
		t.Errorf("after a purge: %v", err)
	}
}

// testDeb installs, upgrades, removes and purges the package in a new Debian. The data and
// a changed configuration stay.
func testDeb(t *testing.T) {
	need(t, "debootstrap", "dpkg-deb", "chroot")
	if os.Getuid() != 0 {
		t.Skip("chroot needs root")
	}
	dir := t.TempDir()
	command(t, "debootstrap", "--variant=minbase", "bookworm", dir)
	deb := one(t, "lapse_*_linux_"+runtime.GOARCH+".deb")
	// The next version is the same with another number.
	next := filepath.Join(dir, "next")
	command(t, "dpkg-deb", "--raw-extract", deb, next)
	control, err := os.ReadFile(filepath.Join(next, "DEBIAN/control"))
	check(t, err)
	control = regexp.MustCompile(`(?m)^Version: .*$`).ReplaceAll(control, []byte("Version: 99.0.0"))
	check(t, os.WriteFile(filepath.Join(next, "usr/share/lapse/lapse.env"), []byte("# of the next version\n"), 0o644))
	check(t, os.WriteFile(filepath.Join(next, "DEBIAN/control"), control, 0o644))
	command(t, "dpkg-deb", "--build", next, filepath.Join(dir, "next.deb"))
	command(t, "cp", deb, filepath.Join(dir, "this.deb"))

	run := func(args ...string) string { return command(t, "chroot", append([]string{dir}, args...)...) }
	// A server in there stores a document, or finds it.
	serve := func(commands string) string {
		return run("sh", "-c", `LAPSE_STORE_DIR=/var/lib/lapse LAPSE_CONSOLE=off lapse serve --listen 127.0.0.1:14222 2>/tmp/lapse.log & pid=$!
for i in $(seq 600); do grep -q ready /tmp/lapse.log && break; sleep 0.1; done
`+commands+`; code=$?; kill $pid; wait $pid || code=$?; cat /tmp/lapse.log >&2; exit $code`)
	}
	run("dpkg", "--install", "/this.deb")
	if line := run("lapse", "--version"); !strings.HasPrefix(line, "lapse ") {
		t.Errorf("--version says %s", line)
	}
	serve(`lapse collection create c --server nats://127.0.0.1:14222 && lapse document create c a '{"n":1}' --server nats://127.0.0.1:14222`)
	run("sh", "-c", "echo LAPSE_RETAIN=30d >> /etc/lapse/lapse.env")
	run("dpkg", "--install", "/next.deb")
	if env := run("cat", "/etc/lapse/lapse.env"); !strings.Contains(env, "\nLAPSE_RETAIN=30d\n") {
		t.Errorf("the upgrade changed lapse.env:\n%s", env)
	}
	if document := serve(`lapse document get c a --server nats://127.0.0.1:14222`); !strings.Contains(document, `"n":1`) {
		t.Errorf("after the upgrade: %s", document)
	}
	for _, how := range []string{"--remove", "--purge"} {
		run("dpkg", how, "lapse")
		run("test", "-d", "/var/lib/lapse/jetstream")
		run("test", "!", "-e", "/usr/bin/lapse")
	}
	run("test", "!", "-e", "/etc/lapse/lapse.env")
	run("dpkg", "--install", "/this.deb")
	if document := serve(`lapse document get c a --server nats://127.0.0.1:14222`); !strings.Contains(document, `"n":1`) {
		t.Errorf("after it was installed again: %s", document)
	}
}

// testRPM: rpm reads the package, which has the same files.
func testRPM(t *testing.T) {
	need(t, "rpm")
	file := one(t, "lapse_*_linux_amd64.rpm")
	list := command(t, "rpm", "-qp", "--nosignature", "--list", file)
	for _, path := range []string{"/usr/bin/lapse\n", "/usr/lib/systemd/system/lapse.service\n", "/usr/lib/systemd/system/lapse-backup.timer\n", "/etc/lapse/lapse.env\n", "/usr/share/man/man1/lapse-serve.1.gz\n"} {
		if !strings.Contains(list, path) {
			t.Errorf("it lacks %s:\n%s", path, list)
		}
	}
	if config := command(t, "rpm", "-qp", "--nosignature", "--configfiles", file); config != "/etc/lapse/lapse.env\n" {
		t.Errorf("its configuration files are %s", config)
	}
}

// TestUnitFiles: systemd accepts the units, and rates the exposure of the services below 2.
func TestUnitFiles(t *testing.T) {
	if testing.Short() {
		t.Skip("systemd is not everywhere")
	}
	need(t, "systemd-analyze")
	binary := filepath.Join(t.TempDir(), "lapse")
	check(t, os.WriteFile(binary, []byte("#!/bin/sh\n"), 0o755))
	// Only what is installed can be verified.
	dir := t.TempDir()
	for _, name := range []string{"lapse.service", "lapse-backup.service", "lapse-backup.timer", "lapse-watch@.service"} {
		unit := strings.NewReplacer("/usr/bin/lapse", binary, "man:lapse-serve(1) ", "", "man:lapse-backup(1) ", "", "man:lapse-watch(1) ", "").Replace(read(t, "deploy/systemd/"+name))
		file := filepath.Join(dir, strings.Replace(name, "@.", "@mails.", 1))
		check(t, os.WriteFile(file, []byte(unit), 0o644))
		if out := command(t, "systemd-analyze", "verify", file); out != "" {
			t.Errorf("systemd-analyze verify: %s", out)
		}
		if strings.HasSuffix(name, ".service") {
			command(t, "systemd-analyze", "security", "--offline=true", "--threshold=20", file)
		}
	}
}

// TestDependabot: dependabot.yml names every module.
func TestDependabot(t *testing.T) {
	dependabot := read(t, ".github/dependabot.yml")
	for file := range strings.Lines(command(t, "git", "ls-files", "go.mod", "*/go.mod")) {
		dir := filepath.Dir(strings.TrimSpace(file))
		if !regexp.MustCompile(`directories: .*[\[ ]` + regexp.QuoteMeta(filepath.Join("/", dir)) + `[,\]]`).MatchString(dependabot) {
			t.Errorf("dependabot.yml leaves out %s", dir)
		}
	}
}

// TestWorkflows: actionlint finds nothing in the workflows.
func TestWorkflows(t *testing.T) {
	linter := strings.TrimSpace(command(t, "go", "-C", "test/release", "tool", "-n", "actionlint"))
	if out := command(t, linter, "-no-color", "-shellcheck=", "-pyflakes="); out != "" {
		t.Error(out)
	}
}

// check ends the test if there is an error.
func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
