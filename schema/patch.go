package schema

import "github.com/lapsedb/lapse/schema/values"

// CheckPatch checks a JSON Merge Patch for the subject's id, without the document that
// it changes. hasTTL reports whether it names the member ttl.
func CheckPatch(id DocumentID, patch []byte) (hasTTL bool, fault *Error) {
	if len(patch) > MaxDocumentBytes {
		return false, ErrTooLarge.With("the patch has %d bytes: at most %d are allowed", len(patch), MaxDocumentBytes)
	}
	d, _, _, fault := parse(id, patch, "patch")
	return d.HasTTL, fault
}

// Patch applies a checked JSON Merge Patch (RFC 7396) to a stored document.
// It drops system properties. It checks a ttl only if the patch names it, so that a
// document with an invalid ttl from before TTL was turned on can be changed. Likewise
// a document that exceeds MaxDocumentBytes by its added id may keep its size.
func Patch(id DocumentID, body, patch []byte) (Document, *Error) {
	var c changes
	p, target := scanner{data: patch}, scanner{data: body}
	err := c.read(&p, MaxDepth)
	if err == nil {
		err = p.end()
	}
	if err != nil {
		return Document{}, ErrBadRequest.With("the patch is not a JSON object of at most %d levels: %v", MaxDepth, err)
	}
	merged, err := c.merge(make([]byte, 0, len(body)+len(patch)), &target, MaxDepth)
	if err == nil {
		err = target.end()
	}
	if err != nil {
		return Document{}, ErrBadRequest.With("the stored document is not a JSON object of at most %d levels: %v", MaxDepth, err)
	}
	d, fault := ReadDocument(id, merged)
	if fault != nil {
		return Document{}, fault
	}
	if len(d.Body) > max(MaxDocumentBytes, len(body)) {
		return Document{}, ErrTooLarge.With("the patched document would have %d bytes: at most %d are allowed", len(d.Body), MaxDocumentBytes)
	}
	if _, named := c.index["ttl"]; !named {
		d.BadTTL = nil
	}
	return d, nil
}

// changes are the members of one object of a patch. Patch and document are each
// scanned once, however deep they nest, since the writer waits meanwhile.
type changes struct {
	list  []change
	index map[string]int // by name without escapes
}

type change struct {
	name, value []byte   // as written
	object      *changes // the changes in a value that is an object
	used        bool     // the target has this member
}

// read reads the object that s is at.
func (c *changes) read(s *scanner, depth int) error {
	if s.peek() != '{' {
		return s.unexpected("an object")
	}
	c.index = make(map[string]int)
	return s.object(depth, func(name []byte) (err error) {
		ch := change{name: name}
		if s.peek() == '{' {
			ch.object = new(changes)
			err = ch.object.read(s, depth-1)
		} else {
			ch.value, err = s.skip(depth - 1)
		}
		key := string(values.Unquote(name))
		if i, ok := c.index[key]; ok {
			c.list[i] = ch // the last of equal names counts, as in JSON decoders
			return err
		}
		c.index[key] = len(c.list)
		c.list = append(c.list, ch)
		return err
	})
}

// merge appends the object at target's position with the changes, and moves target
// past it. Members keep their order; new ones come last.
func (c *changes) merge(dst []byte, target *scanner, depth int) ([]byte, error) {
	for i := range c.list {
		c.list[i].used = false // equal names in the target: merge runs once for each
	}
	if target.peek() != '{' {
		return dst, target.unexpected("an object")
	}
	dst = append(dst, '{')
	err := target.object(depth, func(name []byte) (err error) {
		i, ok := c.index[string(values.Unquote(name))]
		if ok && c.list[i].object != nil && target.peek() == '{' {
			c.list[i].used = true
			dst, err = c.list[i].object.merge(appendName(dst, name), target, depth-1)
			return err
		}
		value, err := target.skip(depth - 1)
		if ok {
			c.list[i].used = true
			dst = c.list[i].append(dst, name)
		} else {
			dst = appendMember(dst, name, value)
		}
		return err
	})
	return c.end(dst), err
}

// end appends the changes of members that the target does not have, and the brace.
func (c *changes) end(dst []byte) []byte {
	for i := range c.list {
		if ch := &c.list[i]; !ch.used {
			dst = ch.append(dst, ch.name)
		}
	}
	return append(dst, '}')
}

// append appends the member of a change whose target is missing or not an object.
func (ch *change) append(dst, name []byte) []byte {
	switch {
	case ch.object != nil:
		for i := range ch.object.list {
			ch.object.list[i].used = false
		}
		return ch.object.end(append(appendName(dst, name), '{'))
	case string(ch.value) == "null":
		return dst
	}
	return appendMember(dst, name, ch.value)
}
