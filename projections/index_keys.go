package projections

import (
	"encoding/binary"
	"fmt"

	"github.com/lapsedb/lapse/schema"
)

// A key V, of document s1 in index 1 of incarnation 2, with the string a as value:
//
//	56 0000000000000002 00000001 00 <value-key of "a"> 73 31
//	V  incarnation      number   space                 id
//
// The value-key is not of fixed length, and the value of the entry says where it ends.

// Space is one of the two orders of entries in an index.
type Space byte

const (
	// ValueSpace has one entry for every document: the value at the path, or
	// missing. So it orders all documents.
	ValueSpace Space = 0
	// MemberSpace has one entry for each distinct element of an array at the
	// path, or for each name, as a string, of an object there.
	MemberSpace Space = 1
)

// MaxValueKeyBytes is the length at which an entry cuts a value's key.
const MaxValueKeyBytes = 512

// MaxMembers limits the entries of an array or object; beyond it there is one entry
// ManyMembers instead.
const MaxMembers = 256

// ManyMembers is the key in MemberSpace of documents with more than MaxMembers
// members at the path; to know them read the document. It sorts before all others.
const ManyMembers = "\x00"

// indexNumberKey appends the prefix of all keys of one index.
func indexNumberKey(dst []byte, incarnation uint64, number uint32) []byte {
	dst = binary.BigEndian.AppendUint64(append(dst, keyIndex), incarnation)
	return binary.BigEndian.AppendUint32(dst, number)
}

// Lengths of the prefix that indexSpaceKey appends, and of its collection part.
const (
	indexCollectionBytes = 1 + 8
	indexSpaceBytes      = indexCollectionBytes + 4 + 1
)

// indexSpaceKey appends the prefix of all keys of one space of an index.
func indexSpaceKey(dst []byte, incarnation uint64, number uint32, space Space) []byte {
	return append(indexNumberKey(dst, incarnation, number), byte(space))
}

func definitionsKey(dst []byte, incarnation uint64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, keyDefinitions), incarnation)
}

// marksPrefix appends the prefix of a collection's marks, which are in the order of the
// log.
func marksPrefix(dst []byte, incarnation uint64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, keyMark), incarnation)
}

func markKey(dst []byte, incarnation, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(marksPrefix(dst, incarnation), seq)
}

// markSeq returns the sequence in a mark's key.
func markSeq(key []byte) uint64 { return binary.BigEndian.Uint64(key[len(key)-8:]) }

// indexedPrefix appends the prefix of the lists of a collection's documents in lazy
// indexes.
func indexedPrefix(dst []byte, incarnation uint64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, keyIndexed), incarnation)
}

func indexedKey(dst []byte, incarnation uint64, id string) []byte {
	return append(indexedPrefix(dst, incarnation), id...)
}

// IndexEntry is one entry of a secondary index.
type IndexEntry struct {
	Key   []byte // of the value, cut at MaxValueKeyBytes
	Whole bool   // whether Key was not cut
	ID    []byte // of the document
	Meta  Meta   // of the document, without its Size
}

// appendEntryMeta appends the end of an entry's value, the same for all entries of a
// document.
func appendEntryMeta(dst []byte, m Meta) []byte {
	dst = binary.AppendUvarint(dst, uint64(m.Version))
	dst = binary.AppendUvarint(dst, uint64(m.TS))
	return binary.AppendVarint(dst, m.writtenTTL())
}

// appendEntryHead appends the beginning of an entry's value: the length of the
// value's key, which the id follows without a separator.
func appendEntryHead(dst []byte, length int, whole bool) []byte {
	n := uint64(length) << 1
	if whole {
		n |= 1
	}
	return binary.AppendUvarint(dst, n)
}

// decodeIndexEntry reads an entry; key is the part after the space. The id has no length
// of its own: it is what follows the value-key. Key and ID share memory with key.
func decodeIndexEntry(key, value []byte) (e IndexEntry, err error) {
	head, a := binary.Uvarint(value)
	length := head >> 1
	if a <= 0 || length > uint64(len(key)) {
		return e, fmt.Errorf("projection: malformed index entry %x", key)
	}
	version, b := binary.Uvarint(value[a:])
	ts, c := binary.Uvarint(value[a+max(b, 0):])
	written, d := binary.Varint(value[a+max(b, 0)+max(c, 0):])
	if b <= 0 || c <= 0 || d <= 0 {
		return e, fmt.Errorf("projection: malformed index entry %x", key)
	}
	ttl, held := readTTL(written)
	return IndexEntry{
		Key: key[:length:length], Whole: head&1 == 1, ID: key[length:],
		Meta: Meta{Version: schema.Version(version), TS: int64(ts), TTL: ttl, Held: held},
	}, nil
}
