package host

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/processor/monitor"
	"github.com/lapsedb/lapse/processor/observe"
)

// failing returns databases that have been served and then failed, in the given order.
func failing(t *testing.T, names ...string) *databases {
	var all []*hosted
	for _, name := range names {
		dir := filepath.Join(t.TempDir(), name)
		check(t, os.Mkdir(dir, 0o700))
		db := &hosted{changed: make(chan struct{}, 1), options: processor.Options{Dir: dir, Monitor: monitor.NewMonitor("main")}}
		db.sound.Store(true)
		all = append(all, db)
	}
	d := newDatabases(all, func(Event) {})
	for i, db := range all {
		if len(d.lost) > 0 {
			t.Errorf("lost with %d of %d databases failed", i, len(all))
		}
		d.failed(db, errors.New(names[i]))
	}
	return d
}

// TestLastFailure: the failure of the last sound database ends Run, once, whatever failed
// before it or fails again.
func TestLastFailure(t *testing.T) {
	d := failing(t, "a", "b")
	d.failed(d.all[0], errors.New("again"))
	if err := <-d.lost; err.Error() != "b" {
		t.Errorf("lost: %v", err)
	}
	if len(d.lost) > 0 {
		t.Errorf("lost: %v, too", <-d.lost)
	}
}

// TestTerm: a term lasts from when a process is told of it, not while it may be an older one.
func TestTerm(t *testing.T) {
	var tenure term
	for _, step := range []struct {
		to       observe.Role
		at, want time.Duration // want: how long it has lasted after an hour
	}{
		{observe.Standby, time.Minute, 0},
		{observe.Writer, 2 * time.Minute, 58 * time.Minute},
		{observe.Standby, 3 * time.Minute, 0},
		{observe.Writer, 0, time.Hour - 1},
	} {
		tenure.change(step.to, step.at)
		if got := tenure.lasted(time.Hour); got != step.want {
			t.Errorf("%+v: %v", step, got)
		}
	}
}

// TestDutyAfterFailure: a database that failed and that other processes serve is idle, no
// failure, and its projection is removed.
func TestDutyAfterFailure(t *testing.T) {
	for _, duty := range []duty{dutyIdle, dutyRemove} {
		synctest.Test(t, func(t *testing.T) {
			d := failing(t, "a", "b")
			stop := d.supervise()
			d.all[0].setDuty(duty)
			synctest.Wait()
			if !d.sound() || d.all[1].sound.Load() {
				t.Error("the idle database alone is to be sound")
			}
			if _, err := os.Stat(d.all[0].options.Dir); os.IsNotExist(err) != (duty == dutyRemove) {
				t.Errorf("duty %d: the projection: %v", duty, err)
			}
			if err := stop(); err == nil || d.all[0].failure != nil {
				t.Errorf("stopped with %v; the idle database failed with %v", err, d.all[0].failure)
			}
		})
	}
}
