package schema

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/lapsedb/lapse/schema/values"
)

// MaxDepth limits the nesting of a document; the document itself counts as 1. It bounds
// the recursion of each function that walks a document, and so its stack.
const MaxDepth = 128

// scanner validates JSON (RFC 8259) in one pass without building values, and finds
// the top-level members. Every document passes it once; a general decoder needs
// several passes and many allocations. Package values reads JSON that has passed. The
// scanner is the only gate for JSON: whatever is stored has passed it, and readers after
// it need not look for faults. Like the RFC it accepts duplicate names, numbers of any
// length and half surrogate pairs. Its callers check UTF-8.
type scanner struct {
	data   []byte
	pos    int
	spaces bool // insignificant white space was seen
}

// fail returns an error with the position, in bytes from 0.
func (s *scanner) fail(format string, args ...any) error {
	return fmt.Errorf("byte %d: %s", s.pos, fmt.Sprintf(format, args...))
}

// unexpected is the error for what is at the position in place of what was wanted.
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

// value skips one value that nests at most depth deep.
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

// object skips an object. It calls member, unless nil, at each member's value with
// the name without its quotes; member must skip the value.
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

// string skips a string, whose quote is at the position. It checks the form of escapes,
// not what they encode.
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
// order, name (without its quotes) and value as they are written. spaces reports
// whether raw has insignificant white space.
func members(raw []byte, visit func(name, value []byte) error) (spaces bool, err error) {
	return membersTo(MaxDepth, raw, visit)
}

// membersTo is members for an object that nests at most depth deep.
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

// Shown returns a JSON value for an error message: on one line, cut to about 40 bytes.
func Shown(value []byte) string {
	const most = 40
	head := compact(value[:min(len(value), 4*most)])
	if len(head) <= most && len(value) <= 4*most {
		return string(head)
	}
	return strings.ToValidUTF8(string(head[:min(len(head), most)]), "") + "…"
}

// isString reports whether value, valid JSON, is the string s.
func isString(value []byte, s string) bool {
	if value[0] != '"' {
		return false
	}
	text, ok := values.Decode(value[1 : len(value)-1])
	return ok && string(text) == s
}

// decodeString returns the string in value, which is valid JSON. It fails for half a
// surrogate pair, which UTF-8 cannot encode.
func decodeString(value []byte) (string, error) {
	if value[0] != '"' {
		return "", fmt.Errorf("%s is no string", Shown(value))
	}
	text, ok := values.Decode(value[1 : len(value)-1])
	if !ok {
		return "", fmt.Errorf("%s has half a surrogate pair", Shown(value))
	}
	return string(text), nil
}

// compact returns a copy of raw, valid JSON or a prefix of it, without insignificant
// white space.
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

// ValidJSON reports whether data is one JSON value in UTF-8 that nests at most
// MaxDepth deep.
func ValidJSON(data []byte) bool { return CheckJSON(data) == nil }

// CheckJSON is ValidJSON with an error that names the first invalid byte.
func CheckJSON(data []byte) error { return checkTo(MaxDepth, data) }

// CheckEnvelope is CheckJSON for a message that holds documents, which may nest deeper.
func CheckEnvelope(data []byte) error { return checkTo(envelopeDepth, data) }

func checkTo(depth int, data []byte) error {
	if !utf8.Valid(data) {
		return fmt.Errorf("it is not UTF-8")
	}
	s := scanner{data: data}
	if err := s.value(depth); err != nil {
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
