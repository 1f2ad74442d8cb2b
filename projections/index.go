package projections

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/schema/values"
)

// indexDefinition is one secondary index: that of an included path.
type indexDefinition struct {
	Path string `json:"path"`
	// Number names the index in keys. It is used once per incarnation, so that
	// what is left of a dropped index never gets into another.
	Number uint32 `json:"number"`
	Lazy   bool   `json:"lazy,omitempty"`
	// Building means that documents with an id after At may still lack their
	// entries: they were there before the index.
	Building bool   `json:"building,omitempty"`
	At       string `json:"at,omitempty"`
}

// indexSet is the secondary indexes of a collection incarnation, all lazy or
// none, since a collection has one mode. Once it is published it does not
// change.
type indexSet struct {
	Next    uint32            `json:"next"`    // number of the next index
	Indexes []indexDefinition `json:"indexes"` // by number

	paths *values.Paths // of Indexes, in their order
}

// noIndexes is the set of a collection that never had an index. It is not
// written.
var noIndexes = new(indexSet)

func (s *indexSet) encode() []byte {
	value, _ := json.Marshal(s)
	return value
}

// decodeIndexes reads definitions; to find the paths they have to be compiled.
func decodeIndexes(value []byte) (*indexSet, error) {
	s := new(indexSet)
	if err := json.Unmarshal(value, s); err != nil {
		return nil, fmt.Errorf("projection: index definitions: %w", err)
	}
	return s, nil
}

// compile makes ready to find the paths in documents.
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

// lazy tells whether there are lazy indexes.
func (s *indexSet) lazy() bool { return len(s.Indexes) > 0 && s.Indexes[0].Lazy }

// building tells whether an index is not complete.
func (s *indexSet) building() bool {
	return slices.ContainsFunc(s.Indexes, func(x indexDefinition) bool { return x.Building })
}

// redefine returns the set that a collection's policy wants, and the indexes of
// s that it does not. An index whose path and mode stay is left alone, so the
// result is s itself if nothing changes. In an empty collection a new index is
// complete.
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
