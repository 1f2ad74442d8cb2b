package spread

import (
	"slices"
	"time"

	"github.com/lapsedb/lapse/schema"
)

// Standing is how a process stands in a database, by what it last announced.
type Standing struct {
	Process string
	Writes  bool          // it may be a writer
	Older   bool          // it runs 0.3.0, and does not know the request to write
	Copy    bool          // it folds and serves the database
	Behind  time.Duration // behind the log
	Age     time.Duration // since the process was started
	Silent  time.Duration // since it announced itself
}

// Duty is what a process knows of a database that it writes.
type Duty struct {
	Database  schema.DatabaseName
	Share     Share         // of the plan
	Standings []Standing    // of the others
	Term      time.Duration // since the process became the writer
	// SinceFailure is how long ago a move of this database failed; 0 for none.
	SinceFailure time.Duration
}

// Limits of a move.
const (
	// MostBehind: a process further behind takes over nothing.
	MostBehind = time.Second
	// AfterFailure is how long a database stays after a failed move.
	AfterFailure = time.Minute
	// leastAge is the minimum age of a process that takes over, in leases: one that is
	// restarted over and over moves nothing. It is that of a term, too: by then a dead
	// process is no longer counted.
	leastAge = 2
)

// Move is a hand-over of a database.
type Move struct {
	Database schema.DatabaseName
	To       string
}

// Next returns the hand-over that a process should do next, one at a time. Duties
// belong to the databases that it writes.
func Next(self string, duties []Duty, lease time.Duration) (m Move, ok bool) {
	for _, d := range duties {
		if d.Share.Writer == "" || d.Share.Writer == self || d.Term < leastAge*lease || d.SinceFailure > 0 && d.SinceFailure < AfterFailure {
			continue
		}
		if Ready(d.Standings, d.Share.Writer, lease) != nil || age(d.Standings, d.Share.Writer) < leastAge*lease {
			continue
		}
		if !ok || d.Database < m.Database {
			m, ok = Move{d.Database, d.Share.Writer}, true
		}
	}
	return m, ok
}

func age(standings []Standing, process string) time.Duration {
	i := slices.IndexFunc(standings, func(s Standing) bool { return s.Process == process })
	return standings[i].Age
}

// Covered reports whether all copies of the plan serve their database by now: one that has
// it besides can end.
func Covered(standings []Standing, copies []string) bool {
	for _, id := range copies {
		i := slices.IndexFunc(standings, func(s Standing) bool { return s.Process == id })
		if i < 0 || !standings[i].Copy || standings[i].Behind >= MostBehind {
			return false
		}
	}
	return true
}

// NotReady says why a process cannot take a database over now.
type NotReady struct {
	Process string
	Why     string
}

func (e *NotReady) Error() string { return "process " + e.Process + " " + e.Why }

// Ready returns nil if a process can take a database over, else a *NotReady.
func Ready(standings []Standing, process string, lease time.Duration) error {
	i := slices.IndexFunc(standings, func(s Standing) bool { return s.Process == process })
	switch {
	case i < 0:
		return &NotReady{process, "is not running"}
	case standings[i].Older:
		return &NotReady{process, "runs 0.3.0: upgrade it first"}
	case !standings[i].Writes:
		return &NotReady{process, "has --weight 0: it only reads"}
	case !standings[i].Copy:
		return &NotReady{process, "has no copy of it"}
	case standings[i].Behind >= MostBehind:
		return &NotReady{process, "is " + MostBehind.String() + " or more behind the log"}
	case standings[i].Silent > lease*3/4: // it announces itself twice in a lease
		return &NotReady{process, "last announced itself " + standings[i].Silent.Round(time.Second).String() + " ago"}
	}
	return nil
}
