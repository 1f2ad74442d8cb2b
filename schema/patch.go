package schema

import (
	"bytes"
	"errors"
	"hash/maphash"
	"math/bits"

	"github.com/lapsedb/lapse/schema/values"
)

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
// a document that exceeds MaxDocumentBytes by its added id may keep its size. An example:
//
//	document {"id":"a","x":1,"y":{"p":1,"q":2}}
//	patch    {"x":null,"y":{"q":3},"z":[1]}
//	result   {"id":"a","y":{"p":1,"q":3},"z":[1]}
func Patch(id DocumentID, body, patch []byte) (Document, *Error) {
	c, err := readChanges(patch)
	if err != nil {
		return Document{}, ErrBadRequest.With("the patch is not a JSON object of at most %d levels: %v", MaxDepth, err)
	}
	most := max(MaxDocumentBytes, len(body))
	c.most = most + len(patch) // some of the patch may be dropped later
	target := scanner{data: body}
	merged, err := c.merge(make([]byte, 0, len(body)+len(patch)), c.root, &target, MaxDepth)
	if err == nil {
		err = target.end()
	}
	if errors.Is(err, errTooLong) {
		return Document{}, ErrTooLarge.With("the patched document would have more than %d bytes: at most %d are allowed", c.most, MaxDocumentBytes)
	}
	if err != nil {
		return Document{}, ErrBadRequest.With("the stored document is not a JSON object of at most %d levels: %v", MaxDepth, err)
	}
	d, fault := ReadDocument(id, merged)
	if fault != nil {
		return Document{}, fault
	}
	if len(d.Body) > most {
		return Document{}, ErrTooLarge.With("the patched document would have %d bytes: at most %d are allowed", len(d.Body), MaxDocumentBytes)
	}
	if c.find(c.root.value, []byte("ttl")) == 0 {
		d.BadTTL = nil
	}
	return d, nil
}

// errTooLong ends a merge that makes more than changes.most bytes.
var errTooLong = errors.New("the result is too long")

// changes are the members of a patch's objects. Patch and document are each scanned once,
// however deep they nest, since the writer waits meanwhile. The memory is a few times the
// patch, whatever it is: nothing grows, and nothing is allocated for each member. Example:
// {"a":{"b":1},"c":null} makes two changes of the root's object, a and c, and one of the
// object at a, b. c is not linked, since no target gets a member of it. merge still finds
// it by slot, to drop the target's member.
type changes struct {
	patch []byte
	root  change
	list  []change // from 1 on
	seed  maphash.Seed
	slots []uint32 // a hash table of indexes in list, by object and name; 0 is a free slot
	runs  uint32   // objects merged so far
	most  int      // bytes of the result
}

// change is one member. Its fields are positions in the patch and indexes in the list,
// which are 0 for none.
type change struct {
	name, nameEnd   uint32 // without quotes, as written
	value, valueEnd uint32
	object          uint32 // position of the object that it is a member of
	first           uint32 // the first member of the value, without those that are null
	next            uint32 // the next member of the object, likewise
	run             uint32 // the last run of merge whose target has this member
}

// readChanges reads a patch.
func readChanges(patch []byte) (*changes, error) {
	// Each member has a colon, and at least five bytes, as in "":0,
	most := min(bytes.Count(patch, []byte(":")), len(patch)/5)
	c := &changes{patch: patch, list: make([]change, 1, most+1), seed: maphash.MakeSeed(),
		slots: make([]uint32, 1<<bits.Len(uint(most+most/3)))}
	s := scanner{data: patch}
	s.peek()
	c.root.value = uint32(s.pos)
	first, err := c.read(&s, MaxDepth)
	if err == nil {
		err = s.end()
	}
	c.root.first = first
	return c, err
}

// read reads the object that s is at, and returns its first change. Changes of inner
// objects come into the list before the member whose value they are.
func (c *changes) read(s *scanner, depth int) (first uint32, err error) {
	if s.peek() != '{' {
		return 0, s.unexpected("an object")
	}
	object, last := uint32(s.pos), uint32(0)
	err = s.object(depth, func(name []byte) (err error) {
		start := uint32(cap(s.data) - cap(name))
		ch := change{name: start, nameEnd: start + uint32(len(name)), value: uint32(s.pos), object: object}
		if s.peek() == '{' {
			ch.first, err = c.read(s, depth-1)
		} else {
			err = s.value(depth - 1)
		}
		if err != nil {
			return err
		}
		ch.valueEnd = uint32(s.pos)
		slot := c.slot(object, values.Unquote(name))
		if i := *slot; i != 0 {
			ch.next = c.list[i].next
			c.list[i] = ch // the last of equal names counts, as in JSON decoders
			return nil
		}
		*slot = uint32(len(c.list))
		c.list = append(c.list, ch)
		if last == 0 {
			first = *slot
		} else {
			c.list[last].next = *slot
		}
		last = *slot
		return nil
	})
	if err != nil {
		return 0, err
	}
	return c.withoutNull(first), nil
}

// withoutNull unlinks the members of an object that are null, which add nothing to any
// target, and returns the first that remains.
func (c *changes) withoutNull(first uint32) uint32 {
	for link := &first; *link != 0; {
		if ch := &c.list[*link]; c.patch[ch.value] == 'n' {
			*link = ch.next
		} else {
			link = &ch.next
		}
	}
	return first
}

// slot returns the slot of a member of the object at a position, by its name without
// escapes. It is free if there is none. Equal names are found by their decoded form: "a"
// and "\u0061" are one. The table has more slots than members, so a search ends.
func (c *changes) slot(object uint32, name []byte) *uint32 {
	mask := uint64(len(c.slots) - 1)
	for at := maphash.Bytes(c.seed, name) + uint64(object)*0x9e3779b97f4a7c15; ; at++ {
		slot := &c.slots[at&mask]
		if *slot == 0 {
			return slot
		}
		if ch := &c.list[*slot]; ch.object == object && bytes.Equal(values.Unquote(c.patch[ch.name:ch.nameEnd]), name) {
			return slot
		}
	}
}

// find returns the index of a member of the object at a position, 0 if there is none.
func (c *changes) find(object uint32, name []byte) uint32 { return *c.slot(object, name) }

// merge appends the object at target's position with the changes of object, and moves
// target past it. Members keep their order; new ones come last. A target may have equal
// names: merge runs once for each.
func (c *changes) merge(dst []byte, object change, target *scanner, depth int) ([]byte, error) {
	if target.peek() != '{' {
		return dst, target.unexpected("an object")
	}
	c.runs++
	run := c.runs
	dst = append(dst, '{')
	err := target.object(depth, func(name []byte) (err error) {
		if len(dst) > c.most {
			return errTooLong
		}
		i := c.find(object.value, values.Unquote(name))
		ch := &c.list[i]
		ch.run = run
		if i != 0 && c.isObject(ch) && target.peek() == '{' {
			dst, err = c.merge(appendName(dst, name), *ch, target, depth-1)
			return err
		}
		value, err := target.skip(depth - 1)
		if i != 0 {
			dst = c.append(dst, ch, name)
		} else {
			dst = appendMember(dst, name, value)
		}
		return err
	})
	return c.end(dst, object, run), err
}

// isObject reports whether the value of a change is an object, to be merged and not put.
func (c *changes) isObject(ch *change) bool { return c.patch[ch.value] == '{' }

// end appends the changes of object that the target of a run does not have, and the brace.
func (c *changes) end(dst []byte, object change, run uint32) []byte {
	for i := object.first; i != 0; i = c.list[i].next {
		if ch := &c.list[i]; ch.run != run {
			dst = c.append(dst, ch, c.patch[ch.name:ch.nameEnd])
		}
	}
	return append(dst, '}')
}

// append appends the member of a change whose target is missing or not an object.
func (c *changes) append(dst []byte, ch *change, name []byte) []byte {
	switch value := c.patch[ch.value:ch.valueEnd]; value[0] {
	case '{':
		return c.end(append(appendName(dst, name), '{'), *ch, c.runs+1)
	case 'n':
		return dst
	default:
		return appendMember(dst, name, value)
	}
}
