package query

import (
	"bytes"
	"cmp"

	"github.com/lapsedb/lapse/schema/values"
)

// operand is a value prepared for many comparisons. Comparing one constant with a million
// documents decodes the constant once.
type operand struct {
	kind values.Kind
	real values.Real // of a number
	text []byte      // of a string
	key  []byte      // of an array or object, see values.AppendKey
}

// operandOf prepares a value. The text shares the value's memory unless it has escapes.
func operandOf(v values.Value) operand {
	o := operand{kind: v.Kind()}
	switch o.kind {
	case values.Number:
		o.real = v.Real()
	case values.String:
		o.text = v.Text()
	case values.Array, values.Object:
		o.key = values.AppendKey(nil, v)
	}
	return o
}

// appendKey appends what values.AppendKey would for the operand's value.
func (o *operand) appendKey(dst []byte) []byte {
	switch o.kind {
	case values.Number:
		return values.AppendRealKey(dst, o.real)
	case values.String:
		return values.AppendTextKey(dst, o.text)
	case values.Array, values.Object:
		return append(dst, o.key...)
	}
	return append(dst, byte(o.kind))
}

func isBool(k values.Kind) bool { return k == values.False || k == values.True }

// equal reports whether o and p are the same value. Missing equals nothing, not even
// Missing.
func (o *operand) equal(p *operand) bool {
	if o.kind != p.kind {
		return false
	}
	switch o.kind {
	case values.Missing:
		return false
	case values.Number:
		return o.real.Compare(p.real) == 0
	case values.String:
		return bytes.Equal(o.text, p.text)
	case values.Array, values.Object:
		return bytes.Equal(o.key, p.key)
	}
	return true
}

// compare orders two numbers, two strings or two booleans; ok is false for any
// other pair, which has no order in a condition.
func (o *operand) compare(p *operand) (c int, ok bool) {
	switch {
	case o.kind == values.Number && p.kind == values.Number:
		return o.real.Compare(p.real), true
	case o.kind == values.String && p.kind == values.String:
		return bytes.Compare(o.text, p.text), true
	case isBool(o.kind) && isBool(p.kind):
		return cmp.Compare(o.kind, p.kind), true
	}
	return 0, false
}

// valueEquals is operandOf(v).equal(o), decoding no more of v than necessary. A key is
// compared up to the length of the operand's key: a longer value cannot be equal.
func valueEquals(v values.Value, o *operand) bool {
	kind := v.Kind()
	if kind != o.kind || kind == values.Missing {
		return false
	}
	switch kind {
	case values.String:
		// An escape only makes a string longer.
		return len(v)-2 >= len(o.text) && bytes.Equal(v.Text(), o.text)
	case values.Number:
		w := operandOf(v)
		return w.equal(o)
	case values.Array, values.Object:
		key, whole := values.AppendKeyPrefix(nil, v, len(o.key))
		return whole && bytes.Equal(key, o.key)
	}
	return true
}

// relation is a comparison operator.
type relation byte

const (
	equal relation = iota
	unequal
	less
	lessOrEqual
	greater
	greaterOrEqual
)

// flipped returns the relation with its sides exchanged.
func (r relation) flipped() relation {
	switch r {
	case less:
		return greater
	case lessOrEqual:
		return greaterOrEqual
	case greater:
		return less
	case greaterOrEqual:
		return lessOrEqual
	}
	return r
}

// ordered reports whether c, the result of a comparison, satisfies < <= > or >=.
func (r relation) ordered(c int) bool {
	switch r {
	case less:
		return c < 0
	case lessOrEqual:
		return c <= 0
	case greater:
		return c > 0
	}
	return c >= 0
}

// holds reports whether "v r o" is true. It is false if either is missing, or if r
// needs an order that they do not have.
func (r relation) holds(v values.Value, o *operand) bool {
	if len(v) == 0 || o.kind == values.Missing {
		return false
	}
	switch r {
	case equal:
		return valueEquals(v, o)
	case unequal:
		return !valueEquals(v, o)
	}
	if kind := v.Kind(); kind != o.kind && !(isBool(kind) && isBool(o.kind)) {
		return false
	}
	w := operandOf(v)
	c, ok := w.compare(o)
	return ok && r.ordered(c)
}
