package client

import (
	"maps"
	"time"

	"github.com/lapsedb/lapse/schema"
)

// Properties are the configuration of a collection.
type Properties = schema.Properties

// IndexingMode says when secondary indexes are updated.
type IndexingMode = schema.IndexingMode

// Indexing modes. A collection without indexing cannot have a TTL.
const (
	Consistent = schema.Consistent
	Lazy       = schema.Lazy
	None       = schema.None
)

// Values of Properties.DefaultTTL that are not seconds.
const (
	TTLOff    = schema.Off       // nothing expires; a ttl in a document has no effect
	NoDefault = schema.NoDefault // documents expire only by a ttl of their own
)

// PropertyOption sets a property of a collection. By default TTL is off, indexing is
// consistent without included paths, and delete and expiry events have the last content.
type PropertyOption func(*Properties) error

// DefaultTTL sets the TTL, in whole seconds, of documents without a ttl of their own.
func DefaultTTL(d time.Duration) PropertyOption {
	return func(p *Properties) error {
		if d < time.Second || d%time.Second != 0 || d/time.Second > schema.MaxTTL {
			return ErrBadTTL.With("default TTL %v: use whole seconds from 1 to %d", d, schema.MaxTTL)
		}
		p.DefaultTTL = schema.DefaultTTL(d / time.Second)
		return nil
	}
}

// TTLPerDocument turns TTL on without a default: only documents with a ttl expire.
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

// WarnBefore sets how long before each deadline to append a DocumentExpiring, in whole
// seconds; 0 turns warnings off.
func WarnBefore(d time.Duration) PropertyOption {
	return func(p *Properties) error {
		if d < 0 || d%time.Second != 0 || d/time.Second > schema.MaxTTL {
			return ErrBadTTL.With("warn before %v: use whole seconds from 1 to %d, or 0 for no warnings", d, schema.MaxTTL)
		}
		p.WarnBefore = int32(d / time.Second)
		return nil
	}
}

// Metadata sets a string of the collection's metadata by its name, and keeps those of other
// names. All names and values together have at most 16 KiB.
func Metadata(name, value string) PropertyOption {
	return func(p *Properties) error {
		all := make(map[string]string)
		maps.Copy(all, p.Metadata) // others share the map
		all[name] = value
		p.Metadata = all
		return nil
	}
}

// WithoutMetadata removes the metadata of these names.
func WithoutMetadata(names ...string) PropertyOption {
	return func(p *Properties) error {
		p.Metadata = maps.Clone(p.Metadata)
		for _, name := range names {
			delete(p.Metadata, name)
		}
		return nil
	}
}

// PreviousImages sets whether delete, expiry and warning events have the last content of the
// document.
func PreviousImages(on bool) PropertyOption {
	return func(p *Properties) error { p.PreviousImages = on; return nil }
}

// Like copies all properties of another collection. Give it before other options.
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
