package test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/test/child"
	"github.com/lapsedb/lapse/test/harness"
)

// shellBlock is a block of commands on a page, with the block after it that has their
// output, if any.
var shellBlock = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?")

// starts are the commands that start a server, on pages. The container is what its
// Dockerfile runs, without Docker: TestImage of test/release runs it.
var starts = map[string]func(t *testing.T) (s *harness.Server, printed string){
	"go run ./cmd/lapse serve\n": func(t *testing.T) (*harness.Server, string) {
		s := harness.Serve(t, "--console", "127.0.0.1:0")
		return s, s.Stderr()
	},
	"docker run --detach --volume lapse:/data --publish 127.0.0.1:4222:4222 lapse\n": func(t *testing.T) (*harness.Server, string) {
		return harness.Serve(t, "--no-auth"), ""
	},
	"lapse serve --nats-url nats://127.0.0.1:4222\n": func(t *testing.T) (*harness.Server, string) {
		s := harness.ServeRemote(t, startNATS(t, nil), t.TempDir(), io.Discard)
		return s, s.Stderr()
	},
}

// manualTries bounds the attempts at the pages: their documents live for seconds, too short
// for a busy machine to get from one command to the next.
const manualTries = 3

// TestManualRuns: the commands of README, quickstart and uses print what the pages say: on
// the server of each way to start one, the quickstart also on a new one. An ellipsis there
// stands for any text.
func TestManualRuns(t *testing.T) {
	t.Parallel()
	for name, way := range map[string]struct {
		start string
		pages []string
	}{
		"quickstart": {"go run", []string{"docs/quickstart.md"}},
		"container":  {"docker run", []string{"README.md", "docs/quickstart.md"}},
		"beside":     {"lapse serve", []string{"README.md", "docs/uses.md"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var blocks [][]string
			for _, page := range way.pages {
				text, err := os.ReadFile(filepath.Join("..", page))
				check(t, err)
				blocks = append(blocks, shellBlock.FindAllStringSubmatch(string(text), -1)...)
			}
			if len(blocks) < 4*len(way.pages) {
				t.Fatalf("only %d blocks were found", len(blocks))
			}
			for try := 1; ; try++ {
				err := runManual(t, way.start, blocks)
				if err == nil {
					return
				}
				if try == manualTries {
					t.Fatal(err)
				}
				t.Logf("try %d: %v", try, err)
			}
		})
	}
}

// runManual runs the blocks of pages on one server, which the block that begins with start
// starts.
func runManual(t *testing.T, start string, blocks [][]string) error {
	t.Helper()
	var s *harness.Server
	var shell manualShell
	for _, block := range blocks {
		commands, expected := block[1], block[2]
		var printed string
		serve, starting := starts[commands]
		switch {
		case starting && (s != nil || !strings.HasPrefix(commands, start)):
			continue // another way, or it runs
		case starting:
			s, printed = serve(t)
			shell = newManualShell(t, s)
			printed = strings.NewReplacer(s.URL(), nats.DefaultURL, s.Dir, "data").Replace(printed)
			printed = regexp.MustCompile(`(console: http://127\.0\.0\.1):\d+`).ReplaceAllString(printed, "$1:8280")
		case s == nil:
			return fmt.Errorf("no block before this one starts a server by %q: %s", start, commands)
		case strings.HasPrefix(commands, "nats "):
			if err := shell.nats(commands); err != nil {
				return err
			}
			continue
		default:
			var err error
			if printed, err = shell.run(commands); err != nil {
				return err
			}
		}
		if expected != "" && !matches(expected, printed) {
			return fmt.Errorf("%s\nprints\n%s\nand the page says\n%s", commands, printed, expected)
		}
	}
	return nil
}

// matches reports whether text is what a page says, where an ellipsis is any text.
func matches(expected, text string) bool {
	parts := strings.Split(strings.TrimSpace(expected), "…")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile(`(?s)^` + strings.Join(parts, ".*") + `$`).MatchString(strings.TrimSpace(text))
}

// manualShell runs shell blocks in a directory where lapse is a client of a server. There
// go build does nothing, since lapse is already built, and go run the program of quickstart.
type manualShell struct {
	t   *testing.T
	dir string
	cli *fakeCLI
}

func newManualShell(t *testing.T, s *harness.Server) manualShell {
	t.Helper()
	dir := t.TempDir()
	lapse := fmt.Sprintf("#!/bin/sh\ncase $1 in replay) exec %[1]q \"$@\";; esac\nexec %[1]q \"$@\" --server %[2]s\n", harness.Command(t).Path, s.URL())
	for name, script := range map[string]string{"lapse": lapse, "go": goCommand(t, s)} {
		check(t, os.WriteFile(filepath.Join(dir, name), []byte(script), 0o700))
	}
	return manualShell{t, dir, &fakeCLI{T: t, nc: dial(t, s)}}
}

// quickstart builds the program of quickstart, once.
var quickstart = sync.OnceValues(func() (string, error) { return harness.Build("./docs/quickstart") })

// goCommand returns the script that stands in for go.
func goCommand(t *testing.T, s *harness.Server) string {
	t.Helper()
	program, err := quickstart()
	check(t, err)
	return fmt.Sprintf(`#!/bin/sh
case $* in
'build ./cmd/lapse') ;;
'run ./docs/quickstart') NATS_URL=%s %q & sleep 4; kill $!; wait ;;
*) exit 2 ;;
esac
`, s.URL(), program)
}

// run runs commands and returns their output.
func (m manualShell) run(commands string) (printed string, err error) {
	commands = strings.ReplaceAll(commands, " --server nats://127.0.0.1:4222", "") // ./lapse gives that of m
	cmd := child.CommandContext(m.t.Context(), m.t, "sh", "-e", "-c", commands)
	cmd.Dir = m.dir
	cmd.Env = append(cmd.Env, "PATH="+m.dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s\n%w\n%s", commands, err, out.Bytes())
	}
	return out.String(), nil
}

// nats runs commands of the nats CLI without it.
func (m manualShell) nats(commands string) (err error) {
	for line := range strings.Lines(commands) {
		expected := expectation.FindStringSubmatch(line)
		if expected == nil {
			return errors.New("the page does not say what this prints: " + line)
		}
		printed := m.cli.run(split(m.t, strings.TrimSpace(expectation.ReplaceAllString(line, ""))))
		if !strings.Contains(printed, strings.TrimSpace(expected[1])) {
			err = errors.Join(err, fmt.Errorf("%s\nprints %s", line, printed))
		}
	}
	return err
}
