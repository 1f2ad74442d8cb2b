package schema

import (
	"math"
	"strconv"
)

// MaxTTL is the longest time to live, in seconds.
const MaxTTL = math.MaxInt32

// TTL is a document's own time to live, in seconds, or Inherit or Never.
type TTL int32

const (
	Inherit TTL = 0  // ttl absent or null: the collection's default applies
	Never   TTL = -1 // ttl -1: the document does not expire
)

// DefaultTTL is a collection's time to live, in seconds, or Off or NoDefault.
type DefaultTTL int32

const (
	Off       DefaultTTL = 0  // defaultTtl absent or null: nothing expires, ttl is not interpreted
	NoDefault DefaultTTL = -1 // defaultTtl -1: documents expire only by a ttl of their own
)

// Rule says whose number set a deadline.
type Rule uint8

const (
	NoRule         Rule = iota
	RuleDocument        // the document's own ttl
	RuleCollection      // the collection's defaultTtl
)

func (r Rule) String() string {
	switch r {
	case RuleDocument:
		return "document"
	case RuleCollection:
		return "collection"
	}
	return ""
}

func parseRule(s string) Rule {
	switch s {
	case "document":
		return RuleDocument
	case "collection":
		return RuleCollection
	}
	return NoRule
}

// Deadline is the second from which a document does not exist any more, and why.
type Deadline struct {
	At   int64 // seconds since 1970: _ts + TTL
	TTL  int32 // seconds applied
	Rule Rule  // NoRule: the document does not expire
}

// DeadlineOf applies the TTL table: a document last changed at ts (seconds
// since 1970) with its own ttl, in a collection with the given default.
func DeadlineOf(def DefaultTTL, ttl TTL, ts int64) Deadline {
	switch {
	case def == Off || ttl == Never:
		return Deadline{}
	case ttl > 0:
		return Deadline{At: ts + int64(ttl), TTL: int32(ttl), Rule: RuleDocument}
	case def > 0:
		return Deadline{At: ts + int64(def), TTL: int32(def), Rule: RuleCollection}
	}
	return Deadline{}
}

// Passed tells whether the document is expired at now, in seconds since 1970.
func (d Deadline) Passed(now int64) bool { return d.Rule != NoRule && d.At <= now }

// parseSeconds reads a JSON value as a ttl or defaultTtl: null is 0, -1 and
// 1…MaxTTL are themselves however they are written (5.0, 5e0). ok is false for
// everything else.
func parseSeconds(value []byte) (n int32, ok bool) {
	if string(value) == "null" {
		return 0, true
	}
	if len(value) == 0 || value[0] != '-' && (value[0] < '0' || value[0] > '9') {
		return 0, false
	}
	f, err := strconv.ParseFloat(string(value), 64)
	// Every legal value is exact in a float64, and a literal that only rounds
	// to one (5.00000000000000000001) is as good as that one for a client
	// whose numbers are floats.
	if err != nil || f != math.Trunc(f) || f != -1 && (f < 1 || f > MaxTTL) {
		return 0, false
	}
	return int32(f), true
}
