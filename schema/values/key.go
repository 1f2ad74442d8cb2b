package values

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
)

// Delimiters in a key, different from every Kind.
const (
	keyEnd    = 0 // end of an array or object; in a string, escaped as 00 FF
	keyMember = 1 // before a member's name; after 00, the end of a string
)

// AppendKey appends v as a key: keys sort by their bytes as the values do, equal values
// have the same key, and no key is a prefix of another.
//
// The first byte is the Kind. A number is its float64 in bits that sort, and from ±2^53
// on the Rest in two bytes. A string is its bytes with 00 as 00 FF, then 00 01. An
// array is its elements' keys, then 00. An object is 01, name and value for each member
// by name, then 00. For example, in hex:
//
//	null    03
//	true    05
//	1.5     06 bff8000000000000
//	"a"     07 61 00 01
//	[1.5]   08 06 bff8000000000000 00
//	{"a":5} 09 01 61 00 01 06 c014000000000000 00
func AppendKey(dst []byte, v Value) []byte {
	dst, _ = AppendKeyPrefix(dst, v, math.MaxInt)
	return dst
}

// AppendKeyPrefix is AppendKey cut at limit bytes; whole reports that it was not cut.
func AppendKeyPrefix(dst []byte, v Value, limit int) (key []byte, whole bool) {
	e := keyWriter{key: dst, end: len(dst) + limit}
	if limit > math.MaxInt-len(dst) {
		e.end = math.MaxInt
	}
	e.value(v)
	if len(e.key) > e.end {
		return e.key[:e.end], false
	}
	return e.key, true
}

// AppendTextKey appends the key of a string given without quotes and escapes.
func AppendTextKey(dst, text []byte) []byte {
	e := keyWriter{key: append(dst, byte(String)), end: math.MaxInt}
	e.text(text)
	return e.key
}

// AppendTextPrefixKey appends the common prefix of the keys of all strings that start
// with text.
func AppendTextPrefixKey(dst, text []byte) []byte {
	dst = AppendTextKey(dst, text)
	return dst[:len(dst)-2]
}

// AppendRealKey appends the key of a number.
func AppendRealKey(dst []byte, r Real) []byte {
	b := math.Float64bits(r.Float)
	if b>>63 == 1 {
		b = ^b
	} else {
		b |= 1 << 63
	}
	dst = binary.BigEndian.AppendUint64(append(dst, byte(Number)), b)
	if math.Abs(r.Float) < 1<<53 {
		return dst
	}
	return binary.BigEndian.AppendUint16(dst, uint16(r.Rest)^1<<15)
}

// keyWriter writes a key and stops soon after end. It stops since an index keeps only the
// first bytes of a key: a document of 2 MiB at a path costs no more than a short one.
type keyWriter struct {
	key []byte
	end int
}

// value appends the key of a value, or as much of it as the limit allows.
func (w *keyWriter) value(v Value) {
	kind := v.Kind()
	switch kind {
	case Number:
		w.key = AppendRealKey(w.key, v.Real())
		return
	case String:
		w.key = append(w.key, byte(kind))
		w.text(v.Text())
		return
	case Array:
		w.key = append(w.key, byte(kind))
		v.Elements(func(element Value) bool {
			w.value(element)
			return len(w.key) <= w.end
		})
	case Object:
		w.key = append(w.key, byte(kind))
		w.members(v)
	default:
		w.key = append(w.key, byte(kind))
		return
	}
	w.key = append(w.key, keyEnd)
}

// text appends the key of a string after its kind. 00 is escaped, and the end 00 01 sorts
// before 00 FF: so a string sorts before any longer one that begins with it.
func (w *keyWriter) text(text []byte) {
	// A byte of text makes at least one of the key: skip the text beyond the end.
	if room := max(w.end-len(w.key), 0); len(text) > room {
		text = text[:room+1]
	}
	for {
		n := bytes.IndexByte(text, 0)
		if n < 0 {
			break
		}
		w.key = append(append(w.key, text[:n+1]...), 0xff)
		text = text[n+1:]
	}
	w.key = append(append(w.key, text...), keyEnd, keyMember)
}

type namedValue struct {
	name  []byte
	value Value
}

// members appends the members in the order of their names, since two objects are equal
// whatever the order in which they were written.
func (w *keyWriter) members(v Value) {
	var all []namedValue
	v.Members(func(name []byte, value Value) bool {
		all = append(all, namedValue{name, value})
		return true
	})
	slices.SortStableFunc(all, func(a, b namedValue) int { return bytes.Compare(a.name, b.name) })
	for i, m := range all {
		if i+1 < len(all) && bytes.Equal(m.name, all[i+1].name) {
			continue // the last one counts
		}
		if len(w.key) > w.end {
			return
		}
		w.key = append(w.key, keyMember)
		w.text(m.name)
		w.value(m.value)
	}
}
