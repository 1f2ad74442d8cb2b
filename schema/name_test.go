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

// checkNames checks which names a parser accepts.
func checkNames[T ~string](t *testing.T, parse func(string) (T, error), legal, illegal []string) {
	t.Helper()
	for _, name := range legal {
		if got, err := parse(name); err != nil || string(got) != name {
			t.Errorf("%q: got %q, %v", name, got, err)
		}
	}
	for _, name := range illegal {
		if got, err := parse(name); !errors.Is(err, ErrBadRequest) {
			t.Errorf("%q: got %q, %v, want bad_request", name, got, err)
		}
	}
}

func TestNames(t *testing.T) {
	checkNames(t, ParseDatabaseName, []string{"main", "0", "a-b-", strings.Repeat("a", 32)},
		[]string{"", "-a", "Main", "a_b", "a.b", "é", "a\n", strings.Repeat("a", 33)})
	// "_" and "_invalid" are tokens of the log and must never be names.
	checkNames(t, ParseCollectionName, []string{"orders", "Z", "0_-", strings.Repeat("a", 64)},
		[]string{"_", "_invalid", "", "-a", "a.b", "a*", ">", "a b", "é", "a\x00", strings.Repeat("a", 65)})
}

func TestDocumentID(t *testing.T) {
	for _, legal := range []string{"a", strings.Repeat("a", 255), strings.Repeat("€", 85), "😀", " ", "a.b.*.>", "100%", `a/"b"\c`, "\uFFFD", "~"} {
		id, err := ParseDocumentID(legal)
		if err != nil || string(id) != legal {
			t.Errorf("%q: got %q, %v", legal, id, err)
		}
		if back, err := DecodeID(id.Token()); err != nil || back != id {
			t.Errorf("token %q decodes to %q, %v", id.Token(), back, err)
		}
	}
	for _, illegal := range []string{"", strings.Repeat("a", 256), strings.Repeat("é", 128), "a\x00", "a\nb", "a\x7f", "a\u0080",
		// Not UTF-8: a stray byte, half a rune, an overlong slash, half a surrogate pair, beyond Unicode.
		"a\x80", "\xe2\x82", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80"} {
		if id, err := ParseDocumentID(illegal); !errors.Is(err, ErrBadID) {
			t.Errorf("%q: got %q, %v, want bad_id", illegal, id, err)
		}
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
	for token, want := range map[string]DocumentID{
		"SO05": "SO05", "%C3%BF": "ÿ", "%c3%bf": "ÿ", "%c3%Bf": "ÿ", "%41": "A", "a%2E": "a.", strings.Repeat("%41", 255): DocumentID(strings.Repeat("A", 255)),
		"%2541": "%41", // it is not decoded twice
	} {
		if id, err := DecodeID(token); err != nil || id != want {
			t.Errorf("%q: got %q, %v, want %q", token, id, err, want)
		}
	}
	for _, illegal := range []string{"", strings.Repeat("a", 256), strings.Repeat("%41", 256), "%", "a%", "a%4", "%G1", "%1G", "%%41", "%+1",
		"a.b", "a*", "a>", "a b", "a/b", "a+b", "é", "a\x00", "a%0Ab", "%7F", "%C2%85", "%C3"} {
		if id, err := DecodeID(illegal); !errors.Is(err, ErrBadID) {
			t.Errorf("%q: got %q, %v, want bad_id", illegal, id, err)
		}
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
