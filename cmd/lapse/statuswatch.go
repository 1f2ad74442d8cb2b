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
	fromTop     = "\x1b[H"
	endOfLine   = "\x1b[K"
	restOfPage  = "\x1b[J"
)

// watchStatus shows the status every interval until ctx is done, which is no error.
// It shows failed requests and continues.
func (out *output) watchStatus(ctx context.Context, source *statusSource, interval time.Duration) error {
	screen := out.forPeople()
	if screen {
		fmt.Fprint(out.stdout, enterScreen)
		defer fmt.Fprint(out.stdout, leaveScreen)
	}
	ticks := time.NewTicker(interval)
	defer ticks.Stop()
	var before since
	var silent time.Time // time of the first failure in a row
	for {
		page, err := source.page(ctx, &before)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			if silent.IsZero() {
				silent = time.Now()
			}
			before = since{}
		} else {
			silent = time.Time{}
		}
		if err := out.showStatus(screen, page, err, silent); err != nil {
			return err
		}
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// showStatus shows one page, or the failure.
func (out *output) showStatus(screen bool, page []byte, failure error, silent time.Time) error {
	if !screen {
		if failure != nil {
			_, err := fmt.Fprintln(out.stderr, "lapse:", sentence(failure))
			return err
		}
		_, err := out.stdout.Write(page)
		return err
	}
	p := out.palette()
	if failure != nil {
		page = fmt.Appendf(nil, "%s\n%s\n", p.paint("no answer for "+time.Since(silent).Round(time.Second).String(), color.FgRed), sentence(failure))
	}
	text := []byte(fromTop)
	text = append(text, p.faint(time.Now().Format(time.TimeOnly)+", Ctrl-C ends")...)
	text = append(text, endOfLine+"\n"+endOfLine+"\n"...)
	for _, b := range page {
		if b == '\n' {
			text = append(text, endOfLine...)
		}
		text = append(text, b)
	}
	_, err := out.stdout.Write(append(text, restOfPage...))
	return err
}
