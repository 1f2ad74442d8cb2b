package values

import (
	"math"
	"math/bits"
	"strconv"
	"unsafe"
)

// Real is a JSON number: the nearest float64 and, for a 64-bit integer, the difference
// to it. A float64 is exact up to 2^53, and ids of many systems are integers beyond. With
// Rest two such integers differ, and still compare with any other number. 2^53+1 is {2^53,
// 1}.
type Real struct {
	Float float64
	Rest  int16 // 0 unless the number is an integer beyond ±2^53
}

// Compare returns -1, 0 or 1 as r is less than, equal to or greater than s.
func (r Real) Compare(s Real) int {
	switch {
	case r.Float < s.Float || r.Float == s.Float && r.Rest < s.Rest:
		return -1
	case r == s:
		return 0
	}
	return 1
}

// RealOf returns f, which must not be NaN, as a Real.
func RealOf(f float64) Real {
	return Real{Float: f + 0} // -0 is 0
}

// RealOfInteger returns an integer, given by absolute value and sign, as a Real.
func RealOfInteger(magnitude uint64, negative bool) Real {
	f := float64(magnitude)
	var rest int16
	if magnitude > 1<<53 {
		// If f is 2^64, the difference to 0 is right too, modulo 2^64.
		nearest := uint64(0)
		if f < 1<<64 {
			nearest = uint64(f)
		}
		rest = int16(magnitude - nearest)
	}
	if negative && magnitude != 0 {
		return Real{-f, -rest}
	}
	return Real{f, rest}
}

// Integer returns absolute value and sign of a number written in digits only; ok is
// false for any other number and beyond 64 bits (negative ones: below -2^63).
func (v Value) Integer() (magnitude uint64, negative, ok bool) {
	digits := v
	if len(v) > 0 && v[0] == '-' {
		negative, digits = true, v[1:]
	}
	if len(digits) == 0 || len(digits) > 20 {
		return 0, false, false
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false, false
		}
		high, low := bits.Mul64(magnitude, 10)
		var carry uint64
		magnitude, carry = bits.Add64(low, uint64(c-'0'), 0)
		if high+carry != 0 {
			return 0, false, false
		}
	}
	return magnitude, negative, !negative || magnitude <= 1<<63
}

// Float returns the float64 nearest to a number, ±Inf beyond their range.
func (v Value) Float() float64 {
	// unsafe avoids a copy: ParseFloat does not keep its argument.
	f, err := strconv.ParseFloat(unsafe.String(unsafe.SliceData(v), len(v)), 64)
	if err != nil && !math.IsInf(f, 0) {
		return 0
	}
	return f
}

// Real returns the number v as a Real.
func (v Value) Real() Real {
	if magnitude, negative, ok := v.Integer(); ok {
		return RealOfInteger(magnitude, negative)
	}
	return RealOf(v.Float())
}
