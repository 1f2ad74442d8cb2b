package query

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
)

// A cursor is a position in the order of a query, with a code that authenticates it for
// that query under the secret. Its bytes, before base64url without padding:
//
//	code, 16 bytes | version 1 | uvarint length of the sort key | sort key | id
//
// The code is the beginning of HMAC-SHA-256 (RFC 2104) over the query and what follows the
// code. So a client can neither make a cursor nor use one with another query, where its
// key would be in another order.
//
// It names no time or process: it stays valid over restarts and on every process that has
// the secret. It keeps nothing on the server, so a client may send it twice or never.

const (
	cursorVersion   = 1
	sequenceVersion = 2  // of a cursor of SealSequence
	cursorCode      = 16 // bytes of the code
)

// sealer makes and checks cursors.
type sealer struct{ secret []byte }

// code authenticates everything that decides which documents a query returns in which
// order. Each part is preceded by its length, so that no two queries give the same bytes.
// A member of a request that is absent adds nothing, so a new member does not invalidate
// cursors.
func (s sealer) code(incarnation uint64, r *request, payload []byte) []byte {
	h := hmac.New(sha256.New, s.secret)
	part := func(b []byte) {
		h.Write(binary.AppendUvarint(nil, uint64(len(b))))
		h.Write(b)
	}
	part(binary.AppendUvarint(nil, incarnation))
	part([]byte(r.where))
	part(r.params)
	for _, o := range r.orderBy {
		part([]byte(o.path.String()))
		if o.desc {
			part([]byte{1})
		} else {
			part(nil)
		}
	}
	if r.due != nil {
		part(append([]byte("due"), r.due.text...))
	}
	if r.held {
		part([]byte("held"))
	}
	if r.idPrefix != "" {
		part([]byte("idPrefix" + r.idPrefix))
	}
	part(payload)
	return h.Sum(nil)[:cursorCode]
}

// seal returns the cursor of the page after p.
func (s sealer) seal(incarnation uint64, r *request, p position) string {
	payload := p.encode([]byte{cursorVersion})
	return base64.RawURLEncoding.EncodeToString(append(s.code(incarnation, r, payload), payload...))
}

// sealedSize returns the length of the cursor that seal returns.
func sealedSize(p position) int {
	return base64.RawURLEncoding.EncodedLen(cursorCode + 1 + p.encodedSize())
}

// open returns the position of the request's cursor; ok is false if the cursor is not of
// this query. The encoding must be the one that seal writes: Strict refuses spare bits,
// and the length refuses line breaks, which the decoder skips.
func (s sealer) open(incarnation uint64, r *request) (p position, ok bool) {
	data, err := base64.RawURLEncoding.Strict().DecodeString(r.cursor)
	if err != nil || base64.RawURLEncoding.EncodedLen(len(data)) != len(r.cursor) || len(data) <= cursorCode || data[cursorCode] != cursorVersion {
		return position{}, false
	}
	payload := data[cursorCode:]
	if !hmac.Equal(data[:cursorCode], s.code(incarnation, r, payload)) {
		return position{}, false
	}
	return decodePosition(payload[1:])
}

// SealSequence returns a cursor at a sequence of the log, which is valid for that context
// only, such as the name of what is read.
func (e *Engine) SealSequence(context string, seq uint64) string {
	payload := binary.AppendUvarint([]byte{sequenceVersion}, seq)
	h := hmac.New(sha256.New, e.sealer.secret)
	h.Write(append(append([]byte("sequence"), payload...), context...)) // no query's code begins like that
	return base64.RawURLEncoding.EncodeToString(append(h.Sum(nil)[:cursorCode], payload...))
}

// OpenSequence returns the sequence of a cursor; ok is false if SealSequence did not make
// it for that context.
func (e *Engine) OpenSequence(context, cursor string) (seq uint64, ok bool) {
	data, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(data) <= cursorCode {
		return 0, false
	}
	seq, _ = binary.Uvarint(data[cursorCode+1:])
	return seq, hmac.Equal([]byte(cursor), []byte(e.SealSequence(context, seq)))
}
