package projections

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/schema/values"
)

// indexDefinition is the secondary index of an included path.
type indexDefinition struct {
	Path string `json:"path"`
	// Number names the index in keys. It is used once per incarnation, so that leftovers
	// of a dropped index never appear in another.
	Number uint32 `json:"number"`
	Lazy   bool   `json:"lazy,omitempty"`
	// Building means that documents older than the index, with an id after At, may lack
	// their entries.
	Building bool   `json:"building,omitempty"`
	At       string `json:"at,omitempty"`
}

// indexSet are the secondary indexes of a collection incarnation. All are lazy or
// none is: a collection has one mode. It does not change once it is published. Example:
// paths /a and /b, of which /a was dropped and included again, have
//
//	{"next":3,"indexes":[{"path":"/b","number":1},{"path":"/a","number":2,"building":true,"at":"s7"}]}
type indexSet struct {
	Next    uint32            `json:"next"`    // number of the next index
	Indexes []indexDefinition `json:"indexes"` // by number

	paths *values.Paths // of Indexes, in their order
}

// noIndexes is the set of a collection that never had an index; it is not stored.
var noIndexes = new(indexSet)

func (s *indexSet) encode() []byte {
	value, _ := json.Marshal(s)
	return value
}

// decodeIndexes reads definitions. The result must be compiled before use.
func decodeIndexes(value []byte) (*indexSet, error) {
	s := new(indexSet)
	if err := json.Unmarshal(value, s); err != nil {
		return nil, fmt.Errorf("projection: index definitions: %w", err)
	}
	return s, nil
}

// compile prepares to find the paths in documents.
func (s *indexSet) compile() error {
	pointers := make([]values.Pointer, len(s.Indexes))
	for i, x := range s.Indexes {
		p, err := values.ParsePointer(x.Path)
		if err != nil {
			return fmt.Errorf("projection: index definitions: %w", err)
		}
		pointers[i] = p
	}
	s.paths = values.NewPaths(pointers)
	return nil
}

// lazy reports whether the indexes are lazy.
func (s *indexSet) lazy() bool { return len(s.Indexes) > 0 && s.Indexes[0].Lazy }

// building reports whether an index is incomplete.
func (s *indexSet) building() bool {
	return slices.ContainsFunc(s.Indexes, func(x indexDefinition) bool { return x.Building })
}

// redefine returns the set for a collection's policy, and the indexes of s to drop.
// An index whose path and mode stay is kept; without changes the result is s itself.
// In an empty collection a new index is complete. A change between lazy and consistent
// replaces every index: their keys are the same, but entries of a lazy one may be of an
// older version, which a consistent fold would not find.
func (s *indexSet) redefine(p *schema.Properties, empty bool) (set *indexSet, dropped []indexDefinition, err error) {
	paths, lazy := p.IncludedPaths, p.IndexingMode == schema.Lazy
	if p.IndexingMode == schema.None {
		paths = nil
	}
	set = &indexSet{Next: s.Next}
	for _, x := range s.Indexes {
		if x.Lazy == lazy && slices.Contains(paths, x.Path) {
			set.Indexes = append(set.Indexes, x)
		} else {
			dropped = append(dropped, x)
		}
	}
	kept := set.Indexes
	for _, path := range paths {
		if !slices.ContainsFunc(kept, func(x indexDefinition) bool { return x.Path == path }) {
			set.Indexes = append(set.Indexes, indexDefinition{Path: path, Number: set.Next, Lazy: lazy, Building: !empty})
			set.Next++
		}
	}
	if len(dropped) == 0 && set.Next == s.Next {
		return s, nil, nil
	}
	return set, dropped, set.compile()
}
