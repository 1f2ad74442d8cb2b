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
	const most = 6 // with the race detector more escapes to the heap
	body := largeBody
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
			n := allocated(func() {
				if operation == "batch" {
					_, _ = ParseBatch("c", raw)
				} else {
					NewMutation(operation+".c.x", raw)
				}
			})
			if n > most*len(raw) {
				t.Errorf("%s %.60s…: %d bytes allocated for %d", operation, raw, n, len(raw))
			}
		}
	}
}

// TestPatchAllocatesLittle: so does applying a patch, which the writer does.
func TestPatchAllocatesLittle(t *testing.T) {
	const most = 10
	for _, patch := range [][]byte{
		largeBody(`{`, `"%":0,`, `}`),
		largeBody(`{`, `"%":{},`, `}`),
		largeBody(`{`, `"a":0,`, `}`),
		largeBody(`{`, `"%":null,`, `}`),
		largeBody(`{`, `"\u0061%" :{},`, `}`),
		largeBody(`{"a":{`, `"%":{"":0},`, `}}`),
		largeBody(`{`, `"%":`+strings.Repeat(`{"":`, 100)+`0`+strings.Repeat(`}`, 100)+`,`, `}`),
		largeBody(`{"a":"`, `:,`, `"}`),
		largeBody(`{"a":[`, `{"":0},`, `]}`),
	} {
		for _, body := range [][]byte{[]byte(`{"id":"x"}`), append([]byte(`{"id":"x",`), patch[1:]...)} {
			var fault *Error
			n := allocated(func() { _, fault = Patch("x", body, patch) })
			if fault != nil || n > most*(len(body)+len(patch)) {
				t.Errorf("%.40s… with %.40s…: %d bytes allocated for %d, %v", body, patch, n, len(body)+len(patch), fault)
			}
		}
	}
}

// TestPatchOfEqualNames: a document that has one name many times takes the changes of an object
// each time. That ends where the result is too large.
func TestPatchOfEqualNames(t *testing.T) {
	body := largeBody(`{"id":"x",`, `"a":{},`, `}`)
	patch := []byte(`{"a":{"b":"` + strings.Repeat("x", 1<<16) + `"}}`) // with all of them 2.5 GB
	var fault *Error
	n := allocated(func() { _, fault = Patch("x", body, patch) })
	if fault == nil || fault.Code != 413 || n > 10*MaxDocumentBytes {
		t.Errorf("%d bytes allocated, %v", n, fault)
	}
}

// largeBody returns before, parts in which % is their number, and after: 256 KiB.
func largeBody(before, part, after string) []byte {
	b := []byte(before)
	for i := 0; len(b) < 1<<18-2*len(part)-100; i++ {
		b = append(b, strings.ReplaceAll(part, "%", strconv.Itoa(i))...)
	}
	return append(b[:len(b)-1], after...)
}

// allocated returns the bytes that f allocates.
func allocated(f func()) int {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int(after.TotalAlloc - before.TotalAlloc)
}
