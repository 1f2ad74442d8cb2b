package projections

import (
	"encoding/binary"

	"github.com/lapsedb/lapse/schema"
)

// The first byte of every key; see KEYS.md.
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

// successor returns the first key after all that start with prefix.
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
