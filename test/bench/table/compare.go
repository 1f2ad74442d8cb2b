package main

import (
	"fmt"
	"slices"
	"strings"
)

// value returns the value that goals and comparisons use.
func (r row) value() float64 {
	if r.Peer != "" {
		return r.Ratio
	}
	return r.Lapse
}

// figure formats value.
func (r row) figure() string {
	if r.Peer != "" {
		return formatRatio(r.Ratio)
	}
	return number(r.Lapse) + r.Unit
}

// reached reports whether a value meets the row's goal.
func (r row) reached(value float64) bool {
	return (r.Goal.Least == 0 || value >= r.Goal.Least) && (r.Goal.Most == 0 || value <= r.Goal.Most)
}

// comparable reports whether the value can be compared with that of another day. Ratios
// can; without a peer, only counts and sizes that have a goal. Times and rates depend on
// the machine and its present state.
func (r row) comparable() bool {
	if r.Peer != "" {
		return true
	}
	switch unit := strings.TrimSpace(r.Unit); {
	case strings.HasSuffix(unit, "/s"), unit == "s", unit == "ms", unit == "µs", unit == "ns":
		return false
	}
	return r.Goal.Least != 0 || r.Goal.Most != 0
}

// smallIsGood reports whether smaller values are better: as the goal says, and without
// one for all units but rates.
func (r row) smallIsGood() bool {
	return r.Goal.Most != 0 || r.Goal.Least == 0 && !strings.HasSuffix(r.Unit, "/s")
}

// change is a row before and now.
type change struct{ was, now row }

// worse reports whether the value is worse by more than a third. A row without a peer
// must also miss its goal: a count or size may be almost 0, and so a third of it.
func (c change) worse() bool {
	if c.now.Peer == "" && c.now.reached(c.now.value()) {
		return false
	}
	if c.now.smallIsGood() {
		return c.now.value() > c.was.value()*4/3
	}
	return c.now.value() < c.was.value()*2/3
}

func (c change) String() string {
	return fmt.Sprintf("%s: %s, was %s", c.now, c.now.figure(), c.was.figure())
}

// comparison is the result of comparing rows.
type comparison struct {
	compared       int
	worse          []change
	missing, fresh []row
}

// compare compares rows with the kept ones. A kept row is missing if all rows were to be
// measured, or its benchmark gave other rows.
func compare(was, now []row, whole bool) (found comparison) {
	for _, r := range was {
		if !slices.ContainsFunc(now, r.same) && (whole || slices.ContainsFunc(now, r.sameBenchmark)) {
			found.missing = append(found.missing, r)
		}
	}
	for _, r := range now {
		i := slices.IndexFunc(was, r.same)
		if i < 0 {
			found.fresh = append(found.fresh, r)
			continue
		}
		if !r.comparable() {
			continue
		}
		found.compared++
		if c := (change{was[i], r}); c.worse() {
			found.worse = append(found.worse, c)
		}
	}
	return found
}

// benchmarks returns a row of each benchmark that has become worse.
func (c comparison) benchmarks() (rows []row) {
	for _, w := range c.worse {
		if !slices.ContainsFunc(rows, w.now.sameBenchmark) {
			rows = append(rows, w.now)
		}
	}
	return rows
}
