package asyncapi

import (
	"encoding/json"
	"maps"
	"strings"
	"sync"
)

// Metadata returns the metadata of a micro endpoint that serves operations:
//
//	operations     their names, separated by blanks
//	<op>.request   the JSON Schema of its body, unless it is ignored
//	<op>.response  the JSON Schema of its reply's body, if it has one
//	error          the JSON Schema of any error
//
// Each schema is self-contained, minified and without descriptions.
func Metadata(operations ...string) map[string]string {
	all := allMetadata()
	metadata := map[string]string{
		"operations": strings.Join(operations, " "),
		"error":      all["error"],
	}
	for _, operation := range operations {
		for _, key := range []string{operation + ".request", operation + ".response"} {
			if text, ok := all[key]; ok {
				metadata[key] = text
			}
		}
	}
	return metadata
}

// allMetadata has the metadata of all operations by key. The key document.get.response is
// of the message document.get.reply in asyncapi.yaml.
var allMetadata = sync.OnceValue(func() map[string]string {
	d := Load()
	all := map[string]string{"error": d.selfContained(d.Components.Messages["error"].Payload)}
	for name, message := range d.Components.Messages {
		key := name
		if operation, ok := strings.CutSuffix(name, ".reply"); ok {
			key = operation + ".response"
		} else if !strings.HasSuffix(name, ".request") {
			continue
		}
		if message.Payload.Ref != "" {
			all[key] = d.selfContained(message.Payload)
		}
	}
	return all
})

// selfContained returns a schema with its references as definitions. A client of NATS sees
// an endpoint's metadata without the rest of the file, so a reference there would lead
// nowhere. Definitions are those that the schema reaches, each once.
func (d *Description) selfContained(ref Ref) string {
	definitions := make(map[string]any)
	root := map[string]any{"$schema": "http://json-schema.org/draft-07/schema#"}
	maps.Copy(root, d.bare(d.Components.Schemas[ref.Name()], definitions).(map[string]any))
	if len(definitions) > 0 {
		root["definitions"] = definitions
	}
	text, err := json.Marshal(root)
	if err != nil {
		panic(err) // it came from JSON
	}
	return string(text)
}

// bare copies part of a schema without descriptions, and adds the schemas that it
// references to definitions. Under properties a member called description is a property
// and not a description, so its names are kept whatever they are.
func (d *Description) bare(part any, definitions map[string]any) any {
	switch part := part.(type) {
	case map[string]any:
		bare := make(map[string]any, len(part))
		for name, value := range part {
			if name == "properties" || name == "patternProperties" {
				members := make(map[string]any)
				for member, value := range value.(map[string]any) {
					members[member] = d.bare(value, definitions)
				}
				bare[name] = members
				continue
			}
			text, isText := value.(string)
			switch {
			case isText && name == "description":
			case isText && name == "$ref":
				target := strings.TrimPrefix(text, schemas)
				bare[name] = "#/definitions/" + target
				if _, ok := definitions[target]; !ok {
					definitions[target] = nil // in case it refers to itself
					definitions[target] = d.bare(d.Components.Schemas[target], definitions)
				}
			default:
				bare[name] = d.bare(value, definitions)
			}
		}
		return bare
	case []any:
		bare := make([]any, len(part))
		for i := range part {
			bare[i] = d.bare(part[i], definitions)
		}
		return bare
	}
	return part
}
