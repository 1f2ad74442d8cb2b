package main

import (
	"fmt"
	"slices"
	"strings"
)

// value is what goals and comparisons are about.
func (r row) value() float64 {
	if r.Peer != "" {
		return r.Ratio
	}
	return r.Lapse
}

// figure is value as text.
func (r row) figure() string {
	if r.Peer != "" {
		return formatRatio(r.Ratio)
	}
	return number(r.Lapse) + r.Unit
}

// reached tells whether a value meets the row's goal.
func (r row) reached(value float64) bool {
	return (r.Goal.Least == 0 || value >= r.Goal.Least) && (r.Goal.Most == 0 || value <= r.Goal.Most)
}

// comparable tells whether the value means something on another day: ratios do,
// and by themselves counts and sizes that have a goal. Times and rates are those
// of the machine and its mood.
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

// smallIsGood tells in which direction a row is better: as its goal says, and
// without one, as rates or as what something takes.
func (r row) smallIsGood() bool {
	return r.Goal.Most != 0 || r.Goal.Least == 0 && !strings.HasSuffix(r.Unit, "/s")
}

// change is a row as it was and as it is.
type change struct{ was, now row }

// worse tells whether it is so by more than a third. A count or size by itself may
// be close to nothing, where a third is nothing too: it has to miss its goal.
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

// comparison is what became of rows.
type comparison struct {
	compared       int
	worse          []change
	missing, fresh []row
}

// compare compares rows with those that were kept. None is missing unless all
// were to be measured, or its benchmark gave others.
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
