package projections

import (
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/cespare/xxhash/v2"

	"github.com/lapsedb/lapse/schema"
)

// Meta describes a document without its content.
type Meta struct {
	Version schema.Version
	TS      int64 // seconds since 1970 of the last modification
	TTL     schema.TTL
	Size    int64  // bytes of JSON
	Sum     uint64 // SumOf the JSON
	Held    bool   // it has no deadline and cannot be deleted

	// Content is the version whose event has the content, or the oldest one known with
	// the same content; 0 if that is Version. Only a Meta of a document has it, not one
	// of an index or expiry entry.
	Content schema.Version
}

// SumOf returns the hash of a document's JSON for the digest.
func SumOf(body []byte) uint64 { return xxhash.Sum64(body) }

// Deadline applies the collection's policy to the document.
func (m Meta) Deadline(c *schema.Collection) schema.Deadline {
	if m.Held {
		return schema.Deadline{}
	}
	return schema.DeadlineOf(c.DefaultTTL, m.TTL, m.TS)
}

// heldTTL is added to the ttl of a held document where a Meta is written. A legal ttl is
// at most 2^31-1. So heldTTL, contentTTL and their sum differ in size, and a document
// without hold or touch needs no byte for either.
const heldTTL = 1 << 40

// writtenTTL returns the ttl as written in D and V.
func (m Meta) writtenTTL() int64 {
	if m.Held {
		return int64(m.TTL) + heldTTL
	}
	return int64(m.TTL)
}

// readTTL is the inverse of writtenTTL.
func readTTL(written int64) (ttl schema.TTL, held bool) {
	if written > heldTTL/2 {
		return schema.TTL(written - heldTTL), true
	}
	return schema.TTL(written), false
}

// ContentVersion returns the version whose event has the content, or the oldest one known
// with the same content.
func (m Meta) ContentVersion() schema.Version {
	if m.Content != 0 {
		return m.Content
	}
	return m.Version
}

// Touched returns the Meta after a DocumentTouched. Logs of older versions do not name the
// content: then it is that of the version before.
func (m Meta) Touched(e *schema.Event) Meta {
	if m.Content = m.ContentVersion(); e.Content != 0 {
		m.Content = e.Content
	}
	m.Version, m.TS = schema.Version(e.Seq), e.Time/1000
	return m
}

// Record is a document as the projection holds it.
type Record struct {
	Meta
	Body []byte // JSON with its id, without system properties
}

// contentTTL is added to the ttl in a head that names the version of the content.
const contentTTL = 1 << 42

// appendHead appends the parts of a document that change while its content stays.
func appendHead(dst []byte, m Meta) []byte {
	dst = binary.AppendUvarint(dst, uint64(m.Version))
	dst = binary.AppendUvarint(dst, uint64(m.TS))
	if m.Content == 0 {
		return binary.AppendVarint(dst, m.writtenTTL())
	}
	dst = binary.AppendVarint(dst, m.writtenTTL()+contentTTL)
	return binary.AppendUvarint(dst, uint64(m.Content))
}

// decodeHead reads what appendHead wrote at the beginning of a value, and returns its
// length. The Size and Sum of m are not set: they follow the head, see decodeRecord.
func decodeHead(value []byte) (m Meta, n int, err error) {
	malformed := false
	read := func(size int) {
		malformed = malformed || size <= 0
		n += max(size, 0)
	}
	version, size := binary.Uvarint(value)
	read(size)
	ts, size := binary.Uvarint(value[n:])
	read(size)
	written, size := binary.Varint(value[n:])
	read(size)
	var content uint64
	if written > contentTTL/2 {
		written -= contentTTL
		content, size = binary.Uvarint(value[n:])
		read(size)
	}
	if malformed {
		return Meta{}, 0, fmt.Errorf("projection: malformed head %x of a document", value[:min(len(value), 32)])
	}
	m = Meta{Version: schema.Version(version), TS: int64(ts), Content: schema.Version(content)}
	m.TTL, m.Held = readTTL(written)
	return m, n, nil
}

// appendRecord appends the value of a key D:
//
//	version uvarint | _ts uvarint | ttl varint [| content uvarint] | sum, 8 bytes | JSON
//
// For version 3 at 1767225600 s, which inherits its ttl: 03 80a2d6ca06 00, the sum,
// {"id":"s1",…}.
func appendRecord(dst []byte, m Meta, body []byte) []byte {
	dst = binary.BigEndian.AppendUint64(appendHead(dst, m), m.Sum)
	return append(dst, body...)
}

// decodeRecord reads a document value; the result shares its memory.
func decodeRecord(value []byte) (Record, error) {
	m, n, err := decodeHead(value)
	if err != nil || len(value) < n+8 {
		return Record{}, fmt.Errorf("projection: malformed document value %x", value[:min(len(value), 32)])
	}
	body := value[n+8:]
	m.Size, m.Sum = int64(len(body)), binary.BigEndian.Uint64(value[n:])
	return Record{Meta: m, Body: body}, nil
}

// collectionRecord is the value of a collection key.
type collectionRecord struct {
	Incarnation    uint64              `json:"incarnation"`
	Version        schema.Version      `json:"version"`
	Time           int64               `json:"time"`
	DefaultTTL     schema.DefaultTTL   `json:"defaultTtl"`
	IndexingMode   schema.IndexingMode `json:"indexingMode"`
	IncludedPaths  []string            `json:"includedPaths,omitempty"`
	PreviousImages bool                `json:"previousImages"`
	WarnBefore     int32               `json:"warnBefore,omitempty"`
	Metadata       map[string]string   `json:"metadata,omitempty"`
}

// encodeCollection returns the value of a key C. The name is in the key. The digest covers
// these bytes: a field that is added has to be omitted when it is empty, or digests of
// older logs change.
func encodeCollection(c *schema.Collection) []byte {
	value, _ := json.Marshal(collectionRecord{c.Incarnation, c.Version, c.Time,
		c.DefaultTTL, c.IndexingMode, c.IncludedPaths, c.PreviousImages, c.WarnBefore, c.Metadata})
	return value
}

func decodeCollection(name schema.CollectionName, value []byte) (*schema.Collection, error) {
	var r collectionRecord
	if err := json.Unmarshal(value, &r); err != nil {
		return nil, fmt.Errorf("projection: collection %s: %w", name, err)
	}
	return &schema.Collection{Name: name, Incarnation: r.Incarnation, Version: r.Version, Time: r.Time,
		Properties: schema.Properties{DefaultTTL: r.DefaultTTL, IndexingMode: r.IndexingMode,
			IncludedPaths: r.IncludedPaths, PreviousImages: r.PreviousImages,
			WarnBefore: r.WarnBefore, Metadata: r.Metadata}}, nil
}

// stats are the counts of one collection as folded, overdue documents included. They do
// not depend on the policy, so that a change of defaultTtl changes none of them.
type stats struct {
	documents, bytes, own, inherited int64 // own and inherited: with a deadline, if TTL is on
	held                             int64
	sum                              uint64 // of the documents, see digest.go
}

// add counts a document of an incarnation in (sign 1) or out (sign -1). Adding and
// subtracting the same Meta cancel out, the sum by arithmetic modulo 2^64. So a
// replacement is one call of each.
func (s *stats) add(incarnation uint64, id schema.DocumentID, m Meta, sign int64) {
	s.documents += sign
	s.bytes += sign * m.Size
	s.sum += uint64(sign) * documentSum(incarnation, id, m)
	switch {
	case m.Held:
		s.held += sign
	case m.TTL > 0:
		s.own += sign
	case m.TTL == schema.Inherit:
		s.inherited += sign
	}
}

// encode returns the value of a key S. The number of held documents is left out when it is
// 0: then the sum ends the value.
func (s stats) encode() []byte {
	var b []byte
	for _, n := range []int64{s.documents, s.bytes, s.own, s.inherited} {
		b = binary.AppendUvarint(b, uint64(n))
	}
	b = binary.BigEndian.AppendUint64(b, s.sum)
	if s.held == 0 {
		return b
	}
	return binary.AppendUvarint(b, uint64(s.held))
}

func decodeStats(value []byte) (s stats, err error) {
	for _, n := range []*int64{&s.documents, &s.bytes, &s.own, &s.inherited} {
		u, size := binary.Uvarint(value)
		if size <= 0 {
			return s, fmt.Errorf("projection: malformed counts %x", value)
		}
		*n, value = int64(u), value[size:]
	}
	if len(value) > 8 {
		held, size := binary.Uvarint(value[8:])
		if size != len(value)-8 {
			return s, fmt.Errorf("projection: malformed counts, %x at the end", value)
		}
		s.held, value = int64(held), value[:8]
	}
	if len(value) != 8 {
		return s, fmt.Errorf("projection: malformed counts, %x at the end", value)
	}
	s.sum = binary.BigEndian.Uint64(value)
	return s, nil
}
