package schema

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/lapsedb/lapse/schema/values"
)

// MaxMetadataBytes limits the metadata of a collection: names and values together.
const MaxMetadataBytes = 16 << 10

// readMetadata reads an object of strings, nil if it has none. object is valid JSON.
func readMetadata(object []byte) (all map[string]string, fault *Error) {
	if object[0] != '{' {
		return nil, WrongValue("metadata", object, `an object of strings like {"owner":"shop"}`)
	}
	size := 0
	_, err := members(object, func(quoted, value []byte) error {
		decoded, ok := values.Decode(quoted)
		name := string(decoded)
		if !ok {
			return ErrBadRequest.With("the name %.80q in metadata has half a surrogate pair", name)
		}
		if _, twice := all[name]; twice {
			return ErrBadRequest.With("metadata has %.80q twice", name)
		}
		var text string
		if fault := Text(fmt.Sprintf("metadata %.80q", name), &text).Read(value); fault != nil {
			return fault
		}
		if size += len(name) + len(text); size > MaxMetadataBytes {
			return ErrTooLarge.With("metadata has more than %d bytes in names and values: keep what is larger in a document", MaxMetadataBytes)
		}
		if all == nil {
			all = map[string]string{}
		}
		all[name] = text
		return nil
	})
	fault, _ = errors.AsType[*Error](err)
	return all, fault
}

// appendMetadata appends an object of strings in the order of their names: the same
// metadata gives the same bytes.
func appendMetadata(dst []byte, all map[string]string) []byte {
	dst = append(dst, '{')
	for i, name := range slices.Sorted(maps.Keys(all)) {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(AppendString(dst, name), ':')
		dst = AppendString(dst, all[name])
	}
	return append(dst, '}')
}
