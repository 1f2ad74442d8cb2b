package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/lapsedb/lapse/host"
	"github.com/lapsedb/lapse/schema"
)

// How a command ends. run starts it on a goroutine of its own and waits for whichever comes
// first: its end, or the end of ctx (a signal, or a.end). From then on the command has
// stopTimeout. If it still runs after that, run reports what it is doing (a.doing) and
// returns, and main exits over it: a hung disk or NATS server must not keep a supervisor
// from starting the next process.
//
// Errors leave a command in one way, as the value that RunE returns. command maps them to
// an exit code and run's caller ends the process. A usageError, or an OptionsError of
// package host, is exit 2; every other error is exit 1.

// app is the environment of the commands: streams, terminal, and how they end. There is one
// for each process, made by newApp; tests make their own with buffers, a fixed clock and a
// host of their own. The fields are set before a command runs, but for end, log and doing,
// which run and the command set; log and doing are read from other goroutines, hence
// atomic.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer

	isTerminal func(stream any) bool
	width      func(stream any) int // columns of a terminal, 0 if unknown
	colour     bool                 // on terminals

	environment []string // NAME=VALUE; os.Environ(), but in tests

	began   time.Time
	journal bool                        // stderr is the journal of systemd
	log     atomic.Pointer[slog.Logger] // of a command that serves; nil while it reports plain lines

	now   func() time.Time                          // time.Now, but in tests
	after func(time.Duration) <-chan time.Time      // time.After
	end   context.CancelCauseFunc                   // asks the command to end, with the reason
	doing atomic.Pointer[func() string]             // the current activity
	host  func(context.Context, host.Options) error // host.Run, but in tests
}

// stopTimeout bounds how long a command takes to end after SIGTERM, Ctrl-C or a
// failure, whatever hangs: a disk, NATS, or the reader of its output. Kubernetes
// kills a process after 30 s.
const stopTimeout = 25 * time.Second

// setDoing sets the current activity as a participle that follows "it is still": "running".
func (a *app) setDoing(what string) { a.does(func() string { return what }) }

// does is setDoing for an activity with details, such as how far it is; what is called from the
// goroutine of run, at the time-out, so it must not block.
func (a *app) does(what func() string) { a.doing.Store(&what) }

// complain reports the error with which the command ends.
func (a *app) complain(text string) { a.report(slog.LevelError, text, a.ran()) }

// report writes a log line, or text as a plain line in a command that has no log.
func (a *app) report(level slog.Level, text string, attrs ...slog.Attr) {
	if logger := a.log.Load(); logger != nil {
		logger.LogAttrs(context.Background(), level, text, attrs...)
		return
	}
	prefix := ""
	if a.journal {
		prefix = priority(level)
	}
	fmt.Fprintln(a.stderr, prefix+"lapse:", text)
}

// ran says in a log line how long the command has run.
func (a *app) ran() slog.Attr {
	return slog.Duration("ran", time.Since(a.began).Round(time.Millisecond))
}

// newApp returns the app of a process. NO_COLOR (no-color.org) and TERM=dumb turn colours
// off; they are never used for anything but a terminal, whatever is set.
func newApp(stdin io.Reader, stdout, stderr io.Writer) *app {
	a := &app{
		stdin: stdin, stdout: stdout, stderr: stderr,
		isTerminal:  isTerminal,
		width:       width,
		colour:      os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb",
		environment: os.Environ(),
		began:       time.Now(),
		journal:     isJournal(stderr),
		now:         time.Now,
		after:       time.After,
		host:        host.Run,
	}
	a.setDoing("running")
	return a
}

func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// width returns the columns of a terminal, 0 if stream is none.
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
	// EPIPE as an error instead of the signal: Go ignores SIGPIPE on descriptors above 2,
	// and the commands that read the log ignore it on all, to delete their consumers first
	// (events.go).
	exitPipe = 128 + int(syscall.SIGPIPE) // nobody reads the output; as a shell reports the signal
)

// run runs one command and returns its exit code. Once ctx is done, or the command
// calls a.end, run returns within stopTimeout: the command may then still be
// running, and the caller has to end the process.
func (a *app) run(ctx context.Context, args []string) int {
	ctx, a.end = context.WithCancelCause(ctx)
	defer a.end(nil)
	ended := make(chan int, 1)
	go func() { ended <- a.command(ctx, args) }()
	select {
	case code := <-ended:
		return code
	case <-ctx.Done():
	}
	select {
	case code := <-ended:
		return code
	case <-a.after(stopTimeout):
	}
	// Standard error may be what hangs, so even the report gets a second only.
	reported := make(chan struct{})
	go func() {
		defer close(reported)
		a.complain(fmt.Sprintf("did not end within %s (%s): it is still %s", stopTimeout, sentence(context.Cause(ctx)), (*a.doing.Load())()))
	}()
	select {
	case <-reported:
	case <-time.After(time.Second): // nobody reads stderr
	}
	return exitFailed
}

// command parses the arguments, runs the command that they name and returns its exit code.
// The commands are built for each call, so flags keep nothing between two calls.
func (a *app) command(ctx context.Context, args []string) int {
	root := newRootCommand(a)
	root.SetArgs(args)
	err := refuseGiven(root, args)
	if err == nil {
		err = root.ExecuteContext(ctx)
	}
	if err == nil {
		return exitDone
	}
	// A PathError is about a file, such as standard output. EPIPE of a connection is an
	// error like others.
	if errors.Is(err, syscall.EPIPE) && errors.As(err, new(*fs.PathError)) {
		return exitPipe // silently, as programs do that the signal ends
	}
	a.complain(sentence(err))
	if isUsage(err) {
		return exitUsage
	}
	return exitFailed
}

// isUsage reports whether err is wrong usage: the same command with other flags would work.
func isUsage(err error) bool {
	_, usage := errors.AsType[*usageError](err)
	_, options := errors.AsType[*host.OptionsError](err)
	return usage || options
}

// usageError is an error with exit code 2. Its message names the flag or argument, and says
// what to use instead.
type usageError struct{ message string }

func (e *usageError) Error() string { return e.message }

func usageErrorf(format string, args ...any) error {
	return &usageError{fmt.Sprintf(format, args...)}
}

// asCommands names commands where messages name operations, or functions of package client.
//
// Only advice is translated. The texts are those of packages schema and client; if one
// changes there, the replacement finds nothing and the message stays right, if in the words
// of an API.
var asCommands = strings.NewReplacer("\n", " ",
	"with collection.create", "with `lapse collection create`", "with CreateCollection", "with `lapse collection create`",
	"with ReplaceCollection", "with `lapse collection replace`", "with Replace or Upsert", "with `lapse document replace` or `upsert`")

// sentence formats an error on one line, with the status and error code of the request.
func sentence(err error) string { return printable(asCommands.Replace(schema.Describe(err))) }
