package cosmos

import (
	"encoding/json"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/lapsedb/lapse/cosmos/sql"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/schema/values"
)

// maxPatch is the most operations of a patch, as in Cosmos DB.
const maxPatch = 10

// patch is a list of operations on an item, and the condition on which they depend. Its
// operations are those of JSON Patch (RFC 6902), with set and incr, without test and copy:
//
//	[{"op":"incr","path":"/views","value":1},{"op":"add","path":"/tags/-","value":"new"}]
//
// Set creates or replaces a member; replace needs one that is there.
type patch struct {
	condition  *sql.Query // nil for none
	operations []patchOperation
}

type patchOperation struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	From  string          `json:"from"`
	Value json.RawMessage `json:"value"`

	path, from []string
}

// parsePatch reads a patch: an array of operations, or an object with one. In the object
// form a condition may come with it: {"condition":"FROM c WHERE c.views <
// 10","operations":[…]}.
func (x *exchange) parsePatch(body values.Value, d *definition) (*patch, error) {
	var given struct {
		Operations []patchOperation `json:"operations"`
		Condition  string           `json:"condition"`
	}
	if err := schema.CheckJSON(body); err != nil {
		return nil, badRequest("the patch is not JSON: %v", err)
	}
	var err error
	if body.Kind() == values.Array {
		err = json.Unmarshal(body, &given.Operations)
	} else {
		err = json.Unmarshal(body, &given)
	}
	if err != nil || len(given.Operations) == 0 || len(given.Operations) > maxPatch {
		return nil, badRequest("a patch has 1 to %d operations", maxPatch)
	}
	p := &patch{operations: given.Operations}
	for i := range p.operations {
		if err := p.operations[i].check(d); err != nil {
			return nil, err
		}
	}
	if given.Condition != "" {
		if p.condition, err = sql.Parse("SELECT * "+given.Condition, nil); err != nil {
			return nil, badRequest("condition: %v", err)
		}
		if p.condition.NeedsPlan() {
			return nil, badRequest("condition %.80q: use FROM and WHERE alone", given.Condition)
		}
		err = x.setNow(p.condition)
	}
	return p, err
}

// check reads the paths of an operation, and refuses those of members that no patch changes.
func (o *patchOperation) check(d *definition) error {
	o.Op = strings.ToLower(o.Op)
	if !slices.Contains([]string{"add", "set", "replace", "remove", "incr", "move"}, o.Op) {
		return badRequest("the operation %.40q of a patch is not served: use add, set, replace, remove, incr or move", o.Op)
	}
	var err error
	if o.path, err = changeable(o.Path, d); err == nil && o.Op == "move" {
		o.from, err = changeable(o.From, d)
	}
	if err != nil {
		return err
	}
	if o.Value == nil && o.Op != "remove" && o.Op != "move" {
		return badRequest("the operation %s at %.80s has no value", o.Op, o.Path)
	}
	if o.Op == "incr" && values.Value(o.Value).Kind() != values.Number {
		return badRequest("incr at %.80s needs a number", o.Path)
	}
	return nil
}

// changeable parses the path of a member that a patch may change. A change of the id or of
// a value of the partition key would make it another item.
func changeable(text string, d *definition) ([]string, error) {
	path, err := values.ParsePointer(text)
	if err != nil || len(path) == 0 {
		return nil, badRequest("the path %.80q of a patch is none: use one like /address/city", text)
	}
	if isID(path[:1]) || isSystem(path[0]) {
		return nil, badRequest("a patch does not change %.80s", text)
	}
	for i, key := range d.paths {
		if n := min(len(key), len(path)); slices.Equal(key[:n], path[:n]) {
			return nil, badRequest("a patch does not change the partition key %s", d.pathText(i))
		}
	}
	return path, nil
}

// apply returns the item with the operations applied, if the condition holds for it. All
// operations see the results of those before. Nothing is stored here, so the first error
// leaves the item as it was.
func (p *patch) apply(item []byte) (values.Value, error) {
	if p.condition != nil {
		if holds, err := p.condition.Matches(item); err != nil {
			return nil, badRequest("%v", err)
		} else if !holds {
			return nil, faultf(http.StatusPreconditionFailed, "the condition of the patch does not hold for the item")
		}
	}
	content := values.Value(item)
	for i := range p.operations {
		var err error
		if content, err = p.operations[i].apply(content); err != nil {
			return nil, err
		}
	}
	return content, nil
}

// apply applies one operation. A move is a removal and an insertion.
func (o *patchOperation) apply(content values.Value) (values.Value, error) {
	if o.Op != "move" {
		return edit(content, o.path, o.change)
	}
	var moved values.Value
	content, err := edit(content, o.from, func(in, old values.Value) (values.Value, bool, error) {
		if moved = old; old == nil {
			return nil, false, badRequest("there is nothing at %.80s to move", o.From)
		}
		return nil, false, nil
	})
	if err != nil {
		return nil, err
	}
	return edit(content, o.path, func(in, _ values.Value) (values.Value, bool, error) { return moved, in.Kind() == values.Array, nil })
}

// change returns the value that takes the place of old in the object or array in; nil removes
// it. insert says that it comes before old.
func (o *patchOperation) change(in, old values.Value) (value values.Value, insert bool, err error) {
	value = values.Value(o.Value)
	switch {
	case (o.Op == "remove" || o.Op == "replace") && old == nil:
		return nil, false, badRequest("there is nothing at %.80s to %s", o.Path, o.Op)
	case o.Op == "remove":
		return nil, false, nil
	case o.Op == "incr" && old != nil:
		value, err = add(old, value, o.Path)
	}
	return value, o.Op == "add" && in.Kind() == values.Array, err
}

// add returns the sum of two numbers, exact for integers of 64 bits. Beyond 64 bits it is
// the sum of doubles, as JavaScript would print it.
func add(a, b values.Value, path string) (values.Value, error) {
	if a.Kind() != values.Number {
		return nil, badRequest("incr at %.80s: the value there is no number", path)
	}
	m, errM := strconv.ParseInt(string(a), 10, 64)
	n, errN := strconv.ParseInt(string(b), 10, 64)
	if sum := m + n; errM == nil && errN == nil && (sum > m) == (n > 0) {
		return strconv.AppendInt(nil, sum, 10), nil
	}
	sum := a.Float() + b.Float()
	if math.IsInf(sum, 0) {
		return nil, badRequest("incr at %.80s: the sum is no number", path)
	}
	return values.Value(scriptNumber(sum)), nil
}

// changer returns the value for a place in an object or array, which has old, nil for nothing.
// A nil value removes it; one to insert comes before old.
type changer func(in, old values.Value) (value values.Value, insert bool, err error)

// edit changes the value at a path. All above it must be there.
func edit(in values.Value, path []string, change changer) (values.Value, error) {
	if len(path) > 1 {
		last := change
		rest := path[1:]
		change = func(_, old values.Value) (values.Value, bool, error) {
			if old.Kind() != values.Object && old.Kind() != values.Array {
				return nil, false, badRequest("there is no object or array at %.80q", path[0])
			}
			value, err := edit(old, rest, last)
			return value, false, err
		}
	}
	if in.Kind() == values.Array {
		return editArray(in, path[0], change)
	}
	return editObject(in, path[0], change)
}

// editObject changes a member, and adds one that is missing at the end.
func editObject(in values.Value, member string, change changer) (values.Value, error) {
	value, _, err := change(in, in.At([]string{member}))
	if err != nil {
		return nil, err
	}
	done := value == nil
	out := appendMembers([]byte{'{'}, in, func(name string, old values.Value) values.Value {
		switch {
		case name != member:
			return old
		case done:
			return nil
		}
		done = true
		return value
	})
	if !done {
		out = appendMember(out, member, value)
	}
	return append(out, '}'), nil
}

// editArray changes an element; index may be the length of the array, or - for that.
func editArray(in values.Value, index string, change changer) (values.Value, error) {
	var elements []values.Value
	in.Elements(func(v values.Value) bool { elements = append(elements, v); return true })
	i, err := strconv.Atoi(index)
	if index == "-" {
		i, err = len(elements), nil
	}
	if err != nil || i < 0 || i > len(elements) {
		return nil, badRequest("%.40q is no index of an array with %d elements", index, len(elements))
	}
	var old values.Value
	if i < len(elements) {
		old = elements[i]
	}
	value, insert, err := change(in, old)
	if err != nil {
		return nil, err
	}
	if old != nil && !insert {
		elements = slices.Delete(elements, i, i+1)
	}
	if value != nil {
		elements = slices.Insert(elements, i, value)
	}
	out := []byte{'['}
	for _, element := range elements {
		out = append(comma(out), element...)
	}
	return append(out, ']'), nil
}
