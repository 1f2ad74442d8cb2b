package processor

import (
	"sync"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/lapsedb/lapse/schema"
)

// lateness keeps how late expiries were over the last minute of log time, in
// windows of ten seconds.
type lateness struct {
	mu      sync.Mutex
	windows *hdrhistogram.WindowedHistogram
	window  int64 // the current window's number
}

const (
	latenessWindows  = 6
	latenessWindowMs = 10_000
	latenessMaxMs    = 10 * 365 * 24 * 3600 * 1000
)

func newLateness() *lateness {
	return &lateness{windows: hdrhistogram.NewWindowed(latenessWindows, 0, latenessMaxMs, 2)}
}

// record notes an expiry at log time now that came late ms after it was due.
func (l *lateness) record(now, late int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rotate(now)
	_ = l.windows.Current.RecordValue(min(max(late, 0), latenessMaxMs))
}

// rotate drops the windows that are past at now.
func (l *lateness) rotate(now int64) {
	window := now / latenessWindowMs
	for steps := min(window-l.window, latenessWindows); steps > 0; steps-- {
		l.windows.Rotate()
	}
	l.window = max(l.window, window)
}

// at returns the lateness over the minute before now, in ms.
func (l *lateness) at(now int64) schema.Lateness {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rotate(now)
	h := l.windows.Merge()
	return schema.Lateness{P50: h.ValueAtQuantile(50), P99: h.ValueAtQuantile(99), Max: h.Max()}
}
