package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// newManCommand writes the manual pages that packages contain.
func newManCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "man DIR",
		Short:   "Write a manual page for each command into DIR",
		Example: "  lapse man /usr/local/share/man/man1",
		Hidden:  true,
		Args:    arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			root, built := cmd.Root(), buildDate()
			root.DisableAutoGenTag = true // it has the date of today
			return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Date: &built, Source: "lapse " + version, Manual: "lapse"}, args[0])
		},
	}
}
