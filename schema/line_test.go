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
		``:                                    `at is ""`,
		`[]`:                                  "an object expected",
		`{"at":"2015-05-17T10:05:03Z"`:        "ends early",
		`{}`:                                  `at is ""`,
		`{"at":"yesterday"}`:                  "give a time like",
		`{"at":"1969-12-31T23:59:59Z"}`:       "before 1970",
		`{"at":1431857103}`:                   "at 1431857103: use a string",
		`{"at":"2015-05-17T10:05:03Z","x":1}`: `unknown member "x"`,
		`{"at":"2015-05-17T10:05:03Z"} {}`:    "the end expected",
		`{"at":"2015-05-17T10:05:03Z","op":"document.delete","ifMatch":"7","ifMatch":""}`: "the member ifMatch of the line comes twice",
		`{"at":"2015-05-17T10:05:03Z","body":{},"b\u006fdy":{"n":1}}`:                     "the member body of the line comes twice",
	} {
		if _, _, err := ParseMutationLine([]byte(line)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", line, err, want)
		}
	}
	// A valid line with a malformed mutation returns the mutation with its Fault.
	_, m, err := ParseMutationLine([]byte(`{"at":"2015-05-17T10:05:03Z","op":"document.frob","collection":"a b"}`))
	if err != nil || m.Fault == nil || m.Fault.Code != 400 {
		t.Errorf("got %v, %v", err, m)
	}
}

// TestParseEventLineFaults: the error of a line that is JSON comes with the line's
// sequence, so that a reader can continue after it.
func TestParseEventLineFaults(t *testing.T) {
	const head = `{"seq":7,"time":"2015-05-17T10:05:03.000Z","type":"DocumentDeleted","collection":"orders","id":"a","previous":6`
	for line, want := range map[string]struct {
		seq   uint64
		fault string
	}{
		`hello`:                          {0, "an object expected"},
		head:                             {0, "ends early"},
		head + `} {}`:                    {0, "the end expected"},
		`{"time":1}`:                     {0, "no seq"},
		`{"seq":-7}`:                     {0, "no seq"},
		head + `,"previous":"6"}`:        {7, `previous: "6" is not a whole number`},
		head + `,"previous":6.5}`:        {7, "6.5 is not a whole number"},
		head + `,"collection":5}`:        {7, "collection: 5 is no string"},
		head + `,"id":"\ud800"}`:         {7, "half a surrogate pair"},
		head + `,"time":"yesterday"}`:    {7, "not one like"},
		head + `,"type":"Renamed"}`:      {7, `unknown type "Renamed"`},
		head + `,"body":[]}`:             {7, "not an object"},
		head + `,"previous":0}`:          {7, "ends no version"},
		head + `,"cause":"mutations/x"`:  {0, "ends early"},
		head + `,"cause":"mutations/x"}`: {7, "is not mutations/<sequence>"},
	} {
		if seq, e, err := ParseEventLine([]byte(line)); e != nil || seq != want.seq || err == nil || !strings.Contains(err.Error(), want.fault) {
			t.Errorf("%s: got %d, %+v, %v, want %d, %s", line, seq, e, err, want.seq, want.fault)
		}
	}
	if seq, e, err := ParseEventLine([]byte(" " + head + `, "new": [1] } `)); seq != 7 || err != nil || e.Previous != 6 {
		t.Errorf("got %d, %+v, %v", seq, e, err)
	}
}
