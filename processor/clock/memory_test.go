package clock

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lapsedb/lapse/processor/observe"
)

const year = 365 * 24 * time.Hour

// TestStoredOriginPerBoot: a stored origin is valid for the same boot only, a damaged
// file is ignored, and a failed write is an error.
func TestStoredOriginPerBoot(t *testing.T) {
	fs := vfs.NewMem()
	ofBoot := func(boot string) *memory { return &memory{fs: fs, path: "clock", boot: boot} }
	origin := time.Unix(1_000_000, 0)
	m := ofBoot("a")
	if got := m.load(); !got.IsZero() {
		t.Errorf("without a file it is %s", got)
	}
	for _, next := range []time.Time{origin, origin.Add(time.Minute), origin.Add(time.Minute + rememberedStep/2), {}} {
		if err := m.store(next); err != nil {
			t.Fatal(err)
		}
	}
	if got := ofBoot("a").load(); !got.Equal(origin.Add(time.Minute)) {
		t.Errorf("it is %s", got)
	}
	for _, boot := range []string{"b", ""} {
		if got := ofBoot(boot).load(); !got.IsZero() {
			t.Errorf("for boot %q it is %s", boot, got)
		}
	}
	f, err := fs.Create("clock", vfs.WriteCategoryUnspecified)
	if err == nil {
		_, err = f.Write([]byte(`{"boot":"a","origin":"20`))
	}
	if err != nil || f.Close() != nil || !ofBoot("a").load().IsZero() {
		t.Errorf("half a file counts, or %v", err)
	}
	away := &memory{fs: fs, path: "away/clock", boot: "a"}
	if err := away.store(origin); err == nil || !strings.Contains(err.Error(), "away/clock") {
		t.Errorf("it cannot be written and says %v", err)
	}
}

// TestBeginKeepsTime: time continues when Begin compares the clock with another
// log end, even if nothing read the clock in between.
func TestBeginKeepsTime(t *testing.T) {
	began, elapsed := time.Unix(1_000_000, 0), time.Duration(0)
	o := Config{Clock: func() (time.Time, time.Duration) { return began.Add(elapsed), elapsed },
		FS: vfs.NewMem(), MaxStep: time.Minute, MaxDowntime: 30 * 24 * time.Hour, Events: observe.EventListener(nil).EnsureDefaults()}
	k := New(o, began.UnixMilli(), false)
	if _, fault := k.Check(); fault != nil {
		t.Fatal(fault)
	}
	elapsed = 10 * time.Second
	k.Begin(began.Add(time.Second).UnixMilli(), false)
	elapsed += 3 * time.Second
	if got, want := k.Millis(), began.Add(elapsed).UnixMilli(); got != want {
		t.Errorf("it is %d, want %d", got, want)
	}
}

// TestBeginKeepsDoubt: the end of a log that another writer extended does not end
// a doubt, which is reported once.
func TestBeginKeepsDoubt(t *testing.T) {
	var got []string
	right := time.Unix(1_000_000, 0)
	wall, elapsed := right, time.Duration(0)
	o := Config{Clock: func() (time.Time, time.Duration) { return wall, elapsed },
		FS: vfs.NewMem(), MaxStep: time.Minute, MaxDowntime: 30 * 24 * time.Hour, Events: func(e observe.Event) { got = append(got, fmt.Sprintf("%T", e)) }}
	k := New(o, right.UnixMilli(), false)
	k.Check()
	for _, end := range []time.Time{right, right.Add(10 * year)} {
		wall, elapsed = right.Add(10*year), elapsed+time.Second
		k.Begin(end.UnixMilli(), false)
		if _, fault := k.Check(); fault == nil {
			t.Errorf("ten years are nothing where the log ends at %s", end)
		}
	}
	if want := []string{"observe.ClockDoubted"}; !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
}
