package offline

import (
	"math"
	"time"

	"github.com/lapsedb/lapse/processor/answer"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/projections/query"
	"github.com/lapsedb/lapse/schema"
)

// Replay folds a log that another process decided, and answers reads of a moment in it. It
// expires nothing: a Reader omits documents whose deadline has passed, with or without
// their DocumentExpired. Events are trusted as they are; those that do not fit the state
// before them are counted and change nothing (Mismatches). It is for one goroutine.
type Replay struct {
	answer.Reader
	facts []projections.Fact
	bytes int // of the bodies of facts
}

// replayLimits allow a query all the time and memory it needs: it delays nobody.
var replayLimits = query.Limits{
	Scanned: math.MaxInt,
	Bytes:   1 << 30,
	Time:    1000 * time.Hour,
}

// replayFold is the maximum number of events folded at once, and replayBytes the size of
// their bodies from which they are folded.
const (
	replayFold  = 4096
	replayBytes = 16 << 20
)

// NewReplay returns an empty database with its files in dir, which the caller removes.
// Its memory does not grow with the log.
func NewReplay(dir string) (*Replay, error) {
	store, err := projections.Open(dir, projections.Options{
		CacheBytes:    64 << 20,
		MemTableBytes: 16 << 20,
		// Building indexes for one query costs more than a scan.
		NoIndexes: true,
	})
	if err != nil {
		return nil, err
	}
	return &Replay{Reader: answer.Reader{Store: store, Limits: replayLimits}}, nil
}

// Add adds the next event of the log, which the Replay owns from then on. The event is
// folded in Fold at the latest.
func (r *Replay) Add(e *schema.Event) error {
	r.facts = append(r.facts, projections.Fact{Event: e})
	r.bytes += len(e.Body)
	if len(r.facts) < replayFold && r.bytes < replayBytes {
		return nil
	}
	return r.Fold()
}

// Fold folds the added events, so that the Reader has them.
func (r *Replay) Fold() error {
	err := r.Store.Fold(r.facts)
	clear(r.facts)
	r.facts, r.bytes = r.facts[:0], 0
	return err
}

// Close closes the files. Events that are not folded are lost.
func (r *Replay) Close() error { return r.Store.Close() }
