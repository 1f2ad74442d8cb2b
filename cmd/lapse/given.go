package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// listAnnotation marks a flag whose value is a list with commas, besides pflag's slices.
const listAnnotation = "list"

// refuseGiven returns a usage error for flags that are surely given by mistake: with an
// empty value or element of a list, since most likely a variable of the caller is unset,
// and twice, since one of the values would not count.
//
// pflag cannot refuse either: it calls Set for each value, and Set knows nothing of the one
// before. So this is a parse of its own, ahead of the real one. It sets nothing, and leaves
// all other errors to the command, whose messages are the same with or without it.
func refuseGiven(root *cobra.Command, args []string) (refusal error) {
	cmd, rest, err := root.Find(args)
	if err != nil {
		return nil
	}
	cmd.InitDefaultHelpFlag()
	cmd.InheritedFlags() // adds them to Flags
	given := map[string]bool{}
	_ = cmd.Flags().ParseAll(rest, func(flag *pflag.Flag, value string) error {
		switch {
		case value == "":
			refusal = usageErrorf("--%s is empty: give a value, or leave the flag out", flag.Name)
		case emptyElement(flag, value):
			refusal = usageErrorf("--%s %q: an element is empty: leave it out", flag.Name, value)
		case given[flag.Name] && !repeatable(flag):
			refusal = usageErrorf("--%s is given twice, and only one would count: leave one out", flag.Name)
		}
		given[flag.Name] = true
		return refusal
	})
	return refusal
}

// emptyElement reports whether value is a list, for this flag, with an empty element.
func emptyElement(flag *pflag.Flag, value string) bool {
	_, list := flag.Annotations[listAnnotation]
	return (list || flag.Value.Type() == "stringSlice") && slices.Contains(strings.Split(value, ","), "")
}

// repeatable reports whether each value of a flag counts. A type of flag that collects
// values, and is missing here, could be given only once.
func repeatable(flag *pflag.Flag) bool {
	switch flag.Value.(type) {
	case pflag.SliceValue, *choicesFlag, *loginFlag, *userFlag:
		return true
	}
	return false
}
