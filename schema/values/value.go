// Package values reads JSON values where they stand: it finds members of a
// document by path, without decoding what it passes by, compares values, and
// writes them as keys whose bytes sort in the one order that lapse has over all
// of JSON:
//
//	missing < null < false < true < numbers < strings < arrays < objects
//
// Numbers are on one number line: 1, 1.0 and 1e0 are the same. One written in
// digits alone is exact within 64 bits, signed or not; any other is the nearest
// float64. Strings are in the order of their UTF-8 bytes, which is that of
// their code points; half a surrogate pair is U+FFFD. Arrays are in the order of
// their elements, objects of their members sorted by name, and in both a
// beginning comes before the whole. Of a member that is there twice the last one
// counts, as in most decoders.
//
// All functions want valid JSON in UTF-8, as schema lets it in. From anything
// else they give an answer of no meaning, but they end and don't panic.
package values

// Value is one JSON value as it is written, without white space around it. An
// empty one is missing.
type Value []byte

// Kind is what a value is, in the order of values.
type Kind byte

// Kinds start at 2: keys need smaller bytes for what ends and precedes values.
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

// Kind tells what v is by its first byte.
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

// Len returns how many elements an array or members an object has; of a member
// that is there twice it counts one.
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

// Text returns the string that v is, without its escapes. It shares v's memory
// if there are none.
func (v Value) Text() []byte {
	if v.Kind() != String || len(v) < 2 {
		return nil
	}
	return Unquote(v[1 : len(v)-1])
}
