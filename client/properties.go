package client

import (
	"time"

	"github.com/lapsedb/lapse/schema"
)

// Properties are what is configured of a collection.
type Properties = schema.Properties

// IndexingMode says how secondary indexes follow the documents.
type IndexingMode = schema.IndexingMode

// Indexing modes. A collection without indexing cannot have a TTL.
const (
	Consistent = schema.Consistent
	Lazy       = schema.Lazy
	None       = schema.None
)

// Values of Properties.DefaultTTL that are not seconds.
const (
	TTLOff    = schema.Off       // nothing expires, ttl in a document means nothing
	NoDefault = schema.NoDefault // documents expire only by a ttl of their own
)

// PropertyOption sets one property of a collection that is created or replaced.
// Without any, TTL is off, indexing is consistent without included paths, and
// events of deletion and expiry carry the last content.
type PropertyOption func(*Properties) error

// DefaultTTL lets documents live for d, whole seconds, unless they say
// otherwise.
func DefaultTTL(d time.Duration) PropertyOption {
	return func(p *Properties) error {
		if d < time.Second || d%time.Second != 0 || d/time.Second > schema.MaxTTL {
			return ErrBadTTL.With("default TTL %v: use whole seconds from 1 to %d", d, schema.MaxTTL)
		}
		p.DefaultTTL = schema.DefaultTTL(d / time.Second)
		return nil
	}
}

// TTLPerDocument turns TTL on without a default: documents live for ever
// unless they say otherwise.
func TTLPerDocument() PropertyOption {
	return func(p *Properties) error { p.DefaultTTL = NoDefault; return nil }
}

// WithoutTTL turns TTL off, which is the default.
func WithoutTTL() PropertyOption {
	return func(p *Properties) error { p.DefaultTTL = TTLOff; return nil }
}

// Indexing sets the indexing mode.
func Indexing(mode IndexingMode) PropertyOption {
	return func(p *Properties) error { p.IndexingMode = mode; return nil }
}

// IncludePaths adds secondary indexes over JSON pointers such as /customerId.
func IncludePaths(paths ...string) PropertyOption {
	return func(p *Properties) error {
		p.IncludedPaths = append(p.IncludedPaths[:len(p.IncludedPaths):len(p.IncludedPaths)], paths...)
		return nil
	}
}

// PreviousImages says whether events of deletion and expiry carry the last
// content of the document.
func PreviousImages(on bool) PropertyOption {
	return func(p *Properties) error { p.PreviousImages = on; return nil }
}

// Like takes over all properties of another collection, or those that this one
// had; give it first.
func Like(properties Properties) PropertyOption {
	return func(p *Properties) error { *p = properties; return nil }
}

func properties(opts []PropertyOption) ([]byte, error) {
	p := schema.DefaultProperties()
	for _, opt := range opts {
		if err := opt(&p); err != nil {
			return nil, err
		}
	}
	return p.AppendJSON(nil), nil
}
