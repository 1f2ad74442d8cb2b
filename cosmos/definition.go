package cosmos

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/schema/values"
)

// metadataName names the metadata of a collection with a container's definition.
const metadataName = "cosmos"

// maxDefinition is the size of the largest container as sent, in bytes.
const maxDefinition = 64 << 10

// offerMember is the member of a definition with the throughput of a container, which nothing
// here uses. That of a database is in memory.
const offerMember = "_offer"

// definition is what Cosmos DB's containers have and lapse's collections don't. It is stored
// as JSON with the members that a client sent. For a container as sent by a client
//
//	{"id":"orders","partitionKey":{"paths":["/customerId"],"kind":"Hash"},"defaultTtl":3600,"uniqueKeyPolicy":{}}
//
// the collection orders has defaultTtl 3600 and the metadata
//
//	cosmos: {"partitionKey":{"paths":["/customerId"],"kind":"Hash"},"uniqueKeyPolicy":{}}
//
// So each thing is in one place, and a change over NATS shows in the container.
type definition struct {
	paths   [][]string // of the partition key
	members values.Value
}

// defaultDefinition is that of a collection without one.
const defaultDefinition = `{"partitionKey":{"paths":["/id"],"kind":"Hash"}}`

// notStored are the members of a container that the definition lacks: they are the
// collection's, or made for each reply.
var notStored = []string{"id", offerMember, "defaultTtl", "_rid", "_self", "_etag", "_ts", "_docs", "_sprocs", "_triggers", "_udfs", "_conflicts"}

// readPaths reads the paths of a partition key.
func (d *definition) readPaths() error {
	var key struct{ Paths []string }
	raw := d.members.At([]string{"partitionKey"})
	if err := json.Unmarshal(raw, &key); err != nil || len(key.Paths) == 0 || len(key.Paths) > maxKeys {
		return badRequest("partitionKey %.80q: give one to %d paths", raw, maxKeys)
	}
	for _, text := range key.Paths {
		path, ok := parsePath(text)
		if !ok {
			return badRequest("partitionKey: path %.80q: use one like /customerId or /address/city", text)
		}
		if slices.ContainsFunc(d.paths, func(other []string) bool { return slices.Equal(other, path) }) {
			return badRequest("partitionKey has the path %.80q twice", text)
		}
		d.paths = append(d.paths, path)
	}
	return nil
}

// system are the members that no partition key has, since lapse makes or hides them.
var system = []string{"_rid", "_self", "_etag", "_ts", "_attachments", itemID}

func isSystem(name string) bool { return slices.Contains(system, name) }

// parsePath reads a path such as /a/"b c" without wildcards. Quotes allow names with a
// slash in Cosmos DB; here such a name has to be without one.
func parsePath(text string) (path []string, ok bool) {
	rest, ok := strings.CutPrefix(text, "/")
	if !ok {
		return nil, false
	}
	for name := range strings.SplitSeq(rest, "/") {
		if len(name) > 1 && name[0] == '"' && name[len(name)-1] == '"' {
			name = name[1 : len(name)-1]
		} else if name == "*" || name == "?" || name == "[]" {
			return nil, false
		}
		if name == "" {
			return nil, false
		}
		path = append(path, name)
	}
	return path, !isSystem(path[0])
}

// pathText returns a path of the partition key as in a definition.
func (d *definition) pathText(i int) string { return "/" + strings.Join(d.paths[i], "/") }

func (d *definition) pathTexts() []string {
	all := make([]string, len(d.paths))
	for i := range d.paths {
		all[i] = d.pathText(i)
	}
	return all
}

// readDefinition reads the definition of a stored collection. A definition that is none is
// an error and never the default: with /id as partition key, items would be looked for
// under other ids.
func readDefinition(p *schema.Properties) (*definition, error) {
	text, ok := p.Metadata[metadataName]
	if !ok {
		text = defaultDefinition
	}
	d := &definition{members: values.Value(text)}
	if schema.CheckJSON(d.members) == nil && d.members.Kind() == values.Object && d.readPaths() == nil {
		return d, nil
	}
	return nil, faultf(http.StatusInternalServerError, "the metadata %q of the collection is no definition of a container: remove it, or store one with a partitionKey", metadataName)
}

// parseDefinition reads a container that a client sent: its definition, and into p the
// properties that are the collection's. It parses strictly what lapse needs, and keeps the
// rest as it is.
func parseDefinition(body values.Value, p *schema.Properties) (*definition, error) {
	if err := schema.CheckJSON(body); err != nil || body.Kind() != values.Object {
		return nil, badRequest("the container is no JSON object")
	}
	if len(body) > maxDefinition {
		return nil, badRequest("the container has %d bytes: at most %d are allowed", len(body), maxDefinition)
	}
	kept := appendMembers([]byte{'{'}, body, func(name string, value values.Value) values.Value {
		if slices.Contains(notStored, name) {
			return nil
		}
		return value
	})
	d := &definition{members: append(kept, '}')}
	if err := d.readPaths(); err != nil {
		return nil, err
	}
	return d, d.readProperties(body, p)
}

// readProperties reads what a container has in common with a collection. It goes through
// ParseProperties, so that a defaultTtl has the same rules and errors as over NATS.
func (d *definition) readProperties(body values.Value, p *schema.Properties) error {
	common := []byte(`{"indexingPolicy":{`)
	if mode := d.policy("indexingMode"); mode.Kind() == values.String {
		common = schema.AppendString(append(common, `"indexingMode":`...), strings.ToLower(string(mode.Text())))
	}
	common = append(common, "}"...)
	if ttl := body.At([]string{"defaultTtl"}); ttl != nil {
		common = append(append(common, `,"defaultTtl":`...), ttl...)
	}
	read, err := schema.ParseProperties("", append(common, '}'))
	if err != nil {
		return err
	}
	p.DefaultTTL, p.IndexingMode = read.DefaultTTL, read.IndexingMode
	p.IncludedPaths = append(p.IncludedPaths, slices.DeleteFunc(d.includedPaths(), func(path string) bool { return slices.Contains(p.IncludedPaths, path) })...)
	return nil
}

// policy returns a member of the indexing policy.
func (d *definition) policy(name string) values.Value {
	return d.members.At([]string{"indexingPolicy", name})
}

// includedPaths returns the paths of the indexing policy of which lapse can have an index:
// /a/b of /a/b/?. A path such as /* includes everything in Cosmos DB, and here nothing:
// lapse indexes what is named.
func (d *definition) includedPaths() (paths []string) {
	d.policy("includedPaths").Elements(func(element values.Value) bool {
		text, ok := strings.CutSuffix(string(element.At([]string{"path"}).Text()), "/?")
		if path, plain := parsePath(text); ok && plain {
			paths = append(paths, values.Pointer(path).String())
		}
		return true
	})
	slices.Sort(paths)
	return slices.Compact(paths)
}
