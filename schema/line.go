package schema

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// ParseMutationLine reads a line of simulate's input, a JSON object with the time of
// the mutation:
//
//	{"at":"2015-05-17T10:05:03Z","op":"document.upsert","collection":"sessions","id":"a","ifMatch":"12","body":{…}}
//
// It may have expireAt and keepDeadline, too, see End.
// The mutation keeps line's memory. A fault of its names or body is in its Fault; an
// error is about the line.
func ParseMutationLine(line []byte) (at time.Time, m *Mutation, err error) {
	var when, op, collection, id, ifMatch string
	var body []byte
	var end given
	ends := end.members()
	if fault := readObjectTo(envelopeDepth, "the line", line, []Member{
		Text("at", &when), Text("op", &op), Text("collection", &collection), Text("id", &id), Text("ifMatch", &ifMatch),
		{Name: "body", Null: true, Read: func(value []byte) *Error { body = value; return nil }},
		ends[0], ends[1],
	}); fault != nil {
		return at, nil, errors.New(fault.Message) // without a code: it is no reply
	}
	if at, err = ParseTime(when); err != nil {
		return at, nil, fmt.Errorf("at is %.40q: give a time like 2015-05-17T10:05:03Z", when)
	}
	if at.UnixMilli() < 0 {
		return at, nil, fmt.Errorf("at is %.40q: times before 1970 are not simulated", when)
	}
	if at.UnixMilli() > MaxTime {
		return at, nil, fmt.Errorf("at is %.40q, which is after the year 9999 in UTC", when)
	}
	m = NewNamedMutation(op, collection, id, body)
	m.IfMatch = ifMatch
	m.setEnd(end)
	return at, m, nil
}

// eventDepth limits the nesting of a line of the log to that of encoding/json: folding
// checks the body.
const eventDepth = 10_000

// ParseEventLine reads an event as AppendJSON writes it and refuses what
// DecodeEvent does. The event keeps line's memory. Members it does not know are
// ignored.
//
// With an error, seq is the sequence in the line, 0 if it is not JSON or has none.
func ParseEventLine(line []byte) (seq uint64, e *Event, err error) {
	e = new(Event)
	var eventType, collection, id, when, rule, cause string
	var previous, restored uint64
	var ttl int64
	var fault error // of the first invalid value
	s := scanner{data: line}
	if s.peek() != '{' {
		return 0, nil, s.unexpected("an object")
	}
	err = s.object(eventDepth, func(name []byte) error {
		value, err := s.skip(eventDepth - 1)
		if err != nil {
			return err
		}
		var text *string
		number := true
		switch string(name) {
		case "seq":
			e.Seq, number = parseUint(value)
		case "time":
			text = &when
		case "type":
			text = &eventType
		case "collection":
			text = &collection
		case "id":
			text = &id
		case "previous":
			previous, number = parseUint(value)
		case "restored":
			restored, number = parseUint(value)
		case "deadline":
			e.Deadline.At, number = parseInt(value, 64)
		case "ttl":
			ttl, number = parseInt(value, 32)
		case "rule":
			text = &rule
		case "cause":
			text = &cause
		case "body":
			e.Body = value
		}
		if text != nil {
			*text, err = decodeString(value)
		}
		if !number {
			err = fmt.Errorf("%s is not a whole number that fits", Shown(value))
		}
		if err != nil && fault == nil {
			fault = fmt.Errorf("%s: %w", name, err)
		}
		return nil
	})
	if err == nil {
		err = s.end()
	}
	if err != nil {
		return 0, nil, err
	}
	if e.Seq == 0 {
		return 0, nil, fmt.Errorf("it has no seq")
	}
	fail := func(err error) (uint64, *Event, error) {
		return e.Seq, nil, fmt.Errorf("event %d: %w", e.Seq, err)
	}
	if fault != nil {
		return fail(fault)
	}
	e.Type, e.Collection = ParseEventType(eventType), CollectionName(collection)
	if e.Type == NoEvent {
		return fail(fmt.Errorf("unknown type %.80q", eventType))
	}
	at, err := ParseTime(when)
	if err != nil {
		return fail(fmt.Errorf("time %.40q is not one like 2015-05-17T10:05:03.250Z", when))
	}
	e.Time = at.UnixMilli()
	if e.Type.OnDocument() {
		if e.ID, err = ParseDocumentID(id); err != nil {
			return fail(err)
		}
	}
	if e.Type.hasPrevious() {
		e.Previous = Version(previous)
	}
	if e.Type == DocumentCreated {
		e.Restored = Version(restored)
	}
	if e.Type.HasDeadline() {
		e.Deadline.TTL, e.Deadline.Rule = int32(ttl), parseRule(rule)
	} else {
		e.Deadline = Deadline{}
	}
	if cause != "" {
		if e.Cause, err = parseCause(cause); err != nil {
			return fail(err)
		}
	}
	if err := e.check(); err != nil {
		return e.Seq, nil, err
	}
	return e.Seq, e, nil
}

func parseUint(value []byte) (uint64, bool) {
	n, err := strconv.ParseUint(string(value), 10, 64)
	return n, err == nil
}

func parseInt(value []byte, bits int) (int64, bool) {
	n, err := strconv.ParseInt(string(value), 10, bits)
	return n, err == nil
}
