package sql

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"

	"github.com/lapsedb/lapse/schema/values"
)

// operations has the operators, of their operands' values. They have three-valued logic:
// true, false and undefined. For AND
//
//	              true        false    undefined
//	true          true        false    undefined
//	false         false       false    false
//	undefined     undefined   false    undefined
var operations = map[string]func(args []values.Value) values.Value{
	"OR": undecided, "AND": undecided, "NOT": negation, "IN": membership,
	"=": equality(true), "!=": equality(false), "<>": equality(false),
	"<": relation(-1), "<=": relation(-1, 0), ">": relation(1), ">=": relation(1, 0),
	"+": arithmetic(func(a, b float64) float64 { return a + b }), "-": arithmetic(func(a, b float64) float64 { return a - b }),
	"*": arithmetic(func(a, b float64) float64 { return a * b }), "/": arithmetic(func(a, b float64) float64 { return a / b }),
	"%": arithmetic(math.Mod), "||": concat,
}

func boolean(b bool) values.Value {
	if b {
		return values.Value("true")
	}
	return values.Value("false")
}

// truth returns a boolean's value; ok is false for any other value.
func truth(v values.Value) (b, ok bool) {
	kind := v.Kind()
	return kind == values.True, kind == values.True || kind == values.False
}

// encode returns a string or number as JSON, undefined if it is not finite.
func encode(v any) values.Value {
	out, _ := json.Marshal(v)
	return out
}

// compare orders values of all types. It compares keys, which costs an allocation for each
// value: equal takes shortcuts for the common cases.
func compare(a, b values.Value) int {
	return bytes.Compare(values.AppendKey(nil, a), values.AppendKey(nil, b))
}

// equal reports whether two values are the same; undefined is equal to nothing.
func equal(a, b values.Value) bool {
	if a.Kind() != b.Kind() || len(a) == 0 {
		return false
	}
	if a.Kind() == values.String {
		return bytes.Equal(a.Text(), b.Text())
	}
	return bytes.Equal(a, b) || compare(a, b) == 0
}

// decisive has the value of a term that OR and AND have, too, whatever their other terms.
var decisive = map[string]string{"OR": "true", "AND": "false"}

// undecided is OR or AND of terms that are not decisive.
func undecided(args []values.Value) values.Value {
	for _, arg := range args {
		if _, ok := truth(arg); !ok {
			return nil
		}
	}
	return args[0]
}

func negation(args []values.Value) values.Value {
	if b, ok := truth(args[0]); ok {
		return boolean(!b)
	}
	return nil
}

func membership(args []values.Value) values.Value {
	if len(args[0]) == 0 {
		return nil
	}
	return boolean(slices.ContainsFunc(args[1:], func(v values.Value) bool { return equal(args[0], v) }))
}

func equality(wanted bool) func([]values.Value) values.Value {
	return func(args []values.Value) values.Value {
		if len(args[0]) == 0 || len(args[1]) == 0 {
			return nil
		}
		return boolean(equal(args[0], args[1]) == wanted)
	}
}

// relation holds for some results of comparing two nulls, booleans, numbers or strings.
func relation(holds ...int) func([]values.Value) values.Value {
	return func(args []values.Value) values.Value {
		kind := args[0].Kind()
		_, isBool := truth(args[0])
		_, isBoolToo := truth(args[1])
		if kind != args[1].Kind() && !(isBool && isBoolToo) || kind == values.Missing || kind >= values.Array {
			return nil
		}
		return boolean(slices.Contains(holds, compare(args[0], args[1])))
	}
}

// arithmetic is an operator or function of two numbers; without a finite result it is
// undefined.
func arithmetic(operate func(a, b float64) float64) func([]values.Value) values.Value {
	return func(args []values.Value) values.Value {
		if args[0].Kind() != values.Number || args[1].Kind() != values.Number {
			return nil
		}
		return encode(operate(args[0].Float(), args[1].Float()) + 0) // -0 is 0
	}
}

// search is a function of two strings; a third argument says whether to ignore case.
func search(found func(s, part []byte) bool) func([]values.Value) values.Value {
	return func(args []values.Value) values.Value {
		ignoreCase, ok := option(args)
		if !ok || args[0].Kind() != values.String || args[1].Kind() != values.String {
			return nil
		}
		s, part := args[0].Text(), args[1].Text()
		if ignoreCase {
			s, part = bytes.ToLower(s), bytes.ToLower(part)
		}
		return boolean(found(s, part))
	}
}

// option returns the third argument, false without one; ok is false if it is not a boolean.
func option(args []values.Value) (set, ok bool) {
	if len(args) < 3 {
		return false, true
	}
	return truth(args[2])
}

// arrayContains looks for a value in an array; a third argument says whether elements may
// have more members than the object looked for.
func arrayContains(args []values.Value) values.Value {
	partial, ok := option(args)
	if !ok || args[0].Kind() != values.Array || len(args[1]) == 0 {
		return nil
	}
	found := false
	args[0].Elements(func(element values.Value) bool {
		found = equal(element, args[1]) || partial && hasMembers(element, args[1])
		return !found
	})
	return boolean(found)
}

// hasMembers reports whether v and part are objects, and v has the members of part. For
// {"a":1} an element {"a":1,"b":2} has the members.
func hasMembers(v, part values.Value) bool {
	all := v.Kind() == values.Object && part.Kind() == values.Object
	part.Members(func(name []byte, value values.Value) bool {
		all = all && equal(v.At([]string{string(name)}), value)
		return all
	})
	return all
}

// aggregates are the aggregate functions.
var aggregates = []string{"COUNT", "SUM", "MIN", "MAX", "AVG"}

// aggregate is one in SELECT, and in a run what it has seen of its values. In a Query it
// is a template; each group clones it.
type aggregate struct {
	name  string
	of    *expr
	count int
	total values.Value // the sum, or the least or greatest; undefined after a wrong type
}

// add adds a value; one that is undefined does not count. Numbers alone have a sum; arrays
// and objects have no least or greatest.
func (a *aggregate) add(v values.Value) {
	if len(v) == 0 {
		return
	}
	a.count++
	switch a.name {
	case "SUM", "AVG":
		a.total = operations["+"]([]values.Value{a.total, v})
	case "MIN", "MAX":
		comparison := compare(v, a.total)
		switch {
		case v.Kind() >= values.Array:
			a.total = nil
		case a.count == 1, len(a.total) > 0 && (a.name == "MIN" && comparison < 0 || a.name == "MAX" && comparison > 0):
			a.total = slices.Clone(v)
		}
	}
}

// result returns the aggregate: without values 0 for COUNT and SUM, undefined for others.
func (a *aggregate) result() values.Value {
	switch a.name {
	case "COUNT":
		return encode(a.count)
	case "AVG":
		return operations["/"]([]values.Value{a.total, encode(a.count)})
	}
	return a.total
}
