package main

import (
	"context"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// completionTimeout bounds the wait for a server while a shell completes a word.
const completionTimeout = time.Second

// complete lets shells complete the flags and arguments of a command by the names that its
// help gives them: choices, collections, files; nothing for others. So the help is the only
// place that says what a value is: `COLL ID` in Use completes a collection, then nothing.
func complete(cmd *cobra.Command) {
	flag := func(f *pflag.Flag) {
		name, _ := pflag.UnquoteUsage(f)
		values := completer(name)
		if choices, ok := f.Value.(chooser); ok {
			values = cobra.FixedCompletions(choices.choices(), cobra.ShellCompDirectiveNoFileComp)
		}
		if values != nil {
			_ = cmd.RegisterFlagCompletionFunc(f.Name, values) // fails for no flag of the command
		}
	}
	cmd.Flags().VisitAll(flag)
	cmd.PersistentFlags().VisitAll(flag)
	if cmd.ValidArgsFunction != nil || cmd.HasSubCommands() {
		return
	}
	names := strings.Fields(cmd.Use)[1:]
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) >= len(names) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		if values := completer(names[len(args)]); values != nil {
			return values(cmd, args, word)
		}
		return nil, cobra.ShellCompDirectiveDefault
	}
}

// completer returns what completes a value of this name, nil for files, which the shell
// completes by itself.
func completer(name string) cobra.CompletionFunc {
	switch {
	case strings.Contains(name, "FILE") || strings.Contains(name, "DIR"):
		return nil
	case name == "COLL" || name == "COLLECTION":
		return completeCollection
	}
	return cobra.NoFileCompletions
}

// completeCollection returns the collections of the database, of which the shell chooses;
// none if it does not answer.
func completeCollection(cmd *cobra.Command, _ []string, _ string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
	if cmd.Flag("server") == nil {
		return nil, cobra.ShellCompDirectiveNoFileComp // of an exported log
	}
	// This function does not have the command's own connection, so its flags are
	// copied. Errors are silent: a shell shows nothing while a word is completed.
	var conn connection
	same := &cobra.Command{}
	conn.addFlags(same)
	same.PersistentFlags().VisitAll(func(f *pflag.Flag) {
		if given := cmd.Flag(f.Name); given.Changed {
			_ = f.Value.Set(given.Value.String())
		}
	})
	conn.timeout = min(conn.timeout, completionTimeout)
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	lapse, hangUp, err := conn.connect(ctx, nats.Timeout(conn.timeout))
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer hangUp()
	all, _ := lapse.Collections(ctx)
	for _, c := range all {
		names = append(names, c.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
