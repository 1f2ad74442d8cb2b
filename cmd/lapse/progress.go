package main

import (
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/schollz/progressbar/v3"
)

// progress is a progress bar on standard error. It appears only on a terminal, and
// only once the work has taken a second. Its methods are safe for concurrent use.
type progress struct {
	bar   *progressbar.ProgressBar // nil if standard error is no terminal
	mu    sync.Mutex               // guards bar: Set64 reads the state and then adds the difference
	show  *lateWriter
	done  atomic.Int64
	shown atomic.Int64 // next value of done at which to update the bar
}

// newProgress returns a progress of total steps, -1 if unknown. stderr may be nil.
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

// Set sets how many steps are done.
func (p *progress) Set(n int64) {
	if p.bar != nil {
		p.done.Store(n)
		p.at(n)
	}
}

// at moves the bar to n, at most every 64 steps: updating it costs more than many
// steps do.
func (p *progress) at(n int64) {
	next := p.shown.Load()
	if n >= next && p.shown.CompareAndSwap(next, n+64) {
		p.set(n)
	}
}

func (p *progress) set(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.bar.Set64(n)
}

// Done removes the bar.
func (p *progress) Done() {
	if p.bar != nil && p.show.wrote.Load() {
		p.set(p.done.Load())
		_ = p.bar.Finish()
	}
}

// lateWriter drops writes before a point in time.
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
