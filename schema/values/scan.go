package values

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// next returns the position of the first byte at or after i that is not white space. White
// space is every byte up to a blank, since the JSON is known to be valid.
func next(data []byte, i int) int {
	for i < len(data) && data[i] <= ' ' {
		i++
	}
	return i
}

// trim removes white space from the end of a value.
func trim(v Value) Value {
	for len(v) > 0 && v[len(v)-1] <= ' ' {
		v = v[:len(v)-1]
	}
	return v
}

// skip returns the position after the value that begins at i; it is greater than i.
// In a large object or array it calls passed, unless nil, with the bytes skipped
// since the last call. A number or literal ends before a delimiter. It may then have white
// space at its end, which trim removes.
func skip(data []byte, i int, passed func(bytes int)) int {
	switch data[i] {
	case '"':
		return skipString(data, i)
	case '{', '[':
		return skipNested(data, i, passed)
	}
	for i++; i < len(data); i++ {
		if c := data[i]; c == ',' || c == '}' || c == ']' {
			return i
		}
	}
	return i
}

// skipString returns the position after the string whose quote is at i. Most strings have
// no escapes, so it looks for the quote, and only then back for backslashes.
func skipString(data []byte, i int) int {
	start := i + 1
	for at := start; ; {
		n := bytes.IndexByte(data[at:], '"')
		if n < 0 {
			return len(data)
		}
		at += n + 1
		// A quote is escaped by an odd number of backslashes before it.
		backslash := at - 2
		for backslash >= start && data[backslash] == '\\' {
			backslash--
		}
		if (at-2-backslash)%2 == 0 {
			return at
		}
	}
}

// passedAtMost is the number of bytes between two calls of passed; more if a long string
// crosses them.
const passedAtMost = 16 << 10

// skipNested returns the position after the object or array at i. It counts brackets
// outside of strings: in valid JSON their kinds need no matching.
func skipNested(data []byte, i int, passed func(bytes int)) int {
	for depth := 0; i < len(data); {
		start := i
		for end := min(len(data), start+passedAtMost); i < end; {
			switch data[i] {
			case '"':
				i = skipString(data, i)
				continue
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
			i++
		}
		if passed != nil {
			passed(i - start)
		}
	}
	return i
}

// member reads the member of an object whose name's quote is at i. It returns the
// name without its quotes, the value, and the position of the next member or of the
// object's end.
func member(data []byte, i int, passed func(bytes int)) (name []byte, value Value, following int) {
	end := skipString(data, i)
	name = data[i+1 : max(end-1, i+1)]
	i = next(data, end)
	if i < len(data) && data[i] == ':' {
		i = next(data, i+1)
	}
	if i >= len(data) {
		return name, nil, i
	}
	end = skip(data, i, passed)
	value = trim(data[i:end])
	if i = next(data, end); i < len(data) && data[i] == ',' {
		i = next(data, i+1)
	}
	return name, value, i
}

// Unquote decodes a string or member name, given without its quotes. Half a
// surrogate pair becomes U+FFFD. The result shares raw's memory if raw has no
// escapes.
func Unquote(raw []byte) []byte {
	text, _ := Decode(raw)
	return text
}

// Decode is Unquote; ok is false if raw has half a surrogate pair.
func Decode(raw []byte) (text []byte, ok bool) {
	n := bytes.IndexByte(raw, '\\')
	if n < 0 {
		return raw, true
	}
	ok = true
	out := append(make([]byte, 0, len(raw)), raw[:n]...)
	for i := n; i < len(raw); i++ {
		c := raw[i]
		if c != '\\' || i+1 == len(raw) {
			out = append(out, c)
			continue
		}
		i++
		switch raw[i] {
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r := escaped(raw[i+1:])
			i += 4
			if utf16.IsSurrogate(r) {
				pair := rune(utf8.RuneError)
				if i+2 < len(raw) && raw[i+1] == '\\' && raw[i+2] == 'u' {
					pair = utf16.DecodeRune(r, escaped(raw[i+3:]))
				}
				if r = pair; pair == utf8.RuneError {
					ok = false
				} else {
					i += 6
				}
			}
			out = utf8.AppendRune(out, r)
		default: // a quote, a slash or a backslash
			out = append(out, raw[i])
		}
	}
	return out, ok
}

// escaped reads the four hex digits of a \u escape, -1 if they are not there.
func escaped(hex []byte) (r rune) {
	if len(hex) < 4 {
		return -1
	}
	for _, c := range hex[:4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}
