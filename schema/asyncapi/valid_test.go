package asyncapi_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/lapsedb/lapse/schema/asyncapi"
)

// document returns asyncapi.yaml decoded for jsonschema.
func document(t *testing.T) any {
	t.Helper()
	text, err := asyncapi.JSON()
	must(t, err)
	all, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	must(t, err)
	return all
}

func official(t *testing.T) *jsonschema.Schema {
	t.Helper()
	file, err := os.Open("testdata/asyncapi-3.0.0.json.gz")
	must(t, err)
	defer file.Close()
	text, err := gzip.NewReader(file)
	must(t, err)
	all, err := jsonschema.UnmarshalJSON(text)
	must(t, err)
	c := jsonschema.NewCompiler()
	must(t, c.AddResource("urn:official", all))
	s, err := c.Compile("urn:official")
	must(t, err)
	return s
}

// TestValid: the description conforms to AsyncAPI's own schema, which refuses spoilt
// copies.
func TestValid(t *testing.T) {
	s := official(t)
	if err := s.Validate(document(t)); err != nil {
		t.Errorf("%#v", err)
	}
	for _, spoil := range []func(map[string]any){
		func(d map[string]any) { d["asyncapi"] = "2.6.0" },
		func(d map[string]any) { delete(d, "info") },
		func(d map[string]any) {
			d["operations"].(map[string]any)["status"].(map[string]any)["action"] = "reply"
		},
		func(d map[string]any) { d["channels"].(map[string]any)["status"].(map[string]any)["subject"] = "x" },
		func(d map[string]any) {
			d["components"].(map[string]any)["schemas"].(map[string]any)["Status"].(map[string]any)["type"] = "struct"
		},
	} {
		d := document(t).(map[string]any)
		spoil(d)
		if err := s.Validate(d); err == nil {
			t.Errorf("a spoilt document is valid")
		}
	}
}

// TestReferences: every reference resolves, and every component is referenced. AsyncAPI's
// schema cannot check that.
func TestReferences(t *testing.T) {
	all := document(t).(map[string]any)
	used := make(map[string]bool)
	var walk func(any)
	walk = func(part any) {
		switch part := part.(type) {
		case map[string]any:
			if ref, ok := part["$ref"].(string); ok {
				used[ref] = true
				if len(part) > 1 {
					t.Errorf("%s has neighbours, which draft-07 ignores: %v", ref, part)
				}
			}
			for _, value := range part {
				walk(value)
			}
		case []any:
			for _, value := range part {
				walk(value)
			}
		}
	}
	walk(all)
	for ref := range used {
		if err := resolve(all, ref); err != nil {
			t.Errorf("%s: %v", ref, err)
		}
	}
	for kind, parts := range all["components"].(map[string]any) {
		for name := range parts.(map[string]any) {
			if !used["#/components/"+kind+"/"+name] {
				t.Errorf("nothing refers to %s %s", kind, name)
			}
		}
	}
}

func resolve(all any, ref string) error {
	path, ok := strings.CutPrefix(ref, "#/")
	if !ok {
		return fmt.Errorf("it is not in this document")
	}
	for _, name := range strings.Split(path, "/") {
		parent, _ := all.(map[string]any)
		if all, ok = parent[name]; !ok {
			return fmt.Errorf("there is no %q", name)
		}
	}
	return nil
}

// TestOperations: operations, channels and messages match.
func TestOperations(t *testing.T) {
	d := asyncapi.Load()
	for name, operation := range d.Operations {
		channel, ok := d.Channels[operation.Channel.Name()]
		if !ok || operation.Channel.Name() != name {
			t.Errorf("operation %s is on channel %s", name, operation.Channel.Ref)
		}
		if len(operation.Messages) != 1 || !strings.HasPrefix(operation.Messages[0].Ref, operation.Channel.Ref+"/messages/") {
			t.Errorf("operation %s has the messages %v, one of its channel is wanted", name, operation.Messages)
		}
		event := strings.HasPrefix(name, "events.")
		if (operation.Action == "send") != event {
			t.Errorf("operation %s is to %s", name, operation.Action)
		}
		var replies []string
		for _, message := range operation.Reply.Messages {
			replies = append(replies, message.Name())
		}
		want := []string{name, "error"}
		if strings.HasPrefix(name, "mutations.") {
			want = []string{"pubAck"}
		} else if strings.HasPrefix(name, "test.") {
			want = []string{name, "test.error"}
		} else if event {
			want = nil
		}
		if !slices.Equal(replies, want) {
			t.Errorf("operation %s is answered by %v, want %v", name, replies, want)
		}
		checkAddress(t, name, channel.Address, channel.Parameters)
	}
	for name := range d.Channels {
		if _, ok := d.Operations[name]; !ok && name != "reply" {
			t.Errorf("channel %s has no operation", name)
		}
	}
}

// checkAddress checks an address against its channel's name and parameters.
func checkAddress(t *testing.T, name, address string, parameters map[string]any) {
	t.Helper()
	var fixed []string
	named := 0
	for _, token := range strings.Split(address, ".") {
		parameter, ok := strings.CutPrefix(token, "{")
		if !ok {
			fixed = append(fixed, token)
			continue
		}
		named++
		if _, ok := parameters[strings.TrimSuffix(parameter, "}")]; !ok {
			t.Errorf("channel %s has %s in its address and no such parameter", name, token)
		}
	}
	if named != len(parameters) {
		t.Errorf("channel %s has %d parameters, its address %d", name, len(parameters), named)
	}
	want := "lapse." + name
	if kind, _, _ := strings.Cut(name, "."); kind != "events" && kind != "mutations" && kind != "test" {
		want = "lapse.api." + name
	}
	if name == "events.internal" {
		want = "lapse.events._"
	}
	if got := strings.Join(fixed, "."); got != want {
		t.Errorf("channel %s has the address %s: %s without its parameters, want %s", name, address, got, want)
	}
}
