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
	var l eventLine
	s := scanner{data: line}
	if s.peek() != '{' {
		return 0, nil, s.unexpected("an object")
	}
	var fault error // of the first invalid value
	err = s.object(eventDepth, func(name []byte) error {
		value, err := s.skip(eventDepth - 1)
		if err != nil {
			return err
		}
		if err := l.read(name, value); err != nil && fault == nil {
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
	if l.event.Seq == 0 {
		return 0, nil, errors.New("it has no seq")
	}
	if fault == nil {
		fault = l.finish()
	}
	if fault != nil {
		return l.event.Seq, nil, fmt.Errorf("event %d: %w", l.event.Seq, fault)
	}
	e = new(Event)
	*e = l.event
	return e.Seq, e, nil
}

// eventLine is a line of the log: an event with all members of the line, and the texts from
// which finish makes the rest of it. Members may come in any order, so those whose meaning
// depends on the type wait for finish.
type eventLine struct {
	event                                   Event
	eventType, id, time, rule, cause, trace string
}

// read reads a member of the line.
func (l *eventLine) read(name, value []byte) error {
	e := &l.event
	switch string(name) {
	case "seq":
		return readSequence(value, &e.Seq)
	case "time":
		return readText(value, &l.time)
	case "type":
		return readText(value, &l.eventType)
	case "collection":
		return readText(value, &e.Collection)
	case "id":
		return readText(value, &l.id)
	case "previous":
		return readSequence(value, &e.Previous)
	case "restored":
		return readSequence(value, &e.Restored)
	case "deadline":
		return readNumber(value, 64, &e.Deadline.At)
	case "ttl":
		return readNumber(value, 32, &e.Deadline.TTL)
	case "rule":
		return readText(value, &l.rule)
	case "cause":
		return readText(value, &l.cause)
	case "traceparent":
		return readText(value, &l.trace)
	case "body":
		e.Body = value
	}
	return nil
}

// finish completes the event, without the members that its type does not have.
func (l *eventLine) finish() (err error) {
	e := &l.event
	if e.Type = ParseEventType(l.eventType); e.Type == NoEvent {
		return fmt.Errorf("unknown type %.80q", l.eventType)
	}
	at, err := ParseTime(l.time)
	if err != nil {
		return fmt.Errorf("time %.40q is not one like 2015-05-17T10:05:03.250Z", l.time)
	}
	e.Time = at.UnixMilli()
	if e.Type.OnDocument() {
		if e.ID, err = ParseDocumentID(l.id); err != nil {
			return err
		}
	}
	if !e.Type.is(withPrevious) {
		e.Previous = 0
	}
	if !e.Type.is(withRestored) {
		e.Restored = 0
	}
	if e.Deadline.Rule = ParseRule(l.rule); !e.Type.HasDeadline() {
		e.Deadline = Deadline{}
	}
	if l.cause != "" {
		if e.Cause, err = parseCause(l.cause); err != nil {
			return err
		}
	}
	if !e.Type.HasDeadline() {
		e.Trace = NewTrace(l.trace, "")
	}
	return e.check()
}

// readText reads a string into a named type.
func readText[T ~string](value []byte, into *T) error {
	text, err := decodeString(value)
	*into = T(text)
	return err
}

// readSequence reads a whole number of at least 0.
func readSequence[T ~uint64](value []byte, into *T) error {
	n, err := strconv.ParseUint(string(value), 10, 64)
	*into = T(n)
	return whole(value, err)
}

// readNumber reads a whole number of some bits.
func readNumber[T int32 | int64](value []byte, bits int, into *T) error {
	n, err := strconv.ParseInt(string(value), 10, bits)
	*into = T(n)
	return whole(value, err)
}

// whole explains the error of strconv for a value.
func whole(value []byte, err error) error {
	if err != nil {
		err = fmt.Errorf("%s is not a whole number that fits", Shown(value))
	}
	return err
}
