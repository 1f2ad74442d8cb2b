package query

import (
	"bytes"
	"slices"

	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/values"
)

// span is a range of value keys (see values.AppendKey) in an index: from lower
// on and before upper, where nil is no bound.
type span struct{ lower, upper []byte }

// successor returns the first key after all that begin with prefix, nil if
// there is none.
func successor(prefix []byte) []byte {
	end := bytes.Clone(prefix)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i] < 0xff {
			end[i]++
			return end[:i+1]
		}
	}
	return nil
}

// cut shortens a key to what an index holds of it.
func cut(key []byte) []byte { return key[:min(len(key), projections.MaxValueKeyBytes)] }

// equalSpan returns the keys of values that equal o, and perhaps of others
// that are as long and begin like it.
func equalSpan(o *operand) span {
	key := cut(o.appendKey(nil))
	return span{key, successor(key)}
}

// relationSpans returns where values are that are in relation r to o: all that
// are, and others only where keys were cut.
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
		return nil, true // has no order, so nothing is in relation to it
	}
	s := span{[]byte{byte(first)}, []byte{byte(last) + 1}}
	key := o.appendKey(nil)
	whole := len(key) <= projections.MaxValueKeyBytes
	key = cut(key)
	switch {
	case r == less && whole:
		s.upper = key
	case r == less || r == lessOrEqual:
		s.upper = successor(key)
	case r == greater && whole:
		s.lower = successor(key)
	default:
		s.lower = key
	}
	return []span{s}, true
}

// prefixSpan returns where strings are that start with text.
func prefixSpan(text []byte) span {
	key := cut(values.AppendTextPrefixKey(nil, text))
	return span{key, successor(key)}
}

// union sorts spans and joins those that touch.
func union(spans []span) []span {
	slices.SortFunc(spans, func(a, b span) int { return bytes.Compare(a.lower, b.lower) })
	var out []span
	for _, s := range spans {
		if n := len(out); n > 0 && (out[n-1].upper == nil || bytes.Compare(s.lower, out[n-1].upper) < 0) {
			if out[n-1].upper != nil && (s.upper == nil || bytes.Compare(s.upper, out[n-1].upper) > 0) {
				out[n-1].upper = s.upper
			}
			continue
		}
		out = append(out, s)
	}
	return out
}

// intersect returns what is in both of two unions.
func intersect(a, b []span) (out []span) {
	for _, s := range a {
		for _, t := range b {
			lower := s.lower
			if bytes.Compare(t.lower, lower) > 0 {
				lower = t.lower
			}
			upper := s.upper
			if upper == nil || t.upper != nil && bytes.Compare(t.upper, upper) < 0 {
				upper = t.upper
			}
			if upper == nil || bytes.Compare(lower, upper) < 0 {
				out = append(out, span{lower, upper})
			}
		}
	}
	return out
}
