package sql

import (
	"fmt"
	"math"
	"regexp"
	"strconv"

	"github.com/lapsedb/lapse/schema/values"
)

// Dates are strings in UTC such as 2026-11-28T16:30:00.0000000Z; ticks count 100 ns since
// 1970. The calendar is computed here, as package time would bring a clock: the only time
// that a query knows is Query.Now.
//
// An int has room for the ticks of all years from 1 to 9999, up to 2.6e18, and for
// maxShift more.

const (
	second = 10_000_000 // ticks
	day    = 24 * 60 * 60 * second
)

// month is the size of a part of a date that counts months, from 1 for a month itself.
const month = -1

// parts has the sizes of the parts of dates: ticks, or a multiple of month. That of a
// nanosecond is 0.
var parts = make(map[string]int)

func init() {
	for size, names := range map[int][]string{12 * month: {"year", "yyyy", "yy"}, month: {"month", "mm", "m"}, day: {"day", "dd", "d"}, 3600 * second: {"hour", "hh"},
		60 * second: {"minute", "mi", "n"}, second: {"second", "ss", "s"}, second / 1000: {"millisecond", "ms"}, second / 1e6: {"microsecond", "mcs"}, 0: {"nanosecond", "ns"}} {
		for _, name := range names {
			parts[name] = size
		}
	}
}

var datePattern = regexp.MustCompile(`^(\d{4})-(\d\d)-(\d\d)(?:T(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,7}))?)?)?Z?$`)

// monthsBefore is the number of months from year 0 to a month.
func monthsBefore(year, month int) int { return 12*year + month - 1 }

// daysTo returns the days from 1970 to the first of a month. The formula comes from Howard
// Hinnant, "chrono-Compatible Low-Level Date Algorithms": with a year that begins in March
// the leap day is the last of its year, and (153m+2)/5 are the days before month m.
func daysTo(months int) int {
	y, m := (months-2)/12, (months-2)%12 // a year begins in March here
	return 365*y + y/4 - y/100 + y/400 + (153*m+2)/5 - 719468
}

// monthOf returns the months before a tick's month, and its days and ticks of a day after
// that. 146097 days are 400 years, which are 4800 months; so the quotient is a guess.
func monthOf(ticks int) (months, days, rest int) {
	n := floorDivide(ticks, day)
	rest = ticks - n*day
	months = (n + 719468) * 4800 / 146097 // at most one too small or too large
	for ; daysTo(months) > n; months-- {
	}
	for ; daysTo(months+1) <= n; months++ {
	}
	return months, n - daysTo(months), rest
}

// floorDivide rounds down, also below 0: dates before 1970 have negative ticks.
func floorDivide(a, b int) int {
	q := a / b
	if a%b != 0 && (a < 0) != (b < 0) {
		q--
	}
	return q
}

// ticksOf returns the ticks of a date's year, month, day, hour, minute, second and rest. A
// day that the month does not have is none.
func ticksOf(p [7]int) (ticks int, ok bool) {
	if p[0] < 1 || p[0] > 9999 || p[1] < 1 || p[1] > 12 || p[2] < 1 || min(p[3], p[4], p[5], p[6]) < 0 || p[3] > 23 || p[4] > 59 || p[5] > 59 || p[6] >= second {
		return 0, false
	}
	months := monthsBefore(p[0], p[1])
	days := daysTo(months) + p[2] - 1
	return days*day + ((p[3]*60+p[4])*60+p[5])*second + p[6], days < daysTo(months+1)
}

// date reads a date. Parts that are left out are 0; a time has at least hours and minutes.
func date(v values.Value) (ticks int, ok bool) {
	groups := datePattern.FindSubmatch(v.Text())
	if groups == nil {
		return 0, false
	}
	var p [7]int
	for i := range p {
		text := string(groups[i+1])
		if i == 6 {
			text = (text + "0000000")[:7]
		}
		p[i], _ = strconv.Atoi(text) // digits, or 0 if empty
	}
	return ticksOf(p)
}

// dateOf writes a date, undefined outside the years 1 to 9999.
func dateOf(ticks int) values.Value {
	if ticks < daysTo(monthsBefore(1, 1))*day || ticks >= daysTo(monthsBefore(10000, 1))*day {
		return nil
	}
	months, days, rest := monthOf(ticks)
	return fmt.Appendf(nil, `"%04d-%02d-%02dT%02d:%02d:%02d.%07dZ"`, months/12, months%12+1, days+1, rest/3600/second, rest/60/second%60, rest/second%60, rest%second)
}

// maxShift is the most of any part that a date within its years can move, in ticks.
const maxShift = 10000 * 366 * day

// dateAdd is DateTimeAdd(part, n, date). A size above 0 is a number of ticks; months have
// no fixed size, and a nanosecond is less than a tick.
func dateAdd(a []argument) values.Value {
	size, n, ticks := a[0].n, a[1].n, a[2].n
	switch {
	case size == 0:
		size, n = 1, floorDivide(n, 100)
	case size < 0:
		months, days, rest := monthOf(ticks)
		if n > 120_000 || n < -120_000 {
			return nil
		}
		if months -= n * size; months < 12 {
			return nil
		}
		days = min(days, daysTo(months+1)-daysTo(months)-1) // January 31 and a month is the last of February
		return dateOf((daysTo(months)+days)*day + rest)
	}
	if n > maxShift/size || n < -maxShift/size {
		return nil
	}
	return dateOf(ticks + n*size)
}

// dateDiff counts the boundaries of a part between two dates. From 23:59:59 to 00:00:00
// one day boundary is crossed, so the difference in days is 1.
func dateDiff(a []argument) values.Value {
	size, from, to := a[0].n, a[1].n, a[2].n
	switch {
	case size == 0 && max(to-from, from-to) > math.MaxInt/100:
		return encode(float64(to-from) * 100) // more than 292 years
	case size == 0:
		return encode((to - from) * 100)
	case size < 0:
		first, _, _ := monthOf(from)
		last, _, _ := monthOf(to)
		return encode(last/-size - first/-size)
	}
	return encode(floorDivide(to, size) - floorDivide(from, size))
}

// datePart is DateTimePart(part, date).
func datePart(a []argument) values.Value {
	size, ticks := a[0].n, a[1].n
	months, days, rest := monthOf(ticks)
	switch size {
	case 12 * month:
		return encode(months / 12)
	case month:
		return encode(months%12 + 1)
	case day:
		return encode(days + 1)
	case 3600 * second:
		return encode(rest / size)
	case 60 * second, second:
		return encode(rest / size % 60)
	case 0:
		return encode(rest % second * 100)
	}
	return encode(rest % second / size)
}

// dateFromParts is DateTimeFromParts(year, month, day, …): those left out are 0.
func dateFromParts(a []argument) values.Value {
	var p [7]int
	for i := range a {
		p[i] = a[i].n
	}
	if ticks, ok := ticksOf(p); ok {
		return dateOf(ticks)
	}
	return nil
}
