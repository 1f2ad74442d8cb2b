package query

import (
	"strconv"

	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/schema/values"
)

// selection are the selected paths of a document as a tree of their tokens; a leaf
// selects the whole value. For ["/id","/address/city"] it is {id: leaf, address: {city:
// leaf}}. A path below a selected one adds nothing.
type selection struct {
	children map[string]*selection // none in a leaf
}

func newSelection(paths []values.Pointer) *selection {
	root := &selection{children: make(map[string]*selection)}
	for _, path := range paths {
		root.add(path)
	}
	return root
}

// add adds a path. A shorter path replaces longer ones below it.
func (s *selection) add(path values.Pointer) {
	switch child := s.children[path[0]]; {
	case len(path) == 1:
		s.children[path[0]] = &selection{} // replaces narrower ones
	case child == nil:
		child = &selection{children: make(map[string]*selection)}
		s.children[path[0]] = child
		child.add(path[1:])
	case child.children != nil:
		child.add(path[1:])
	}
}

// append appends the selected parts of v; ok is false if there are none. Members and
// elements keep their order, and an array has no gaps.
func (s *selection) append(dst []byte, v values.Value) (out []byte, ok bool) {
	if s.children == nil {
		return append(dst, v...), true
	}
	start := len(dst)
	object := v.Kind() == values.Object
	add := func(child *selection, name []byte, value values.Value) {
		before := len(dst)
		if before > start+1 {
			dst = append(dst, ',')
		}
		if object {
			dst = append(schema.AppendString(dst, string(name)), ':')
		}
		taken := false
		if dst, taken = child.append(dst, value); !taken {
			dst = dst[:before]
		}
		ok = ok || taken
	}
	i := 0
	switch v.Kind() {
	case values.Object:
		dst = append(dst, '{')
		last := s.last(v)
		v.Members(func(name []byte, value values.Value) bool {
			if child, named := s.children[string(name)]; named && last[string(name)] == i {
				add(child, name, value)
			}
			i++
			return true
		})
		dst = append(dst, '}')
	case values.Array:
		dst = append(dst, '[')
		v.Elements(func(element values.Value) bool {
			if child, named := s.children[strconv.Itoa(i)]; named {
				add(child, nil, element)
			}
			i++
			return true
		})
		dst = append(dst, ']')
	}
	if !ok {
		return dst[:start], false
	}
	return dst, true
}

// last returns the position of each selected member, the last one of the same name. JSON
// allows duplicate names; every reader of lapse takes the last one, and so must a
// selection.
func (s *selection) last(v values.Value) map[string]int {
	last := make(map[string]int, len(s.children))
	i := 0
	v.Members(func(name []byte, _ values.Value) bool {
		if _, named := s.children[string(name)]; named {
			last[string(name)] = i
		}
		i++
		return true
	})
	return last
}

// appendTo appends the selected parts of a document, {} if there are none.
func (s *selection) appendTo(dst, document []byte) []byte {
	out, ok := s.append(dst, document)
	if !ok {
		return append(out, "{}"...)
	}
	return out
}
