package schema

import (
	"fmt"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/lapsedb/lapse/schema/values"
)

// MaxDepth is how deep a document may nest, the object itself counted as 1.
const MaxDepth = 128

// scanner validates JSON (RFC 8259) in one pass without building values. It
// exists because every document goes through it once, and the two things
// wanted from it, that it is legal and where its top-level members are, cost
// several passes and many allocations with a general decoder.
type scanner struct {
	data   []byte
	pos    int
	spaces bool // insignificant white space was seen
}

func (s *scanner) fail(format string, args ...any) error {
	return fmt.Errorf("byte %d: %s", s.pos, fmt.Sprintf(format, args...))
}

func (s *scanner) unexpected(wanted string) error {
	if s.pos >= len(s.data) {
		return s.fail("the JSON ends early, %s expected", wanted)
	}
	r, _ := utf8.DecodeRune(s.data[s.pos:])
	return s.fail("%q found, %s expected", r, wanted)
}

// peek skips white space and returns the next byte, 0 at the end.
func (s *scanner) peek() byte {
	for s.pos < len(s.data) {
		switch c := s.data[s.pos]; c {
		case ' ', '\t', '\r', '\n':
			s.pos++
			s.spaces = true
		default:
			return c
		}
	}
	return 0
}

// end checks that nothing but white space is left.
func (s *scanner) end() error {
	if s.peek(); s.pos < len(s.data) {
		return s.unexpected("the end")
	}
	return nil
}

// value skips one value; depth is how deep it may still nest.
func (s *scanner) value(depth int) error {
	switch c := s.peek(); {
	case c == '{':
		return s.object(depth, nil)
	case c == '[':
		return s.array(depth)
	case c == '"':
		return s.string()
	case c == '-' || c >= '0' && c <= '9':
		return s.number()
	case c == 't':
		return s.literal("true")
	case c == 'f':
		return s.literal("false")
	case c == 'n':
		return s.literal("null")
	}
	return s.unexpected("a value")
}

func (s *scanner) literal(word string) error {
	if len(s.data)-s.pos < len(word) || string(s.data[s.pos:s.pos+len(word)]) != word {
		return s.unexpected("a value")
	}
	s.pos += len(word)
	return nil
}

// object skips an object. member, if not nil, is called at each member's value,
// with the name as written between the quotes, and must skip the value.
func (s *scanner) object(depth int, member func(name []byte) error) error {
	if depth == 0 {
		return s.fail("nested too deep")
	}
	s.pos++
	if s.peek() == '}' {
		s.pos++
		return nil
	}
	for {
		if s.peek() != '"' {
			return s.unexpected("a member name")
		}
		start := s.pos + 1
		if err := s.string(); err != nil {
			return err
		}
		name := s.data[start : s.pos-1]
		if s.peek() != ':' {
			return s.unexpected("':'")
		}
		s.pos++
		s.peek()
		var err error
		if member != nil {
			err = member(name)
		} else {
			err = s.value(depth - 1)
		}
		if err != nil {
			return err
		}
		switch s.peek() {
		case ',':
			s.pos++
		case '}':
			s.pos++
			return nil
		default:
			return s.unexpected("',' or '}'")
		}
	}
}

func (s *scanner) array(depth int) error {
	if depth == 0 {
		return s.fail("nested too deep")
	}
	s.pos++
	if s.peek() == ']' {
		s.pos++
		return nil
	}
	for {
		if err := s.value(depth - 1); err != nil {
			return err
		}
		switch s.peek() {
		case ',':
			s.pos++
		case ']':
			s.pos++
			return nil
		default:
			return s.unexpected("',' or ']'")
		}
	}
}

func (s *scanner) string() error {
	data := s.data
	for i := s.pos + 1; i < len(data); i++ {
		switch c := data[i]; {
		case c == '"':
			s.pos = i + 1
			return nil
		case c < 0x20:
			s.pos = i
			return s.fail("control character in a string")
		case c == '\\':
			i++
			if i >= len(data) {
				break
			}
			switch data[i] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			case 'u':
				for n := 0; n < 4; n++ {
					i++
					if i >= len(data) || unhex(data[i]) > 15 {
						s.pos = min(i, len(data))
						return s.fail(`malformed \u escape`)
					}
				}
			default:
				s.pos = i
				return s.fail("malformed escape in a string")
			}
		}
	}
	s.pos = len(data)
	return s.unexpected(`'"'`)
}

func (s *scanner) number() error {
	digits := func() bool {
		start := s.pos
		for s.pos < len(s.data) && s.data[s.pos] >= '0' && s.data[s.pos] <= '9' {
			s.pos++
		}
		return s.pos > start
	}
	at := func(c byte) bool { return s.pos < len(s.data) && s.data[s.pos] == c }
	if at('-') {
		s.pos++
	}
	if at('0') {
		s.pos++
	} else if !digits() {
		return s.unexpected("a digit")
	}
	if at('.') {
		s.pos++
		if !digits() {
			return s.unexpected("a digit")
		}
	}
	if at('e') || at('E') {
		s.pos++
		if at('+') || at('-') {
			s.pos++
		}
		if !digits() {
			return s.unexpected("a digit")
		}
	}
	return nil
}

// skip skips one value and returns it as written.
func (s *scanner) skip(depth int) ([]byte, error) {
	s.peek()
	start := s.pos
	err := s.value(depth)
	return s.data[start:s.pos], err
}

// members validates raw as one JSON object and visits its top-level members in
// order: the name as written between the quotes, the value as written. spaces
// tells whether raw holds insignificant white space.
func members(raw []byte, visit func(name, value []byte) error) (spaces bool, err error) {
	return membersTo(MaxDepth, raw, visit)
}

// membersTo is members for an object that may nest depth deep.
func membersTo(depth int, raw []byte, visit func(name, value []byte) error) (spaces bool, err error) {
	if !utf8.Valid(raw) {
		return false, fmt.Errorf("it is not UTF-8")
	}
	s := scanner{data: raw}
	if s.peek() != '{' {
		return false, s.unexpected("an object")
	}
	err = s.object(depth, func(name []byte) error {
		value, err := s.skip(depth - 1)
		if err != nil {
			return err
		}
		return visit(name, value)
	})
	if err == nil {
		err = s.end()
	}
	return s.spaces, err
}

// Shown is a JSON value as an error message quotes it: on one line and cut to
// 40 bytes or so.
func Shown(value []byte) string {
	const most = 40
	head := compact(value[:min(len(value), 4*most)])
	if len(head) <= most && len(value) <= 4*most {
		return string(head)
	}
	return strings.ToValidUTF8(string(head[:min(len(head), most)]), "") + "…"
}

// isString tells whether value, valid JSON, is the string s.
func isString(value []byte, s string) bool {
	if value[0] != '"' {
		return false
	}
	raw := value[1 : len(value)-1]
	return string(values.Unquote(raw)) == s && !halfSurrogate(raw)
}

// decodeString returns the string that value, valid JSON, is. One with half a
// surrogate pair is none that UTF-8 could say.
func decodeString(value []byte) (string, error) {
	if value[0] != '"' {
		return "", fmt.Errorf("%s is no string", Shown(value))
	}
	raw := value[1 : len(value)-1]
	if halfSurrogate(raw) {
		return "", fmt.Errorf("%s has half a surrogate pair", Shown(value))
	}
	return string(values.Unquote(raw)), nil
}

// halfSurrogate tells whether a string, as written between its quotes, has an
// escape \uD800 to \uDFFF that is not part of a pair.
func halfSurrogate(raw []byte) bool {
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' {
			continue
		}
		i++ // at what is escaped
		if raw[i] != 'u' {
			continue
		}
		first := escaped(raw[i+1:])
		i += 4
		if !utf16.IsSurrogate(first) {
			continue
		}
		if len(raw) < i+7 || raw[i+1] != '\\' || raw[i+2] != 'u' ||
			utf16.DecodeRune(first, escaped(raw[i+3:])) == utf8.RuneError {
			return true
		}
		i += 6
	}
	return false
}

// escaped reads the four hex digits of a \u escape.
func escaped(hex []byte) (r rune) {
	for _, c := range hex[:4] {
		r = r<<4 | rune(unhex(c))
	}
	return r
}

// compact returns a copy of raw, valid JSON or the beginning of it, without
// insignificant white space.
func compact(raw []byte) []byte {
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); {
		switch raw[i] {
		case ' ', '\t', '\r', '\n':
			i++
		case '"':
			end := i + 1
			for end < len(raw) && raw[end] != '"' {
				if raw[end] == '\\' {
					end++
				}
				end++
			}
			end = min(end+1, len(raw))
			out = append(out, raw[i:end]...)
			i = end
		default:
			out = append(out, raw[i])
			i++
		}
	}
	return out
}

// ValidJSON tells whether data is one JSON value in UTF-8 that nests at most
// MaxDepth deep.
func ValidJSON(data []byte) bool { return CheckJSON(data) == nil }

// CheckJSON returns an error that says where data is not what ValidJSON wants.
func CheckJSON(data []byte) error {
	if !utf8.Valid(data) {
		return fmt.Errorf("it is not UTF-8")
	}
	s := scanner{data: data}
	if err := s.value(MaxDepth); err != nil {
		return err
	}
	return s.end()
}

// AppendString appends s as a JSON string to dst. Bytes that are not UTF-8
// become U+FFFD; < > & stay as they are.
func AppendString(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for i := 0; i < len(s); {
		start := i
		for i < len(s) && s[i] >= 0x20 && s[i] < utf8.RuneSelf && s[i] != '"' && s[i] != '\\' {
			i++
		}
		if dst = append(dst, s[start:i]...); i == len(s) {
			break
		}
		c := s[i]
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			dst = utf8.AppendRune(dst, r)
			i += size
			continue
		}
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c == '\n':
			dst = append(dst, '\\', 'n')
		case c == '\t':
			dst = append(dst, '\\', 't')
		case c == '\r':
			dst = append(dst, '\\', 'r')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
		i++
	}
	return append(dst, '"')
}
