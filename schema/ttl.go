package schema

import (
	"math"
	"math/big"
	"strconv"
)

// MaxTTL is the longest time to live, in seconds.
const MaxTTL = math.MaxInt32

// TTL is a document's own time to live, in seconds, or Inherit or Never. A stored document
// has its ttl as the client wrote it; this is what the writer read of it once.
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

// Rule is the origin of a deadline.
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

// ParseRule reads a rule as String writes it; any other text is NoRule.
func ParseRule(s string) Rule {
	switch s {
	case "document":
		return RuleDocument
	case "collection":
		return RuleCollection
	}
	return NoRule
}

// Deadline is the second from which a document has expired, and its origin.
type Deadline struct {
	At   int64 // seconds since 1970: _ts + TTL
	TTL  int32 // seconds applied
	Rule Rule  // NoRule: the document does not expire
}

// DeadlineOf applies the TTL table: a document last changed at ts (seconds
// since 1970) with its own ttl, in a collection with the given default. It implements this
// table; projections.DueAt does the same for a whole queue:
//
//	                Off     NoDefault   default n
//	ttl absent      never   never       ts + n
//	ttl -1          never   never       never
//	ttl m           never   ts + m      ts + m
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

// Passed reports whether the document has expired at now, in seconds since 1970.
func (d Deadline) Passed(now int64) bool { return d.Rule != NoRule && d.At <= now }

// Prolonged reports whether documents that expire under d may live longer, or for
// ever, under another default. After such a change a read may not trust a deadline that it
// computed under the old default.
func (d DefaultTTL) Prolonged(to DefaultTTL) bool {
	switch {
	case d == Off:
		return false
	case to == Off:
		return true
	}
	return d > 0 && (to == NoDefault || to > d)
}

// parseDefaultTTL reads a JSON value as a defaultTtl.
func parseDefaultTTL(value []byte) (DefaultTTL, *Error) {
	n, ok := parseSeconds(value)
	if !ok {
		return Off, ErrBadTTL.With("defaultTtl %s: use a whole number of seconds from 1 to %d, -1 for no default, or null for off", Shown(value), MaxTTL)
	}
	return DefaultTTL(n), nil
}

// parseWarnBefore reads a JSON value as a warnBefore, 0 for none.
func parseWarnBefore(value []byte) (int32, *Error) {
	n, ok := parseSeconds(value)
	if !ok || n < 0 {
		return 0, ErrBadTTL.With("warnBefore %s: use a whole number of seconds from 1 to %d, or null for no warnings", Shown(value), MaxTTL)
	}
	return n, nil
}

// appendJSON appends the value of defaultTtl in a reply or an event.
func (d DefaultTTL) appendJSON(dst []byte) []byte {
	if d == Off {
		return append(dst, "null"...)
	}
	return strconv.AppendInt(dst, int64(d), 10)
}

// parseSeconds reads a JSON value as a ttl or defaultTtl: null is 0, -1 and
// 1…MaxTTL are themselves however they are written (5.0, 5e0). ok is false for
// everything else. Clients in languages with one type of number send 5.0. 1e400 and
// 0.99999999999999999999 are none, though a float64 would round the second one to 1.
func parseSeconds(value []byte) (n int32, ok bool) {
	if string(value) == "null" {
		return 0, true
	}
	if len(value) == 0 || value[0] != '-' && (value[0] < '0' || value[0] > '9') {
		return 0, false
	}
	if n, ok := parseDigits(value); ok {
		return int32(n), n >= 1 && n <= MaxTTL
	}
	f, err := strconv.ParseFloat(string(value), 64)
	if err != nil || f != math.Trunc(f) || f != -1 && (f < 1 || f > MaxTTL) {
		return 0, false
	}
	// A number that only rounds to a valid value is invalid. Since its magnitude is
	// small, the literal's length bounds the memory of the exact number.
	const longest = 64
	if len(value) > longest {
		return 0, false
	}
	exact, ok := new(big.Rat).SetString(string(value))
	return int32(f), ok && exact.Cmp(new(big.Rat).SetInt64(int64(f))) == 0
}

// parseDigits reads a number written as up to ten digits, as nearly all are.
func parseDigits(value []byte) (n int64, ok bool) {
	if len(value) > 10 {
		return 0, false
	}
	for _, c := range value {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int64(c-'0')
	}
	return n, true
}
