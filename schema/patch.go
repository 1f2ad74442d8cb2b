package schema

// CheckPatch checks a JSON Merge Patch sent by a client for the subject's id,
// before the document that it changes is known.
func CheckPatch(id DocumentID, patch []byte) *Error {
	if len(patch) > MaxDocumentBytes {
		return ErrTooLarge.With("the patch has %d bytes: at most %d are allowed", len(patch), MaxDocumentBytes)
	}
	_, _, _, err := parse(id, patch, "patch")
	return err
}

// Patch applies a checked JSON Merge Patch (RFC 7396) to a stored document.
// System properties in the patch are dropped. A ttl is judged only if the
// patch names it, so that a document with a ttl from before TTL was turned on
// can still be changed.
func Patch(id DocumentID, body, patch []byte) (Document, *Error) {
	named := false
	_, _ = members(patch, func(name, _ []byte) error {
		named = named || string(unquote(name)) == "ttl"
		return nil
	})
	merged := merge(body, compact(patch))
	if len(merged) > MaxDocumentBytes {
		return Document{}, ErrTooLarge.With("the patched document would have %d bytes: at most %d are allowed", len(merged), MaxDocumentBytes)
	}
	d, err := ParseDocument(id, merged)
	if !named {
		d.BadTTL = nil
	}
	return d, err
}

// merge returns target with patch merged into it, member by member. Members
// keep their order; new ones come last.
func merge(target, patch []byte) []byte {
	type change struct {
		name, value []byte
		used        bool
	}
	var changes []change
	index := make(map[string]int)
	_, _ = members(patch, func(name, value []byte) error {
		key := string(unquote(name))
		if i, ok := index[key]; ok {
			changes[i].value = value // the last of equal names counts, as in JSON decoders
			return nil
		}
		index[key] = len(changes)
		changes = append(changes, change{name: name, value: value})
		return nil
	})
	out := append(make([]byte, 0, len(target)+len(patch)), '{')
	if len(target) > 0 && target[0] == '{' {
		_, _ = members(target, func(name, value []byte) error {
			i, ok := index[string(unquote(name))]
			if !ok {
				out = appendMember(out, name, value)
				return nil
			}
			c := &changes[i]
			c.used = true
			if string(c.value) != "null" {
				out = appendMember(out, name, mergeValue(value, c.value))
			}
			return nil
		})
	}
	for _, c := range changes {
		if !c.used && string(c.value) != "null" {
			out = appendMember(out, c.name, mergeValue(nil, c.value))
		}
	}
	return append(out, '}')
}

func mergeValue(target, patch []byte) []byte {
	if patch[0] != '{' {
		return patch
	}
	return merge(target, patch)
}
