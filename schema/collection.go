package schema

import (
	"encoding/json"
	"slices"
	"strconv"

	"github.com/lapsedb/lapse/schema/values"
)

// IndexingMode says how secondary indexes follow the documents.
type IndexingMode string

const (
	Consistent IndexingMode = "consistent" // updated with the document
	Lazy       IndexingMode = "lazy"       // updated in the background
	None       IndexingMode = "none"       // no secondary index, and no TTL
)

// IndexingModes are all modes.
var IndexingModes = []IndexingMode{Consistent, Lazy, None}

// MaxIncludedPaths limits the paths of an indexing policy; each is at most
// values.MaxPointerBytes long.
const MaxIncludedPaths = 64

// Properties are the settings of a collection.
type Properties struct {
	DefaultTTL     DefaultTTL
	IndexingMode   IndexingMode
	IncludedPaths  []string // JSON pointers
	PreviousImages bool     // whether Deleted, Expired and Expiring carry the content
	WarnBefore     int32    // seconds from a DocumentExpiring to its deadline, 0 for none
}

// DefaultProperties returns the properties of a collection created with an empty body.
func DefaultProperties() Properties {
	return Properties{IndexingMode: Consistent, PreviousImages: true}
}

// ParseProperties reads the properties that a client sent for the named collection;
// empty means DefaultProperties. It drops members that a reply adds (id, _ts, …). An
// unknown member is an error: a misspelt defaultTtl must not keep documents for ever.
func ParseProperties(collection CollectionName, raw []byte) (Properties, *Error) {
	p := DefaultProperties()
	if len(raw) == 0 {
		return p, nil
	}
	if len(raw) > MaxDocumentBytes {
		return p, ErrTooLarge.With("the collection properties have %d bytes: at most %d are allowed", len(raw), MaxDocumentBytes)
	}
	var fault *Error
	seen := make(map[string]bool)
	_, err := members(raw, func(member, value []byte) error {
		name := string(values.Unquote(member))
		if seen[name] {
			fault = ErrBadRequest.With("the collection properties have the member %.80q twice", name)
			return fault
		}
		seen[name] = true
		switch name {
		case "defaultTtl":
			if p.DefaultTTL, fault = parseDefaultTTL(value); fault != nil {
				return fault
			}
		case "indexingPolicy":
			if fault = p.parseIndexingPolicy(value); fault != nil {
				return fault
			}
		case "previousImages":
			switch string(value) {
			case "true", "null":
				p.PreviousImages = true
			case "false":
				p.PreviousImages = false
			default:
				fault = ErrBadRequest.With("previousImages %s: use true or false", Shown(value))
				return fault
			}
		case "warnBefore":
			if p.WarnBefore, fault = parseWarnBefore(value); fault != nil {
				return fault
			}
		case "id":
			if !isString(value, string(collection)) {
				fault = ErrBadRequest.With("the properties say id %s and the subject %q: make them the same or leave the id out", Shown(value), string(collection))
				return fault
			}
		case "_ts", "_etag", "_rid", "_self", "documents", "bytes", "held":
		default:
			fault = ErrBadRequest.With("unknown collection property %.80q: use defaultTtl, indexingPolicy, previousImages and warnBefore", name)
			return fault
		}
		return nil
	})
	if fault != nil {
		return p, fault
	}
	if err != nil {
		return p, ErrBadRequest.With("the collection properties are not a JSON object: %v", err)
	}
	if p.IndexingMode == None && p.DefaultTTL != Off {
		return p, ErrBadRequest.With("defaultTtl needs indexingMode consistent or lazy, not none: expiry lives from the index")
	}
	return p, nil
}

// parseIndexingPolicy reads valid JSON. It returns the first fault in the order of the
// members.
func (p *Properties) parseIndexingPolicy(raw []byte) *Error {
	if string(raw) == "null" {
		return nil
	}
	var fault *Error
	seen := make(map[string]bool)
	_, err := members(raw, func(member, value []byte) error {
		name := string(values.Unquote(member))
		switch {
		case seen[name]:
			fault = ErrBadRequest.With("indexingPolicy has the member %.80q twice", name)
		case name == "indexingMode":
			fault = p.parseIndexingMode(value)
		case name == "includedPaths":
			fault = p.parseIncludedPaths(value)
		default:
			fault = ErrBadRequest.With("unknown member %.80q of indexingPolicy: use indexingMode and includedPaths", name)
		}
		seen[name] = true
		if fault != nil {
			return fault
		}
		return nil
	})
	if fault == nil && err != nil {
		fault = ErrBadRequest.With("indexingPolicy %s: use an object with indexingMode and includedPaths", Shown(raw))
	}
	return fault
}

func (p *Properties) parseIndexingMode(value []byte) *Error {
	if string(value) == "null" {
		return nil
	}
	for _, mode := range IndexingModes {
		if isString(value, string(mode)) {
			p.IndexingMode = mode
			return nil
		}
	}
	return ErrBadRequest.With("indexingMode %s: use consistent, lazy or none", Shown(value))
}

func (p *Properties) parseIncludedPaths(value []byte) *Error {
	var paths []map[string]any
	if err := json.Unmarshal(value, &paths); err != nil {
		return ErrBadRequest.With(`includedPaths %s: use a list like [{"path":"/customerId"}]`, Shown(value))
	}
	if len(paths) > MaxIncludedPaths {
		return ErrBadRequest.With("includedPaths has %d paths: at most %d are allowed", len(paths), MaxIncludedPaths)
	}
	for _, included := range paths {
		path, ok := included["path"].(string)
		if !ok || len(included) != 1 {
			return ErrBadRequest.With(`includedPaths: use {"path":"/customerId"}, a path is a JSON pointer of at most %d bytes`, values.MaxPointerBytes)
		}
		if _, err := values.ParsePointer(path); err != nil {
			return ErrBadRequest.With("includedPaths: %v", err)
		}
		if slices.Contains(p.IncludedPaths, path) {
			return ErrBadRequest.With("includedPaths has %q twice", path)
		}
		p.IncludedPaths = append(p.IncludedPaths, path)
	}
	return nil
}

// AppendJSON appends the properties as a JSON object: all of them, but warnBefore only if
// it is set, since earlier versions refuse it.
func (p *Properties) AppendJSON(dst []byte) []byte {
	return append(p.appendFields(append(dst, '{')), '}')
}

func (p *Properties) appendFields(dst []byte) []byte {
	dst = p.DefaultTTL.appendJSON(append(dst, `"defaultTtl":`...))
	dst = append(dst, `,"indexingPolicy":{"indexingMode":`...)
	dst = AppendString(dst, string(p.IndexingMode))
	dst = append(dst, `,"includedPaths":[`...)
	for i, path := range p.IncludedPaths {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"path":`...)
		dst = append(AppendString(dst, path), '}')
	}
	dst = append(dst, `]},"previousImages":`...)
	dst = strconv.AppendBool(dst, p.PreviousImages)
	if p.WarnBefore != 0 {
		dst = strconv.AppendInt(append(dst, `,"warnBefore":`...), int64(p.WarnBefore), 10)
	}
	return dst
}

// NoCollection is the error of a request for a collection that does not exist.
func NoCollection(name CollectionName) *Error {
	return ErrCollectionNotFound.With("there is no collection %q: create it with collection.create", string(name))
}

// Collection is a collection at one position of the log.
type Collection struct {
	Name CollectionName
	// Incarnation is the sequence of the CollectionCreated. It distinguishes collections
	// of one name.
	Incarnation uint64
	Version     Version
	Time        int64 // log time of the last change, ms
	Properties
}

// AppendReply appends the collection as in a reply.
func (c *Collection) AppendReply(dst []byte) []byte {
	return appendSystem(append(c.appendReplyFields(dst), ','), c.Time/1000, c.Version)
}

// AppendReplyWithSize is AppendReply with the number and bytes of its live documents, and
// how many of them are held.
func (c *Collection) AppendReplyWithSize(dst []byte, documents, size, held int64) []byte {
	dst = append(c.appendReplyFields(dst), `,"documents":`...)
	dst = strconv.AppendInt(dst, documents, 10)
	dst = append(dst, `,"bytes":`...)
	dst = strconv.AppendInt(dst, size, 10)
	dst = append(dst, `,"held":`...)
	dst = strconv.AppendInt(dst, held, 10)
	return appendSystem(append(dst, ','), c.Time/1000, c.Version)
}

func (c *Collection) appendReplyFields(dst []byte) []byte {
	dst = append(dst, `{"id":`...)
	dst = append(AppendString(dst, string(c.Name)), ',')
	return c.appendFields(dst)
}
