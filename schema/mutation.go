package schema

import (
	"slices"
	"strconv"
	"strings"
)

// Op is the operation of a mutation. The order of the constants is that of opNames; the
// first on documents is DocumentCreate, which OnDocument relies on. The log has names, not
// numbers, so the order may change.
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
	DocumentHold
	DocumentRelease
)

var opNames = [...]string{"", "collection.create", "collection.replace", "collection.delete",
	"document.create", "document.replace", "document.upsert", "document.patch", "document.delete",
	"document.touch", "document.restore", "document.hold", "document.release"}

// Ops is the number of operations, NoOp included.
const Ops = len(opNames)

func (op Op) String() string { return opNames[op] }

// OnDocument reports whether op is on a document, not on a collection.
func (op Op) OnDocument() bool { return op >= DocumentCreate }

// ParseOp is the inverse of Op.String; NoOp for anything else.
func ParseOp(s string) Op {
	return Op(max(slices.Index(opNames[:], s), 0))
}

// Mutation is a proposal to change a collection or document. It goes through three stages:
// made of a subject, a batch or a line (New…), checked without state (Check), decided by
// the machine. The first two may set Fault; the machine then refuses it with that.
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

	End End // of create, replace, upsert and patch

	Trace Trace // of its request, or of the whole batch

	// Body as parsed by Check.
	Document   Document   // create, replace, upsert; of patch only HasTTL
	Properties Properties // collection create and replace
	Version    string     // restore: "" for the last one
	Reason     string     // hold
	MinAge     int32      // touch: seconds that the last modification is ago at least, 0 for any
	Content    bool       // touch: the reply is the document

	// Fault is why the mutation is malformed, nil if it is not. Raw then has the
	// malformed parts as written.
	Fault *Error
	Raw   RawMutation
}

// Matches reports whether version satisfies IfMatch.
func (m *Mutation) Matches(version Version) bool {
	return m.IfMatch == "" || m.IfMatch == "*" || m.IfMatch == version.String()
}

// Tail returns the end of a well-formed mutation's subject: its operation, collection
// and id.
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

// appendTail appends, for instance, document.upsert.orders.SO05.
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

// RawMutation holds the names of a malformed mutation as written.
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
		m.nameCollection() // the rejection is logged under this collection
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
		m.Fault = ErrBadRequest.With("%s: %.80q has extra tokens after the collection", m.Op, tail)
	}
	return m.Check()
}

// NewNamedMutation makes a mutation from names that are not encoded, as in a batch or a
// file for simulate.
func NewNamedMutation(op, collection, id string, body []byte) *Mutation {
	m := &Mutation{Op: ParseOp(op), Body: body}
	m.Raw = RawMutation{Op: op, Collection: collection, ID: id}
	if m.Op == NoOp {
		m.nameCollection() // the rejection is logged under this collection
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
		m.Fault = ErrBadRequest.With("%s accepts no id, it has %.80q", m.Op, id)
	}
	return m.Check()
}

func unknownOp(op string) *Error {
	return ErrBadRequest.With("unknown operation %.80q: use one of %s", op, strings.Join(opNames[1:], ", "))
}

// nameCollection sets Collection, or Fault if the name is illegal.
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
		m.Document.HasTTL, m.Fault = CheckPatch(m.ID, m.Body)
	case DocumentTouch:
		content := Bool("content", &m.Content)
		content.Null = true
		m.Fault = ReadObject(m.what(), m.Body, seconds("minAge", &m.MinAge), content)
	case CollectionDelete, DocumentDelete, DocumentRelease:
		m.Fault = CheckNoBody(m.Op.String(), m.Body)
	case DocumentRestore:
		version := Text("version", &m.Version)
		m.Fault = ReadObject(m.what(), m.Body, Member{Name: version.Name, Read: func(value []byte) *Error {
			if string(value) == `""` {
				return ErrBadRequest.With("the version is empty: leave it out for the last one")
			}
			return version.Read(value)
		}})
	case DocumentHold:
		if m.Fault = ReadObject(m.what(), m.Body, Text("reason", &m.Reason)); len(m.Reason) > MaxReasonBytes {
			m.Fault = ErrBadRequest.With("the reason has %d bytes: at most %d are allowed", len(m.Reason), MaxReasonBytes)
		}
	}
	return m
}

// what names the body in errors.
func (m *Mutation) what() string { return "the body of " + m.Op.String() }

// MaxReasonBytes is the size of the longest reason of a hold.
const MaxReasonBytes = 1024

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
	dst = m.End.append(dst)
	if len(m.Body) == 0 {
		return append(dst, '}', '}')
	}
	mark := len(dst)
	if len(m.Body) <= maxRejectedBody {
		dst = append(dst, `,"body":`...)
		if ValidJSON(m.Body) {
			dst = append(dst, compact(m.Body)...)
		} else {
			dst = AppendString(dst, string(m.Body)) // not valid JSON: show it as a string
		}
	}
	if n := len(dst) - mark; n == 0 || n > len(`,"body":`)+maxRejectedBody {
		dst = strconv.AppendInt(append(dst[:mark], `,"bodyBytes":`...), int64(len(m.Body)), 10)
	}
	return append(dst, '}', '}')
}

// appendRejectedName appends a name as a JSON string, cut if it exceeds any legal name.
func appendRejectedName(dst []byte, name string) []byte {
	if len(name) > maxRejectedName {
		name = strings.ToValidUTF8(name[:maxRejectedName], "") + "…"
	}
	return AppendString(dst, name)
}
