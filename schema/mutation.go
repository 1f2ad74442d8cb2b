package schema

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/lapsedb/lapse/schema/values"
)

// Op is the operation of a mutation.
type Op uint8

const (
	NoOp Op = iota // unknown
	CollectionCreate
	CollectionReplace
	CollectionDelete
	DocumentCreate
	DocumentReplace
	DocumentUpsert
	DocumentPatch
	DocumentDelete
	DocumentTouch
	DocumentRestore
)

var opNames = [...]string{"", "collection.create", "collection.replace", "collection.delete",
	"document.create", "document.replace", "document.upsert", "document.patch", "document.delete",
	"document.touch", "document.restore"}

// Ops is the number of operations, NoOp included.
const Ops = len(opNames)

func (op Op) String() string { return opNames[op] }

// OnDocument reports whether op is on a document, not on a collection.
func (op Op) OnDocument() bool { return op >= DocumentCreate }

// ParseOp is the inverse of Op.String; NoOp for anything else.
func ParseOp(s string) Op {
	return Op(max(slices.Index(opNames[:], s), 0))
}

// Mutation is a proposal to change a collection or document.
type Mutation struct {
	Op         Op
	Collection CollectionName
	ID         DocumentID
	IfMatch    string // "" for none
	MsgID      string // Nats-Msg-Id, "" for none
	Body       []byte // as sent

	// Cause is the sequence in the mutations stream, 0 for a request.
	Cause uint64

	// Recorded means that a refusal is logged as MutationRejected, since there is no
	// reply.
	Recorded bool

	// Body as parsed by Check.
	Document   Document   // create, replace, upsert
	Properties Properties // collection create and replace
	Version    string     // restore: "" for the last one

	// Fault is why the mutation is malformed, nil if it is not. Raw then has the
	// malformed parts as written.
	Fault *Error
	Raw   RawMutation
}

// Tail is the end of a well-formed mutation's subject: its operation,
// collection and id.
func (m *Mutation) Tail() string {
	return string(appendTail(nil, m.Op, m.Collection, m.ID))
}

// AppendMutation appends the Tail of the mutation with MsgID that made e, or nothing if
// the log does not have its operation.
func (e *Event) AppendMutation(dst []byte) []byte {
	if e.MsgOp == NoOp {
		return dst
	}
	return appendTail(dst, e.MsgOp, e.Collection, e.ID)
}

func appendTail(dst []byte, op Op, collection CollectionName, id DocumentID) []byte {
	dst = append(append(append(dst, op.String()...), '.'), collection...)
	if op.OnDocument() {
		dst = append(append(dst, '.'), id.Token()...)
	}
	return dst
}

// Made reports whether m, or an equal mutation, made e. If the log does not have the
// operation, any that can result in e matches.
func (m *Mutation) Made(e *Event) bool {
	if m.Collection != e.Collection || m.ID != e.ID {
		return false
	}
	if e.MsgOp != NoOp {
		return m.Op == e.MsgOp
	}
	switch e.Type {
	case CollectionCreated:
		return m.Op == CollectionCreate
	case CollectionReplaced:
		return m.Op == CollectionReplace
	case CollectionDeleted:
		return m.Op == CollectionDelete
	case DocumentCreated:
		return m.Op == DocumentCreate || m.Op == DocumentUpsert
	case DocumentReplaced:
		return m.Op == DocumentReplace || m.Op == DocumentUpsert || m.Op == DocumentPatch
	case DocumentDeleted:
		return m.Op == DocumentDelete
	}
	return false
}

// RawMutation are the names of a malformed mutation as written.
type RawMutation struct{ Op, Collection, ID string }

// NewMutation makes a mutation from its names in a subject: op like "document.upsert",
// the collection, and the id as one token. A fault of names or body is in the result's
// Fault.
func NewMutation(tail string, body []byte) *Mutation {
	m := &Mutation{Body: body}
	tokens := strings.Split(tail, ".")
	if len(tokens) >= 2 {
		m.Op = ParseOp(tokens[0] + "." + tokens[1])
	}
	if len(tokens) < 3 && m.Op == NoOp {
		m.Raw.Op = tail
		m.Fault = unknownOp(tail)
		return m
	}
	m.Raw.Op = tokens[0] + "." + tokens[1]
	rest := tokens[2:]
	if len(rest) > 0 {
		m.Raw.Collection = rest[0]
	}
	if len(rest) > 1 {
		m.Raw.ID = strings.Join(rest[1:], ".")
	}
	if m.Op == NoOp {
		m.nameCollection() // so that the rejection is told where it belongs
		m.Fault = unknownOp(m.Raw.Op)
		return m
	}
	if m.nameCollection() && m.Op.OnDocument() {
		if id, err := DecodeID(m.Raw.ID); err != nil {
			m.Fault = AsError(err)
		} else {
			m.ID = id
		}
	} else if m.Fault == nil && len(rest) > 1 {
		m.Fault = ErrBadRequest.With("%s takes one name after it, %.80q has more", m.Op, tail)
	}
	return m.Check()
}

// NewNamedMutation makes a mutation from names that are not encoded, as in a batch or a
// file for simulate.
func NewNamedMutation(op, collection, id string, body []byte) *Mutation {
	m := &Mutation{Op: ParseOp(op), Body: body}
	m.Raw = RawMutation{Op: op, Collection: collection, ID: id}
	if m.Op == NoOp {
		m.nameCollection() // so that the rejection is told where it belongs
		m.Fault = unknownOp(op)
		return m
	}
	if m.nameCollection() && m.Op.OnDocument() {
		if parsed, err := ParseDocumentID(id); err != nil {
			m.Fault = AsError(err)
		} else {
			m.ID = parsed
		}
	} else if m.Fault == nil && id != "" {
		m.Fault = ErrBadRequest.With("%s takes no id, it has %.80q", m.Op, id)
	}
	return m.Check()
}

func unknownOp(op string) *Error {
	return ErrBadRequest.With("unknown operation %.80q: use one of %s", op, strings.Join(opNames[1:], ", "))
}

func (m *Mutation) nameCollection() bool {
	name, err := ParseCollectionName(m.Raw.Collection)
	if err != nil {
		m.Fault = AsError(err)
		return false
	}
	m.Collection = name
	return true
}

// Check parses the body for the op, unless there is a Fault. It is the part of deciding
// that needs no state.
func (m *Mutation) Check() *Mutation {
	if m.Fault != nil {
		return m
	}
	switch m.Op {
	case CollectionCreate, CollectionReplace:
		m.Properties, m.Fault = ParseProperties(m.Collection, m.Body)
	case DocumentCreate, DocumentReplace, DocumentUpsert:
		m.Document, m.Fault = ParseDocument(m.ID, m.Body)
	case DocumentPatch:
		m.Fault = CheckPatch(m.ID, m.Body)
	case DocumentTouch:
		m.Fault = checkNoContent(m.Op, m.Body)
	case DocumentRestore:
		m.Version, m.Fault = parseRestore(m.Body)
	}
	return m
}

// checkNoContent refuses a body other than {}.
func checkNoContent(op Op, body []byte) *Error {
	if len(body) == 0 {
		return nil
	}
	empty := true
	if _, err := members(body, func(_, _ []byte) error { empty = false; return nil }); err != nil || !empty {
		return ErrBadRequest.With("%s takes no content, its body is %s: leave it empty", op, Shown(body))
	}
	return nil
}

// parseRestore returns the version that the body of a restore names, "" for none.
func parseRestore(body []byte) (version string, fault *Error) {
	if len(body) == 0 {
		return "", nil
	}
	_, err := members(body, func(name, value []byte) (err error) {
		if string(values.Unquote(name)) != "version" {
			return fmt.Errorf("unknown member %.40q", name)
		}
		if version != "" {
			return errors.New("the member version comes twice")
		}
		if string(value) == "null" {
			return nil
		}
		if version, err = decodeString(value); err == nil && version == "" {
			err = errors.New("the version is empty")
		}
		return err
	})
	if err != nil {
		return "", ErrBadRequest.With(`the body of document.restore is not {"version":"<etag>"} or empty: %v`, err)
	}
	return version, nil
}

// Limits in bytes of body and name in a rejection, so that refused mutations do not fill
// the log.
const (
	maxRejectedBody = 4 << 10
	maxRejectedName = 1 << 10
)

// AppendRejection appends the body of the MutationRejected of m with err. It replaces a
// large body by its size.
func (m *Mutation) AppendRejection(dst []byte, err *Error) []byte {
	op, collection, id := m.Op.String(), string(m.Collection), string(m.ID)
	if m.Op == NoOp {
		op = m.Raw.Op
	}
	if collection == "" {
		collection = m.Raw.Collection
	}
	if id == "" {
		id = m.Raw.ID
	}
	dst = err.appendFields(append(dst, '{'))
	dst = append(dst, `,"mutation":{"op":`...)
	dst = appendRejectedName(dst, op)
	dst = append(dst, `,"collection":`...)
	dst = appendRejectedName(dst, collection)
	if id != "" {
		dst = append(dst, `,"id":`...)
		dst = appendRejectedName(dst, id)
	}
	if len(m.Body) == 0 {
		return append(dst, '}', '}')
	}
	mark := len(dst)
	if len(m.Body) <= maxRejectedBody {
		dst = append(dst, `,"body":`...)
		if ValidJSON(m.Body) {
			dst = append(dst, compact(m.Body)...)
		} else {
			dst = AppendString(dst, string(m.Body)) // it can't be shown as it is
		}
	}
	if n := len(dst) - mark; n == 0 || n > len(`,"body":`)+maxRejectedBody {
		dst = strconv.AppendInt(append(dst[:mark], `,"bodyBytes":`...), int64(len(m.Body)), 10)
	}
	return append(dst, '}', '}')
}

// appendRejectedName appends a name as a JSON string, cut if no legal one is as long.
func appendRejectedName(dst []byte, name string) []byte {
	if len(name) > maxRejectedName {
		name = strings.ToValidUTF8(name[:maxRejectedName], "") + "…"
	}
	return AppendString(dst, name)
}
