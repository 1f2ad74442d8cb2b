package main

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestEmptyValues: no command accepts an empty value, of any flag or argument, nor an empty
// element of a list. An unset variable of a script is not a wish for the default.
func TestEmptyValues(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end() // a command that is not refused does not serve or watch for ever
	refused := func(args ...string) {
		t.Helper()
		var stdout, stderr bytes.Buffer
		code := newApp(strings.NewReader(""), &stdout, &stderr).run(ended, args)
		line := stderr.String()
		if code != exitUsage || stdout.Len() > 0 || strings.Count(line, "\n") != 1 || !strings.Contains(line, " is empty: ") && !strings.Contains(line, "is missing") {
			t.Errorf("lapse %q: exit %d\n%s%s", args, code, stdout.String(), line)
		}
	}
	flags := 0
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		path := strings.Fields(cmd.CommandPath())[1:]
		with := func(args ...string) []string { return append(path[:len(path):len(path)], args...) }
		cmd.InitDefaultHelpFlag()
		cmd.InheritedFlags() // adds them to Flags
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			flags++
			name := "--" + f.Name
			refused(with(name + "=")...)
			if f.NoOptDefVal == "" {
				refused(with(name, "")...)
				refused(with(name, "", name, "1")...) // also one that does not count
			}
			if _, list := f.Annotations[listAnnotation]; list || f.Value.Type() == "stringSlice" {
				for _, elements := range []string{",", "a,", ",a", "a,,b"} {
					refused(with(name, elements)...)
				}
			}
		})
		if cmd.HasSubCommands() {
			refused(with("")...)
			return
		}
		for i := range strings.Fields(useLine(cmd))[len(path)+1:] {
			args := make([]string, i+1) // the last one is empty
			for j := range i {
				args[j] = "a"
			}
			refused(with(args...)...)
		}
	}
	walk(newRootCommand(newApp(strings.NewReader(""), io.Discard, io.Discard)))
	if flags < 200 {
		t.Errorf("%d flags: the walk misses some", flags)
	}
	for _, args := range []string{"status --server ,", "serve --nats-url ,", "serve --database a,,b", "serve --nats-url a --creds log="} {
		refused(strings.Fields(args)...)
	}
}
