package offline

import (
	"math"
	"time"

	"github.com/lapsedb/lapse/processor/answer"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/projections/query"
	"github.com/lapsedb/lapse/schema"
)

// Replay folds events of a log that somebody else decided, and answers what was
// so then. It expires nothing: what was due by a moment and has no event yet is
// not there for a Reader either way.
type Replay struct {
	answer.Reader
	facts []projections.Fact
	bytes int // of the bodies of facts
}

// replayLimits leave a query all the time and memory that it may need: nobody
// else waits.
var replayLimits = query.Limits{
	Scanned:   math.MaxInt,
	Bytes:     1 << 30,
	SortBytes: 1 << 30,
	Time:      1000 * time.Hour,
}

// replayFold is how many events are folded at a time, if their bodies are no
// more than replayBytes.
const (
	replayFold  = 4096
	replayBytes = 16 << 20
)

// NewReplay returns an empty database with its files in dir, which is the
// caller's to remove. It takes as much memory for a long log as for a short one.
func NewReplay(dir string) (*Replay, error) {
	store, err := projections.Open(dir, projections.Options{
		CacheBytes:    64 << 20,
		MemTableBytes: 16 << 20,
		// To build indexes for one question costs more than to do without.
		NoIndexes: true,
	})
	if err != nil {
		return nil, err
	}
	return &Replay{Reader: answer.Reader{Store: store, Limits: replayLimits}}, nil
}

// Add takes the next event of the log, which is the replay's from then on. It
// is folded then or later, at the latest in Fold.
func (r *Replay) Add(e *schema.Event) error {
	r.facts = append(r.facts, projections.Fact{Event: e})
	r.bytes += len(e.Body)
	if len(r.facts) < replayFold && r.bytes < replayBytes {
		return nil
	}
	return r.Fold()
}

// Fold folds what was added. Only then the Reader knows of it.
func (r *Replay) Fold() error {
	err := r.Store.Fold(r.facts)
	clear(r.facts)
	r.facts, r.bytes = r.facts[:0], 0
	return err
}

// Close closes the files. What was added and not folded is lost.
func (r *Replay) Close() error { return r.Store.Close() }
