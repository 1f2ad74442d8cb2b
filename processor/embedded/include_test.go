package embedded_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/conf"
	"pgregory.net/rapid"

	"github.com/lapsedb/lapse/processor/embedded"
	"github.com/lapsedb/lapse/schema"
)

// TestIncludes: a configuration may include files as NATS permits, some of them twice. What
// NATS's parser would follow without end, or what is no file, is refused in one line.
func TestIncludes(t *testing.T) {
	const users = "accounts { A { users: [{user: a, password: b}] } }\n"
	for _, c := range []struct {
		name  string
		files map[string]string // DIR is their directory; a text that begins with -> is a link
		want  string            // what the error begins with; "" for none
	}{
		{"itself", map[string]string{"a": "\n\ninclude a"}, "DIR/a:3: include a: the file would include itself"},
		{"ring", map[string]string{"a": "include b", "b": "\n include 'c' ", "c": "X {\ninclude \"./../DIRNAME/b\"\n}"}, "DIR/c:2: include ./../DIRNAME/b: the file would include itself"},
		{"link", map[string]string{"a": "include b", "b": "->a"}, "DIR/a:1: include b: the file would include itself"},
		{"links", map[string]string{"a": "include b", "b": "->c", "c": "->b"}, "DIR/a: error parsing include file 'b'"},
		{"in a map", map[string]string{"a": "accounts {\n INCLUDE a; }"}, "DIR/a:2: include a: the file would"},
		{"after a value", map[string]string{"a": "x: #y; include a"}, "DIR/a:1: include a: the file would"},
		{"many", map[string]string{"a": "include b\ninclude b", "b": "include c\ninclude c", "c": "include d\ninclude d", "d": "include e\ninclude e", "e": "include f\ninclude f", "f": "include g\ninclude g", "g": ""},
			"more than 64 includes"},
		{"directory", map[string]string{"a": "\ninclude ../DIRNAME"}, "DIR/a:2: include DIR is a directory"},
		{"large", map[string]string{"a": "include b", "b": strings.Repeat("#\n", 1<<19) + "\n"}, "DIR/a:1: include DIR/b has more than 1 MiB"},
		{"large itself", map[string]string{"a": strings.Repeat("#\n", 1<<19) + "\n"}, "DIR/a has more than 1 MiB"},
		{"endless", map[string]string{"a": "include b", "b": "->/dev/zero"}, "DIR/a:1: include DIR/b is a directory, pipe or device"},
		{"endless itself", map[string]string{"a": "->/dev/zero"}, "DIR/a is a directory, pipe or device"},
		{"endless certificate", map[string]string{"a": "websocket { tls {\n cert_file: DIR/b\n} }", "b": "->/dev/zero"}, "DIR/a:2: cert_file: DIR/b is a directory, pipe or device"},
		{"missing", map[string]string{"a": "include b"}, "DIR/a: error parsing include file 'b'"},
		{"twice", map[string]string{"a": "include b\ninclude c", "b": "include d", "c": "include d", "d": users}, ""},
		{"no include", map[string]string{"a": "# include a\n// include a\nX = \"\\\"\ninclude a\"\nY = '\ninclude a'\nZ = (\ninclude a\n)\n" +
			"accounts { A { users: [{user: a, password: $X}, {user: b, password: $Y}, {user: c, password: $Z}, {user: include, password: a}] } }"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if runtime.GOOS == "windows" && strings.Contains(c.files["b"]+c.files["a"], "->") {
				t.Skip("links")
			}
			dir := t.TempDir()
			place := strings.NewReplacer("DIRNAME", filepath.Base(dir), "DIR", dir)
			for name, text := range c.files {
				var err error
				if target, ok := strings.CutPrefix(text, "->"); ok {
					err = os.Symlink(target, filepath.Join(dir, name))
				} else {
					err = os.WriteFile(filepath.Join(dir, name), []byte(place.Replace(text)), 0o600)
				}
				check(t, err)
			}
			err := embedded.Options{StoreDir: filepath.Join(dir, "data"), Listen: "127.0.0.1:-1", Databases: []schema.DatabaseName{db}, Config: filepath.Join(dir, "a")}.Check()
			if c.want == "" {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			if want := place.Replace(c.want); err == nil || !strings.HasPrefix(err.Error(), "--nats-config ") || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v\nwant %s", err, want)
			}
		})
	}
}

// TestIncludesOfNATS: the first include that NATS's parser follows is the first that lapse
// finds.
func TestIncludesOfNATS(t *testing.T) {
	file := filepath.Join(t.TempDir(), "configuration")
	tokens := []string{"include", "Include", "a", "x", "$", "-", "1", "12k", "1.5", "true", ":", "=", " ", "\t", "\n", "\r\n", "\v", "\u0085", "#", "//", "/", `"`, `'`, `\"`, `\\`, `\x41`,
		"{", "x: y }", "[", "]", "(", ")", "\n)\n", "x: y,", "x: y;", "x: y\n", "x {", "x: [", "include a\n", "include 'a'", `include "a"`, "x: (\n", "x: '", `x: "`}
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(tokens), 1, 12).Draw(t, "tokens"), "")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := conf.ParseFile(file)
		first := ""
		if err != nil {
			_, first, _ = strings.Cut(err.Error(), "error parsing include file '")
		}
		if found := embedded.Includes(text); first != "" && (len(found) == 0 || !strings.HasPrefix(first, found[0]+"',")) { // which may begin a key
			t.Errorf("%q: lapse finds %q, NATS: %v", text, found, err)
		}
	})
}
