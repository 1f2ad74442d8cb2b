package schema

import (
	"slices"
	"strconv"

	"github.com/lapsedb/lapse/schema/values"
)

// MaxDocumentBytes is the size of the largest document, as sent.
const MaxDocumentBytes = 2 << 20

// Document is a document as it is stored: compact JSON with its id, without
// system properties, otherwise as the client wrote it. It is the only form of a document
// in the log, in the projection and in memory. A reply adds _ts and _etag at its end,
// which costs a copy and no parse.
type Document struct {
	Body []byte
	TTL  TTL // value of the member ttl; Inherit if absent or invalid
	// HasTTL: the body has a member ttl, be it null.
	HasTTL bool
	// BadTTL is the JSON of an invalid ttl, else nil. It is an error only while the
	// collection's TTL is on.
	BadTTL []byte
}

// TTLError returns the error for BadTTL while the collection's TTL is on, or nil.
func (d *Document) TTLError() *Error {
	if d.BadTTL == nil {
		return nil
	}
	return ErrBadTTL.With("ttl %s: use a whole number of seconds from 1 to %d, -1 for never, or null", Shown(d.BadTTL), MaxTTL)
}

// ParseDocument checks a document that a client sent for the subject's id. The result
// may share raw's memory.
//
// It returns ErrTooLarge, ErrBadRequest if raw is not a JSON object, and ErrBadID if
// its id contradicts the subject.
func ParseDocument(id DocumentID, raw []byte) (Document, *Error) {
	if len(raw) > MaxDocumentBytes {
		return Document{}, ErrTooLarge.With("the document has %d bytes: at most %d are allowed", len(raw), MaxDocumentBytes)
	}
	return ReadDocument(id, raw)
}

// ReadDocument is ParseDocument without the size limit, for events of the log: a
// document may exceed the limit by its added id.
func ReadDocument(id DocumentID, raw []byte) (Document, *Error) {
	d, hasID, dropped, err := parse(id, raw, "document")
	if err != nil {
		return Document{}, err
	}
	if dropped || !hasID {
		d.Body = rebuild(id, hasID, d.Body)
	}
	return d, nil
}

// reserved reports whether name is a system property, which clients cannot set.
func reserved(name []byte) bool {
	switch string(name) {
	case "_ts", "_etag", "_rid", "_self", "_attachments":
		return true
	}
	return false
}

// parse validates an object and finds id, ttl and system properties. It copies raw only if
// there is white space to drop. hasID and dropped tell whether the document has to be
// rebuilt.
func parse(id DocumentID, raw []byte, what string) (d Document, hasID, dropped bool, fault *Error) {
	spaces, err := members(raw, func(name, value []byte) error {
		switch name = values.Unquote(name); {
		case string(name) == "id":
			if hasID {
				fault = ErrBadRequest.With("the %s has the member id twice", what)
				return fault
			}
			hasID = true
			if !isString(value, string(id)) {
				fault = ErrBadID.With("the %s says id %s and the subject %q: make them the same or leave the id out of the body", what, Shown(value), string(id))
				return fault
			}
		case string(name) == "ttl":
			if d.HasTTL {
				fault = ErrBadRequest.With("the %s has the member ttl twice", what)
				return fault
			}
			d.HasTTL = true
			if n, ok := parseSeconds(value); ok {
				d.TTL = TTL(n)
			} else {
				d.BadTTL = value
			}
		case reserved(name):
			dropped = true
		}
		return nil
	})
	if fault != nil {
		return Document{}, false, false, fault
	}
	if err != nil {
		return Document{}, false, false, ErrBadRequest.With("the %s is not a JSON object of at most %d levels: %v", what, MaxDepth, err)
	}
	d.Body = raw
	if spaces {
		d.Body = compact(raw)
	}
	return d, hasID, dropped, nil
}

// rebuild writes a document again with its id and without system properties. The id comes
// first. All other members keep their order and spelling, so that a client gets back what
// it wrote.
func rebuild(id DocumentID, hasID bool, body []byte) []byte {
	out := append(make([]byte, 0, len(body)+len(id)+9), '{')
	if !hasID {
		out = appendMember(out, []byte("id"), AppendString(nil, string(id)))
	}
	_, _ = members(body, func(name, value []byte) error {
		if !reserved(values.Unquote(name)) {
			out = appendMember(out, name, value)
		}
		return nil
	})
	return append(out, '}')
}

// SetTTL sets the member ttl of a document, or replaces it.
func (d *Document) SetTTL(ttl TTL) {
	*d = Document{Body: WithTTL(d.Body, ttl), TTL: ttl, HasTTL: true}
}

// KeepTTL gives a document without a ttl the member ttl of a stored body as it is, if that
// has one. An illegal one is kept, too.
func (d *Document) KeepTTL(body []byte) {
	_, _ = members(body, func(name, value []byte) error {
		if string(values.Unquote(name)) != "ttl" {
			return nil
		}
		out := append(make([]byte, 0, len(d.Body)+len(`,"ttl":`)+len(value)), d.Body[:len(d.Body)-1]...)
		d.Body, d.HasTTL = append(appendMember(out, name, value), '}'), true
		if n, ok := parseSeconds(value); ok {
			d.TTL = TTL(n)
		}
		return nil
	})
}

// WithTTL returns the object body with its ttl set or replaced. It returns anything but
// an object unchanged.
func WithTTL(body []byte, ttl TTL) []byte { return withNumber(body, "ttl", int64(ttl)) }

// WithMinAge is WithTTL for the minAge of a touch.
func WithMinAge(body []byte, seconds int32) []byte {
	return withNumber(body, "minAge", int64(seconds))
}

// withNumber sets a member to a number; it goes to the end of the object.
func withNumber(body []byte, name string, n int64) []byte {
	out, err := without(MaxDepth, body, name)
	if err != nil {
		return body
	}
	return append(strconv.AppendInt(appendName(out, []byte(name)), n, 10), '}')
}

// Without returns an object of a reply or an event without the members of these names. It
// returns anything but an object unchanged.
func Without(body []byte, names ...string) []byte {
	out, err := without(envelopeDepth, body, names...)
	if err != nil {
		return body
	}
	return append(out, '}')
}

// without returns an object that nests at most depth deep without some members, and
// without its closing brace.
func without(depth int, body []byte, names ...string) ([]byte, error) {
	out := append(make([]byte, 0, len(body)+len(`,"ttl":2147483647`)), '{')
	_, err := membersTo(depth, body, func(name, value []byte) error {
		if !slices.Contains(names, string(values.Unquote(name))) {
			out = appendMember(out, name, value)
		}
		return nil
	})
	return out, err
}

// appendMember appends one member to an object that is being written.
func appendMember(dst, name, value []byte) []byte {
	return append(appendName(dst, name), value...)
}

// appendName appends comma, name and colon of a member.
func appendName(dst, name []byte) []byte {
	if dst[len(dst)-1] != '{' {
		dst = append(dst, ',')
	}
	return append(append(append(dst, '"'), name...), '"', ':')
}

// AppendReply appends the document as in a reply: body with _ts, in seconds, and
// _etag. body is a stored document: it has at least {} and no member of these names.
func AppendReply(dst, body []byte, ts int64, version Version) []byte {
	dst = append(dst, body[:len(body)-1]...)
	if len(body) > 2 {
		dst = append(dst, ',')
	}
	return appendSystem(dst, ts, version)
}

// AppendVersion appends the reply about a version without its content.
func AppendVersion(dst []byte, id DocumentID, ts int64, version Version) []byte {
	dst = AppendString(append(dst, `{"id":`...), string(id))
	return appendSystem(append(dst, ','), ts, version)
}

// appendSystem ends an object with the system properties.
func appendSystem(dst []byte, ts int64, version Version) []byte {
	dst = append(dst, `"_ts":`...)
	dst = strconv.AppendInt(dst, ts, 10)
	dst = append(dst, `,"_etag":"`...)
	dst = strconv.AppendUint(dst, uint64(version), 10)
	return append(dst, '"', '}')
}

// System holds the id and system properties of a document in a reply; those not selected
// are zero.
type System struct {
	ID   string
	TS   int64 // unix seconds
	ETag string
	// Lifetime is set in a query that asks for it.
	Lifetime Lifetime
}

// ReadSystem reads the System of a document in a reply. encoding/json would read a
// content member ID as the id.
func ReadSystem(reply []byte) (s System, err error) {
	_, err = membersTo(envelopeDepth, reply, func(name, value []byte) (err error) {
		switch string(values.Unquote(name)) {
		case "id":
			s.ID, err = decodeString(value)
		case "_ts":
			s.TS, err = strconv.ParseInt(string(value), 10, 64)
		case "_etag":
			s.ETag, err = decodeString(value)
		case memberDeadline:
			s.Lifetime.Deadline.At, _ = strconv.ParseInt(string(value), 10, 64) // the content may have any of these
		case memberRule:
			rule, _ := decodeString(value)
			s.Lifetime.Deadline.Rule = ParseRule(rule)
		case memberHold:
			s.Lifetime.Held = true
			s.Lifetime.Reason, _ = decodeString(value)
		}
		return err
	})
	return s, err
}
