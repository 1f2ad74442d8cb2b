package main

import (
	"io"
	"sync"
	"time"

	tracker "github.com/jedib0t/go-pretty/v6/progress"
	"github.com/jedib0t/go-pretty/v6/text"
)

// progress is a progress bar on standard error. It appears only on a terminal, and only
// once the work has taken a second: a bar for less would flash. Its methods are safe for
// concurrent use; a goroutine of its own draws the bar ten times a second, so a step costs
// no more than a lock.
type progress struct {
	steps tracker.Tracker
	shows *time.Timer // nil if standard error is no terminal
	shown chan struct{}
	w     io.Writer
	done  sync.Once
}

// newProgress returns a progress of total steps, 0 if unknown. stderr may be nil.
func newProgress(stderr io.Writer, label string, total int64) *progress {
	if stderr == nil || !isTerminal(stderr) {
		return &progress{}
	}
	return showProgress(stderr, label, total, time.Second)
}

// showProgress returns a progress that appears on w after delay.
func showProgress(w io.Writer, label string, total int64, delay time.Duration) *progress {
	p := &progress{steps: tracker.Tracker{Message: label, Total: total, AutoStopDisabled: true}, shown: make(chan struct{}), w: w}
	p.shows = time.AfterFunc(delay, func() {
		defer close(p.shown)
		lines := tracker.NewWriter()
		lines.SetOutputWriter(w)
		lines.SetUpdateFrequency(100 * time.Millisecond)
		lines.SetAutoStop(true)
		lines.Style().Visibility.Speed = true
		lines.Style().Visibility.ETA = total > 0
		lines.AppendTracker(&p.steps)
		lines.Render() // until the tracker is done
	})
	return p
}

// Add adds n steps done.
func (p *progress) Add(n int64) { p.steps.Increment(n) }

// Set sets how many steps are done.
func (p *progress) Set(n int64) { p.steps.SetValue(n) }

// Done removes the bar, and returns once nothing draws it any more: what is printed next
// begins on a clean line. It erases the line above the cursor, which is that of the bar. A
// second call does nothing: that line is output by then.
func (p *progress) Done() { p.done.Do(p.remove) }

func (p *progress) remove() {
	if p.shows == nil || p.shows.Stop() {
		return // it never appeared
	}
	p.steps.MarkAsDone()
	<-p.shown
	_, _ = io.WriteString(p.w, text.CursorUp.Sprint()+text.EraseLine.Sprint())
}
