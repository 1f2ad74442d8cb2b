package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// confirmation asks a person before a command ends many documents or events. It asks on a
// terminal only: scripts go on, and their standard input is not read.
type confirmation struct {
	*app
	yes bool // --yes
}

func (a *app) addYesFlag(cmd *cobra.Command) *confirmation {
	c := &confirmation{app: a}
	cmd.Flags().BoolVarP(&c.yes, "yes", "y", false, "do not ask on a terminal")
	return c
}

// needed reports whether to ask. Both streams have to be terminals: the question is on
// standard error, the answer comes from standard input. Commands that would have to count
// documents for the question do so only if this is true.
func (c *confirmation) needed() bool {
	return !c.yes && c.isTerminal(c.stdin) && c.isTerminal(c.stderr)
}

// ask returns an error unless the answer is yes. A bare Enter, an end of input and Ctrl-C
// are no.
func (c *confirmation) ask(ctx context.Context, question string) error {
	switch strings.ToLower(strings.TrimSpace(c.read(ctx, question+" [y/N] "))) {
	case "y", "yes":
		return nil
	}
	return errors.New("nothing was changed: answer y, or give --yes")
}

// read returns the line that the person types after a question, "" if ctx ends first.
func (c *confirmation) read(ctx context.Context, question string) (line string) {
	fmt.Fprint(c.stderr, printable(question))
	answer := make(chan string, 1)
	go func() { // a read from a terminal does not end with ctx
		line, _ := bufio.NewReader(c.stdin).ReadString('\n')
		answer <- line
	}()
	select {
	case line = <-answer:
	case <-ctx.Done():
	}
	if !strings.HasSuffix(line, "\n") {
		fmt.Fprintln(c.stderr)
	}
	return line
}
