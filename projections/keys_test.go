package projections

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

// TestSuccessor: [prefix, successor(prefix)) holds exactly the keys with the prefix.
func TestSuccessor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		prefix := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 0xfe, 0xff}), 1, 4).Draw(t, "prefix")
		key := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 0xfe, 0xff}), 0, 6).Draw(t, "key")
		end := successor(prefix)
		before := end == nil || bytes.Compare(key, end) < 0
		if in := bytes.Compare(key, prefix) >= 0 && before; in != bytes.HasPrefix(key, prefix) {
			t.Errorf("%x in the range of %x: %t", key, prefix, in)
		}
	})
}
