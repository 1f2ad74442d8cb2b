package service_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/lapsedb/lapse/processor/processortest"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/schema/asyncapi"
	"github.com/lapsedb/lapse/test/conform"
)

// TestOperationsAreDescribed: schema/asyncapi.yaml describes exactly the service's
// operations.
func TestOperationsAreDescribed(t *testing.T) {
	var described []string
	for name := range asyncapi.Load().Operations {
		if !strings.HasPrefix(name, "events.") && !strings.HasPrefix(name, "mutations.") && !strings.HasPrefix(name, "test.") {
			described = append(described, name)
		}
	}
	slices.Sort(described)
	if there := slices.Sorted(slices.Values(schema.OperationNames(nil))); !slices.Equal(described, there) {
		t.Errorf("schema/asyncapi.yaml describes\n%v, there are\n%v", described, there)
	}
}

// beyond matches refusals that a JSON Schema of headers and body cannot express: of the
// subject, the collection's policy, CEL, a duplicate member, input that JSON decoders
// accept, another query's cursor, an id used before, arithmetic, a header beside a member.
var beyond = regexp.MustCompile(`^(collection name|the id|ttl |where: |the cursor)|has extra tokens after|and the subject "| twice$|which is for reads by id only|not UTF-8|nested too deep|^next .* in buckets of |^Nats-Msg-Id .* was used for |and the member ttl contradict|^Lapse-Expire-At [0-9]`)

// refusedToo checks that a request refused with 400 violates schema/asyncapi.yaml, too,
// unless no schema can express the fault.
func refusedToo(w *processortest.Wire, t *testing.T, where, tail, body string, headers []string, r processortest.Reply) {
	t.Helper()
	h, twice := schema.OwnHeaders(processortest.Message("", "", headers).Header) // names in any case
	operation, _ := schema.SplitOperation(tail)
	if r.Code != 400 || twice != nil || beyond.MatchString(r.Message) || !slices.Contains(schema.OperationNames(nil), operation) {
		return
	}
	if conform.Request(operation, h, []byte(body)) == nil {
		t.Errorf("%s: by schema/asyncapi.yaml nothing is wrong with %s: %.300s\nwhich was refused: %s", where, tail, body, r.Message)
	}
}

// TestEventsAreDescribed: every event in the log, read as a client's consumer reads it,
// conforms to schema/asyncapi.yaml.
func TestEventsAreDescribed(t *testing.T) {
	w := processortest.New(t)
	w.Want(201, "collection.create.c", `{"defaultTtl":1}`, "Nats-Msg-Id", "m")
	w.Want(201, "document.upsert.c.a%20b", `{"ttl":2000}`)
	w.Want(200, "document.patch.c.a%20b", `{"n":1}`)
	w.Want(200, "document.touch.c.a%20b", ``)
	w.Want(200, "document.hold.c.a%20b", `{"reason":"x"}`)
	w.Want(200, "document.release.c.a%20b", ``)
	w.Want(204, "document.delete.c.a%20b", ``)
	w.Want(200, "collection.replace.c", `{"defaultTtl":1,"previousImages":false,"warnBefore":1500}`)
	w.Want(201, "document.create.c.a", `{}`)
	w.Want(200, "batch.c", `{"atomic":true,"operations":[{"op":"upsert","id":"x","body":{}},{"op":"upsert","id":"y","body":{}}]}`)
	w.Judged(w.Publish("document.upsert.c.b", `{"ttl":1000}`))
	w.Judged(w.Publish("document.upsert.c.b", `{"ttl":0}`))
	w.Judged(w.Publish("document.upsert.*.b", `{}`))
	w.Eventually("expired", func() bool { return has(w.Ask("status", ""), t, "pendingExpiry", 1) })
	w.Want(201, "document.restore.c.a%20b", ``)
	w.Eventually("warned", func() bool { return w.Count(schema.DocumentExpiring) >= 2 })
	w.Want(204, "collection.delete.c", ``)

	js, err := jetstream.New(w.Client)
	w.Check(err)
	consumer, err := js.OrderedConsumer(w.Ctx(), "LAPSE_main", jetstream.OrderedConsumerConfig{})
	w.Check(err)
	seen := make(map[string]bool)
	for seq, end := uint64(0), w.End(); seq < end; {
		m, err := consumer.Next()
		w.Check(err)
		if err := conform.Event(m.Subject(), m.Headers(), m.Data()); err != nil {
			t.Errorf("%s %v %s: %v", m.Subject(), m.Headers(), m.Data(), err)
		}
		channels := conform.Channels(m.Subject())
		if len(channels) != 1 {
			t.Errorf("%s is of the channels %v", m.Subject(), channels)
		}
		seen[channels[0]] = true
		meta, err := m.Metadata()
		w.Check(err)
		seq = meta.Sequence.Stream
	}
	for name := range asyncapi.Load().Operations {
		if strings.HasPrefix(name, "events.") && !seen[name] {
			t.Errorf("there was none of %s", name)
		}
	}
}

// has reports whether a reply's member equals n.
func has(r processortest.Reply, t *testing.T, member string, n float64) bool {
	t.Helper()
	var body map[string]any
	if err := json.Unmarshal(r.Body, &body); err != nil {
		t.Fatal(err)
	}
	return body[member] == n
}

// TestInfo: the schemas in the micro service's INFO, which clients in other languages
// use, are self-contained, accept valid requests only, and stay small.
func TestInfo(t *testing.T) {
	w := processortest.New(t)
	m, err := w.Client.Request("$SRV.INFO.lapse", nil, processortest.Patience)
	w.Check(err)
	var info micro.Info
	w.Check(json.Unmarshal(m.Data, &info))
	operations := endpointsAreDescribed(t, &info, len(m.Data))
	slices.Sort(operations)
	if all := slices.Sorted(slices.Values(schema.OperationNames(nil))); !slices.Equal(operations, all) {
		t.Errorf("the endpoints serve %v, want %v", operations, all)
	}

	s := compile(t, "query.request", info.Endpoints[0].Metadata["query.request"])
	for body, ok := range map[string]bool{`{"limit":5}`: true, `{"limit":0}`: false, `{"limits":5}`: false} {
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(body))
		w.Check(err)
		if err := s.Validate(value); (err == nil) != ok {
			t.Errorf("%s by the schema in the metadata: %v", body, err)
		}
	}
}

// endpointsAreDescribed checks that each endpoint has the schemas of all operations that
// it serves, and returns those operations. size is that of the whole INFO.
func endpointsAreDescribed(t *testing.T, info *micro.Info, size int) (operations []string) {
	t.Helper()
	if size > 64<<10 {
		t.Errorf("INFO has %d bytes, at most 64 KiB are wanted", size)
	}
	messages := asyncapi.Load().Components.Messages
	for _, endpoint := range info.Endpoints {
		for key, text := range endpoint.Metadata {
			if key != "operations" {
				compile(t, key, text)
			}
		}
		served := strings.Fields(endpoint.Metadata["operations"])
		operations = append(operations, served...)
		for _, operation := range served {
			for key, message := range map[string]string{".request": ".request", ".response": ".reply"} {
				if described := messages[operation+message].Payload.Ref != ""; described != (endpoint.Metadata[operation+key] != "") {
					t.Errorf("endpoint %s serves %s and has the %s %q", endpoint.Name, operation, key, endpoint.Metadata[operation+key])
				}
			}
		}
	}
	return operations
}

// compile compiles a schema without external references.
func compile(t *testing.T, name, text string) *jsonschema.Schema {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%s is not JSON: %v", name, err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("urn:"+name, value); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("urn:" + name)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return s
}
