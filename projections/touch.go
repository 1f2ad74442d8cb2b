package projections

import (
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2"
)

// Writing whole copies the content into the memtable; an operand makes the next read
// merge. Both give the same value, byte for byte.
// A touch, a hold and a release change the head of a document and not its content. If the
// content is in memory and small, the document is written whole. Else only its head is, as
// a merge operand: Pebble puts it before the content when the document is read or
// compacted.

// headWhole is the largest content, in bytes, that a change of the head writes again. With
// 4 KiB a touch of 500 bytes takes a tenth more processor time.
const headWhole = 128

// writesWhole reports whether a change of the head writes a content of size bytes again,
// whatever it is: one in 8 does, and of large contents one for each KiB, so that a read
// merges few operands, and no change costs more than a KiB on average. The multiplication
// makes that hold for any pattern of sequences.
func writesWhole(seq uint64, size int64) bool {
	return seq*0x9E3779B97F4A7C15>>32 < 1<<32/uint64(max(8, size>>10))
}

// keptBody returns the content after a change of the head if it is in memory or the document
// is to be written whole, else nil; f.key is its key.
func (f *fold) keptBody(fact *Fact, prior Meta) (body []byte, err error) {
	if r, ok := f.documents[string(f.key)]; ok && r.Body != nil {
		return r.Body, nil
	}
	if r, ok := f.store.cache.get(f.key); ok && r.Version == prior.Version {
		return r.Body, nil
	}
	if !writesWhole(fact.Seq, prior.Size) {
		return nil, nil
	}
	err = f.priorBody(fact, prior, func(content []byte) { body = append([]byte{}, content...) })
	return body, err
}

// operandMark, twice, begins a merge operand. No document does: versions begin at 1.
const operandMark = 0

// appendOperand appends a merge operand: two bytes 0, then a head as in a document.
func appendOperand(dst []byte, m Meta) []byte {
	return appendHead(append(dst, operandMark, operandMark), m)
}

// applyOperand returns a document with the head of an operand.
func applyOperand(operand, document []byte) ([]byte, error) {
	_, n, err := decodeHead(document)
	if err == nil && len(operand) < 2 {
		err = fmt.Errorf("projection: malformed operand %x", operand)
	}
	if err != nil {
		return nil, err
	}
	return append(operand[2:], document[n:]...), nil
}

// merger has the name of Pebble's default merger, as the files of 0.3.0.
var merger = &pebble.Merger{
	Name: pebble.DefaultMerger.Name,
	Merge: func(_, value []byte) (pebble.ValueMerger, error) {
		t := new(touches)
		return t, t.MergeOlder(value)
	},
}

// touches merges the operands of one document. Pebble may merge in any grouping: operands
// among themselves, without the document, or with it. Only the newest head counts, so the
// result is the same for each.
type touches struct {
	head     []byte // of the newest operand, with its mark; nil if there is none
	document []byte // nil if it is not among the merged values
}

// MergeOlder adds a value that is older than all before. The first head it sees is the
// newest.
func (t *touches) MergeOlder(value []byte) error {
	switch operand := len(value) > 0 && value[0] == operandMark; {
	case !operand:
		t.document = append([]byte{}, value...)
	case t.head == nil:
		t.head = append([]byte{}, value...)
	}
	return nil
}

// MergeNewer adds a value that is newer than all before: an operand, since a document that
// is set begins a new merge.
func (t *touches) MergeNewer(value []byte) error {
	t.head = append([]byte{}, value...)
	return nil
}

// Finish returns the operand alone where the document is not among the values; a later
// merge then combines them.
func (t *touches) Finish(bool) ([]byte, io.Closer, error) {
	if t.document == nil || t.head == nil {
		return append(t.head, t.document...), nil, nil
	}
	value, err := applyOperand(t.head, t.document)
	return value, nil, err
}
