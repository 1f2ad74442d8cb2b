package schema

import (
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// TestParsersAllocateLittle: parsing allocates a few times the size of a body, whatever the
// body is, so that the limit of bytes of requests is one of memory.
func TestParsersAllocateLittle(t *testing.T) {
	const size, most = 1 << 18, 6 // with the race detector more escapes to the heap
	body := func(before, part, after string) []byte {
		b := []byte(before)
		for i := 0; len(b) < size-100; i++ {
			b = append(b, strings.ReplaceAll(part, "%", strconv.Itoa(i))...)
		}
		return append(b[:len(b)-1], after...)
	}
	for _, raw := range [][]byte{
		body(`{"a":[`, `0,`, `]}`),
		body(`{"a":[`, `0 ,`, `]}`),
		body(`{`, `"\u0061%" :{},`, `}`),
		body(`{"id":"`, `\u0061,`, `"}`),
		body(`{"ttl":[`, `0,`, `]}`),
		body(`{"version":"`, `\n,`, `"}`),
		body(`{"reason":"`, `\n,`, `"}`),
		body(`{"operations":[`, `0,`, `]}`),
		body(`{"operations":[`, `{},`, `]}`),
		body(`{"operations":[`, `[],`, `],"atomic":true}`),
		body(`{"operations":[{"op":"get","id":"`, `\n,`, `"}]}`),
		[]byte(`{"operations":[` + strings.Repeat(`{"op":"create","id":"a","body":{`+strings.Repeat(`"\u0061": 0,`, 100)+`"b":0}},`, 999) + `0]}`),
		body(`{"indexingPolicy":{"includedPaths":[`, `{"path":"/a"},`, `]}}`),
	} {
		for _, operation := range append([]string{"batch"}, opNames[1:]...) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if operation == "batch" {
				_, _ = ParseBatch("c", raw)
			} else {
				NewMutation(operation+".c.x", raw)
			}
			runtime.ReadMemStats(&after)
			if n := after.TotalAlloc - before.TotalAlloc; n > uint64(most*len(raw)) {
				t.Errorf("%s %.60s…: %d bytes allocated for %d", operation, raw, n, len(raw))
			}
		}
	}
}
