// Package manual runs the shell blocks of the pages about the examples.
package manual

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/lapsedb/lapse/test/child"
)

// Program is the variable that is set where the test binary is to run the program.
const Program = "TEST_PROGRAM"

// Main runs the tests, or the program if a test starts it.
func Main(m *testing.M, program func()) {
	if os.Getenv(Program) != "" {
		program()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// patience bounds the wait for the output of a block: far more than it takes.
const patience = time.Minute

// block is a block of commands, with the block after it that has their output, if any.
var block = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?")

// port is the one that a page names. A program prints the one that it listens at.
const port = ":8080"

// Run runs the shell blocks of a page of docs in one shell, and fails unless each prints
// what the page says, where an ellipsis stands for any text. There `go -C examples run
// ./name` runs the test binary. Blocks of the nats command need none of that: package test
// runs them.
func Run(t *testing.T, page string, env ...string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", page))
	if err != nil {
		t.Fatal(err)
	}
	blocks := block.FindAllStringSubmatch(string(text), -1)
	if len(blocks) == 0 {
		t.Fatalf("%s has no shell block", page)
	}
	in, lines := shell(t, env)
	listens := ":0"
	for _, b := range blocks {
		if strings.HasPrefix(b[1], "nats ") {
			continue
		}
		if _, err := io.WriteString(in, strings.ReplaceAll(b[1], port, listens)); err != nil {
			t.Fatal(err)
		}
		if b[2] == "" {
			continue
		}
		printed, expected := "", pattern(b[2])
		for deadline := time.After(patience); !expected.MatchString(printed); {
			select {
			case line, ok := <-lines:
				if !ok {
					t.Fatalf("%s fails after %q, and the page says %q", b[1], printed, b[2])
				}
				printed += line + "\n"
			case <-deadline:
				t.Fatalf("%s prints %q, and the page says %q", b[1], printed, b[2])
			}
		}
		if m := expected.FindStringSubmatch(printed); len(m) > 1 {
			listens = m[1]
		}
	}
}

// pattern returns what matches the text of a page; a group has the port.
func pattern(text string) *regexp.Regexp {
	quoted := regexp.QuoteMeta(text)
	quoted = strings.Replace(quoted, port, `(:\d+)`, 1)
	return regexp.MustCompile(`(?s)^` + strings.ReplaceAll(quoted, "…", ".*") + `$`)
}

// shell starts a shell that ends with the test, and its jobs with it.
func shell(t *testing.T, env []string) (in io.Writer, lines <-chan string) {
	t.Helper()
	dir := t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\nshift 4\nexec %q \"$@\"\n", os.Args[0])
	if err := os.WriteFile(filepath.Join(dir, "go"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	sh := child.Command(t, "sh", "-ec", `trap 'jobs -p >"$0"; kill $(cat "$0")' EXIT; . /dev/stdin`, filepath.Join(dir, "jobs"))
	sh.Env = append(sh.Env, "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"), Program+"=1")
	sh.Env, sh.Stderr = append(sh.Env, env...), os.Stderr
	stdin, err := sh.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := sh.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := sh.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan string)
	go func() {
		defer close(read)
		for scanner := bufio.NewScanner(stdout); scanner.Scan(); {
			read <- scanner.Text()
		}
	}()
	t.Cleanup(func() {
		_ = stdin.Close()
		for range read { // until all jobs have ended
		}
		_ = sh.Wait()
	})
	return stdin, read
}
