package main

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/lapsedb/lapse/schema"
)

// TestHelpWidth: no line of any help is wider than a terminal of 80 columns.
func TestHelpWidth(t *testing.T) {
	var out bytes.Buffer
	root := newRootCommand(newApp(strings.NewReader(""), &out, &out))
	root.InitDefaultHelpCmd()
	walk(root, func(cmd *cobra.Command) {
		out.Reset()
		cmd.InitDefaultHelpFlag()
		check(t, cmd.Help())
		for line := range strings.Lines(out.String()) {
			if line = strings.TrimRight(line, "\n"); textWidth(line) > helpWidth {
				t.Errorf("%s: %d columns: %s", cmd.CommandPath(), textWidth(line), line)
			}
		}
	})
}

// TestExamples: every help has an example that begins with the command, which exists.
func TestExamples(t *testing.T) {
	root := newRootCommand(newApp(strings.NewReader(""), io.Discard, io.Discard))
	walk(root, func(cmd *cobra.Command) {
		if strings.HasPrefix(cmd.CommandPath(), "lapse completion") {
			return // cobra's, with examples in its text
		}
		if !strings.Contains(cmd.Example, cmd.CommandPath()) {
			t.Errorf("%s: no example in %q", cmd.CommandPath(), cmd.Example)
		}
	})
}

// TestCompletion: shells complete choices, collections, files and nothing else, and an
// unreachable server is no error.
func TestCompletion(t *testing.T) {
	s := newStandin(t)
	s.answer("collection.list", 200, `{"collections":[{"id":"orders"},{"id":"sessions"}]}`, false)
	here, nowhere := s.server.ClientURL(), "nats://127.0.0.1:1"
	for _, test := range []struct {
		args string
		want string // the words, and the directive of cobra
	}{
		{"watch --server " + here + " --type DocumentE", strings.Join(schema.EventNames(), " ") + " :4"},
		{"collection create a --indexing-mode ", "consistent lazy none :4"},
		{"serve --durability ", "fsync os :4"},
		{"serve --replicas ", "1 3 :4"},
		{"serve --log-format ", "text json :4"},
		{"query --server " + here + " o", "orders sessions :4"},
		{"document get --server " + here + " o", "orders sessions :4"},
		{"document get --server " + here + " orders ", ":4"},
		{"watch --server " + here + " --collection s", "orders sessions :4"},
		{"query --server " + nowhere + " o", ":4"},
		{"query --server http://x o", ":4"},
		{"replay log.jsonl --query ", ":4"},
		{"audit ", ":0"},
		{"serve --store-dir ", ":0"},
		{"status --creds ", ":0"},
		{"status --database ", ":4"},
		{"status --timeout ", ":4"},
		{"comple", "completion :4"},
	} {
		var out bytes.Buffer
		args := strings.Split(test.args, " ")
		if code := newApp(strings.NewReader(""), &out, io.Discard).run(t.Context(), append([]string{cobra.ShellCompNoDescRequestCmd}, args...)); code != exitDone {
			t.Errorf("%s: exit %d", test.args, code)
		}
		if got := strings.Join(strings.Fields(out.String()), " "); got != test.want {
			t.Errorf("%s: got %s, want %s", test.args, got, test.want)
		}
	}
}
