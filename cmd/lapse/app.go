package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/lapsedb/lapse/schema"
)

// app is what the commands share: where they read and write.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer

	isTerminal func(stream any) bool // whether a person sits at a stream
	width      func(stream any) int  // of the terminal that a stream is, 0 if it is not known
	colour     bool                  // whether people want colours

	complain func(text string) // says why a command failed
}

func newApp(stdin io.Reader, stdout, stderr io.Writer) *app {
	return &app{
		stdin: stdin, stdout: stdout, stderr: stderr,
		complain:   func(text string) { fmt.Fprintln(stderr, "lapse:", text) },
		isTerminal: isTerminal,
		width:      width,
		colour:     os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb",
	}
}

func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

func width(stream any) int {
	file, ok := stream.(*os.File)
	if !ok {
		return 0
	}
	columns, _, _ := term.GetSize(int(file.Fd()))
	return columns
}

// Exit codes.
const (
	exitDone   = 0
	exitFailed = 1 // the request or check failed
	exitUsage  = 2 // wrong usage
)

// run runs one command and returns its exit code.
func (a *app) run(ctx context.Context, args []string) int {
	root := newRootCommand(a)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitDone
	}
	a.complain(sentence(err))
	var usage *usageError
	if errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailed
}

// usageError is wrong usage.
type usageError struct{ message string }

func (e *usageError) Error() string { return e.message }

func usageErrorf(format string, args ...any) error {
	return &usageError{fmt.Sprintf(format, args...)}
}

// sentence is an error on one line, with the name that programs know it by.
func sentence(err error) string {
	text := printable(strings.ReplaceAll(err.Error(), "\n", " "))
	var coded *schema.Error
	if errors.As(err, &coded) {
		text += fmt.Sprintf(" (%d %s)", coded.Code, coded.Name)
	}
	return text
}
