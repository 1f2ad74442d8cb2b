package processor

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/lapsedb/lapse/test/stress"
)

// noon is the time that durations in testdata/guard count from.
var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// TestGuard runs the files in testdata/guard. Moments there are durations: of
// what has elapsed since the start, and of the time of day since noon. Steps:
//
//	start [end=D] [bare]   the log ends at noon plus D; bare is one without
//	                       anything that could expire, and without end it is empty
//	read                   a reading on each line: ELAPSED WALL
//	hear                   the server's time on each line: ELAPSED WALL [ROUND]
//	accept                 ELAPSED WALL
//
// read and accept show what time it is then, and what is wrong with the clock.
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
			if d.Cmd == "start" {
				end := int64(0)
				if arg, ok := d.Arg("end"); ok {
					end = noon.Add(parse(arg.Vals[0])).UnixMilli()
				}
				g = newGuard(time.Minute, 30*24*time.Hour, end, d.HasArg("bare"), 0)
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

// TestGuardAtRandom has a clock do anything: time never goes back, is never
// ahead by more than one step and what may drift, and goes on by itself when
// the clock is right again.
func TestGuardAtRandom(t *testing.T) {
	random := stress.Rand(t)
	for range stress.Pick(500, 50_000) {
		const step = time.Minute
		g := newGuard(step, 30*24*time.Hour, noon.UnixMilli(), false, 0)
		elapsed, off, last := time.Duration(0), time.Duration(0), noon
		g.check(noon, 0)
		for range 100 {
			passed := time.Duration(random.Int64N(int64(20 * time.Second)))
			elapsed += passed
			switch random.IntN(8) {
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
			}
			right := noon.Add(elapsed)
			g.check(right.Add(off), elapsed)
			now := g.given.at(elapsed)
			if now.Before(last) {
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
		if g.check(noon.Add(elapsed), elapsed); g.doubt != nil {
			t.Fatalf("at %s the clock is right again: %s", elapsed, g.reason())
		}
	}
}
