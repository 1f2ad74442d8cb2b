package main

import (
	"io"
	"sync/atomic"
	"time"

	"github.com/schollz/progressbar/v3"
)

// progress is a progress bar for a person at standard error. It shows nothing
// when nobody sits there, nor while the work has lasted less than a second.
// Its methods may be called at once from many goroutines.
type progress struct {
	bar   *progressbar.ProgressBar // nil: nobody to show it to
	show  *lateWriter
	done  atomic.Int64
	shown atomic.Int64 // next value of done at which to look at the bar
}

// newProgress returns a progress of total steps; -1 if their number is not
// known. stderr may be nil.
func newProgress(stderr io.Writer, label string, total int64) *progress {
	if stderr == nil || !isTerminal(stderr) {
		return &progress{}
	}
	return showProgress(stderr, label, total, time.Second)
}

func showProgress(w io.Writer, label string, total int64, delay time.Duration) *progress {
	late := &lateWriter{w: w, from: time.Now().Add(delay)}
	bar := progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(late),
		progressbar.OptionSetDescription(label),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionShowCount(),
		progressbar.OptionShowIts(),
		progressbar.OptionSetWidth(20),
		progressbar.OptionClearOnFinish(),
	)
	return &progress{bar: bar, show: late}
}

// Add adds n steps done.
func (p *progress) Add(n int64) {
	if p.bar != nil {
		p.at(p.done.Add(n))
	}
}

// Set says how many steps are done.
func (p *progress) Set(n int64) {
	if p.bar != nil {
		p.done.Store(n)
		p.at(n)
	}
}

// at brings the bar to n, but not for every single step: its own bookkeeping
// would cost more than many kinds of work.
func (p *progress) at(n int64) {
	next := p.shown.Load()
	if n >= next && p.shown.CompareAndSwap(next, n+64) {
		_ = p.bar.Set64(n)
	}
}

// Done removes the bar.
func (p *progress) Done() {
	if p.bar != nil && p.show.wrote.Load() {
		_ = p.bar.Set64(p.done.Load())
		_ = p.bar.Finish()
	}
}

// lateWriter drops what comes before its time.
type lateWriter struct {
	w     io.Writer
	from  time.Time
	wrote atomic.Bool
}

func (l *lateWriter) Write(b []byte) (int, error) {
	if time.Now().Before(l.from) {
		return len(b), nil
	}
	l.wrote.Store(true)
	return l.w.Write(b)
}
