package schema

import (
	"strings"
	"unicode/utf8"
)

// DatabaseName names one log and its projections. Made by ParseDatabaseName.
type DatabaseName string

// CollectionName names a set of documents with one TTL policy. Made by ParseCollectionName.
type CollectionName string

// InvalidCollection is the collection in the subject of a MutationRejected whose
// collection name was invalid.
const InvalidCollection CollectionName = "_invalid"

// InternalCollection is the collection of internal events.
const InternalCollection CollectionName = "_"

// DocumentID identifies a document within its collection. Made by
// ParseDocumentID or DecodeID; it is not encoded, see Token.
type DocumentID string

// MaxIDBytes is the length of the longest document id, in bytes of UTF-8.
const MaxIDBytes = 255

// ParseDatabaseName checks s against [a-z0-9][a-z0-9-]{0,31}.
func ParseDatabaseName(s string) (DatabaseName, error) {
	ok := len(s) >= 1 && len(s) <= 32 && s[0] != '-'
	for i := 0; ok && i < len(s); i++ {
		c := s[i]
		ok = c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-'
	}
	if !ok {
		return "", ErrBadRequest.With("database name %.80q: use 1 to 32 of a-z, 0-9 and -, not starting with -", s)
	}
	return DatabaseName(s), nil
}

// ParseCollectionName checks s against [A-Za-z0-9][A-Za-z0-9_-]{0,63}.
func ParseCollectionName(s string) (CollectionName, error) {
	ok := len(s) >= 1 && len(s) <= 64 && s[0] != '-' && s[0] != '_'
	for i := 0; ok && i < len(s); i++ {
		c := s[i]
		ok = isAlphanumeric(c) || c == '-' || c == '_'
	}
	if !ok {
		return "", ErrBadRequest.With("collection name %.80q: use 1 to 64 of A-Z, a-z, 0-9, _ and -, starting with a letter or digit", s)
	}
	return CollectionName(s), nil
}

func isAlphanumeric(c byte) bool {
	return c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
}

// ParseDocumentID checks that s is 1 to 255 bytes of UTF-8 without control
// characters (Unicode category Cc).
func ParseDocumentID(s string) (DocumentID, error) {
	switch {
	case s == "":
		return "", ErrBadID.With("the id is empty: use 1 to 255 bytes of UTF-8")
	case len(s) > MaxIDBytes:
		return "", ErrBadID.With("the id has %d bytes: at most 255 are allowed", len(s))
	case !utf8.ValidString(s):
		return "", ErrBadID.With("the id %q is not UTF-8", s)
	case strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r >= 0x7f && r <= 0x9f }):
		return "", ErrBadID.With("the id %q has a control character", s)
	}
	return DocumentID(s), nil
}

// plain reports whether c stays unescaped in an id's subject token.
func plain(c byte) bool {
	if isAlphanumeric(c) {
		return true
	}
	switch c {
	case '_', '-', '=', ':', '@', '~':
		return true
	}
	return false
}

// Token returns the id as one subject token: bytes outside
// A-Z a-z 0-9 _ - = : @ ~ become %XX. A dot, a blank, * and > would have a meaning in a
// subject, and % in a token: all are among them. user 42 is user%2042, and ü is %C3%BC.
func (id DocumentID) Token() string {
	const hex = "0123456789ABCDEF"
	escaped := 0
	for i := 0; i < len(id); i++ {
		if !plain(id[i]) {
			escaped++
		}
	}
	if escaped == 0 {
		return string(id)
	}
	b := make([]byte, 0, len(id)+2*escaped)
	for i := 0; i < len(id); i++ {
		if c := id[i]; plain(c) {
			b = append(b, c)
		} else {
			b = append(b, '%', hex[c>>4], hex[c&15])
		}
	}
	return string(b)
}

// DecodeID is the inverse of Token. It accepts any well-formed %XX, in lower
// case too; a malformed escape, a raw byte outside the set, or a result that is
// no legal id is ErrBadID.
func DecodeID(token string) (DocumentID, error) {
	b := make([]byte, 0, 64)
	escaped := false
	for i := 0; i < len(token); i++ {
		c := token[i]
		switch {
		case plain(c):
			b = append(b, c)
		case c == '%' && i+2 < len(token) && unhex(token[i+1]) < 16 && unhex(token[i+2]) < 16:
			b = append(b, unhex(token[i+1])<<4|unhex(token[i+2]))
			i += 2
			escaped = true
		case c == '%':
			return "", ErrBadID.With("the id %.80q has a malformed escape: write %%XX with two hex digits", token)
		default:
			return "", ErrBadID.With("the id %.80q has a raw %q: write every byte outside A-Z a-z 0-9 _ - = : @ ~ as %%%02X", token, c, c)
		}
	}
	if !escaped {
		return ParseDocumentID(token)
	}
	return ParseDocumentID(string(b))
}

// unhex returns the value of a hex digit, 255 for any other byte.
func unhex(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10
	}
	return 255
}
