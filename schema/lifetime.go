package schema

import (
	"bytes"
	"slices"
	"strconv"
)

// Lifetime is the deadline and hold of one live document, as in the headers of a reply.
// It is zero for a document that does not expire, and in a reply about no document. In
// headers: Lapse-Deadline: 1431857108, Lapse-Rule: document, Lapse-Hold: lawsuit 12.
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
		l.Deadline = Deadline{At: at, Rule: ParseRule(header.Get(HeaderRule))}
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

// Members that a query adds to documents on request. Members of these names in the content
// give way.
const (
	memberDeadline = "_deadline"
	memberRule     = "_rule"
	memberHold     = "_hold"
)

var lifetimeMembers = []string{memberDeadline, memberRule, memberHold}

// AddLifetime adds to the object that begins at start in dst the member _deadline, unix seconds
// or null, _rule if there is a deadline, and _hold, the reason, if the document is held.
// The search for names and escapes is cheap: it avoids parsing documents that have no such
// member.
func AddLifetime(dst []byte, start int, l Lifetime) []byte {
	object := dst[start:]
	if slices.ContainsFunc(lifetimeMembers, func(name string) bool { return bytes.Contains(object, []byte(name)) }) || bytes.Contains(object, []byte(`\u`)) {
		dst = append(dst[:start], Without(object, lifetimeMembers...)...)
	}
	if dst = dst[:len(dst)-1]; len(dst)-start > 1 {
		dst = append(dst, ',')
	}
	dst = append(dst, `"`+memberDeadline+`":`...)
	if l.Deadline.Rule == NoRule {
		dst = append(dst, "null"...)
	} else {
		dst = strconv.AppendInt(dst, l.Deadline.At, 10)
		dst = append(append(append(dst, `,"`+memberRule+`":"`...), l.Deadline.Rule.String()...), '"')
	}
	if l.Held {
		dst = AppendString(append(dst, `,"`+memberHold+`":`...), l.Reason)
	}
	return append(dst, '}')
}

// appendResult appends what a result of a batch says of a lifetime, as the headers of a reply.
func (l *Lifetime) appendResult(dst []byte) []byte {
	if l.Deadline.Rule != NoRule {
		dst = strconv.AppendInt(append(dst, `,"deadline":`...), l.Deadline.At, 10)
		dst = append(append(append(dst, `,"rule":"`...), l.Deadline.Rule.String()...), '"')
	}
	if l.Held {
		dst = AppendString(append(dst, `,"hold":`...), l.Reason)
	}
	return dst
}
