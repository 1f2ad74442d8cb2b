package cosmos

import (
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/schema/values"
)

// comma appends a comma, unless dst ends with the beginning of an object or array. These
// build JSON from JSON as written: a number or an unknown member comes back as it was
// sent.
func comma(dst []byte) []byte {
	if c := dst[len(dst)-1]; c == '{' || c == '[' {
		return dst
	}
	return append(dst, ',')
}

// appendMember appends a member to an object that is being written.
func appendMember(dst []byte, name string, value values.Value) []byte {
	return append(append(schema.AppendString(comma(dst), name), ':'), value...)
}

// appendString appends a member with a string.
func appendString(dst []byte, name, value string) []byte {
	return schema.AppendString(append(schema.AppendString(comma(dst), name), ':'), value)
}

// appendMembers appends the members of an object with the values that change returns; nil
// omits a member.
func appendMembers(dst []byte, object values.Value, change func(name string, value values.Value) values.Value) []byte {
	object.Members(func(name []byte, value values.Value) bool {
		text := string(name)
		if value = change(text, value); value != nil {
			dst = appendMember(dst, text, value)
		}
		return true
	})
	return dst
}

// setMember sets a member of an object, whose others it copies.
func setMember(object values.Value, name string, value values.Value) values.Value {
	out := schema.Without(object, name)
	end := len(out) - 1 // without the closing brace, which may be the object's own
	return append(appendMember(out[:end:end], name, value), '}')
}
