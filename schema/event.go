package schema

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Version is the log sequence of the event that carries a document's current
// content. Its decimal string is the _etag.
type Version uint64

func (v Version) String() string { return strconv.FormatUint(uint64(v), 10) }

// Event is a fact in the log. In the log it is a message. For one of collection orders:
//
//	subject  lapse.main.events.orders.DocumentExpired
//	headers  Lapse-Time: 1431857108250   Lapse-Id: SO05   Lapse-Previous: 41
//	         Lapse-Deadline: 1431857108  Lapse-Ttl: 5     Lapse-Rule: document
//	body     {"id":"SO05","total":5,"ttl":5}
//
// The sequence is that of the message. Which fields and headers an event has follows from
// its type, see eventTypes: others are zero.
type Event struct {
	Seq        uint64 // log sequence
	Time       int64  // log time, ms since 1970
	Type       EventType
	Collection CollectionName
	ID         DocumentID // of document events
	Previous   Version    // version it ends: Replaced, Deleted, Expired, Touched; it is about: Held, Released, Expiring
	Deadline   Deadline   // of Expired, Expiring
	Restored   Version    // Created by a restore: version whose content it has, else 0
	Content    Version    // of Touched: version whose event has the content, or the oldest one known; 0 in logs of older versions
	Cause      uint64     // sequence in the mutations stream, 0 for none
	MsgID      string     // Nats-Msg-Id of its mutation, "" for none
	MsgOp      Op         // its operation; NoOp for none and in logs of older versions
	Trace      Trace      // of its mutation or request; Expired and Expiring have none
	Body       []byte

	// More means that the next event belongs to the same atomic batch: no read sees the state
	// between the two.
	More bool
}

// Header names of the log and of requests and replies.
const (
	HeaderTime     = "Lapse-Time"
	HeaderID       = "Lapse-Id"
	HeaderPrevious = "Lapse-Previous"
	HeaderDeadline = "Lapse-Deadline"
	HeaderTTL      = "Lapse-Ttl"
	HeaderRule     = "Lapse-Rule"
	HeaderRestored = "Lapse-Restored"
	// HeaderContent leads from a touch to the content, past other touches of it.
	HeaderContent = "Lapse-Content"
	HeaderHold    = "Lapse-Hold"
	HeaderCause   = "Lapse-Cause"
	// HeaderMsgID is a mutation's Nats-Msg-Id in the log. Under NATS' own name JetStream
	// would deduplicate by its clock, not by log time.
	HeaderMsgID = "Lapse-Msg-Id"
	// HeaderMsgOp is the mutation's operation: the event is the same for an upsert, a
	// replace and a patch.
	HeaderMsgOp = "Lapse-Msg-Op"

	HeaderStatus  = "Lapse-Status"
	HeaderSeq     = "Lapse-Seq"
	HeaderMinSeq  = "Lapse-Min-Seq"
	HeaderIfMatch = "If-Match"

	// The End of a write.
	HeaderExpireAt     = "Lapse-Expire-At"
	HeaderKeepDeadline = "Lapse-Keep-Deadline"

	// HeaderRequestID is the request header that deduplicates retries of a mutation.
	HeaderRequestID = "Nats-Msg-Id"

	causePrefix = "mutations/"
)

// Headers calls set with each header of e.
func (e *Event) Headers(set func(name, value string)) {
	set(HeaderTime, strconv.FormatInt(e.Time, 10))
	if e.Type.OnDocument() {
		set(HeaderID, e.ID.Token())
	}
	if e.Previous != 0 {
		set(HeaderPrevious, e.Previous.String())
	}
	if e.Type.HasDeadline() {
		set(HeaderDeadline, strconv.FormatInt(e.Deadline.At, 10))
		set(HeaderTTL, strconv.FormatInt(int64(e.Deadline.TTL), 10))
		set(HeaderRule, e.Deadline.Rule.String())
	}
	if e.Restored != 0 {
		set(HeaderRestored, e.Restored.String())
	}
	if e.Content != 0 {
		set(HeaderContent, e.Content.String())
	}
	if e.Cause != 0 {
		set(HeaderCause, causePrefix+strconv.FormatUint(e.Cause, 10))
	}
	if e.MsgID != "" {
		set(HeaderMsgID, e.MsgID)
		if e.MsgOp != NoOp {
			set(HeaderMsgOp, e.MsgOp.String())
		}
	}
	e.Trace.Headers(set)
}

// DecodeEvent reads a message of the log: its sequence, the collection and type tokens
// of its subject, its headers and body. The event keeps body. An error means that the
// message is not an event of lapse.
func DecodeEvent(seq uint64, collection, eventType string, header func(string) string, body []byte) (*Event, error) {
	e := &Event{Seq: seq, Type: ParseEventType(eventType), Collection: CollectionName(collection), Body: body}
	if e.Type == NoEvent {
		return nil, fmt.Errorf("event %d: unknown type %.80q", seq, eventType)
	}
	err := e.setHeaders(header)
	if err == nil {
		err = e.check()
	}
	if err != nil {
		return nil, fmt.Errorf("event %d: %w", seq, err)
	}
	return e, nil
}

// setHeaders is the inverse of Headers: it sets what an event of type e.Type has.
func (e *Event) setHeaders(header func(string) string) (err error) {
	var fault error // of the first header that is no number
	number := func(name string, bits int) int64 {
		n, err := strconv.ParseInt(header(name), 10, bits)
		if err != nil && fault == nil {
			fault = fmt.Errorf("header %s: %.80q is not a number of %d bits", name, header(name), bits)
		}
		return n
	}
	version := func(name string) Version {
		n, err := strconv.ParseUint(header(name), 10, 64)
		if err != nil && fault == nil {
			fault = fmt.Errorf("header %s: %.80q is not a version", name, header(name))
		}
		return Version(n)
	}
	e.Time = number(HeaderTime, 64)
	if e.Type.OnDocument() {
		if e.ID, err = DecodeID(header(HeaderID)); err != nil {
			return fmt.Errorf("header %s: %w", HeaderID, err)
		}
	}
	if e.Type.is(withPrevious) {
		e.Previous = version(HeaderPrevious)
	}
	if e.Type.HasDeadline() {
		e.Deadline = Deadline{At: number(HeaderDeadline, 64), TTL: int32(number(HeaderTTL, 32)), Rule: ParseRule(header(HeaderRule))}
	}
	if e.Type.is(withRestored) && header(HeaderRestored) != "" {
		e.Restored = version(HeaderRestored)
	}
	if e.Type.is(withContent) && header(HeaderContent) != "" {
		e.Content = version(HeaderContent)
	}
	if cause := header(HeaderCause); cause != "" {
		if e.Cause, err = parseCause(cause); err != nil {
			return fmt.Errorf("header %s: %w", HeaderCause, err)
		}
	}
	if e.MsgID = header(HeaderMsgID); e.MsgID != "" {
		e.MsgOp = ParseOp(header(HeaderMsgOp))
	}
	if parent := header(HeaderTraceParent); parent != "" {
		e.Trace = NewTrace(parent, header(HeaderTraceState))
	}
	return fault
}

// Range of log times that RFC 3339 can express, in ms: the years 0 to 9999.
const (
	minTime = -62167219200000
	MaxTime = 253402300799999
)

// check returns why e is not a valid event, or nil. Folding checks the rest of the body. A
// log may be written by somebody else, or damaged, so nothing is taken for granted.
func (e *Event) check() error {
	if e.Time < minTime || e.Time > MaxTime {
		return fmt.Errorf("log time %d is outside the years 0 to 9999", e.Time)
	}
	switch {
	case e.Type.Internal():
		if e.Collection != InternalCollection {
			return fmt.Errorf("internal event in collection %.80q", string(e.Collection))
		}
	case e.Type == MutationRejected && e.Collection == InvalidCollection:
	default:
		if _, err := ParseCollectionName(string(e.Collection)); err != nil {
			return err
		}
	}
	body := e.Body
	switch {
	case e.Type.is(withPrevious) && e.Previous == 0:
		return fmt.Errorf("%s ends no version", e.Type)
	case e.Type.HasDeadline() && (e.Deadline.Rule == NoRule || e.Deadline.TTL < 1):
		return fmt.Errorf("%s after %d seconds by no rule", e.Type, e.Deadline.TTL)
	case e.Type.is(withBody) && len(body) == 0:
		return fmt.Errorf("%s without a body", e.Type)
	case e.Type.is(withoutBody) && len(body) > 0:
		return fmt.Errorf("%s with a body", e.Type)
	case len(body) > 0 && (len(body) < 2 || body[0] != '{' || body[len(body)-1] != '}'):
		return errors.New("the body is not an object")
	}
	return nil
}

// parseCause reads the header Lapse-Cause, or the member cause, such as mutations/17.
func parseCause(s string) (uint64, error) {
	n, err := strconv.ParseUint(strings.TrimPrefix(s, causePrefix), 10, 64)
	if err != nil || n == 0 || !strings.HasPrefix(s, causePrefix) {
		return 0, fmt.Errorf("cause %.80q is not %s<sequence>", s, causePrefix)
	}
	return n, nil
}

// AppendJSON appends the event as one line of JSON, without the line's end.
// The same event gives the same bytes. The members come in the order of
// docs/contributing/formats.md, each only where it applies.
func (e *Event) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"seq":`...)
	dst = strconv.AppendUint(dst, e.Seq, 10)
	dst = append(dst, `,"time":"`...)
	dst = appendTime(dst, e.Time)
	dst = append(dst, `","type":"`...)
	dst = append(dst, e.Type.String()...)
	dst = append(dst, `","collection":`...)
	dst = AppendString(dst, string(e.Collection))
	if e.Type.OnDocument() {
		dst = append(dst, `,"id":`...)
		dst = AppendString(dst, string(e.ID))
	}
	if e.Previous != 0 {
		dst = append(dst, `,"previous":`...)
		dst = strconv.AppendUint(dst, uint64(e.Previous), 10)
	}
	if e.Type.HasDeadline() {
		dst = append(dst, `,"deadline":`...)
		dst = strconv.AppendInt(dst, e.Deadline.At, 10)
		dst = append(dst, `,"ttl":`...)
		dst = strconv.AppendInt(dst, int64(e.Deadline.TTL), 10)
		dst = append(dst, `,"rule":"`...)
		dst = append(dst, e.Deadline.Rule.String()...)
		dst = append(dst, '"')
	}
	if e.Restored != 0 {
		dst = append(dst, `,"restored":`...)
		dst = strconv.AppendUint(dst, uint64(e.Restored), 10)
	}
	if e.Cause != 0 {
		dst = append(dst, `,"cause":"`+causePrefix...)
		dst = strconv.AppendUint(dst, e.Cause, 10)
		dst = append(dst, '"')
	}
	if e.Trace.Parent != "" {
		dst = AppendString(append(dst, `,"traceparent":`...), e.Trace.Parent)
	}
	if len(e.Body) > 0 {
		dst = append(dst, `,"body":`...)
		dst = append(dst, e.Body...)
	}
	return append(dst, '}')
}

// appendTime appends a time in ms in RFC 3339 with milliseconds, UTC, in half the time of
// time.AppendFormat, which is fast for RFC 3339 in seconds only.
func appendTime(dst []byte, ms int64) []byte {
	t := time.UnixMilli(ms).UTC()
	dst = t.AppendFormat(dst, time.RFC3339)
	millis := t.Nanosecond() / 1e6
	return append(dst[:len(dst)-1], '.', '0'+byte(millis/100), '0'+byte(millis/10%10), '0'+byte(millis%10), 'Z')
}

// MarshalJSON is AppendJSON for encoding/json, which also escapes < > & in strings:
// call AppendJSON for reproducible bytes.
func (e *Event) MarshalJSON() ([]byte, error) { return e.AppendJSON(nil), nil }

// UnmarshalJSON is the inverse of AppendJSON; it fails like DecodeEvent.
func (e *Event) UnmarshalJSON(data []byte) error {
	_, read, err := ParseEventLine(bytes.Clone(data))
	if err == nil {
		*e = *read
	}
	return err
}
