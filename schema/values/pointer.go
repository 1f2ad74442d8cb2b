package values

import (
	"errors"
	"fmt"
	"strings"
)

// MaxPointerBytes limits the length of a JSON pointer.
const MaxPointerBytes = 255

// Pointer is a JSON pointer (RFC 6901) below the root, as its tokens. /lines/0/sku has the
// tokens lines, 0 and sku. Tokens are decoded: of /a~1b it is a/b.
type Pointer []string

// ParsePointer reads a JSON pointer such as /address/city or /lines/0. In a
// token ~1 is a slash and ~0 a tilde.
func ParsePointer(s string) (Pointer, error) {
	if len(s) == 0 || len(s) > MaxPointerBytes || s[0] != '/' {
		return nil, fmt.Errorf("path %.40q: use a JSON pointer of at most %d bytes, such as /address/city", s, MaxPointerBytes)
	}
	tokens := strings.Split(s[1:], "/")
	for i, token := range tokens {
		rest := strings.NewReplacer("~0", "", "~1", "").Replace(token)
		if strings.Contains(rest, "~") {
			return nil, errors.New("path " + fmt.Sprintf("%.40q", s) + ": in a JSON pointer write ~0 for a tilde and ~1 for a slash in a name")
		}
		tokens[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
	}
	return tokens, nil
}

// String is the inverse of ParsePointer.
func (p Pointer) String() string {
	var b strings.Builder
	for _, token := range p {
		b.WriteByte('/')
		_, _ = strings.NewReplacer("~", "~0", "/", "~1").WriteString(&b, token)
	}
	return b.String()
}

// Plain reports whether no token could be an array index.
func (p Pointer) Plain() bool {
	for _, token := range p {
		if _, ok := index(token); ok {
			return false
		}
	}
	return true
}

// index returns a token as an array index: digits without leading zeros. More than nine
// digits are a name only: no document has so many elements.
func index(token string) (n int, ok bool) {
	if len(token) == 0 || len(token) > 9 || len(token) > 1 && token[0] == '0' {
		return 0, false
	}
	for _, c := range token {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return n, true
}
