package main

import (
	"bytes"
	"cmp"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestServeEnvironment: serve has its flags from the environment, too. Flags win, an empty
// variable is none, and a bad value is wrong usage that names its variable.
func TestServeEnvironment(t *testing.T) {
	for _, test := range []struct{ environment, args, want string }{
		{"LAPSE_STORE_DIR=a LAPSE_DATABASE=b,c LAPSE_RETAIN=30d LAPSE_ACCEPT_CLOCK=true", "", "a [b c] 720h0m0s true"},
		{"LAPSE_STORE_DIR=a LAPSE_RETAIN=30d", "--store-dir z --retain forever", "z [main] 0s false"},
		{"LAPSE_STORE_DIR= LAPSE_RETAIN=", "", "data [main] 0s false"},
		{"LAPSE_RETAIN=soon", "--retain 1h", "data [main] 1h0m0s false"},
		{"LAPSE_HELP=true", "", "data [main] 0s false"},
		{"LAPSE_CONSOLE_HOST=a,b LAPSE_CONSOLE=off LAPSE_LOG_FORMAT=json", "", "data [main] 0s false"},
		{"LAPSE_NATS_URL=nats://n1,nats://n2 LAPSE_NKEY=log=a,bulk=b,c", "", "data [main] 0s false"},
	} {
		environment := strings.Fields(test.environment)
		o, code, printed := serveWith(t, test.args, environment...)
		if o == nil || code != exitDone {
			t.Errorf("%s serve %s: exit %d, %s", test.environment, test.args, code, printed)
			continue
		}
		got := strings.Join([]string{o.StoreDir, "[" + joined(o.Databases) + "]", o.Processor.Retain.String(), map[bool]string{true: "true", false: "false"}[o.Processor.AcceptClock]}, " ")
		if got != test.want {
			t.Errorf("%s serve %s: got %s, want %s", test.environment, test.args, got, test.want)
		}
		if warned := strings.Count(printed, "\n") == 1 && strings.Contains(printed, "LAPSE_HELP"); warned != (test.environment == "LAPSE_HELP=true") || printed != "" && !warned {
			t.Errorf("%s serve %s: %s", test.environment, test.args, printed)
		}
	}
	for environment, want := range map[string]string{
		"LAPSE_RETAIN=soon":                                   `LAPSE_RETAIN "soon": use `,
		"LAPSE_NO_AUTH=perhaps":                               `LAPSE_NO_AUTH "perhaps": use true or false`,
		"LAPSE_LISTEN=0.0.0.0:1":                              "(--listen is from LAPSE_LISTEN)",
		"LAPSE_DATABASE=B":                                    "(--database is from LAPSE_DATABASE)",
		"LAPSE_METRICS=x":                                     "(--metrics is from LAPSE_METRICS)",
		"LAPSE_CONSOLE=0.0.0.0:1":                             "(--console is from LAPSE_CONSOLE)",
		"LAPSE_NATS_URL=a,,b":                                 `LAPSE_NATS_URL "a,,b": an element is empty`,
		"LAPSE_NATS_URL=a LAPSE_NKEY=x,":                      `LAPSE_NKEY "x,": an element is empty`,
		"LAPSE_NATS_URL=a LAPSE_NKEY=log=a LAPSE_CREDS=log=b": `LAPSE_NKEY "log=a": connection log has more than one`,
		"LAPSE_NATS_URL=nats://me:secret@n1":                  "LAPSE_NATS_URL has a login, ",
		"LAPSE_NATS_URL=a LAPSE_CONTEXT=b":                    "(--context is from LAPSE_CONTEXT, --nats-url is from LAPSE_NATS_URL)",
	} {
		for _, args := range []string{"serve", "config"} {
			o, code, printed := startWith(t, args, strings.Fields(environment)...)
			if o != nil || code != exitUsage || !strings.Contains(printed, want) || strings.Count(printed, "\n") != 1 || strings.Contains(printed, "secret") {
				t.Errorf("%s %s: exit %d, %s", environment, args, code, printed)
			}
		}
	}
}

// TestEveryFlagHasAVariable: each flag of serve can be set by a variable.
func TestEveryFlagHasAVariable(t *testing.T) {
	a := newApp(strings.NewReader(""), io.Discard, io.Discard)
	var serve *cobra.Command
	var set []string
	walk(newRootCommand(a), func(cmd *cobra.Command) {
		if cmd.Name() == "serve" {
			serve = cmd
		}
	})
	serve.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" {
			return
		}
		var e fromEnvironment
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		flags.AddFlag(f)
		value := map[string]string{"bool": "true", "int": "7", "duration": "20s", "size": "7MiB"}[f.Value.Type()]
		if c, ok := f.Value.(chooser); ok {
			value = c.choices()[0]
		}
		if value == "" {
			value = map[string]string{"creds": "log=x", "nkey": "bulk=x", "context": "service=x", "user": "x=y"}[f.Name]
		}
		value = cmp.Or(value, "x")
		if err := e.read(flags, []string{variable(f.Name) + "=" + value}); err != nil || !e.flags[f.Name] || f.Value.String() != value && f.Value.String() != "["+value+"]" {
			t.Errorf("%s=%s: %s, %v", variable(f.Name), value, f.Value, err)
		}
		set = append(set, f.Name)
	})
	if len(set) < 25 || !slices.Contains(set, "no-auth") {
		t.Errorf("flags: %v", set)
	}
}

// TestConfig: config shows each flag with its value and source, and no password.
func TestConfig(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	check(t, os.WriteFile(token, []byte("0123456789abcdef"), 0o600))
	show := func(args string, environment ...string) map[string]string {
		t.Helper()
		_, code, printed := startWith(t, "config "+args, environment...)
		shown := map[string]string{}
		for line := range strings.Lines(printed) {
			if cells := strings.Fields(line); strings.HasPrefix(line, "--") {
				shown[cells[0]] = strings.Join(cells[1:], " ")
			}
		}
		if code != exitDone || strings.Contains(printed, "secret") || strings.Contains(printed, "0123456789abcdef") || len(shown) < 25 {
			t.Errorf("config %s: exit %d\n%s", args, code, printed)
		}
		return shown
	}
	is := func(shown map[string]string, flag, want string) {
		t.Helper()
		if shown[flag] != want {
			t.Errorf("%s is %q, not %q", flag, shown[flag], want)
		}
	}
	shown := show("--store-dir here --console-host a,b", "LAPSE_RETAIN=2h", "LAPSE_CONSOLE_TOKEN_FILE="+token, "LAPSE_STORE_DIR=there", "LAPSE_UNKNOWN=secret")
	is(shown, "--store-dir", "here flag")
	is(shown, "--retain", "2h environment")
	is(shown, "--snapshot-every", "30m default")
	is(shown, "--listen", "127.0.0.1:4222 default")
	is(shown, "--console-token-file", token+" environment")
	is(shown, "--console-host", "a,b flag")
	is(shown, "--replicas", "- default")

	shown = show("--nats-url nats://me:secret@n1,nats://secret@n2", "LAPSE_CREDS=b,log=a")
	is(shown, "--nats-url", "nats://me:xxxxx@n1,nats://xxxxx@n2 flag")
	is(shown, "--creds", "b,log=a environment")
	is(shown, "--listen", "- default") // of an embedded server only
	is(shown, "--console", "off default")
	is(shown, "--lease", (5*time.Second).String()+" default")

	var help bytes.Buffer
	if newApp(strings.NewReader(""), &help, &help).run(t.Context(), []string{"config", "--help"}); strings.Contains(help.String(), "--store-dir") {
		t.Errorf("the help of config repeats that of serve:\n%s", &help)
	}
}
