package cosmos

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/schema/values"
)

const (
	maxPart    = 64 // bytes of the part of a key's value in a document's id
	maxKeys    = 3  // paths of a partition key
	digestSize = 22 // letters of the digest at the end of a part that is cut
)

// How an item's partition key and id become a document's id. Cosmos DB allows the same
// item id in each partition, lapse has one id for each document. So a document's id has a
// part for each value of the key, and one for the item's id, joined by colons:
//
//	key            item    document
//	"C1"           SO05    C1:SO05
//	"C1", 2024     SO05    C1:=2024:SO05
//	"a:b"          x%      a%3Ab:x%25
//	true           SO05    =true:SO05
//	absent         SO05    =none:SO05
//	"=5"           SO05    %3D5:SO05
//
// Reading a partition is then a query by idPrefix, without an index, and the order of ids
// groups it.
//
// Two different keys never give one id: a colon in a part is escaped, what is no string
// begins with =, and a string that does is escaped. A part that is too long ends with ~
// and a digest of the whole, 132 bits of SHA-256. The escape of ~ keeps other parts from
// looking cut.
//
// A document is an item only if its content gives the id that it has (itemOf). A document
// that was stored over NATS under another id would otherwise appear under an address where
// no read finds it.
//
// This form is stored, so it never changes.

// itemID is the member with an item's id where the document's id has only a part of it.
const itemID = "_itemId"

// partitionKey has the values of a partition key, one for each path or for the first paths; a
// Missing one is absent from the item.
type partitionKey []values.Value

// parseKey reads the header x-ms-documentdb-partitionkey, a JSON array; {} is an absent
// value. {} stands for an absent value, since JSON has no undefined.
func parseKey(text string) (partitionKey, error) {
	array := values.Value(strings.TrimSpace(text))
	if err := schema.CheckJSON(array); err != nil || array.Kind() != values.Array {
		return nil, badRequest("the partition key %.80q is no JSON array", text)
	}
	var key partitionKey
	var err error
	array.Elements(func(v values.Value) bool {
		switch {
		case v.Kind() == values.Object && v.Len() == 0:
			v = nil
		case !isKeyValue(v):
			err = badRequest("a partition key has strings, numbers of a double, true, false and null, not %.80s", v)
		}
		key = append(key, v)
		return true
	})
	return key, err
}

// isKeyValue reports whether a partition key may have a value, which may be Missing.
// Cosmos DB allows numbers of a double; beyond one they have no value here.
func isKeyValue(v values.Value) bool {
	return v.Kind() < values.Array && (v.Kind() != values.Number || !math.IsInf(v.Float(), 0))
}

// equal reports whether two keys have the same values. Numbers are equal as doubles: 1,
// 1.0 and 1e0 are one partition.
func (k partitionKey) equal(other partitionKey) bool {
	if len(k) != len(other) {
		return false
	}
	for i, v := range k {
		if partOf(v) != partOf(other[i]) {
			return false
		}
	}
	return true
}

// prefix returns the beginning of the ids of all documents with these values. For all
// paths it is a partition, for fewer the beginning of a hierarchical one. The colon at the
// end keeps C1 from finding C10.
func (k partitionKey) prefix() string {
	var b strings.Builder
	for _, v := range k {
		b.WriteString(cut(partOf(v), maxPart))
		b.WriteByte(':')
	}
	return b.String()
}

// documentID returns the id of the document that has an item, and whether the item's id has to
// be stored beside it. A digest cannot be turned back, so a part of the item's id that is
// cut needs the whole elsewhere: in the member _itemId.
func (k partitionKey) documentID(id string) (document string, isCut bool) {
	prefix, part := k.prefix(), escape(id)
	if room := schema.MaxIDBytes - len(prefix); len(part) > room {
		return prefix + cut(part, room), true
	}
	return prefix + part, false
}

// partOf returns how a value is written in a document's id, before it is cut.
func partOf(v values.Value) string {
	switch v.Kind() {
	case values.Missing:
		return "=none"
	case values.Number:
		return "=" + scriptNumber(v.Float())
	case values.String:
		return escape(string(v.Text()))
	default:
		return "=" + string(v)
	}
}

// scriptNumber returns a number as JavaScript's String does.
func scriptNumber(f float64) string {
	switch {
	case f == 0:
		return "0"
	case math.IsInf(f, 0):
		return strings.TrimPrefix(strconv.FormatFloat(f, 'g', -1, 64), "+") + "inity"
	}
	text, _ := json.Marshal(f) // has the rules of JavaScript
	return string(text)
}

// isMark reports whether a character means something in a document's id, or can't be in it.
func isMark(r rune) bool { return r == '%' || r == ':' || r == '~' || unicode.IsControl(r) }

// escape writes a string so that it has neither a separator nor what marks other parts.
// Each escape is a byte of UTF-8 in upper-case hex.
func escape(s string) string {
	if !strings.HasPrefix(s, "=") && !strings.ContainsFunc(s, isMark) {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		if isMark(r) || r == '=' && i == 0 {
			for _, c := range []byte(string(r)) {
				b.WriteByte('%')
				b.WriteString(strings.ToUpper(strconv.FormatUint(uint64(c)|0x100, 16)[1:]))
			}
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// unescape is the inverse of escape; ok is false for what escape doesn't write.
func unescape(part string) (s string, ok bool) {
	if !strings.Contains(part, "%") {
		return part, utf8.ValidString(part)
	}
	var b strings.Builder
	for i := 0; i < len(part); i++ {
		if part[i] != '%' {
			b.WriteByte(part[i])
			continue
		}
		if i+2 >= len(part) {
			return "", false
		}
		c, err := strconv.ParseUint(part[i+1:i+3], 16, 8)
		if err != nil {
			return "", false
		}
		b.WriteByte(byte(c))
		i += 2
	}
	return b.String(), utf8.ValidString(b.String())
}

// cut shortens a part of more than limit bytes to as many whole characters as fit before the
// digest of the whole. A character is never divided, and neither is a %XX.
func cut(part string, limit int) string {
	if len(part) <= limit {
		return part
	}
	end := 0
	for end < len(part) {
		_, size := utf8.DecodeRuneInString(part[end:])
		if part[end] == '%' {
			size = 3
		}
		if end+size > limit-digestSize-1 {
			break
		}
		end += size
	}
	sum := sha256.Sum256([]byte(part))
	return part[:end] + "~" + base64.RawURLEncoding.EncodeToString(sum[:])[:digestSize]
}

// byID reports whether the partition key is the item's id, so that each document is an item.
func (d *definition) byID() bool { return len(d.paths) == 1 && isID(d.paths[0]) }

// isID reports whether a path is that of the item's id.
func isID(path []string) bool { return len(path) == 1 && path[0] == "id" }

// keyOf returns the partition key of an item, given by its content and id.
func (d *definition) keyOf(content values.Value, id string) (partitionKey, error) {
	key := make(partitionKey, len(d.paths))
	for i, path := range d.paths {
		if key[i] = content.At(path); isID(path) {
			key[i] = schema.AppendString(nil, id)
		}
		if !isKeyValue(key[i]) {
			return nil, badRequest("the value at %s of the partition key is an array, an object or beyond a double: use a string, a number, true, false or null", d.pathText(i))
		}
	}
	return key, nil
}

// documentID returns the id of the document that has an item.
func (d *definition) documentID(key partitionKey, id string) (document string, isCut bool, err error) {
	if !d.byID() {
		document, isCut = key.documentID(id)
		return document, isCut, nil
	}
	if _, err := schema.ParseDocumentID(id); err != nil {
		return "", false, badRequest("%v", err)
	}
	return id, false, nil
}

// itemOf returns the id of the item that a document is; ok is false if it is none. It
// makes the id again from the content and compares: that is the only test.
func (d *definition) itemOf(document string, content values.Value) (id string, ok bool) {
	if d.byID() {
		return document, true
	}
	if stored := content.At([]string{itemID}); stored.Kind() == values.String {
		id = string(stored.Text())
	} else if id, ok = d.decodeID(document); !ok || stored != nil {
		return "", false
	}
	key, err := d.keyOf(content, id)
	if err != nil {
		return "", false
	}
	made, _ := key.documentID(id)
	return id, made == document
}

// decodeID returns the item's id in a document's id. It is not whole if it was cut.
func (d *definition) decodeID(document string) (id string, ok bool) {
	if strings.Count(document, ":") != len(d.paths) {
		return "", false
	}
	return unescape(document[strings.LastIndexByte(document, ':')+1:])
}
