package projections

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2"
)

// A touch changes version and _ts of a document and not its content. If the content is in
// memory and small, the document is written whole. Else only its head is, as a merge
// operand: Pebble puts it before the content when the document is read or compacted.

// touchWhole is the largest content, in bytes, that a touch writes again. With 4 KiB a
// touch of 500 bytes takes a tenth more processor time.
const touchWhole = 128

// writesWhole reports whether a touch writes the document whatever its size: one in 8
// does, so that a read merges few operands. The multiplication makes that hold for any
// pattern of sequences.
func writesWhole(seq uint64) bool { return seq*0x9E3779B97F4A7C15>>61 == 0 }

// touchedBody returns the content of a touched document if it is in memory or the document
// is to be written whole, else nil; f.key is its key.
func (f *fold) touchedBody(fact *Fact, prior Meta) (body []byte, err error) {
	if r, ok := f.documents[string(f.key)]; ok && r.Body != nil {
		return r.Body, nil
	}
	if r, ok := f.store.cache.get(f.key); ok && r.Version == prior.Version {
		return r.Body, nil
	}
	if !writesWhole(fact.Seq) {
		return nil, nil
	}
	err = f.priorBody(fact, prior, func(content []byte) { body = append([]byte{}, content...) })
	return body, err
}

// operandMark begins a merge operand. No document does: versions begin at 1.
const operandMark = 0

func appendTouch(dst []byte, m Meta) []byte {
	return appendHead(append(dst, operandMark), m)
}

// appendHead appends the parts of a document that a touch changes.
func appendHead(dst []byte, m Meta) []byte {
	dst = binary.AppendUvarint(dst, uint64(m.Version))
	return binary.AppendUvarint(dst, uint64(m.TS))
}

// headBytes returns the length of appendHead at the beginning of a value.
func headBytes(value []byte) (n int, err error) {
	for range 2 {
		_, size := binary.Uvarint(value[n:])
		if size <= 0 {
			return 0, fmt.Errorf("projection: malformed head %x of a document", value[:min(len(value), 32)])
		}
		n += size
	}
	return n, nil
}

// merger has the name of Pebble's default merger, since files of format 3 name that one;
// they have no operands.
var merger = &pebble.Merger{
	Name: pebble.DefaultMerger.Name,
	Merge: func(_, value []byte) (pebble.ValueMerger, error) {
		t := new(touches)
		return t, t.MergeOlder(value)
	},
}

// touches merges the operands of one document.
type touches struct {
	head     []byte // of the newest operand, with its mark; nil if there is none
	document []byte // nil if it is not among the merged values
}

func (t *touches) MergeOlder(value []byte) error {
	switch operand := len(value) > 0 && value[0] == operandMark; {
	case !operand:
		t.document = append([]byte{}, value...)
	case t.head == nil:
		t.head = append([]byte{}, value...)
	}
	return nil
}

func (t *touches) MergeNewer(value []byte) error {
	t.head = append([]byte{}, value...)
	return nil
}

func (t *touches) Finish(bool) ([]byte, io.Closer, error) {
	if t.document == nil || t.head == nil {
		return append(t.head, t.document...), nil, nil
	}
	n, err := headBytes(t.document)
	return append(t.head[1:], t.document[n:]...), nil, err
}
