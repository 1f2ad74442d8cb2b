package main

import (
	"context"
	"fmt"
	"time"

	color "github.com/jedib0t/go-pretty/v6/text"
)

// Escape sequences of a terminal.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l" // alternate screen, no cursor
	leaveScreen = "\x1b[?25h\x1b[?1049l" // normal screen
	clearScreen = "\x1b[2J\x1b[H"
)

// repeat shows the status every interval until ctx is done, which is no error. It shows
// failed requests and continues: --watch is for times in which something fails. On a
// terminal each page replaces the one before on the alternate screen, which is left at the
// end as it was found; elsewhere pages follow each other.
func (s *statusCommand) repeat(ctx context.Context) error {
	screen := s.forPeople()
	if screen {
		fmt.Fprint(s.stdout, enterScreen)
		defer fmt.Fprint(s.stdout, leaveScreen)
	}
	ticks := time.NewTicker(s.watch)
	defer ticks.Stop()
	p := s.palette()
	answered := time.Now()
	for {
		began := time.Now()
		page, err := s.page(ctx)
		if ctx.Err() != nil {
			return nil
		}
		switch {
		case err == nil:
			answered = time.Now()
		// Not into the output: programs read it.
		case !screen:
			fmt.Fprintln(s.stderr, "lapse:", sentence(err))
		case page != nil:
			page = fmt.Appendf(page, "\n%s\n", sentence(err))
		default:
			s.before = nil
			page = fmt.Appendf(nil, "%s\n%s\n", p.paint("no answer for "+time.Since(answered).Round(time.Second).String(), color.FgRed), sentence(err))
		}
		if screen {
			page = fmt.Appendf(nil, "%s%s\n\n%s", clearScreen, p.faint(began.Format(time.TimeOnly)+", Ctrl-C ends"), page)
		}
		if _, err := s.stdout.Write(page); err != nil {
			return err
		}
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return nil
		}
	}
}
