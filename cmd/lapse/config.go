package main

import (
	"cmp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/processor"
)

// newConfigCommand prints the flags of serve as they are in force. It runs the same
// complete as serve, so it refuses what serve would refuse, with the same exit code: `lapse
// config > /dev/null` checks a unit before a restart. One line for each flag: name, value,
// and flag, environment or default.
func newConfigCommand(a *app) *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "config [COMMAND]",
		Short: "Show the flags of serve, and where each is from",
		Long: `config prints every flag that lapse serve would have here: its value, - for none, and
whether that is from a flag, the environment or the default. It accepts the flags of
serve, refuses what serve refuses, and starts nothing.`,
		Example: `  lapse config
  LAPSE_RETAIN=30d lapse config --durability os | grep -v default`,
		Args: noSuchCommand,
	}
	cmd.AddCommand(newAccountCommand(a))
	f.addFlags(cmd.Flags())
	cmd.Flags().VisitAll(func(flag *pflag.Flag) { flag.Hidden = true }) // the help of serve has them
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := f.complete(cmd.Flags(), a.environment); err != nil {
			return f.environment.blame(err)
		}
		// serve logs the same as a warning.
		if unknown := f.environment.unknown; unknown != nil {
			a.complain("no flag has these environment variables: correct their names or remove them: " + strings.Join(unknown, ", "))
		}
		// Of what serve reads later, the console's token is checked here as well.
		if _, err := f.console.options(); err != nil {
			return f.environment.blame(err)
		}
		out := &output{app: a}
		t := out.table()
		cmd.Flags().VisitAll(func(flag *pflag.Flag) {
			if flag.Name != "help" {
				t.AppendRow([]any{"--" + flag.Name, cmp.Or(f.inForce(flag), "-"), f.environment.source(flag)})
			}
		})
		_, err := a.stdout.Write([]byte(t.Render() + "\n"))
		return err
	}
	return cmd
}

// inForce returns the value of a flag, without a password in a URL; "" for none. Defaults
// that depend on other flags are shown as what they come to.
func (f *serveFlags) inForce(flag *pflag.Flag) string {
	text := flag.Value.String()
	switch {
	case flag.Value.Type() == "stringSlice":
		return strings.Trim(text, "[]")
	case text == "0" && flag.Name == "replicas":
		return ""
	case flag.Name == "nats-url" && text != "":
		return client.Redacted(strings.Split(text, ","))
	case flag.Name == "snapshot-every" && !flag.Changed:
		every := processor.Options{Retain: f.Processor.Retain}.EnsureDefaults().SnapshotEvery
		return (&durationFlag{to: &every}).String()
	}
	return text
}

// source returns where the value of a flag is from.
func (e *fromEnvironment) source(flag *pflag.Flag) string {
	switch {
	case e.flags[flag.Name]:
		return "environment"
	case flag.Changed:
		return "flag"
	}
	return "default"
}
