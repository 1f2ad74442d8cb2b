package schema

import (
	"bytes"
	"strconv"
)

// Lifetime is the deadline and hold of one live document, as in the headers of a reply.
// It is zero for a document that does not expire, and in a reply about no document.
type Lifetime struct {
	Deadline Deadline
	Held     bool
	Reason   string // of the hold, may be empty
}

// Headers calls set with each header of l.
func (l *Lifetime) Headers(set func(name, value string)) {
	if l.Deadline.Rule != NoRule {
		set(HeaderDeadline, strconv.FormatInt(l.Deadline.At, 10))
		set(HeaderRule, l.Deadline.Rule.String())
	}
	if l.Held {
		set(HeaderHold, lineEnds.Replace(l.Reason))
	}
}

// ReadLifetime reads the headers of a reply; a malformed header counts as absent.
func ReadLifetime(header Header) (l Lifetime) {
	if at, err := strconv.ParseInt(header.Get(HeaderDeadline), 10, 64); err == nil {
		l.Deadline = Deadline{At: at, Rule: parseRule(header.Get(HeaderRule))}
	}
	l.Held, l.Reason = len(header[HeaderHold]) > 0, header.Get(HeaderHold)
	return l
}

// AppendReason appends the body of a DocumentHeld or DocumentReleased.
func AppendReason(dst []byte, reason string) []byte {
	if reason == "" {
		return append(dst, "{}"...)
	}
	return append(AppendString(append(dst, `{"reason":`...), reason), '}')
}

// ReadReason returns the reason in the body of a DocumentHeld, "" if it is malformed.
func ReadReason(body []byte) (reason string) {
	if ReadObject("the reason", body, Text("reason", &reason)) != nil {
		return ""
	}
	return reason
}

// AppendHeld appends the reply to a hold.
func AppendHeld(dst []byte, id DocumentID, reason string) []byte {
	dst = AppendString(append(dst, `{"id":`...), string(id))
	return append(AppendString(append(dst, `,"held":true,"reason":`...), reason), '}')
}

// AppendReleased appends the reply to a release.
func AppendReleased(dst []byte, id DocumentID) []byte {
	return append(AppendString(append(dst, `{"id":`...), string(id)), `,"held":false}`...)
}

const memberDeadline = "_deadline"

// AddDeadline adds the member _deadline to the object that begins at start in dst: unix
// seconds, or null. It replaces a member of that name in the content.
func AddDeadline(dst []byte, start int, d Deadline) []byte {
	if object := dst[start:]; bytes.Contains(object, []byte(memberDeadline)) || bytes.Contains(object, []byte(`\u`)) {
		dst = append(dst[:start], Without(object, memberDeadline)...)
	}
	dst = append(dst[:len(dst)-1], `,"`+memberDeadline+`":`...)
	if len(dst)-start == len(`{,"`+memberDeadline+`":`) {
		dst = append(dst[:start+1], dst[start+2:]...) // it is the only member
	}
	if d.Rule == NoRule {
		return append(dst, "null}"...)
	}
	return append(strconv.AppendInt(dst, d.At, 10), '}')
}
