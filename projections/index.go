package projections

import (
	"encoding/json"
	"fmt"

	"github.com/lapsedb/lapse/values"
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

// indexSet is the secondary indexes of a collection incarnation; the zero
// value is none. Once it is published it does not change.
type indexSet struct {
	Next    uint32            `json:"next"`    // number of the next index
	Indexes []indexDefinition `json:"indexes"` // by number

	paths *values.Paths // of Indexes, in their order
}

func (s *indexSet) encode() []byte {
	value, _ := json.Marshal(s)
	return value
}

func decodeIndexes(value []byte) (*indexSet, error) {
	s := new(indexSet)
	if err := json.Unmarshal(value, s); err != nil {
		return nil, fmt.Errorf("projection: index definitions: %w", err)
	}
	return s, s.compile()
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
