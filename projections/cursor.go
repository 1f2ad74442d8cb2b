package projections

import (
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/cespare/xxhash/v2"
	"github.com/lapsedb/lapse/schema"
)

// formatVersion is the version of KEYS.md, that of 0.3.0. Open refuses any other.
const formatVersion = 6

// Cursor says which log was folded and how far. It is written in the batch of the
// state that it describes.
type Cursor struct {
	Format int `json:"format"`
	// Stream identifies the log. It differs for a stream that was deleted and created
	// again under the same name.
	Stream string `json:"stream"`
	Seq    uint64 `json:"seq"`  // the last sequence folded
	Time   int64  `json:"time"` // log time there, ms since 1970
	// Last is the last event folded that is not internal, Padded the last
	// LogPadded of those that fill a file.
	Last   uint64 `json:"last"`
	Padded uint64 `json:"padded,omitempty"`
	// Mutations is the last sequence of the mutations stream that was judged.
	Mutations uint64 `json:"mutations"`
	// Hash is the Chain of all events folded, Before that without the last event:
	// with the log's last event, Check verifies that this is the log that was folded.
	Hash   uint64 `json:"hash,string"`
	Before uint64 `json:"before,string"`
	// Foreign counts messages of the log that are not events, and events that
	// contradict earlier ones. They change nothing but the cursor.
	Foreign uint64 `json:"foreign"`
}

// Check reports whether e, the log's message at c.Seq, is the event folded there.
func (c Cursor) Check(e *schema.Event) bool {
	return e.Seq == c.Seq && Chain(c.Before, e) == c.Hash
}

// Chain returns the running hash of a log up to event e, given the hash before e, 0
// at the beginning. It covers every part of an event but Content, which follows from
// earlier events.
func Chain(before uint64, e *schema.Event) uint64 {
	b := make([]byte, 0, 256)
	for _, n := range [...]uint64{before, e.Seq, uint64(e.Time), uint64(e.Previous), e.Cause,
		uint64(e.Deadline.At), uint64(e.Deadline.TTL), uint64(e.Deadline.Rule), uint64(e.Type),
		uint64(len(e.Collection)), uint64(len(e.ID)), uint64(len(e.MsgID))} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	if e.Restored != 0 { // only if set: older logs keep their hash
		b = binary.BigEndian.AppendUint64(b, uint64(e.Restored))
	}
	var h xxhash.Digest
	h.Reset()
	h.Write(b)
	h.WriteString(string(e.Collection))
	h.WriteString(string(e.ID))
	h.WriteString(e.MsgID)
	h.Write(e.Body)
	return h.Sum64()
}

// encode returns the value of the key M, as in
//
//	{"format":6,"stream":"…","seq":42,"time":1767225600123,"last":41,"mutations":0,"hash":"…","before":"…","foreign":0}
//
// Hashes are strings, since a reader of JSON may keep only 53 bits of a number.
func (c Cursor) encode() []byte {
	value, _ := json.Marshal(c)
	return value
}

// decodeCursor refuses another format: its keys may mean something else here. The caller
// removes the projection and folds the log again, as after damage.
func decodeCursor(value []byte) (c Cursor, err error) {
	if err := json.Unmarshal(value, &c); err != nil {
		return c, fmt.Errorf("projection: cursor: %w", err)
	}
	if c.Format != formatVersion {
		return c, fmt.Errorf("projection: format %d on disk, this version writes %d", c.Format, formatVersion)
	}
	return c, nil
}
