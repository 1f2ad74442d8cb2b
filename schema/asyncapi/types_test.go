package asyncapi_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/schema/asyncapi"
	"github.com/lapsedb/lapse/schema/values"
)

// at returns a part of a schema.
func at(t *testing.T, schema string, path ...string) any {
	t.Helper()
	var part any = asyncapi.Load().Components.Schemas[schema]
	for _, name := range path {
		parent, ok := part.(map[string]any)
		if !ok || parent[name] == nil {
			t.Fatalf("schema %s has no %s", schema, strings.Join(path, "."))
		}
		part = parent[name]
	}
	return part
}

func texts(list any) (texts []string) {
	for _, element := range list.([]any) {
		texts = append(texts, fmt.Sprint(element))
	}
	slices.Sort(texts)
	return texts
}

// names returns the rest of the name of each operation that begins with prefix.
func names(prefix string) (names []string) {
	for name := range asyncapi.Load().Operations {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			names = append(names, rest)
		}
	}
	slices.Sort(names)
	return names
}

func same(t *testing.T, what string, described, there []string) {
	t.Helper()
	slices.Sort(described)
	slices.Sort(there)
	if !slices.Equal(described, there) {
		t.Errorf("%s: asyncapi.yaml has\n%v, there are\n%v", what, described, there)
	}
}

// TestEventTypes: asyncapi.yaml describes exactly the event types that exist.
func TestEventTypes(t *testing.T) {
	var events, internal []string
	for e := schema.CollectionCreated; int(e) < schema.EventTypes; e++ {
		if e.Internal() {
			internal = append(internal, e.String())
		} else {
			events = append(events, e.String())
		}
	}
	same(t, "events", names("events."), append(slices.Clone(events), "internal"))
	var d struct {
		Components struct {
			Parameters struct {
				InternalType struct{ Enum []string }
			}
		}
	}
	text, err := asyncapi.JSON()
	if err == nil {
		err = json.Unmarshal(text, &d)
	}
	must(t, err)
	same(t, "internal events", d.Components.Parameters.InternalType.Enum, internal)

	// The schema Event lists each type.
	var lines []string
	for _, event := range at(t, "Event", "oneOf").([]any) {
		kind := at(t, strings.TrimPrefix(event.(map[string]any)["$ref"].(string), "#/components/schemas/"), "properties", "type").(map[string]any)
		if name, ok := kind["const"]; ok {
			lines = append(lines, name.(string))
		} else {
			lines = append(lines, texts(kind["enum"])...)
		}
	}
	same(t, "events as JSON", lines, events)
}

func TestMutationsAreDescribed(t *testing.T) {
	var there []string
	for op := schema.CollectionCreate; int(op) < schema.Ops; op++ {
		there = append(there, op.String())
	}
	same(t, "mutations", names("mutations."), there)
	for _, name := range names("mutations.") {
		d := asyncapi.Load()
		if d.Components.Messages[name+".request"].Payload != d.Components.Messages[name+".mutation"].Payload {
			t.Errorf("%s accepts another body as a mutation than as a request", name)
		}
	}
}

// TestErrors: asyncapi.yaml lists exactly the errors of schema, each with its code.
func TestErrors(t *testing.T) {
	described := make(map[string]string)
	var codes []string
	for _, fault := range at(t, "ErrorName", "oneOf").([]any) {
		properties := fault.(map[string]any)["properties"].(map[string]any)
		code := fmt.Sprint(properties["code"].(map[string]any)["const"])
		codes = append(codes, code)
		name := properties["error"].(map[string]any)
		if constant, ok := name["const"]; ok {
			described[constant.(string)] = code
			continue
		}
		for _, value := range texts(name["enum"]) {
			described[value] = code
		}
	}
	there := codedErrors(t)
	if !maps.Equal(described, there) {
		t.Errorf("asyncapi.yaml has\n%v, there are\n%v", described, there)
	}
	for _, header := range []string{"Lapse-Status", "Nats-Service-Error-Code"} {
		same(t, header, texts(at(t, "ErrorHeaders", "properties", header, "enum")), slices.Clone(codes))
	}
}

// codedErrors returns the code of each error that schema declares, by name. It reads the
// source, so it cannot miss one.
func codedErrors(t *testing.T) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../error.go", nil, 0)
	must(t, err)
	codes := make(map[string]string)
	ast.Inspect(file, func(n ast.Node) bool {
		literal, ok := n.(*ast.CompositeLit)
		if !ok || fmt.Sprint(literal.Type) != "Error" {
			return true
		}
		members := make(map[string]string)
		for _, element := range literal.Elts {
			pair := element.(*ast.KeyValueExpr)
			if value, ok := pair.Value.(*ast.BasicLit); ok {
				members[fmt.Sprint(pair.Key)] = strings.Trim(value.Value, `"`)
			}
		}
		if members["Code"] != "" {
			codes[members["Name"]] = members["Code"]
		}
		return true
	})
	return codes
}

// TestTypes: asyncapi.yaml describes exactly the members that Go marshals.
func TestTypes(t *testing.T) {
	for name, value := range map[string]any{
		"Status":            schema.Status{},
		"Lateness":          schema.Lateness{},
		"Clock":             schema.Clock{},
		"Snapshot":          schema.Snapshot{},
		"Forecast":          schema.Forecast{},
		"ForecastBucket":    schema.ForecastBucket{},
		"LatenessObjective": schema.LatenessObjective{},
		"Process":           schema.Process{},
		"Memory":            schema.Memory{},
		"Storage":           schema.Storage{},
		"StorageLimit":      schema.StorageLimit{},
	} {
		var members, required []string
		for _, field := range reflect.VisibleFields(reflect.TypeOf(value)) {
			member, options, _ := strings.Cut(field.Tag.Get("json"), ",")
			members = append(members, member)
			if !strings.Contains(options, "omit") {
				required = append(required, member)
			}
			checkType(t, name+"."+member, field.Type, at(t, name, "properties", member).(map[string]any))
		}
		same(t, name, slices.Collect(maps.Keys(at(t, name, "properties").(map[string]any))), members)
		same(t, name+", what is always there", texts(at(t, name, "required")), required)
	}
}

// checkType checks that a member's described type is that of its Go field.
func checkType(t *testing.T, what string, kind reflect.Type, described map[string]any) {
	t.Helper()
	if kind.Kind() == reflect.Pointer {
		kind = kind.Elem()
	}
	if ref, ok := described["$ref"].(string); ok {
		name := strings.TrimPrefix(ref, "#/components/schemas/")
		if kind.Kind() == reflect.Struct {
			if kind.Name() != name {
				t.Errorf("%s is a %s, asyncapi.yaml says %s", what, kind, name)
			}
			return
		}
		described = at(t, name).(map[string]any)
	}
	want := map[reflect.Kind]string{reflect.String: "string", reflect.Bool: "boolean", reflect.Int: "integer",
		reflect.Int32: "integer", reflect.Int64: "integer", reflect.Uint64: "integer", reflect.Slice: "array", reflect.Struct: "object",
		reflect.Float64: "number", reflect.Map: "object"}[kind.Kind()]
	if some, ok := described["anyOf"].([]any); ok {
		described = some[len(some)-1].(map[string]any)
	}
	if _, isEnum := described["enum"]; described["type"] != want && !(isEnum && want == "string") {
		t.Errorf("%s is a %s, asyncapi.yaml says %v", what, kind, described["type"])
	}
}

// TestHeaders: an event has exactly the described headers.
func TestHeaders(t *testing.T) {
	d := asyncapi.Load()
	for _, name := range names("events.") {
		if name == "internal" {
			continue
		}
		e := schema.Event{Type: schema.ParseEventType(name), ID: "a", Previous: 1, Cause: 1, MsgID: "m", MsgOp: schema.DocumentUpsert}
		if name == "DocumentCreated" || !e.Type.OnDocument() {
			e.Previous = 0
		}
		if name == "DocumentCreated" {
			e.Restored = 1
		}
		if name == "DocumentTouched" {
			e.Content = 1
		}
		if !e.Type.HasDeadline() {
			e.Trace = schema.Trace{Parent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", State: "a=1"}
		}
		var headers []string
		e.Headers(func(name, _ string) { headers = append(headers, name) })
		schema := d.Components.Messages[name].Headers.Name()
		same(t, schema, slices.Collect(maps.Keys(at(t, schema, "properties").(map[string]any))), headers)
	}
	for _, name := range []string{schema.HeaderMinSeq, schema.HeaderIfMatch, schema.HeaderRequestID} {
		at(t, "ChangeHeaders", "properties", name)
	}
}

// TestLimits: the described limits are those of the code.
func TestLimits(t *testing.T) {
	number := func(n int) float64 { return float64(n) }
	for _, limit := range []struct {
		schema string
		path   []string
		want   float64
	}{
		{"Id", []string{"maxLength"}, number(schema.MaxIDBytes)},
		{"Pointer", []string{"maxLength"}, number(values.MaxPointerBytes)},
		{"IncludedPaths", []string{"maxItems"}, number(schema.MaxIncludedPaths)},
		{"Batch", []string{"properties", "operations", "maxItems"}, number(schema.MaxOperations)},
		{"BatchResults", []string{"properties", "results", "maxItems"}, number(schema.MaxOperations)},
		{"Forecast", []string{"properties", "buckets", "maxItems"}, number(schema.MaxForecastBuckets)},
		{"DocumentExpired", []string{"properties", "ttl", "maximum"}, math.MaxInt32},
	} {
		if got := at(t, limit.schema, limit.path...); got != limit.want {
			t.Errorf("%s %v is %v, want %v", limit.schema, limit.path, got, limit.want)
		}
	}
	same(t, "indexing modes", texts(at(t, "IndexingPolicy", "properties", "indexingMode", "enum")),
		[]string{string(schema.Consistent), string(schema.Lazy), string(schema.None)})
}

// must ends the test on an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
