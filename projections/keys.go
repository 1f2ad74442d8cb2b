package projections

import (
	"encoding/binary"

	"github.com/lapsedb/lapse/schema"
)

// The first byte of every key; see KEYS.md.
//
// Documents, indexes and counts are below an incarnation and not a name: a collection that
// was deleted and created again starts empty, whatever is still there of the old one.
// History and deleted collections are below names, since a client asks for them by name.
//
// Pebble compares keys as bytes. So integers have 8 bytes, big endian, and a range of
// numbers is a range of keys. With collection sessions of incarnation 2, document s1 due
// at 0x6921a6c3:
//
//	C sessions                                           43 73657373696f6e73
//	D 0000000000000002 s1                                44 0000000000000002 7331
//	E 0000000000000002 0 000000006921a6c3 s1             45 0000000000000002 00 000000006921a6c3 7331
//	H sessions 0 s1 0 000000000000002a                   48 73657373696f6e73 00 7331 00 000000000000002a
//
// Each function below appends to dst, which may be scratch memory, and returns the result.
const (
	keyCursor      = 'M'
	keyCollection  = 'C'
	keyStats       = 'S'
	keyDocument    = 'D'
	keyExpiry      = 'E'
	keyHistory     = 'H'
	keyBuried      = 'X'
	keyMessage     = 'I'
	keyMessageTime = 'J'
	keyDefinitions = 'P'
	keyIndex       = 'V'
	keyMark        = 'L'
	keyIndexed     = 'R'
	keyHold        = 'G'
	keyNothing     = 'Z'
)

func collectionKey(dst []byte, name schema.CollectionName) []byte {
	return append(append(dst, keyCollection), name...)
}

func statsKey(dst []byte, incarnation uint64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, keyStats), incarnation)
}

func documentKey(dst []byte, incarnation uint64, id schema.DocumentID) []byte {
	return append(binary.BigEndian.AppendUint64(append(dst, keyDocument), incarnation), id...)
}

func holdKey(dst []byte, incarnation uint64, id schema.DocumentID) []byte {
	return append(binary.BigEndian.AppendUint64(append(dst, keyHold), incarnation), id...)
}

// documentKeyBytes is the length of the longest document key.
const documentKeyBytes = 1 + 8 + schema.MaxIDBytes

func queueKey(dst []byte, q Queue) []byte {
	return append(binary.BigEndian.AppendUint64(append(dst, keyExpiry), q.Incarnation), byte(q.Order))
}

// queueKeyBytes is the number of bytes that queueKey appends.
const queueKeyBytes = 1 + 8 + 1

func expiryKey(dst []byte, q Queue, second int64, id schema.DocumentID) []byte {
	return append(binary.BigEndian.AppendUint64(queueKey(dst, q), uint64(second)), id...)
}

func historyPrefix(dst []byte, name schema.CollectionName, id schema.DocumentID) []byte {
	dst = append(append(append(dst, keyHistory), name...), 0)
	return append(append(dst, id...), 0)
}

func historyKey(dst []byte, name schema.CollectionName, id schema.DocumentID, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(historyPrefix(dst, name, id), seq)
}

func buriedPrefix(dst []byte, name schema.CollectionName) []byte {
	return append(append(append(dst, keyBuried), name...), 0)
}

func messageKey(dst []byte, id string) []byte {
	return append(append(dst, keyMessage), id...)
}

func messageTimeKey(dst []byte, second int64, id string) []byte {
	return append(binary.BigEndian.AppendUint64(append(dst, keyMessageTime), uint64(second)), id...)
}

// successor returns the first key after all that start with prefix. There is none for
// bytes ff alone; no prefix here is like that, since it begins with a letter.
func successor(prefix []byte) []byte {
	end := append([]byte(nil), prefix...)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i] < 0xff {
			end[i]++
			return end[:i+1]
		}
	}
	return nil
}
