package schema

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestDatabaseName(t *testing.T) {
	for name, legal := range map[string]bool{
		"main": true, "0": true, "a-b-": true, strings.Repeat("a", 32): true,
		"": false, "-a": false, "Main": false, "a_b": false, "a.b": false, "é": false, "a\n": false,
		strings.Repeat("a", 33): false,
	} {
		got, err := ParseDatabaseName(name)
		if legal && (err != nil || string(got) != name) {
			t.Errorf("%q: got %q, %v", name, got, err)
		}
		if !legal && !errors.Is(err, ErrBadRequest) {
			t.Errorf("%q: got %v, want bad_request", name, err)
		}
	}
}

func TestCollectionName(t *testing.T) {
	for name, legal := range map[string]bool{
		"orders": true, "Z": true, "0_-": true, strings.Repeat("a", 64): true,
		// "_" and "_invalid" are tokens of the log and must never be names.
		"_": false, "_invalid": false,
		"": false, "-a": false, "a.b": false, "a*": false, ">": false, "a b": false, "é": false, "a\x00": false,
		strings.Repeat("a", 65): false,
	} {
		got, err := ParseCollectionName(name)
		if legal && (err != nil || string(got) != name) {
			t.Errorf("%q: got %q, %v", name, got, err)
		}
		if !legal && !errors.Is(err, ErrBadRequest) {
			t.Errorf("%q: got %v, want bad_request", name, err)
		}
	}
}

func TestDocumentID(t *testing.T) {
	for _, test := range []struct {
		name, id string
		legal    bool
	}{
		{"empty", "", false},
		{"one byte", "a", true},
		{"255 bytes", strings.Repeat("a", 255), true},
		{"256 bytes", strings.Repeat("a", 256), false},
		{"255 bytes of three-byte runes", strings.Repeat("€", 85), true},
		{"256 bytes in 128 runes", strings.Repeat("é", 128), false},
		{"four-byte rune", "😀", true},
		{"space", " ", true},
		{"every NATS wildcard", "a.b.*.>", true},
		{"percent", "100%", true},
		{"slash, quote and backslash", `a/"b"\c`, true},
		{"replacement character itself", "\uFFFD", true},
		{"line separator, which is no control character", "\u2028", true},
		{"NUL", "a\x00", false},
		{"newline", "a\nb", false},
		{"unit separator, the last C0", "\x1f", false},
		{"tilde, the last before DEL", "~", true},
		{"DEL", "a\x7f", false},
		{"first C1", "a\u0080", false},
		{"last C1", "a\u009f", false},
		{"no-break space, the first after C1", "\u00a0", true},
		{"stray continuation byte", "a\x80", false},
		{"cut rune", "\xe2\x82", false},
		{"overlong slash", "\xc0\xaf", false},
		{"surrogate half", "\xed\xa0\x80", false},
		{"beyond Unicode", "\xf4\x90\x80\x80", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			id, err := ParseDocumentID(test.id)
			if !test.legal {
				if !errors.Is(err, ErrBadID) {
					t.Fatalf("got %v, want bad_id", err)
				}
				return
			}
			if err != nil || string(id) != test.id {
				t.Fatalf("got %q, %v", id, err)
			}
			if back, err := DecodeID(id.Token()); err != nil || back != id {
				t.Fatalf("token %q decodes to %q, %v", id.Token(), back, err)
			}
		})
	}
}

// TestDocumentIDControlCharacters: ids exclude exactly the control characters of
// Unicode's category Cc, by Unicode's tables.
func TestDocumentIDControlCharacters(t *testing.T) {
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if !utf8.ValidRune(r) {
			continue
		}
		if _, err := ParseDocumentID(string(r)); (err != nil) != unicode.IsControl(r) {
			t.Fatalf("%U: control %v, error %v", r, unicode.IsControl(r), err)
		}
	}
}

func TestToken(t *testing.T) {
	for id, token := range map[DocumentID]string{
		"SO05":          "SO05",
		"_-=:@~":        "_-=:@~",
		"83.149.9.216":  "83%2E149%2E9%2E216",
		"a b":           "a%20b",
		"*":             "%2A",
		">":             "%3E",
		"%":             "%25",
		"%2E":           "%252E",
		"ÿ":             "%C3%BF",
		"/customers/1?": "%2Fcustomers%2F1%3F",
	} {
		if got := id.Token(); got != token {
			t.Errorf("%q: got %q, want %q", id, got, token)
		}
	}
}

// TestTokenPlainBytes: exactly the bytes of the contract's set stay unescaped.
func TestTokenPlainBytes(t *testing.T) {
	const set = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-=:@~"
	for c := byte(0x20); c < 0x7f; c++ {
		id := DocumentID([]byte{c})
		want := fmt.Sprintf("%%%02X", c)
		if strings.IndexByte(set, c) >= 0 {
			want = string(id)
		}
		if got := id.Token(); got != want {
			t.Errorf("%q: got %q, want %q", id, got, want)
		}
	}
}

func TestDecodeID(t *testing.T) {
	for _, test := range []struct {
		name, token string
		id          DocumentID // "" for bad_id
	}{
		{"plain", "SO05", "SO05"},
		{"upper-case escape", "%C3%BF", "ÿ"},
		{"lower-case escape", "%c3%bf", "ÿ"},
		{"mixed-case escape", "%c3%Bf", "ÿ"},
		{"escape of a byte that needs none", "%41", "A"},
		{"escaped percent is not decoded twice", "%2541", "%41"},
		{"escape at the end", "a%2E", "a."},
		{"255 bytes, all escaped", strings.Repeat("%41", 255), DocumentID(strings.Repeat("A", 255))},

		{"empty", "", ""},
		{"256 bytes", strings.Repeat("a", 256), ""},
		{"256 bytes, all escaped", strings.Repeat("%41", 256), ""},
		{"percent alone", "%", ""},
		{"percent at the end", "a%", ""},
		{"one digit", "a%4", ""},
		{"no hex in first place", "%G1", ""},
		{"no hex in second place", "%1G", ""},
		{"percent percent", "%%41", ""},
		{"sign in an escape", "%+1", ""},
		{"raw dot", "a.b", ""},
		{"raw star", "a*", ""},
		{"raw greater", "a>", ""},
		{"raw space", "a b", ""},
		{"raw slash", "a/b", ""},
		{"raw plus", "a+b", ""},
		{"raw UTF-8", "é", ""},
		{"raw NUL", "a\x00", ""},
		{"escaped control character", "a%0Ab", ""},
		{"escaped DEL", "%7F", ""},
		{"escaped C1", "%C2%85", ""},
		{"escaped half of a rune", "%C3", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			id, err := DecodeID(test.token)
			if test.id == "" && !errors.Is(err, ErrBadID) {
				t.Fatalf("got %q, %v, want bad_id", id, err)
			}
			if test.id != "" && (err != nil || id != test.id) {
				t.Fatalf("got %q, %v, want %q", id, err, test.id)
			}
		})
	}
}

// TestInvalidNameErrorIsShort: the message that quotes a refused name stays short
// however long the name is, since it is logged.
func TestInvalidNameErrorIsShort(t *testing.T) {
	long := strings.Repeat("\x00", 1<<20)
	for _, parse := range []func(string) error{
		func(s string) error { _, err := ParseDatabaseName(s); return err },
		func(s string) error { _, err := ParseCollectionName(s); return err },
		func(s string) error { _, err := ParseDocumentID(s); return err },
		func(s string) error { _, err := DecodeID(s); return err },
		func(s string) error { _, err := DecodeID("%" + s); return err },
	} {
		if err := parse(long); err == nil || len(err.Error()) > 600 {
			t.Errorf("message of %d bytes", len(fmt.Sprint(err)))
		}
	}
}

// anyID draws legal ids, rich in the bytes that are special in subjects or JSON.
func anyID() *rapid.Generator[DocumentID] {
	r := rapid.OneOf(rapid.RuneFrom([]rune(`ab0_-=:@~.*> %/\"'<&`+"\u00a0€😀\uFFFD")), rapid.Rune())
	return rapid.Map(rapid.StringOfN(r, 1, -1, MaxIDBytes), func(s string) DocumentID { return DocumentID(s) }).
		Filter(func(id DocumentID) bool { _, err := ParseDocumentID(string(id)); return err == nil })
}

func TestEveryIDSurvivesItsToken(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := anyID().Draw(t, "id")
		token := id.Token()
		for i := 0; i < len(token); i++ {
			if c := token[i]; c != '%' && !plain(c) {
				t.Fatalf("%q has the raw byte %q", token, c)
			}
		}
		for _, spelling := range []string{token, strings.ToLower(token)} {
			// Lower case also changes unescaped letters: skip ids with upper case.
			if spelling != token && strings.ToLower(string(id)) != string(id) {
				continue
			}
			if back, err := DecodeID(spelling); err != nil || back != id {
				t.Fatalf("%q became %q, %v", spelling, back, err)
			}
		}
	})
}

func FuzzDecodeID(f *testing.F) {
	for _, seed := range []string{"SO05", "83%2E149", "%c3%bf", "%", "%4", "%zz", "a.b", "%00", "%C2%80", strings.Repeat("%41", 256)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, token string) {
		id, err := DecodeID(token)
		if err != nil {
			if !errors.Is(err, ErrBadID) {
				t.Fatalf("%q: %v is not bad_id", token, err)
			}
			return
		}
		if _, err := ParseDocumentID(string(id)); err != nil {
			t.Fatalf("%q gave the illegal id %q: %v", token, id, err)
		}
		if back, err := DecodeID(id.Token()); err != nil || back != id {
			t.Fatalf("%q became %q, then %q, %v", token, id, back, err)
		}
	})
}
