package asyncapi_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/lapsedb/lapse/schema/asyncapi"
	"github.com/lapsedb/lapse/test/conform"
)

// TestStrict: the schemas accept valid bodies and refuse almost valid ones.
func TestStrict(t *testing.T) {
	for _, test := range []struct {
		schema    string
		good, bad []string
	}{
		{"PropertiesSent", []string{
			`{}`, `{"defaultTtl":null}`, `{"defaultTtl":-1}`, `{"defaultTtl":5.0}`, `{"defaultTtl":2147483647}`,
			`{"defaultTtl":60,"indexingPolicy":{"indexingMode":"lazy","includedPaths":[{"path":"/a~1b/0"}]},"previousImages":false}`,
			`{"defaultTtl":null,"indexingPolicy":{"indexingMode":"none"}}`, `{"indexingPolicy":null,"previousImages":null}`,
			`{"id":"orders","_ts":1,"_etag":"2","documents":1,"bytes":2}`,
		}, []string{
			`[]`, `{"defaultTTL":5}`, `{"defaultTtl":0}`, `{"defaultTtl":-2}`, `{"defaultTtl":1.5}`, `{"defaultTtl":"5"}`, `{"defaultTtl":2147483648}`,
			`{"indexingPolicy":{"indexingMode":"eager"}}`, `{"indexingPolicy":{"includedPaths":["/a"]}}`, `{"indexingPolicy":{"includedPaths":[{"path":"a"}]}}`,
			`{"indexingPolicy":{"includedPaths":[{"path":"/~2"}]}}`, `{"indexingPolicy":{"includedPaths":[{"path":"/a"},{"path":"/a"}]}}`,
			`{"indexingPolicy":{"excludedPaths":[]}}`, `{"defaultTtl":5,"indexingPolicy":{"indexingMode":"none"}}`, `{"previousImages":"no"}`, `{"id":"_x"}`,
		}},
		{"DocumentSent", []string{`{}`, `{"id":"a b","ttl":0,"x":{"y":[null]}}`}, []string{`[]`, `null`, `"a"`, `{"id":""}`, `{"id":5}`, `{"id":"a\u0000b"}`, `{"id":"\u0085"}`}},
		{"Document", []string{`{"id":"a","_ts":1,"_etag":"7"}`}, []string{
			`{"id":"a","_ts":1}`, `{"_ts":1,"_etag":"7"}`, `{"id":"a","_ts":"1","_etag":"7"}`, `{"id":"a","_ts":1,"_etag":7}`,
			`{"id":"a","_ts":1,"_etag":"0"}`, `{"id":"a","_ts":1.5,"_etag":"7"}`, `{"id":"a","_ts":1,"_etag":"7","_rid":"x"}`,
		}},
		{"Collection", []string{`{"id":"c","defaultTtl":null,"indexingPolicy":{"indexingMode":"none","includedPaths":[]},"previousImages":true,"_ts":1,"_etag":"2"}`}, []string{
			`{"id":"c","defaultTtl":null,"indexingPolicy":{"indexingMode":"none","includedPaths":[]},"previousImages":true,"_ts":1,"_etag":"2","documents":0}`,
			`{"id":"c","defaultTtl":0,"indexingPolicy":{"indexingMode":"none","includedPaths":[]},"previousImages":true,"_ts":1,"_etag":"2"}`,
			`{"id":"c","defaultTtl":null,"indexingPolicy":{"indexingMode":"none"},"previousImages":true,"_ts":1,"_etag":"2"}`,
		}},
		{"Batch", []string{
			`{"operations":[]}`, `{"operations":[{"op":"upsert","id":"a","body":{},"ifMatch":"7"},{"op":"get","id":"b"}],"atomic":true}`,
			`{"operations":[` + strings.TrimSuffix(strings.Repeat(`{"op":"get","id":"a"},`, 1000), ",") + `]}`,
		}, []string{
			`{}`, `{"operations":{}}`, `{"operations":[],"atomic":"yes"}`, `{"operations":[],"more":1}`, `{"operations":[{"op":"upsert","id":"a"}]}`,
			`{"operations":[{"op":"upsert","id":"a","body":[]}]}`, `{"operations":[{"op":"frobnicate","id":"a"}]}`, `{"operations":[{"op":"get"}]}`,
			`{"operations":[{"op":"get","id":"a","x":1}]}`, `{"operations":[7]}`,
			`{"operations":[` + strings.TrimSuffix(strings.Repeat(`{"op":"get","id":"a"},`, 1001), ",") + `]}`,
		}},
		{"BatchResults", []string{`{"results":[{"code":201,"body":{"id":"a","_ts":1,"_etag":"7"}},{"code":204},{"code":404,"body":{"code":404,"error":"document_not_found","message":"m"}}]}`}, []string{
			`{"results":[{"code":200}]}`, `{"results":[{"code":204,"body":{}}]}`, `{"results":[{"code":404,"body":{"id":"a","_ts":1,"_etag":"7"}}]}`, `{"results":[{"code":302}]}`,
		}},
		{"Query", []string{
			`{}`, `{"where":"true","params":{"a":1},"orderBy":[{"path":"/a","desc":true}],"select":["/id"],"limit":1000,"explain":true}`,
			`{"idPrefix":"s-","held":true}`, `{"idPrefix":null,"due":{}}`, `{"idPrefix":"a","due":null}`, `{"count":true,"cursor":""}`, `{"cursor":"x","count":false}`, `{"where":null}`, `{"limit":100.0}`,
		}, []string{
			`[]`, `{"wher":"true"}`, `{"where":1}`, `{"limit":0}`, `{"limit":1001}`, `{"limit":1.5}`, `{"limit":"5"}`, `{"count":true,"cursor":"x"}`,
			`{"orderBy":[{"path":"/a","desc":1}]}`, `{"orderBy":[{"desc":true}]}`, `{"orderBy":"/a"}`, `{"select":["id"]}`, `{"select":[""]}`, `{"params":[]}`,
			`{"idPrefix":""}`, `{"idPrefix":1}`, `{"idPrefix":"` + strings.Repeat("i", 256) + `"}`, `{"idPrefix":"a","due":{}}`,
		}},
		{"ForecastRequest", []string{
			`{}`, `{"next":86400,"bucket":3600.0}`, `{"next":"24h","bucket":"1h","defaultTtl":null}`, `{"next":"30d"}`, `{"next":"1d2h3m4s"}`, `{"next":null,"bucket":null,"defaultTtl":-1}`,
		}, []string{
			`[]`, `{"until":1}`, `{"next":0}`, `{"next":1.5}`, `{"next":2147483648}`, `{"next":""}`, `{"next":"1500ms"}`, `{"next":"-1h"}`, `{"next":"h"}`, `{"bucket":[1]}`, `{"defaultTtl":0}`, `{"defaultTtl":"off"}`,
		}},
		{"QueryResult", []string{`{"documents":[{}],"cursor":"x","plan":{"index":null,"scanned":1,"returned":1}}`, `{"count":0}`}, []string{
			`{}`, `{"count":-1}`, `{"count":1,"documents":[]}`, `{"documents":[1]}`, `{"documents":[],"plan":{"index":"/a"}}`,
		}},
		{"Error", []string{`{"code":409,"error":"document_exists","message":"m"}`}, []string{
			`{"code":404,"error":"document_exists","message":"m"}`, `{"code":409,"error":"exists","message":"m"}`, `{"code":409,"error":"document_exists"}`,
			`{"code":"409","error":"document_exists","message":"m"}`, `{"code":409,"error":"document_exists","message":"m","detail":1}`, `{"code":500,"error":"unavailable","message":"m"}`,
		}},
		{"Event", []string{
			`{"seq":4,"time":"2015-05-17T10:05:33.007Z","type":"DocumentExpired","collection":"s","id":"a","previous":3,"deadline":1431857133,"ttl":30,"rule":"collection"}`,
			`{"seq":5,"time":"2015-05-17T10:05:34.000Z","type":"MutationRejected","collection":"_invalid","cause":"mutations/7","body":{"code":400,"error":"bad_request","message":"m","mutation":{"op":"x","collection":"a b"}}}`,
		}, []string{
			`{"seq":0,"time":"2015-05-17T10:05:33.007Z","type":"DocumentCreated","collection":"s","id":"a","body":{"id":"a"}}`,
			`{"seq":1,"time":"2015-05-17T10:05:33Z","type":"DocumentCreated","collection":"s","id":"a","body":{"id":"a"}}`,
			`{"seq":1,"time":"2015-05-17T10:05:33.007Z","type":"DocumentCreated","collection":"s","id":"a"}`,
			`{"seq":1,"time":"2015-05-17T10:05:33.007Z","type":"DocumentCreated","collection":"s","id":"a","body":{"id":"a","_ts":1}}`,
			`{"seq":1,"time":"2015-05-17T10:05:33.007Z","type":"DocumentCreated","collection":"s","id":"a","previous":1,"body":{"id":"a"}}`,
			`{"seq":1,"time":"2015-05-17T10:05:33.007Z","type":"DocumentReplaced","collection":"s","id":"a","body":{"id":"a"}}`,
			`{"seq":1,"time":"2015-05-17T10:05:33.007Z","type":"DocumentCreated","collection":"_invalid","id":"a","body":{"id":"a"}}`,
			`{"seq":1,"time":"2015-05-17T10:05:33.007Z","type":"WriterStarted","collection":"_"}`,
			`{"seq":4,"time":"2015-05-17T10:05:33.007Z","type":"DocumentExpired","collection":"s","id":"a","previous":3,"deadline":1431857133,"ttl":30,"rule":"ttl"}`,
			`{"seq":4,"time":"2015-05-17T10:05:33.007Z","type":"DocumentExpired","collection":"s","id":"a","previous":3,"ttl":30,"rule":"document"}`,
		}},
		{"PubAck", []string{`{"stream":"LAPSE_main_MUTATIONS","seq":1}`, `{"stream":"LAPSE_main_MUTATIONS","seq":1,"duplicate":true,"domain":"d"}`, `{"error":{"code":503},"stream":"","seq":0}`},
			[]string{`{"stream":"LAPSE_main","seq":1}`, `{"stream":"LAPSE_main_MUTATIONS","seq":0}`, `{}`}},
	} {
		for _, body := range test.good {
			if err := conform.Schema(test.schema, []byte(body)); err != nil {
				t.Errorf("%s: %v", body, err)
			}
		}
		for _, body := range test.bad {
			if conform.Schema(test.schema, []byte(body)) == nil {
				t.Errorf("%.300s is accepted as a %s", body, test.schema)
			}
		}
	}
}

// TestStrictMessages: the same for messages with headers.
func TestStrictMessages(t *testing.T) {
	header := func(pairs ...string) map[string][]string {
		h := make(map[string][]string)
		for i := 0; i < len(pairs); i += 2 {
			h[pairs[i]] = []string{pairs[i+1]}
		}
		return h
	}
	document := `{"id":"a","_ts":1,"_etag":"7"}`
	expired := []string{"Lapse-Time", "1", "Lapse-Id", "a%20b", "Lapse-Previous", "1", "Lapse-Deadline", "5", "Lapse-Ttl", "4", "Lapse-Rule", "document"}
	for _, test := range []struct {
		name string
		err  error
		ok   bool
	}{
		{"a reply", conform.Reply("document.get", header("Lapse-Status", "200", "Lapse-Seq", "7"), []byte(document)), true},
		{"a reply with another status", conform.Reply("document.get", header("Lapse-Status", "201", "Lapse-Seq", "7"), []byte(document)), false},
		{"a reply without a sequence", conform.Reply("document.get", header("Lapse-Status", "200"), []byte(document)), false},
		{"a reply with a header more", conform.Reply("document.get", header("Lapse-Status", "200", "Lapse-Seq", "7", "Lapse-Extra", "x"), []byte(document)), false},
		{"a reply without a body", conform.Reply("document.get", header("Lapse-Status", "200", "Lapse-Seq", "7"), nil), false},
		{"nothing", conform.Reply("document.delete", header("Lapse-Status", "204", "Lapse-Seq", "7"), nil), true},
		{"nothing with a body", conform.Reply("document.delete", header("Lapse-Status", "204", "Lapse-Seq", "7"), []byte(document)), false},
		{"an error", conform.Reply("document.get", header("Lapse-Status", "404", "Lapse-Seq", "7", "Nats-Service-Error-Code", "404", "Nats-Service-Error", "m"), []byte(`{"code":404,"error":"document_not_found","message":"m"}`)), true},
		{"an error without its headers", conform.Reply("document.get", header("Lapse-Status", "404", "Lapse-Seq", "7"), []byte(`{"code":404,"error":"document_not_found","message":"m"}`)), false},
		{"a request", conform.Request("query", header("Lapse-Min-Seq", "7"), nil), true},
		{"a request without its body", conform.Request("document.upsert", nil, nil), false},
		{"a request that waits for no number", conform.Request("query", header("Lapse-Min-Seq", "x"), nil), false},
		{"an operation that is none", conform.Request("document.put", nil, []byte(`{}`)), false},
		{"a mutation", conform.Mutation("document.upsert", header("Nats-Msg-Id", "1", "If-Match", "7"), []byte(`{}`)), true},
		{"an expiry", conform.Event("lapse.main.events.orders.DocumentExpired", header(expired...), []byte(`{"id":"a b"}`)), true},
		{"an expiry without an image", conform.Event("lapse.main.events.orders.DocumentExpired", header(append(expired, "Nats-Msg-Id", "1")...), nil), true},
		{"an expiry of no version", conform.Event("lapse.main.events.orders.DocumentExpired", header("Lapse-Time", "1", "Lapse-Id", "a"), nil), false},
		{"a creation that ends a version", conform.Event("lapse.main.events.orders.DocumentCreated", header("Lapse-Time", "1", "Lapse-Id", "a", "Lapse-Previous", "1"), []byte(`{"id":"a"}`)), false},
		{"a creation of nothing", conform.Event("lapse.main.events.orders.DocumentCreated", header("Lapse-Time", "1", "Lapse-Id", "a"), nil), false},
		{"an id that is not encoded", conform.Event("lapse.main.events.orders.DocumentCreated", header("Lapse-Time", "1", "Lapse-Id", "a b"), []byte(`{"id":"a b"}`)), false},
		{"an unknown event", conform.Event("lapse.main.events.orders.DocumentRenamed", header("Lapse-Time", "1"), nil), false},
		{"an internal event", conform.Event("lapse.main.events._.WriterStarted", header("Lapse-Time", "1", "x", "y"), []byte("x")), true},
	} {
		if (test.err == nil) != test.ok {
			t.Errorf("%s: %v", test.name, test.err)
		}
	}
}

// TestMetadata: the schemas in endpoint metadata are self-contained and agree with their
// source; together they are small enough for $SRV.INFO.
func TestMetadata(t *testing.T) {
	var operations []string
	for name := range asyncapi.Load().Operations {
		if !strings.HasPrefix(name, "events.") && !strings.HasPrefix(name, "mutations.") && !strings.HasPrefix(name, "test.") {
			operations = append(operations, name)
		}
	}
	bytes := 0
	for key, text := range asyncapi.Metadata(operations...) {
		bytes += len(key) + len(text)
		if key == "operations" {
			continue
		}
		if strings.Contains(text, "asyncapi") || strings.Contains(text, "components") || strings.ContainsAny(text, "\n") {
			t.Errorf("%s is not by itself, or not minified: %s", key, text)
		}
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		if err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		c := jsonschema.NewCompiler()
		must(t, c.AddResource("urn:x", value))
		if _, err := c.Compile("urn:x"); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
	if bytes > 48<<10 {
		t.Errorf("the metadata of all operations have %d bytes", bytes)
	}

	one := asyncapi.Metadata("document.delete", "status")
	if one["operations"] != "document.delete status" || one["status.response"] == "" || one["error"] == "" || len(one) != 3 {
		t.Errorf("the metadata of two operations is %v", one)
	}
	var s struct {
		AdditionalProperties *bool
		Properties           map[string]any
	}
	if err := json.Unmarshal([]byte(one["status.response"]), &s); err != nil || s.AdditionalProperties == nil || s.Properties["description"] != nil || s.Properties["digest"] == nil {
		t.Errorf("the schema of status is %s: %v", one["status.response"], err)
	}
}
