// Package conform checks messages against schema/asyncapi.yaml.
package conform

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/lapsedb/lapse/schema/asyncapi"
)

// described is the description of the messages, with a compiler for its schemas.
type described struct {
	*asyncapi.Description
	compiler *jsonschema.Compiler
	mu       sync.Mutex // guards compiler
}

const location = "urn:lapse"

var load = sync.OnceValues(func() (*described, error) {
	text, err := asyncapi.JSON()
	if err != nil {
		return nil, err
	}
	all, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	d := &described{Description: asyncapi.Load(), compiler: jsonschema.NewCompiler()}
	d.compiler.DefaultDraft(jsonschema.Draft7)
	return d, d.compiler.AddResource(location, all)
})

// Schema checks a JSON value against the schema of this name.
func Schema(name string, body []byte) error {
	d, err := load()
	if err != nil {
		return err
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("%.200q is not JSON: %w", body, err)
	}
	return d.check(name, value)
}

func (d *described) check(name string, value any) error {
	if _, ok := d.Components.Schemas[name]; !ok {
		return fmt.Errorf("asyncapi.yaml has no schema %q", name)
	}
	d.mu.Lock()
	s, err := d.compiler.Compile(location + "#/components/schemas/" + name)
	d.mu.Unlock()
	if err != nil {
		return err
	}
	if err := s.Validate(value); err != nil {
		return fmt.Errorf("it is no %s of asyncapi.yaml: %w", name, err)
	}
	return nil
}

// message checks headers and body against the message of this name.
func (d *described) message(name string, header map[string][]string, body []byte) error {
	m, ok := d.Components.Messages[name]
	if !ok {
		return fmt.Errorf("asyncapi.yaml has no message %q", name)
	}
	if m.Headers.Ref != "" {
		values := make(map[string]any)
		for name, value := range header {
			if len(value) != 1 {
				return fmt.Errorf("%d values of the header %s", len(value), name)
			}
			values[name] = strings.TrimSpace(value[0]) // as its readers do
		}
		if err := d.check(m.Headers.Name(), values); err != nil {
			return err
		}
	}
	switch {
	case len(body) == 0 && (m.Payload.Ref == "" || m.Empty):
		return nil
	case m.Payload.Ref == "":
		return errors.New("it has a body, asyncapi.yaml says it has none")
	}
	return Schema(m.Payload.Name(), body)
}

// Request checks a request against its description. Like lapse, it accepts an object
// without members as the body of a request that has none.
func Request(operation string, header map[string][]string, body []byte) error {
	return sent(operation+".request", header, body)
}

// Mutation checks a message for the mutations stream against its description.
func Mutation(operation string, header map[string][]string, body []byte) error {
	return sent(operation+".mutation", header, body)
}

func sent(name string, header map[string][]string, body []byte) error {
	d, err := load()
	if err != nil {
		return err
	}
	if len(body) > 0 && d.Components.Messages[name].Payload.Ref == "" {
		if err := Schema("NoContent", body); err != nil {
			return err
		}
		body = nil
	}
	return d.message(name, header, body)
}

// Reply checks a reply against its description, or as an error if its status is one.
func Reply(operation string, header map[string][]string, body []byte) error {
	d, err := load()
	if err != nil {
		return err
	}
	name := operation + ".reply"
	if status := header["Lapse-Status"]; len(status) == 1 && status[0] >= "400" {
		name = "error"
		if strings.HasPrefix(operation, "test.") {
			name = "test.error"
		}
	}
	return d.message(name, header, body)
}

// Event checks a message of the log against its description, found by its subject.
func Event(subject string, header map[string][]string, body []byte) error {
	d, err := load()
	if err != nil {
		return err
	}
	channels := Channels(subject)
	if len(channels) == 0 {
		return fmt.Errorf("asyncapi.yaml has no channel for %s", subject)
	}
	name := d.Channels[channels[0]].Messages["event"].Name()
	if name == "internal" {
		body = nil // any body is allowed
	}
	return d.message(name, header, body)
}

// Channels returns the names of the channels that a subject matches. The subject may have
// NATS wildcards.
func Channels(subject string) (names []string) {
	d, err := load()
	if err != nil {
		return nil
	}
	tokens := strings.Split(subject, ".")
	for name, channel := range d.Channels {
		if channel.Address != "" && matches(tokens, strings.Split(channel.Address, ".")) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func matches(subject, address []string) bool {
	for i, token := range subject {
		switch {
		case token == ">" && i == len(subject)-1:
			return i < len(address)
		case i >= len(address):
			return false
		case token != "*" && token != address[i] && !strings.HasPrefix(address[i], "{"):
			return false
		}
	}
	return len(subject) == len(address)
}
