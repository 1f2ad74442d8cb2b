package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lapsedb/lapse/test/stress"
)

// TestEmptyValues: no command accepts an empty value, of any flag or argument, nor an empty
// element of a list. An unset variable of a script is not a wish for the default.
func TestEmptyValues(t *testing.T) {
	stress.OneGoroutine(t)
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
	walk(newRootCommand(newApp(strings.NewReader(""), io.Discard, io.Discard)), func(cmd *cobra.Command) {
		path, with := invocation(cmd)
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
	})
	if flags < 200 {
		t.Errorf("%d flags: the walk misses some", flags)
	}
	for _, args := range []string{"status --server ,", "serve --nats-url ,", "serve --database a,,b", "serve --nats-url a --creds log="} {
		refused(strings.Fields(args)...)
	}
}

// invocation returns the words that call a command, and a function that adds arguments. The
// command has all its flags then.
func invocation(cmd *cobra.Command) (path []string, with func(args ...string) []string) {
	cmd.InitDefaultHelpFlag()
	cmd.InheritedFlags() // adds them to Flags
	path = strings.Fields(cmd.CommandPath())[1:]
	return path, func(args ...string) []string { return append(path[:len(path):len(path)], args...) }
}

// TestGivenTwice: no command accepts a flag twice, in whatever notation and with whatever
// value, unless each value counts.
func TestGivenTwice(t *testing.T) {
	repeatable := strings.Fields("where param order-by select drop type include-path metadata get console-host cosmos-host durable")
	root := newRootCommand(newApp(strings.NewReader(""), io.Discard, io.Discard))
	seen := map[string]int{}
	walk(root, func(cmd *cobra.Command) {
		_, with := invocation(cmd)
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			seen[f.Name]++
			want := usageErrorf("--%s is given twice, and only one would count: leave one out", f.Name).Error()
			_, login := f.Value.(*loginFlag)
			_, user := f.Value.(*userFlag)
			if watched := cmd.Name() == "watch"; login || user || watched && f.Name == "collection" || slices.Contains(repeatable, f.Name) && !(watched && f.Name == "durable") {
				want = "<nil>"
			}
			long, separate := "--"+f.Name+"=true", []string{"--" + f.Name}
			if f.NoOptDefVal == "" {
				separate = append(separate, "x")
			}
			calls := [][]string{append([]string{long}, separate...), append(separate[:len(separate):len(separate)], long), {long, long}}
			if f.Shorthand != "" {
				calls = append(calls, []string{"-" + f.Shorthand + "=true", long}, append(append([]string{"-" + f.Shorthand}, separate[1:]...), long))
			}
			for _, call := range calls {
				if got := fmt.Sprint(refuseGiven(root, with(call...))); got != want {
					t.Errorf("%s %q: %s", cmd.CommandPath(), call, got)
				}
			}
		})
	})
	for _, name := range append(repeatable, "limit", "if-match", "help", "version", "until", "server", "nkey") {
		if seen[name] == 0 {
			t.Errorf("no command has --%s: the walk misses some", name)
		}
	}
	for args, says := range map[string]string{
		"query t -n 5 --limit=5":                                "--limit is given twice",
		"serve --nats-url nats://n --nkey a --nkey b":           "a is given, too",
		"serve --nats-url nats://n --creds log=a --creds log=a": "a is given, too",
	} {
		var out bytes.Buffer
		code := newApp(strings.NewReader(""), &out, &out).run(t.Context(), strings.Fields(args))
		if code != exitUsage || !strings.Contains(out.String(), says) || strings.Count(out.String(), "\n") != 1 {
			t.Errorf("lapse %s: exit %d, %s", args, code, &out)
		}
	}
}
