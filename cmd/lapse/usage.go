package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The help: cobra's template is replaced by usage, which prints flags under the headings
// that addGroup gives them, in the order of the code instead of that of the alphabet.
// Related flags stay together, and the connection flags, which most commands have, come
// last.

// groupAnnotation is the annotation that holds a flag's heading in the help.
const groupAnnotation = "group"

// addGroup adds flags under a heading. The heading is an annotation of each flag, which
// cobra and pflag carry along without knowing it. Flags without one stand under "Flags".
func addGroup(to *pflag.FlagSet, heading string, add func(flags *pflag.FlagSet)) {
	flags := newGroup()
	add(flags)
	flags.VisitAll(func(f *pflag.Flag) { _ = flags.SetAnnotation(f.Name, groupAnnotation, []string{heading}) })
	to.SortFlags = false
	to.AddFlagSet(flags)
}

// flagGroup are the flags of a command under one heading.
type flagGroup struct {
	heading string
	flags   *pflag.FlagSet
}

// flagGroups returns the flags of a command by heading, the connection flags last.
func flagGroups(cmd *cobra.Command) (groups []*flagGroup) {
	connection := &flagGroup{connectionHeading, newGroup()}
	for c := cmd; c != nil; c = c.Parent() {
		c.PersistentFlags().VisitAll(connection.flags.AddFlag)
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden || connection.flags.Lookup(f.Name) != nil {
			return
		}
		heading := "Flags"
		if given := f.Annotations[groupAnnotation]; len(given) > 0 {
			heading = given[0]
		}
		i := slices.IndexFunc(groups, func(g *flagGroup) bool { return g.heading == heading })
		if i < 0 {
			i = len(groups)
			groups = append(groups, &flagGroup{heading, newGroup()})
		}
		groups[i].flags.AddFlag(f)
	})
	if connection.flags.HasFlags() {
		groups = append(groups, connection)
	}
	return groups
}

// newGroup returns a flag set that keeps the order in which flags are added.
func newGroup() *pflag.FlagSet {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.SortFlags = false
	return flags
}

// helpWidth is the width of the help in columns.
const helpWidth = 80

// wrap wraps the paragraphs of a text to the width of the help. Indented ones stay.
func wrap(long string) string {
	paragraphs := strings.Split(long, "\n\n")
	for i, p := range paragraphs {
		if !strings.HasPrefix(p, " ") && !strings.HasPrefix(p, "\t") {
			paragraphs[i] = padding.ReplaceAllString(text.WrapSoft(strings.Join(strings.Fields(p), " "), helpWidth), "")
		}
	}
	return strings.Join(paragraphs, "\n\n")
}

// padding are the spaces with which WrapSoft fills a line. Goldens of the help would have
// them at line ends.
var padding = regexp.MustCompile(`(?m) +$`)

// forms are the values of flags that have one form in all commands. usage explains a form
// once, below the flags that name it.
var forms = []struct{ value, examples string }{{"DURATION", durations + "; a number alone counts seconds"}, {"SIZE", sizes}}

// usage prints the usage of a command: the line, examples, subcommands by group, flags by
// heading, and the forms of their values.
func usage(cmd *cobra.Command) error {
	var b strings.Builder
	line := cmd.UseLine()
	if isGroup(cmd) {
		line = cmd.CommandPath() + " COMMAND [flags]"
	}
	fmt.Fprintf(&b, "Usage:\n  %s\n", line)
	if cmd.Example != "" {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", cmd.Example)
	}
	for _, group := range append(cmd.Groups(), &cobra.Group{Title: "Commands:"}) {
		heading := "\n" + group.Title + "\n"
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() && sub.GroupID == group.ID {
				fmt.Fprintf(&b, "%s  %-*s %s\n", heading, sub.NamePadding(), sub.Name(), sub.Short)
				heading = ""
			}
		}
	}
	var flags string
	for _, group := range flagGroups(cmd) {
		flags += fmt.Sprintf("\n%s:\n%s", group.heading, group.flags.FlagUsagesWrapped(helpWidth))
	}
	b.WriteString(flags)
	for _, form := range forms {
		if strings.Contains(flags, form.value) {
			fmt.Fprintf(&b, "\n%s is like %s.\n", form.value, form.examples)
		}
	}
	if cmd.HasSubCommands() {
		fmt.Fprintf(&b, "\nUse `%s COMMAND --help` for more about a command.\n", cmd.CommandPath())
	}
	_, err := fmt.Fprint(cmd.OutOrStderr(), b.String())
	return err
}
