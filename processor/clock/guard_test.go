package clock

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/lapsedb/lapse/test/stress"
)

// noon is the origin of the durations in testdata/guard.
var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// TestGuard runs the files in testdata/guard. Moments there are durations: elapsed since
// the start, and wall time since noon. Steps:
//
//	start [end=D] [bare] [origin=D]
//	                       the log ends at noon plus D, or is empty without end; bare:
//	                       nothing in it can expire; an earlier process left the
//	                       origin noon plus D
//	begin at=D end=D       becomes the writer of a log with that end
//	read                   a reading on each line: ELAPSED WALL
//	hear                   the server's time on each line: ELAPSED WALL [ROUND]
//	accept                 ELAPSED WALL
//
// read and accept print the time, and the doubt if there is one.
func TestGuard(t *testing.T) {
	datadriven.Walk(t, "testdata/guard", func(t *testing.T, path string) {
		var g *guard
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			parse := func(text string) time.Duration {
				n, err := time.ParseDuration(text)
				if err != nil {
					d.Fatalf(t, "%v", err)
				}
				return n
			}
			moment := func(name string) (t time.Time) {
				if arg, ok := d.Arg(name); ok {
					t = noon.Add(parse(arg.Vals[0]))
				}
				return t
			}
			end := int64(0)
			if d.HasArg("end") {
				end = moment("end").UnixMilli()
			}
			switch d.Cmd {
			case "start":
				g = newGuard(time.Minute, 30*24*time.Hour, moment("origin"), end, d.HasArg("bare"), 0)
				return ""
			case "begin":
				g.begin(end, false, moment("at").Sub(noon))
				return ""
			}
			var b strings.Builder
			for line := range strings.Lines(d.Input) {
				fields := strings.Fields(line)
				elapsed, wall := parse(fields[0]), noon.Add(parse(fields[1]))
				switch d.Cmd {
				case "read":
					g.check(wall, elapsed)
				case "accept":
					g.accept(wall, elapsed)
				case "hear":
					round := time.Duration(0)
					if len(fields) > 2 {
						round = parse(fields[2])
					}
					g.hear(wall, elapsed, round)
					continue
				default:
					d.Fatalf(t, "unknown step %q", d.Cmd)
				}
				fmt.Fprintf(&b, "%s: %s", fields[0], g.given.at(elapsed).Sub(noon))
				if g.doubt != nil {
					fmt.Fprintf(&b, ", %s", g.reason())
				}
				b.WriteString("\n")
			}
			return b.String()
		})
	})
}

// TestGuardAtRandom: with random clock steps, drift, server times, role changes and
// restarts, time never goes back, is never ahead by more than one step and the allowed
// drift, and continues when the clock is right again.
func TestGuardAtRandom(t *testing.T) {
	random := stress.Rand(t)
	for range stress.Pick(500, 50_000) {
		const step = time.Minute
		g := newGuard(step, 30*24*time.Hour, time.Time{}, noon.UnixMilli(), false, 0)
		elapsed, off, last := time.Duration(0), time.Duration(0), noon
		g.check(noon, 0)
		for range 100 {
			passed := time.Duration(random.Int64N(int64(20 * time.Second)))
			elapsed += passed
			switch random.IntN(10) {
			case 0:
				off += time.Duration(random.Int64N(int64(2*step))) - step
			case 1:
				off += time.Duration(random.Int64N(int64(20*365*24*time.Hour))) - 10*365*24*time.Hour
			case 2:
				off -= passed // it stood still
			case 3:
				off += passed // it ran twice as fast
			case 4:
				off = 0
			case 5:
				off = 2 * time.Hour
			}
			right := noon.Add(elapsed)
			switch random.IntN(8) {
			case 0, 1: // a server with the same time source
				g.hear(right.Add(off), elapsed, time.Millisecond)
			case 2:
				g.hear(right, elapsed, time.Second)
			case 3: // other writers have extended the log
				end := last
				if right.After(end) && random.IntN(2) == 0 {
					end = right
				}
				g.begin(end.UnixMilli(), false, elapsed)
			case 4: // a restart: the log ends with the last timestamp
				g = newGuard(step, 30*24*time.Hour, g.origin, last.UnixMilli(), random.IntN(2) == 0, elapsed)
			}
			g.check(right.Add(off), elapsed)
			now := g.given.at(elapsed)
			if now.Before(last.Truncate(time.Millisecond)) {
				t.Fatalf("at %s time went back from %s to %s", elapsed, last, now)
			}
			if ahead := now.Sub(right); ahead > step+elapsed/followRate {
				t.Fatalf("at %s time is %s ahead", elapsed, ahead)
			}
			if g.doubt == nil && right.Add(off).After(now) {
				t.Fatalf("at %s the clock is right at %s and time at %s", elapsed, right.Add(off), now)
			}
			last = now
		}
		elapsed += recheck
		g.hear(noon.Add(elapsed), elapsed, 0)
		if g.check(noon.Add(elapsed), elapsed); g.doubt != nil && noon.Add(elapsed).Add(step).After(g.end) {
			t.Fatalf("at %s the clock is right again: %s", elapsed, g.reason())
		}
	}
}
