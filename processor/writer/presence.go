package writer

import (
	"time"

	"github.com/lapsedb/lapse/schema"
)

const (
	// ResumedAfter is the shortest pause after which a writer notes that it resumed; well
	// below the lateness of expiries that an audit allows.
	ResumedAfter = 20 * time.Second
	// minPresence is the minimum age of the log's end at which a running writer notes
	// its presence. stopPresence is the maximum age at which a stopping writer does.
	minPresence  = time.Minute
	stopPresence = 5 * time.Minute
)

// present emits WriterPresent if the end of the log is older than age, and reports
// whether it did. Without it an idle database would look, at its next start, as if
// it had been down, and its clock as if it were ahead. A database without
// collections has nothing that could expire, and needs none.
func (t *Term) present(now int64, age time.Duration) bool {
	if now-t.Machine.EndTime() < age.Milliseconds() || len(t.store.Collections()) == 0 {
		return false
	}
	t.Machine.Note(now, schema.WriterPresent, nil)
	return true
}

// resume emits WriterResumed if the term could not search for due documents for a
// while: its clock was not trusted, or the machine slept. That explains late expiries
// to a reader of the log.
func (t *Term) resume(now int64) {
	if now-t.searched >= ResumedAfter.Milliseconds() {
		t.Machine.Note(now, schema.WriterResumed, nil)
	}
	t.searched = now
}
