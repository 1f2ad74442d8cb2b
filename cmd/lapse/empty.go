package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// listAnnotation marks a flag whose value is a list with commas, beside pflag's slices.
const listAnnotation = "list"

// refuseEmpty returns a usage error for a flag with an empty value, or an empty element in
// a list: most likely a variable of the caller is unset, and a command without the flag
// does more than the caller meant. It reads every value, also one that a later one
// overrides, and leaves all other errors to the command.
func refuseEmpty(root *cobra.Command, args []string) (refusal error) {
	cmd, rest, err := root.Find(args)
	if err != nil {
		return nil
	}
	cmd.InitDefaultHelpFlag()
	cmd.InheritedFlags() // adds them to Flags
	_ = cmd.Flags().ParseAll(rest, func(flag *pflag.Flag, value string) error {
		switch {
		case value == "":
			refusal = usageErrorf("--%s is empty: give a value, or leave the flag out", flag.Name)
		case emptyElement(flag, value):
			refusal = usageErrorf("--%s %q: an element is empty: leave it out", flag.Name, value)
		}
		return refusal
	})
	return refusal
}

// emptyElement reports whether value is a list, for this flag, with an empty element.
func emptyElement(flag *pflag.Flag, value string) bool {
	_, list := flag.Annotations[listAnnotation]
	return (list || flag.Value.Type() == "stringSlice") && slices.Contains(strings.Split(value, ","), "")
}
