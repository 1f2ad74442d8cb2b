package schema

import (
	"strings"
	"testing"
	"time"
)

func TestParseMutationLine(t *testing.T) {
	at, m, err := ParseMutationLine([]byte(` { "at":"2015-05-17T12:05:03.5+02:00", "op":"document.upsert","collection":"sessions",
		"id":"83.149\u002e9.216","ifMatch":"12","body":{"n": 1} } `))
	if err != nil || m.Fault != nil {
		t.Fatal(err, m.Fault)
	}
	if want := time.Date(2015, 5, 17, 10, 5, 3, 500_000_000, time.UTC); !at.Equal(want) {
		t.Errorf("at %s, want %s", at, want)
	}
	if m.Op != DocumentUpsert || m.Collection != "sessions" || m.ID != "83.149.9.216" || m.IfMatch != "12" ||
		string(m.Document.Body) != `{"id":"83.149.9.216","n":1}` {
		t.Errorf("got %+v", m)
	}
}

func TestParseMutationLineFaults(t *testing.T) {
	for line, want := range map[string]string{
		``:                                    "an object expected",
		`{"at":"2015-05-17T10:05:03Z"`:        "ends early",
		`{}`:                                  `at is ""`,
		`{"at":"yesterday"}`:                  "give a time like",
		`{"at":"1969-12-31T23:59:59Z"}`:       "before 1970",
		`{"at":1431857103}`:                   "at: 1431857103 is no string",
		`{"at":"2015-05-17T10:05:03Z","x":1}`: `unknown member "x"`,
		`{"at":"2015-05-17T10:05:03Z"} {}`:    "the end expected",
	} {
		if _, _, err := ParseMutationLine([]byte(line)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", line, err, want)
		}
	}
	// A line that is one, with a mutation that is none, is judged like any other.
	_, m, err := ParseMutationLine([]byte(`{"at":"2015-05-17T10:05:03Z","op":"document.frob","collection":"a b"}`))
	if err != nil || m.Fault == nil || m.Fault.Code != 400 {
		t.Errorf("got %v, %v", err, m)
	}
}
