package eventlog

import (
	"fmt"
	"time"

	"github.com/lapsedb/lapse/schema"
)

// shorterFor is how long a log may be shorter than what was folded of it before
// that is believed: a stream that has a new leader may not have applied all that
// it holds.
const ShorterFor = 15 * time.Second

// lostEnd says that a log is shorter than it was.
func LostEnd(db schema.DatabaseName, last, folded uint64) error {
	return fmt.Errorf("stream %s ends at %d and was at %d: it has lost its end; restore it, or start again with --accept-lost-end on what is left", db.LogStream(), last, folded)
}
