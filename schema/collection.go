package schema

import (
	"slices"
	"strconv"
	"strings"

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

// Properties are the settings of a collection. Example, with all members that a client may
// send:
//
//	{"defaultTtl":3600,"warnBefore":600,"previousImages":true,"metadata":{"owner":"shop"},
//	 "indexingPolicy":{"indexingMode":"consistent","includedPaths":[{"path":"/customerId"}]}}
type Properties struct {
	DefaultTTL     DefaultTTL
	IndexingMode   IndexingMode
	IncludedPaths  []string // JSON pointers
	PreviousImages bool     // whether Deleted, Expired and Expiring carry the content
	WarnBefore     int32    // seconds from a DocumentExpiring to its deadline, 0 for none

	// Metadata are strings by name, for clients: lapse does not interpret them. Copies of
	// Properties share the map: replace it rather than change it.
	Metadata map[string]string
}

// DefaultProperties returns the properties of a collection created with an empty body.
func DefaultProperties() Properties {
	return Properties{IndexingMode: Consistent, PreviousImages: true}
}

// ParseProperties reads the properties that a client sent for the named collection;
// empty means DefaultProperties. It drops members that a reply adds (id, _ts, …). An
// unknown member is an error: a misspelt defaultTtl must not keep documents for ever.
func ParseProperties(collection CollectionName, raw []byte) (Properties, *Error) {
	p, fault := ReadProperties(collection, raw)
	for i, path := range p.IncludedPaths {
		if fault == nil {
			p.IncludedPaths[i], fault = parseIncludedPath(path)
		}
		if fault == nil && slices.Contains(p.IncludedPaths[:i], p.IncludedPaths[i]) {
			fault = pathTwice(p.IncludedPaths[i])
		}
	}
	return p, fault
}

func pathTwice(path string) *Error { return ErrBadRequest.With("includedPaths has %q twice", path) }

// parseIncludedPath reads /a/?, Cosmos DB's form, as /a. It refuses the forms of Cosmos DB
// that as JSON pointers would index a member called *, [] or "a b".
func parseIncludedPath(path string) (string, *Error) {
	clean := strings.TrimSuffix(path, "/?")
	for token := range strings.SplitSeq(strings.TrimPrefix(clean, "/"), "/") {
		var use string
		switch {
		case token == "*", token == "?", clean == "":
			use = "name a member, such as /a or /a/b: an index is of one path"
		case token == "[]":
			use = "end the path before []: the index of an array has its elements"
		case strings.HasPrefix(token, `"`):
			use = "write the name without quotes, such as /a b"
		default:
			continue
		}
		return "", ErrBadRequest.With("includedPaths: path %.80q: %s", path, use)
	}
	return clean, nil
}

// ReadProperties is ParseProperties without the rules for paths, for events of the log and
// replies: earlier versions accepted any JSON pointer.
func ReadProperties(collection CollectionName, raw []byte) (Properties, *Error) {
	p := DefaultProperties()
	if len(raw) > MaxDocumentBytes {
		return p, ErrTooLarge.With("the collection properties have %d bytes: at most %d are allowed", len(raw), MaxDocumentBytes)
	}
	fault := ReadObject("the collection properties", raw,
		Member{Name: "defaultTtl", Read: func(value []byte) (fault *Error) {
			p.DefaultTTL, fault = parseDefaultTTL(value)
			return fault
		}},
		Member{Name: "indexingPolicy", Read: p.parseIndexingPolicy},
		Bool("previousImages", &p.PreviousImages),
		Member{Name: "warnBefore", Read: func(value []byte) (fault *Error) {
			p.WarnBefore, fault = parseWarnBefore(value)
			return fault
		}},
		Member{Name: "metadata", Read: func(value []byte) (fault *Error) {
			p.Metadata, fault = readMetadata(value)
			return fault
		}},
		Member{Name: "id", Null: true, Read: func(value []byte) *Error {
			if !isString(value, string(collection)) {
				return ErrBadRequest.With("the properties say id %s and the subject %q: make them the same or leave the id out", Shown(value), string(collection))
			}
			return nil
		}},
		Member{Name: "_ts"}, Member{Name: "_etag"}, Member{Name: "_rid"}, Member{Name: "_self"},
		Member{Name: "documents"}, Member{Name: "bytes"}, Member{Name: "held"})
	if fault != nil {
		return p, fault
	}
	if p.IndexingMode == None && p.DefaultTTL != Off {
		return p, ErrBadRequest.With("defaultTtl needs indexingMode consistent or lazy, not none: expiry lives from the index")
	}
	return p, nil
}

// parseIndexingPolicy reads the member indexingPolicy. Without indexingMode it leaves
// Consistent.
func (p *Properties) parseIndexingPolicy(raw []byte) *Error {
	return ReadObject("indexingPolicy", raw, Member{Name: "indexingMode", Read: p.parseIndexingMode}, Member{Name: "includedPaths", Read: p.parseIncludedPaths})
}

// parseIndexingMode reads the member indexingMode, in this spelling only.
func (p *Properties) parseIndexingMode(value []byte) *Error {
	for _, mode := range IndexingModes {
		if isString(value, string(mode)) {
			p.IndexingMode = mode
			return nil
		}
	}
	return WrongValue("indexingMode", value, "consistent, lazy or none")
}

// parseIncludedPaths reads the paths. It returns the first fault in the order of the list.
func (p *Properties) parseIncludedPaths(value []byte) (fault *Error) {
	list := values.Value(value)
	if list.Kind() != values.Array {
		return WrongValue("includedPaths", value, `a list like [{"path":"/customerId"}]`)
	}
	if n := list.Len(); n > MaxIncludedPaths {
		return ErrBadRequest.With("includedPaths has %d paths: at most %d are allowed", n, MaxIncludedPaths)
	}
	list.Elements(func(element values.Value) bool {
		var path string
		if fault = ReadObject("an element of includedPaths", element, Text("path", &path)); fault != nil {
			return false
		}
		if _, err := values.ParsePointer(path); err != nil {
			fault = ErrBadRequest.With("includedPaths: %v", err)
		} else if slices.Contains(p.IncludedPaths, path) {
			fault = pathTwice(path)
		}
		p.IncludedPaths = append(p.IncludedPaths, path)
		return fault == nil
	})
	return fault
}

// AppendJSON appends the properties as a JSON object: all of them, but warnBefore and
// metadata only if set, since earlier versions refuse them.
func (p *Properties) AppendJSON(dst []byte) []byte {
	return append(p.appendFields(append(dst, '{')), '}')
}

// appendFields appends the properties as members, without braces. The order is fixed, so
// equal properties have equal bytes, in events too.
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
	if len(p.Metadata) > 0 {
		dst = appendMetadata(append(dst, `,"metadata":`...), p.Metadata)
	}
	return dst
}

// NoCollection is the error of a request for a collection that does not exist.
func NoCollection(name CollectionName) *Error {
	return ErrCollectionNotFound.With("there is no collection %q: create it with collection.create", string(name))
}

// Collection is a collection at one position of the log. A value of it is immutable and
// shared: a change makes another one. So whoever holds one may read it without a lock.
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

// appendReplyFields appends the beginning of a reply: the id and the properties.
func (c *Collection) appendReplyFields(dst []byte) []byte {
	dst = append(dst, `{"id":`...)
	dst = append(AppendString(dst, string(c.Name)), ',')
	return c.appendFields(dst)
}
