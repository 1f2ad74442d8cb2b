package schema

import (
	"fmt"
	"time"

	"github.com/lapsedb/lapse/values"
)

// ParseMutationLine reads a mutation as simulate takes it, one JSON object
// with the time at which it happens:
//
//	{"at":"2015-05-17T10:05:03Z","op":"document.upsert","collection":"sessions","id":"a","ifMatch":"12","body":{…}}
//
// The mutation keeps line's memory. What is wrong with its names or body is in
// its Fault; an error is about the line.
func ParseMutationLine(line []byte) (at time.Time, m *Mutation, err error) {
	var when, op, collection, id, ifMatch string
	var body []byte
	_, err = membersTo(envelopeDepth, line, func(name, value []byte) error {
		var into *string
		switch string(values.Unquote(name)) {
		case "at":
			into = &when
		case "op":
			into = &op
		case "collection":
			into = &collection
		case "id":
			into = &id
		case "ifMatch":
			into = &ifMatch
		case "body":
			body = value
			return nil
		default:
			return fmt.Errorf("unknown member %.40q: use at, op, collection, id, ifMatch and body", name)
		}
		text, err := decodeString(value)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		*into = text
		return nil
	})
	if err != nil {
		return at, nil, err
	}
	if at, err = time.Parse(time.RFC3339Nano, when); err != nil {
		return at, nil, fmt.Errorf("at is %.40q: give a time like 2015-05-17T10:05:03Z", when)
	}
	if at.UnixMilli() < 0 {
		return at, nil, fmt.Errorf("at is %.40q: times before 1970 are not simulated", when)
	}
	m = NewNamedMutation(op, collection, id, body)
	m.IfMatch = ifMatch
	return at, m, nil
}
