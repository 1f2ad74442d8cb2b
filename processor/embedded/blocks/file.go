package blocks

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// span is a range of sequences, both ends included.
type span struct{ First, Last uint64 }

// summary describes the content of one file. The exported fields are in the cache file, as
// JSON; a change of their meaning needs another knownFormat. A damaged file is never
// cached, so the others need not be.
type summary struct {
	Index uint32
	Stamp string // of the file as it was read

	Records     int    // sound ones
	First, Last uint64 // messages, 0 if there is none
	Lost        uint64 // where the gap before the first message begins, by that message
	Gaps        []span // between messages, which nothing in the file explains
	Removed     []span // by tombstones, or erased
	Trimmed     uint64 // the highest first sequence of a LogTrimmed
	Judged      uint64 // the last mutation that has an event

	bad   int64  // offset of the first damaged record, -1 for none
	later uint64 // the last sound message after bad, 0 for none
	sound bool   // whether there is a sound record after bad
	torn  bool   // see reader.torn
}

// noteOf has the fields of internal events that matter here.
type noteOf struct {
	Lost  uint64 `json:"lost"`  // of a WriterStarted: where the gap before it begins
	First uint64 `json:"first"` // of a LogTrimmed: where the log is to begin
}

const (
	writerStarted = "_.WriterStarted"
	logTrimmed    = "_.LogTrimmed"
	causeHeader   = "\r\nLapse-Cause: mutations/"
)

// summarize reads a file from end to end. At the first unsound record it searches for sound
// ones after it: they tell damage in the middle from a torn end.
func (c *check) summarize(name string, index uint32) (*summary, error) {
	buf, err := os.ReadFile(filepath.Join(c.dir, name))
	if err != nil {
		return nil, err
	}
	s := &summary{Index: index, bad: -1}
	r := newReader(c.stream, index, buf, c.events)
	for offset := 0; offset < len(buf); {
		rec, sound := r.recordAt(offset)
		if !sound {
			return s, c.damaged(s, r, offset)
		}
		s.add(&rec, r.isEvent(&rec), c.events)
		offset += rec.bytes
	}
	return s, nil
}

// damaged notes the damage at offset and searches for sound records after it, byte by byte,
// since no length there can be trusted. A sound record has a checksum of 64 bits, so what
// is found is one.
func (c *check) damaged(s *summary, r *reader, offset int) error {
	s.bad, s.torn = int64(offset), r.torn(offset)
	for {
		at, found := r.next(offset, max(s.Last, s.later))
		if !found {
			return nil
		}
		rec, _ := r.recordAt(at)
		s.sound = true
		if !rec.tomb {
			s.later = max(s.later, rec.seq)
		}
		offset = at + rec.bytes - 1
	}
}

// add adds a sound record. Of a log it also reads what explains gaps, and which mutations
// were judged.
func (s *summary) add(rec *record, event bool, events string) {
	s.Records++
	if rec.tomb || rec.erased {
		s.remove(rec.seq)
		return
	}
	if rec.seq <= s.Last {
		return // NATS passes over it, too
	}
	var note noteOf
	if event {
		switch subject := rec.subject[len(events):]; {
		case string(subject) == writerStarted, string(subject) == logTrimmed:
			_ = json.Unmarshal(rec.body, &note)
		}
		if _, cause, ok := bytes.Cut(rec.header, []byte(causeHeader)); ok {
			digits, _, _ := bytes.Cut(cause, []byte("\r\n"))
			if n, err := strconv.ParseUint(string(digits), 10, 64); err == nil {
				s.Judged = n
			}
		}
	}
	s.Trimmed = max(s.Trimmed, note.First)
	switch {
	case s.First == 0:
		s.First, s.Lost = rec.seq, note.Lost
	case rec.seq != s.Last+1 && (note.Lost == 0 || note.Lost > s.Last+1):
		s.Gaps = append(s.Gaps, span{s.Last + 1, rec.seq - 1})
	}
	s.Last = rec.seq
}

func (s *summary) remove(seq uint64) {
	if n := len(s.Removed); n > 0 && s.Removed[n-1].Last+1 == seq {
		s.Removed[n-1].Last = seq
		return
	}
	s.Removed = append(s.Removed, span{seq, seq})
}

// indexOf returns the number in the name of a file with messages: 7 of 7.blk. Names that
// NATS would not write, such as 07.blk, are none.
func indexOf(name string) (index uint32, ok bool) {
	digits, ok := strings.CutSuffix(name, ".blk")
	n, err := strconv.ParseUint(digits, 10, 32)
	return uint32(n), ok && err == nil && name == fileName(uint32(n))
}

func fileName(index uint32) string { return fmt.Sprintf("%d.blk", index) }
