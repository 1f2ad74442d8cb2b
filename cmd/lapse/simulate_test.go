package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// simulated runs simulate on an input and returns its exit code and standard error.
func simulated(t *testing.T, in io.Reader, out io.Writer, args ...string) (code int, complaint string) {
	t.Helper()
	var stderr bytes.Buffer
	code = newApp(in, out, &stderr).run(t.Context(), append([]string{"simulate"}, args...))
	return code, stderr.String()
}

const createC = `{"at":"2015-05-17T10:00:00Z","op":"collection.create","collection":"c","body":{"defaultTtl":60}}` + "\n"

// upserts returns lines 1 ms apart, numbered from first.
func upserts(first, n int) string {
	var b strings.Builder
	for i := range n {
		at := time.Date(2015, 5, 17, 10, 0, 0, (first+i)*1e6, time.UTC).Format(time.RFC3339Nano)
		fmt.Fprintf(&b, `{"at":%q,"op":"document.upsert","collection":"c","id":"d%d","body":{}}`+"\n", at, (first+i)%100)
	}
	return b.String()
}

// TestSimulateReadSizes: the log does not depend on the size of reads. A faulty line is
// named, and the events before it are printed.
func TestSimulateReadSizes(t *testing.T) {
	before := createC + upserts(2, 1500)
	for _, test := range []struct {
		name, after, complaint string
		code, events           int
	}{
		{"whole", upserts(1502, 1500), "", exitDone, 3001 + 100},
		{"no line", "poison\n" + upserts(1503, 2000), "line 1502: ", exitFailed, 1501},
		{"no line at the end", "poison", "line 1502: ", exitFailed, 1501},
		{"back in time", upserts(1, 1) + upserts(1503, 2000), "line 1502: the time goes back", exitFailed, 1501},
		{"no line after a time that goes back", upserts(1, 1) + "poison\n", "line 1502: the time goes back", exitFailed, 1501},
		{"empty lines", "\n\n\r\npoison\n", "line 1505: ", exitFailed, 1501},
		{"too long", strings.Repeat("x", 17<<20), "line 1502 is longer", exitFailed, 1501},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, piece := range []int{100, 10_000, 1 << 30} {
				if piece == 100 && len(test.after) > 1<<20 {
					continue // each read scans the whole line again
				}
				var out bytes.Buffer
				in := &pieces{rest: []byte(before + test.after), size: piece}
				code, complaint := simulated(t, in, &out)
				if events := strings.Count(out.String(), "\n"); code != test.code || events != test.events || !strings.Contains(complaint, test.complaint) || (complaint == "") != (test.complaint == "") {
					t.Errorf("in pieces of %d: code %d, %d events, it says %q; want %d, %d, %q", piece, code, events, complaint, test.code, test.events, test.complaint)
				}
			}
		})
	}
}

// pieces is a reader that returns at most size bytes at a time.
type pieces struct {
	rest []byte
	size int
	end  error // error at the end; nil for io.EOF
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.rest) == 0 {
		if p.end != nil {
			return 0, p.end
		}
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), p.size)], p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

// TestSimulateUntilStopsParsing: lines after --until are not parsed.
func TestSimulateUntilStopsParsing(t *testing.T) {
	var out bytes.Buffer
	code, complaint := simulated(t, strings.NewReader(createC+upserts(2, 2000)+"poison\n"), &out, "--until", "2015-05-17T10:00:01Z")
	if events := strings.Count(out.String(), "\n"); code != exitDone || events != 1000 {
		t.Errorf("code %d, %d events, it says %q", code, events, complaint)
	}
}

// TestSimulateReportsErrorBeforeEOF: a faulty line is reported even if the input stays open and
// nothing follows.
func TestSimulateReportsErrorBeforeEOF(t *testing.T) {
	for name, line := range map[string]string{"no line": "poison\n", "back in time": upserts(1, 1)} {
		in, more := io.Pipe()
		go func() { _, _ = io.WriteString(more, createC+upserts(2, 3)+line) }()
		var out bytes.Buffer
		if code, complaint := simulated(t, in, &out); code != exitFailed || !strings.Contains(complaint, "line 5") || strings.Count(out.String(), "\n") != 4 {
			t.Errorf("%s: code %d, it says %q after\n%s", name, code, complaint, &out)
		}
		_ = in.Close() // ends the pending read of the goroutine left behind
	}
}

// TestSimulateIOErrors: a failed read or write is reported, and no goroutine keeps waiting
// for it.
func TestSimulateIOErrors(t *testing.T) {
	broken := errors.New("the disk is gone")
	var out bytes.Buffer
	in := &pieces{rest: []byte(createC + upserts(2, 1000)), size: 1 << 20, end: broken}
	if code, complaint := simulated(t, in, &out); code != exitFailed || !strings.Contains(complaint, "disk is gone") || strings.Count(out.String(), "\n") != 1001 {
		t.Errorf("code %d, it says %q after %d events", code, complaint, strings.Count(out.String(), "\n"))
	}
	for _, lines := range []int{1, 100_000} {
		code, complaint := simulated(t, strings.NewReader(createC+upserts(2, lines)), failing{broken})
		if code != exitFailed || complaint != "lapse: the disk is gone\n" {
			t.Errorf("of %d lines: code %d, it says %q", lines, code, complaint)
		}
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
