// Package values reads JSON in place: it finds members of a document by path without
// decoding the others, compares values, and writes them as keys whose bytes sort in
// lapse's order of all JSON values:
//
//	missing < null < false < true < numbers < strings < arrays < objects
//
// Numbers compare by value: 1, 1.0 and 1e0 are equal. One written in digits only is
// exact within 64 bits, signed or unsigned; any other is the nearest float64. Strings
// sort by their UTF-8 bytes, and so by code points; half a surrogate pair is U+FFFD.
// Arrays sort by their elements, objects by their members in the order of names, and a
// prefix before the longer one. The last one of duplicate members counts.
//
// All functions need valid JSON in UTF-8, as package schema accepts it. For any other
// input they return a meaningless result, without panic or endless loop.
package values

// Value is one JSON value as written, without surrounding white space. An empty one is
// Missing.
type Value []byte

// Kind is the type of a value, in the order of values.
type Kind byte

// Kinds start at 2: keys use 0 and 1 as delimiters.
const (
	Missing Kind = iota + 2
	Null
	False
	True
	Number
	String
	Array
	Object
)

// Kind returns v's kind by its first byte.
func (v Value) Kind() Kind {
	if len(v) == 0 {
		return Missing
	}
	switch v[0] {
	case 'n':
		return Null
	case 'f':
		return False
	case 't':
		return True
	case '"':
		return String
	case '[':
		return Array
	case '{':
		return Object
	}
	return Number
}

// Elements visits the elements of an array in order until visit returns false.
// They share v's memory.
func (v Value) Elements(visit func(Value) bool) {
	if v.Kind() != Array {
		return
	}
	for i := next(v, 1); i < len(v) && v[i] != ']'; {
		end := skip(v, i, nil)
		if !visit(trim(v[i:end])) {
			return
		}
		if i = next(v, end); i < len(v) && v[i] == ',' {
			i = next(v, i+1)
		}
	}
}

// Members visits the members of an object in order until visit returns false:
// the name without its escapes, and the value. They share v's memory.
func (v Value) Members(visit func(name []byte, value Value) bool) {
	if v.Kind() != Object {
		return
	}
	for i := next(v, 1); i < len(v) && v[i] == '"'; {
		name, value, end := member(v, i, nil)
		if !visit(Unquote(name), value) {
			return
		}
		i = end
	}
}

// At returns the value below v at the names of a path; arrays have none. It shares v's
// memory.
func (v Value) At(path []string) Value {
	for _, step := range path {
		parent := v
		v = nil
		parent.Members(func(name []byte, value Value) bool {
			if string(name) == step {
				v = value // the last member of a name counts
			}
			return true
		})
	}
	return v
}

// Len returns the number of elements of an array, or of distinct member names of an
// object.
func (v Value) Len() int {
	n := 0
	switch v.Kind() {
	case Array:
		v.Elements(func(Value) bool { n++; return true })
	case Object:
		names := make(map[string]bool)
		v.Members(func(name []byte, _ Value) bool { names[string(name)] = true; return true })
		n = len(names)
	}
	return n
}

// Text returns the decoded string v. It shares v's memory if v has no escapes.
func (v Value) Text() []byte {
	if v.Kind() != String || len(v) < 2 {
		return nil
	}
	return Unquote(v[1 : len(v)-1])
}
