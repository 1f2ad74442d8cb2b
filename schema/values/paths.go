package values

import (
	"bytes"
	"slices"
	"strconv"
)

// Paths finds a fixed set of paths in a document in one pass. It is safe for
// concurrent use. A query or a set of indexes makes it once and asks it for every
// document. The cost is one pass over the bytes of a document, however many paths there
// are; what no path goes through is skipped.
type Paths struct {
	root     node
	count    int
	ts, etag []int // slots of the system properties
}

// node is a token of one or more paths. The paths /a/b and /a/c have the nodes a, and
// below it b and c; both are below a. When a comes twice in a document, what was found
// below the first is cleared by that list.
type node struct {
	children []*node
	name     string
	index    int   // name as an array index, or -1
	slots    []int // of the paths that end here
	below    []int // of the paths through here
}

// NewPaths returns the Paths for pointers; their positions are the slots of
// Found.Values.
func NewPaths(pointers []Pointer) *Paths {
	p := &Paths{count: len(pointers)}
	for slot, pointer := range pointers {
		if len(pointer) == 1 && pointer[0] == "_ts" {
			p.ts = append(p.ts, slot)
			continue
		}
		if len(pointer) == 1 && pointer[0] == "_etag" {
			p.etag = append(p.etag, slot)
			continue
		}
		at := &p.root
		for _, token := range pointer {
			if at != &p.root {
				at.below = append(at.below, slot)
			}
			at = at.child(token)
		}
		at.slots = append(at.slots, slot)
	}
	return p
}

// child returns the node for a token below n, and creates it if necessary.
func (n *node) child(token string) *node {
	i := slices.IndexFunc(n.children, func(c *node) bool { return c.name == token })
	if i >= 0 {
		return n.children[i]
	}
	c := &node{name: token, index: -1}
	if at, ok := index(token); ok {
		c.index = at
	}
	n.children = append(n.children, c)
	return c
}

// Found is the result of Find. Reuse it to save allocations.
type Found struct {
	Values []Value // by slot; Missing if the path is not in the document
	system []byte  // memory of the system properties

	// Passed, unless nil, is called while Find skips large objects and arrays, with the
	// bytes since the last call.
	Passed func(bytes int)
}

// Find finds the paths in a document: its body, and its system properties _ts, in
// seconds, and _etag. The values share the body's memory and are valid until the next
// call with the same f.
func (p *Paths) Find(body []byte, ts int64, version uint64, f *Found) {
	if cap(f.Values) < p.count {
		f.Values = make([]Value, p.count)
	}
	f.Values = f.Values[:p.count]
	clear(f.Values)
	f.system = f.system[:0]
	if p.ts != nil {
		f.system = strconv.AppendInt(f.system, ts, 10)
		set(f.Values, p.ts, f.system)
	}
	if p.etag != nil {
		start := len(f.system)
		f.system = append(strconv.AppendUint(append(f.system, '"'), version, 10), '"')
		set(f.Values, p.etag, f.system[start:])
		// append may have moved _ts.
		set(f.Values, p.ts, f.system[:start])
	}
	if start := next(body, 0); len(p.root.children) > 0 && start < len(body) {
		p.root.find(body[start:], f)
	}
}

func set(values []Value, slots []int, v Value) {
	for _, slot := range slots {
		values[slot] = v
	}
}

// find searches for n's children in v, an object or array.
func (n *node) find(v Value, f *Found) {
	switch v[0] {
	case '{':
		for i := next(v, 1); i < len(v) && v[i] == '"'; {
			name, value, end := member(v, i, f.Passed)
			if c := n.named(name); c != nil {
				c.found(value, f)
			}
			i = end
		}
	case '[':
		at, last := 0, -1
		for _, c := range n.children {
			last = max(last, c.index)
		}
		if last < 0 {
			return
		}
		v.Elements(func(element Value) bool {
			for _, c := range n.children {
				if c.index == at {
					c.found(element, f)
				}
			}
			at++
			return at <= last
		})
	}
}

// named returns the child for a member name as written between its quotes.
func (n *node) named(raw []byte) *node {
	if bytes.IndexByte(raw, '\\') >= 0 {
		raw = Unquote(raw)
	}
	for _, c := range n.children {
		if string(raw) == c.name {
			return c
		}
	}
	return nil
}

// found records v as the value at n, in place of an earlier member of the same name.
func (n *node) found(v Value, f *Found) {
	set(f.Values, n.slots, v)
	if len(n.children) == 0 || len(v) == 0 {
		return
	}
	set(f.Values, n.below, nil)
	n.find(v, f)
}
