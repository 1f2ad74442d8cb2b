package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lapsedb/lapse/host"
	"github.com/lapsedb/lapse/schema"
)

// testFlags are the flags of test: those of serve that make sense without a disk and with
// clocks of its own. The others do not exist here, so that they are wrong usage.
type testFlags struct {
	host.Options
	at      string
	load    string
	console consoleFlags
	cosmos  cosmosFlags
	log     logFlags
}

// testBeginning is the default of --at.
const testBeginning = "2000-01-01T00:00:00Z"

// newTestCommand serves databases in memory, section 13 of the contract. Programs that
// start it read one line of JSON on standard output, and nothing else is ever written
// there.
func newTestCommand(a *app) *cobra.Command {
	f := testFlags{log: logFlags{level: "warn"}}
	cmd := &cobra.Command{
		Use:   "test",
		Short: "Serve databases in memory whose clocks tests move",
		Long: `test is serve for tests of programs in any language: nothing is on disk, and the clock of
each database stands still until a request moves it. The guard against wrong clocks is off.

It prints one line of JSON when it serves, such as
{"event":"ready","nats":"nats://127.0.0.1:4222"}, and SIGTERM or Ctrl-C stops it. Database
main is there at first. The requests lapse.NAME.test.open, now, advance and drop open other
databases, show and move their clocks, and remove them: see docs/testing.md.`,
		Example: `  lapse test --listen 127.0.0.1:0
  nats req lapse.main.test.advance '{"by":"30m"}'
  nats req lapse.main.test.advance '{"to":"due"}'`,
		Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.load != "" && cmd.Flags().Changed("at") {
				return usageErrorf("--at and --load given: the clock begins at the last event of the log")
			}
			if err := f.complete(a.environment); err != nil {
				return err
			}
			return a.test(cmd.Context(), f)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.Listen, "listen", "127.0.0.1:4222", "accept NATS clients at `HOST:PORT`; port 0 is any that is free")
	flags.BoolVar(&f.NoAuth, "no-auth", false, "let others than this machine connect: to --listen, --console and --cosmos")
	flags.StringVar(&f.at, "at", testBeginning, "begin at `TIME`, as in RFC 3339 or in Unix seconds, or now for clocks that run with the machine's")
	flags.StringVar(&f.load, "load", "", "begin with an exported log, at its last event: `FILE|-`")
	flags.StringVar(&f.console.address, "console", "off", flagText[host.Console]("Address")+", or off")
	flags.StringSliceVar(&f.console.hosts, "console-host", nil, flagText[host.Console]("Hosts"))
	f.cosmos.addURL(flags)
	f.cosmos.add(flags)
	flags.StringVar(&f.Metrics, "metrics", "", flagText[host.Options]("Metrics"))
	flags.StringVar(&f.HealthSocket, "health-socket", "", flagText[host.Options]("HealthSocket"))
	choiceVar(flags, &f.log.format, "log-format", "text", "write log lines to standard error in this format", "text", "json")
	return cmd
}

// complete completes the options from the flags and the environment of the container image.
// LAPSE_HEALTH_SOCKET is the only variable that test reads: an environment meant for serve
// must not change what a test sees.
func (f *testFlags) complete(environment []string) (err error) {
	for _, entry := range environment {
		if path, ok := strings.CutPrefix(entry, variable("health-socket")+"="); ok && f.HealthSocket == "" {
			f.HealthSocket = path
		}
	}
	if f.Test, err = parseBeginning(f.at); err != nil {
		return err
	}
	if f.Metrics != "" {
		if err := checkAddress("--metrics", f.Metrics); err != nil {
			return err
		}
	}
	if f.Cosmos, err = f.cosmos.options(f.NoAuth); err != nil {
		return err
	}
	f.Processor.Version = semver()
	return f.Check()
}

// parseBeginning reads the value of --at: a time, unix seconds, or now.
func parseBeginning(text string) (*host.Test, error) {
	if text == "now" {
		return &host.Test{At: time.Now(), Runs: true}, nil
	}
	at, err := schema.ParseTime(text)
	if seconds, notNumber := strconv.ParseInt(text, 10, 64); notNumber == nil {
		at, err = time.Unix(seconds, 0), nil
	}
	if err != nil || at.Unix() < 0 || at.Unix() > schema.MaxTime/1000 {
		return nil, usageErrorf("--at %q: use a time like %s or Unix seconds, from 1970 to 9999, or now", text, testBeginning)
	}
	return &host.Test{At: at}, nil
}

// test serves until ctx ends. The ready line is on standard output; the log on standard
// error has none.
func (a *app) test(ctx context.Context, f testFlags) (err error) {
	f.console.given = true
	if f.Console, err = f.console.withoutToken(f.NoAuth); err != nil {
		return err
	}
	log := a.openLog(f.log)
	defer log.close()
	f.Processor.Logger = log.Logger
	if f.load != "" {
		load, _, err := a.openInput(f.load)
		if err != nil {
			return err
		}
		defer load.Close()
		f.Test.Load = load
	}
	var unread error
	f.Events = func(e host.Event) {
		switch e := e.(type) {
		case host.Doing:
			a.does(e)
		case host.Ready:
			// There is no ready line in the log, but nothing is to be hidden any more.
			log.to.over.Store(true)
			if unread = a.readyJSON(e); unread != nil {
				a.end(unread)
			}
		case host.Failing:
			a.end(e.Err)
		}
	}
	return errors.Join(a.host(ctx, f.Options), unread)
}

// readyJSON prints where the databases are served, with the ports that were chosen for port
// 0. An error ends the command: whoever started it waits for this line.
func (a *app) readyJSON(ready host.Ready) error {
	line, err := json.Marshal(struct {
		Event   string `json:"event"`
		NATS    string `json:"nats"`
		Console string `json:"console,omitempty"`
		Cosmos  string `json:"cosmos,omitempty"`
	}{"ready", ready.URL, ready.Console, ready.Cosmos})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.stdout, "%s\n", line)
	return err
}
