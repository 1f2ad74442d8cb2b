package test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"os"
	"testing"
	"time"
)

// hit is one line of testdata/hits.ndjson.gz: a request of a web client, which
// keeps the session of its address alive.
type hit struct {
	At   time.Time       `json:"at"`
	ID   string          `json:"id"`
	Body json.RawMessage `json:"body"`
}

// readHits returns the hits and the file they came from, unpacked.
func readHits(t testing.TB) (hits []hit, lines []byte) {
	t.Helper()
	file, err := os.Open("testdata/hits.ndjson.gz")
	check(t, err)
	defer file.Close()
	unpacked, err := gzip.NewReader(file)
	check(t, err)
	var all bytes.Buffer
	if _, err := all.ReadFrom(unpacked); err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(all.Bytes()) {
		var h hit
		check(t, json.Unmarshal(line, &h))
		h.Body = compact(t, h.Body)
		hits = append(hits, h)
	}
	return hits, all.Bytes()
}

// compact returns a JSON document as lapse stores it: as sent, without white space.
func compact(t testing.TB, body []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	check(t, json.Compact(&b, body))
	return b.Bytes()
}

// session is a period in which no gap between the hits of an address was as long as its
// TTL.
type session struct {
	id       string
	hits     int
	deadline int64 // seconds since 1970
	last     string
}

// sessionsOf finds the sessions in the hits, by their gaps alone. It uses nothing of
// lapse, so that tests can compare lapse with it.
func sessionsOf(hits []hit, ttl int64) (sessions []session) {
	open := make(map[string]*session)
	for _, h := range hits {
		s := open[h.ID]
		if s != nil && s.deadline <= h.At.Unix() {
			sessions = append(sessions, *s)
			s = nil
		}
		if s == nil {
			s = &session{id: h.ID}
			open[h.ID] = s
		}
		s.hits++
		s.deadline = h.At.Unix() + ttl
		s.last = string(h.Body)
	}
	for _, s := range open {
		sessions = append(sessions, *s)
	}
	return sessions
}
