package query

import (
	"bytes"
	"slices"

	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema/values"
)

// span is a range [lower, upper) of value keys (see values.AppendKey) in an index; nil
// is no bound. For doc.total >= 5 it is [key of 5, after all numbers): keys begin with a
// byte for the kind, and kinds sort as their values do.
type span struct {
	lower, upper []byte
	single       bool // it has only one key
}

// cut cuts a key as an index does.
func cut(key []byte) []byte { return key[:min(len(key), projections.MaxValueKeyBytes)] }

// equalSpan returns the keys of values equal to o, and of values with the same cut
// key.
func equalSpan(o *operand) span {
	key := cut(o.appendKey(nil))
	return span{key, projections.KeyAfter(key), true}
}

// relationSpans returns the spans of all values in relation r to o, and of others only
// where keys were cut. A comparison of order covers one kind only, or both booleans: 5 <
// "a" is false in a condition, though "a" comes after 5 in an index. ok is false for !=,
// which an index does not narrow.
func relationSpans(r relation, o *operand) (spans []span, ok bool) {
	if r == equal {
		if o.kind == values.Missing {
			return nil, true
		}
		return []span{equalSpan(o)}, true
	}
	if r == unequal {
		return nil, false
	}
	first, last := o.kind, o.kind
	switch {
	case isBool(o.kind):
		first, last = values.False, values.True
	case o.kind != values.Number && o.kind != values.String:
		return nil, true // o has no order, so no value is in relation r to it
	}
	s := span{lower: []byte{byte(first)}, upper: []byte{byte(last) + 1}}
	key := o.appendKey(nil)
	whole := len(key) <= projections.MaxValueKeyBytes
	key = cut(key)
	switch {
	case r == less && whole:
		s.upper = key
	case r == less || r == lessOrEqual:
		s.upper = projections.KeyAfter(key)
	case r == greater && whole:
		s.lower = projections.KeyAfter(key)
	default:
		s.lower = key
	}
	return []span{s}, true
}

// prefixSpan returns the span of the strings that start with text.
func prefixSpan(text []byte) span {
	key := cut(values.AppendTextPrefixKey(nil, text))
	return span{lower: key, upper: projections.KeyAfter(key)}
}

// union sorts spans and joins those that overlap.
func union(spans []span) []span {
	slices.SortFunc(spans, func(a, b span) int { return bytes.Compare(a.lower, b.lower) })
	var out []span
	for _, s := range spans {
		if n := len(out); n > 0 && (out[n-1].upper == nil || bytes.Compare(s.lower, out[n-1].upper) < 0) {
			last := &out[n-1]
			last.single = last.single && s.single && bytes.Equal(last.lower, s.lower)
			if ends(*last, s) {
				last.upper = s.upper
			}
			continue
		}
		out = append(out, s)
	}
	return out
}

// ends reports whether a ends before b.
func ends(a, b span) bool {
	return a.upper != nil && (b.upper == nil || bytes.Compare(a.upper, b.upper) < 0)
}

// intersect returns the intersection of two unions. Both are sorted, so one pass suffices.
// A range within a range of one key has one key, too.
func intersect(a, b []span) (out []span) {
	for len(a) > 0 && len(b) > 0 {
		s := span{a[0].lower, a[0].upper, a[0].single || b[0].single}
		if bytes.Compare(b[0].lower, s.lower) > 0 {
			s.lower = b[0].lower
		}
		if ends(b[0], a[0]) {
			s.upper = b[0].upper
			b = b[1:]
		} else {
			a = a[1:]
		}
		if s.upper == nil || bytes.Compare(s.lower, s.upper) < 0 {
			out = append(out, s)
		}
	}
	return out
}
