package query

import (
	"bytes"
	"encoding/base64"
	"testing"
)

// FuzzCursor: open accepts only texts that seal makes, and reads any payload with a valid
// code without harm.
func FuzzCursor(f *testing.F) {
	s := sealer{[]byte("secret")}
	r := &request{where: "doc.n > 1", orderBy: []order{{path: []string{"n"}}}}
	f.Add(s.seal(7, r, position{[]byte("key"), []byte("id")}), []byte("\x03keyid"))
	f.Add("", []byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	f.Fuzz(func(t *testing.T, text string, payload []byte) {
		r.cursor = text
		if p, ok := s.open(7, r); ok && s.seal(7, r, p) != text {
			t.Fatalf("%q is accepted as %v", text, p)
		}
		payload = append([]byte{cursorVersion}, payload...)
		r.cursor = base64.RawURLEncoding.EncodeToString(append(s.code(7, r, payload), payload...))
		if p, ok := s.open(7, r); ok && !bytes.HasSuffix(payload, append(bytes.Clone(p.key), p.id...)) {
			t.Fatalf("%q holds %v", payload, p)
		}
		if _, ok := s.open(8, r); ok {
			t.Fatal("a cursor of another collection is accepted")
		}
	})
}
