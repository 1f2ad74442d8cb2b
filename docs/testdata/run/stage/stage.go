// Package stage is what the manual's Go programs print to and connect to while they are
// tested. A block imports it as fmt and log.
package stage

import (
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/lapsedb/lapse/client"
)

// Connect is client.Connect of a block.
var Connect func() (*client.Client, error)

var (
	lines []string
	last  string
)

// Run runs a program that connects by c until it prints a line that contains until, as an
// interrupt would end it there, or ends by itself. It returns the lines. It panics if
// none of that happens within an hour.
func Run(c *client.Client, until string, program func()) []string {
	Connect = func() (*client.Client, error) { return c, nil }
	lines, last = nil, until
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		program()
	}()
	select {
	case <-ended:
	case <-time.After(time.Hour):
		panic(fmt.Sprintf("it does not print %q, only %q", until, lines))
	}
	return lines
}

func line(text string) {
	lines = append(lines, strings.TrimSpace(text))
	if strings.Contains(text, last) {
		runtime.Goexit()
	}
}

// Println is that of fmt and log.
func Println(args ...any) { line(fmt.Sprintln(args...)) }

// Printf is that of fmt and log.
func Printf(format string, args ...any) { line(fmt.Sprintf(format, args...)) }

// Fatal is log.Fatal.
func Fatal(args ...any) {
	lines = append(lines, "fatal: "+fmt.Sprint(args...))
	runtime.Goexit()
}
