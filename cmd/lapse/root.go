package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// The tree of commands, and the rules that hold for all of them: an unknown subcommand, or
// a missing one of a group, is wrong usage, never the help with exit 0; empty arguments are
// refused, since they come from unset variables; every text wraps at the width of the help;
// every flag and argument completes.
//
// docs/flags.md, the manual pages and the completion of shells are generated from this
// tree. So the texts of commands and flags are written once, in the files of the commands.

// newRootCommand returns the tree of all commands. Cobra prints nothing by itself: errors
// go through run, help through usage.
func newRootCommand(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "lapse",
		Short: "JSON documents with a time to live over NATS",
		Long:  "lapse stores JSON documents with a time to live (TTL). Every expiry is an event that you can consume.",
		Example: `  lapse serve                                        # start a server
  lapse collection create sessions --default-ttl 30m
  lapse document upsert sessions 83.149.9.216 '{"requests":1}'
  lapse watch --type DocumentExpired                 # follow expiries`,
		Version:       version,
		SilenceErrors: true, // run prints them
		SilenceUsage:  true,
		Args:          noSuchCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate(versionLine() + "\n")
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetFlagErrorFunc(flagError)
	root.SetUsageFunc(usage)
	for _, g := range []struct {
		id, title string
		commands  []*cobra.Command
	}{
		{"server", "Server:", []*cobra.Command{newServeCommand(a), newTestCommand(a), newConfigCommand(a), newConsoleCommand(a), newCosmosCommand(a), newStatusCommand(a), newMoveCommand(a), newSnapshotCommand(a), newBackupCommand(a), newRestoreCommand(a), newDatabaseCommand(a)}},
		{"documents", "Documents:", []*cobra.Command{newCollectionCommand(a), newDocumentCommand(a), newQueryCommand(a), newForecastCommand(a), newDueCommand(a), newHistoryCommand(a), newImportCommand(a)}},
		{"log", "Log:", []*cobra.Command{newWatchCommand(a), newConsumersCommand(a), newExportCommand(a), newReplayCommand(a), newSimulateCommand(a), newAuditCommand(a)}},
	} {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		for _, cmd := range g.commands {
			cmd.GroupID = g.id
			root.AddCommand(cmd)
		}
	}
	root.AddCommand(newManCommand(), newHealthcheckCommand(a), newVersionCommand(a))
	addHelp(root)
	root.InitDefaultCompletionCmd()
	// After all commands are there, also those that cobra adds.
	walk(root, func(cmd *cobra.Command) {
		if !cmd.Runnable() {
			cmd.Args, cmd.RunE = noSuchCommand, needsCommand
		}
		cmd.Long = wrap(cmd.Long)
		complete(cmd)
	})
	return root
}

// addHelp adds the command help. Cobra's own exits with 0 when it is asked for a command
// that does not exist; this one refuses.
func addHelp(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	help, _, _ := root.Find([]string{"help"})
	help.Example = "  lapse help query"
	help.Args = func(_ *cobra.Command, args []string) error {
		cmd, rest, err := root.Find(args)
		if err == nil && cmd.HasSubCommands() {
			err = noSuchCommand(cmd, rest)
		}
		return err
	}
}

// group returns a command that only has subcommands, such as collection.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short}
	cmd.AddCommand(commands...)
	return cmd
}

// isGroup reports whether a command does nothing without a subcommand. `config [COMMAND]`
// has subcommands and runs without one, too.
func isGroup(cmd *cobra.Command) bool {
	return cmd.HasSubCommands() && !strings.HasSuffix(cmd.Use, " [COMMAND]")
}

// needsCommand refuses a command that only has subcommands.
func needsCommand(cmd *cobra.Command, _ []string) error {
	var names []string
	for _, c := range cmd.Commands() {
		names = append(names, c.Name())
	}
	return usageErrorf("%s needs one of %s: see `%s --help`", cmd.CommandPath(), strings.Join(names, ", "), cmd.CommandPath())
}

// noSuchCommand refuses an unknown subcommand, and suggests a similar one.
func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if args[0] == "" {
		return usageErrorf("argument 1 is empty: see `%s --help`", cmd.CommandPath())
	}
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return usageErrorf("there is no `%s %s`: did you mean `%s %s`?", cmd.CommandPath(), args[0], cmd.CommandPath(), near[0])
	}
	return usageErrorf("there is no `%s %s`: see `%s --help`", cmd.CommandPath(), args[0], cmd.CommandPath())
}

// arguments refuses fewer than least or more than most arguments, and empty ones: `lapse
// document delete sessions "$id"` with an unset variable is refused here, before anything
// is sent.
func arguments(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if i := slices.Index(args, ""); i >= 0 {
			return usageErrorf("argument %d is empty: use `%s`", i+1, useLine(cmd))
		}
		if len(args) < least || len(args) > most {
			return usageErrorf("%s given: use `%s`", plural(len(args), "argument"), useLine(cmd))
		}
		return nil
	}
}

// useLine returns the usage line of cmd without [flags].
func useLine(cmd *cobra.Command) string { return strings.TrimSuffix(cmd.UseLine(), " [flags]") }

// walk calls visit with cmd and all its subcommands.
func walk(cmd *cobra.Command, visit func(*cobra.Command)) {
	visit(cmd)
	for _, sub := range cmd.Commands() {
		walk(sub, visit)
	}
}
