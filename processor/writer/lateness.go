package writer

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// lateness holds the lateness of expiries over the last minute of log time, in
// windows of ten seconds.
type lateness struct {
	mu      sync.Mutex
	windows *hdrhistogram.WindowedHistogram
	window  int64 // number of the current window

	// freed has the log times of releases, in ms. A document may be overdue when it is
	// released, and that does not count as late.
	freed map[freedKey]int64

	// The objective needs exact counts, in the same windows.
	objective int64 // ms
	counts    [latenessWindows]latenessCount
	count     int // index of the current one in counts
}

type latenessCount struct{ expired, late int64 }

const (
	latenessWindows  = 6
	latenessWindowMs = 10_000
	latenessMaxMs    = 10 * 365 * 24 * 3600 * 1000
)

func newLateness(objective time.Duration) *lateness {
	return &lateness{windows: hdrhistogram.NewWindowed(latenessWindows, 0, latenessMaxMs, 2), objective: objective.Milliseconds()}
}

// freedKey names a released document.
type freedKey struct {
	collection schema.CollectionName
	id         schema.DocumentID
}

// mostFreed is the maximum number of releases remembered.
const mostFreed = 1 << 14

// release remembers a DocumentReleased until its document expires.
func (l *lateness) release(fact *projections.Fact) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.freed == nil || len(l.freed) >= mostFreed {
		l.freed = make(map[freedKey]int64)
	}
	l.freed[freedKey{fact.Collection, fact.ID}] = fact.Time
}

// released returns the log time, in ms, of the release of a document that has expired,
// and forgets it; 0 if it is not remembered.
func (l *lateness) released(fact *projections.Fact) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.freed) == 0 {
		return 0
	}
	key := freedKey{fact.Collection, fact.ID}
	at := l.freed[key]
	delete(l.freed, key)
	return at
}

// record adds an expiry at log time now with a lateness of late, both in ms.
func (l *lateness) record(now, late int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rotate(now)
	_ = l.windows.Current.RecordValue(min(max(late, 0), latenessMaxMs))
	n := &l.counts[l.count]
	n.expired++
	if late > l.objective {
		n.late++
	}
}

// rotate drops the windows older than a minute at now.
func (l *lateness) rotate(now int64) {
	window := now / latenessWindowMs
	for steps := min(window-l.window, latenessWindows); steps > 0; steps-- {
		l.windows.Rotate()
		l.count = (l.count + 1) % latenessWindows
		l.counts[l.count] = latenessCount{}
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

// kept compares the minute before now, in ms, with the objective; oldest is as in
// Writer.Lateness.
func (l *lateness) kept(now, oldest int64) *schema.LatenessObjective {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rotate(now)
	o := &schema.LatenessObjective{Ms: l.objective, Share: schema.LatenessShare}
	for _, n := range l.counts {
		o.Expired += n.expired
		o.Late += n.late
	}
	if oldest != 0 {
		o.OverdueMs = max(0, now-oldest*1000)
	}
	o.Judge()
	return o
}
