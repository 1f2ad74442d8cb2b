package writer

import (
	"time"

	"github.com/lapsedb/lapse/schema"
)

const (
	// ResumedAfter is for how long a writer could decide nothing before it says
	// so in the log; well below what an audit grants it to expire what is due.
	ResumedAfter = 20 * time.Second
	// minPresence is how old the log's end is at least when the writer says that
	// it is still there, stopPresence how old when it stops in order.
	minPresence  = time.Minute
	stopPresence = 5 * time.Minute
)

// present notes that the writer is there, if the log's end is older than age, and
// tells whether it did. Without that, a database in which nothing happens would
// look at its next start as if it had been down all the time, and its clock as
// if it were ahead. Where nothing could expire no clock is doubted for that.
func (t *Term) present(now int64, age time.Duration) bool {
	if now-t.Machine.EndTime() < age.Milliseconds() || len(t.store.Collections()) == 0 {
		return false
	}
	t.Machine.Note(now, schema.WriterPresent, nil)
	return true
}

// resume notes that the writer goes on, if it could not look for what is due for
// a while: its clock was not believed, or the machine slept. Who reads the log
// sees then why some expires late.
func (t *Term) resume(now int64) {
	if now-t.looked >= ResumedAfter.Milliseconds() {
		t.Machine.Note(now, schema.WriterResumed, nil)
	}
	t.looked = now
}
