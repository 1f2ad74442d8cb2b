// Package asyncapi reads schema/asyncapi.yaml, which describes subjects and messages for
// other languages and provides the metadata of endpoints.
package asyncapi

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"go.yaml.in/yaml/v4"

	"github.com/lapsedb/lapse/schema"
)

// Description is the part of asyncapi.yaml that programs use. JSON Schema stays as
// decoded: only Metadata reads it.
type Description struct {
	Channels map[string]struct {
		Address    string // "" if the address is a reply subject
		Parameters map[string]any
		Messages   map[string]Ref
	}
	Operations map[string]struct {
		Action   string // "receive" or "send", by lapse
		Channel  Ref
		Messages []Ref
		Reply    struct {
			Channel  Ref
			Messages []Ref
		}
	}
	Components struct {
		Messages map[string]Message
		Schemas  map[string]any // JSON Schema, as decoded by encoding/json
	}
}

// Ref names another part of the description.
type Ref struct {
	Ref string `json:"$ref"`
}

// Name returns the last part of r.
func (r Ref) Name() string { return r.Ref[strings.LastIndexByte(r.Ref, '/')+1:] }

// Message describes one kind of message.
type Message struct {
	Headers Ref
	Payload Ref  // "" if the body is empty or ignored
	Empty   bool `json:"x-empty"` // the body may be empty, too
}

// schemas begins the Ref of a schema.
const schemas = "#/components/schemas/"

// Load returns the description. The result is shared: do not change it. It is parsed at
// the first use, not at each start of a command.
var Load = sync.OnceValue(func() *Description {
	var d Description
	text, err := JSON()
	if err == nil {
		err = json.Unmarshal(text, &d)
	}
	if err != nil {
		panic(fmt.Sprintf("schema/asyncapi.yaml: %v", err)) // it is part of the binary, and tested
	}
	return &d
})

// JSON returns the whole of asyncapi.yaml as JSON.
func JSON() ([]byte, error) {
	var all any
	if err := yaml.Unmarshal(schema.AsyncAPI, &all); err != nil {
		return nil, err
	}
	return json.Marshal(all)
}
