package main

import (
	"strings"
	"testing"
)

// TestReport: it prints the output of failed tests only, writes one line for each test,
// and fails if a package fails.
func TestReport(t *testing.T) {
	const in = `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA/x","Output":"quiet\n"}
{"Action":"pass","Package":"p","Test":"TestA/x","Elapsed":1}
{"Action":"pass","Package":"p","Test":"TestA","Elapsed":1.25}
{"Action":"skip","Package":"p","Test":"TestS","Elapsed":0}
{"Action":"output","Package":"p","Output":"ok  \tp\t1.3s\n"}
{"Action":"pass","Package":"p","Elapsed":1.3}
`
	const failing = `{"Action":"output","Package":"q","Test":"TestB","Output":"b.go:1: wrong\n"}
{"Action":"fail","Package":"q","Test":"TestB","Elapsed":2}
{"Action":"output","Package":"q","Test":"TestHung","Output":"hung here\n"}
{"Action":"output","Package":"q","Output":"FAIL\tq\t2s\n"}
{"Action":"fail","Package":"q","Elapsed":2}
`
	var out, times strings.Builder
	if err := report(strings.NewReader(in), &out, &times); err != nil || out.String() != "ok  \tp\t1.3s\n" || times.String() != "1.2 p TestA\nskip p TestS\n" {
		t.Errorf("%v\n%s%s", err, &out, &times)
	}
	out.Reset()
	if err := report(strings.NewReader(failing), &out, &times); err == nil || out.String() != "b.go:1: wrong\nFAIL\tq\t2s\nhung here\n" {
		t.Errorf("%v\n%s", err, &out)
	}
}
