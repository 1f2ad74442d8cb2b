package machine

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// TestBatchReplyFits: the reply stays within any size limit for any operations, and an
// operation refused as too large changes nothing.
func TestBatchReplyFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		store, err := projections.Open("projection", projections.Options{FS: vfs.NewMem(), CacheBytes: 1 << 20, MemTableBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		m, err := NewMachine(store)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Decide(1000_000, schema.NewNamedMutation("collection.create", "orders", "", nil)); err != nil {
			t.Fatal(err)
		}
		// Each byte of the long ids takes four in an error message.
		ids := []string{"a", strings.Repeat(`"`, schema.MaxIDBytes), strings.Repeat(`\`, schema.MaxIDBytes)}
		var operations []map[string]any
		for range rapid.IntRange(0, 50).Draw(t, "operations") {
			op := map[string]any{
				"op": rapid.SampledFrom([]string{"get", "create", "upsert", "patch", "delete", "touch", "fly"}).Draw(t, "op"),
				"id": rapid.SampledFrom(ids).Draw(t, "id"),
			}
			if op["op"] == "touch" {
				op["body"] = map[string]any{"content": true}
			} else if op["op"] != "get" && op["op"] != "delete" {
				op["body"] = map[string]any{rapid.SampledFrom([]string{"m", "n"}).Draw(t, "member"): strings.Repeat("x", rapid.IntRange(0, 2000).Draw(t, "size"))}
			}
			operations = append(operations, op)
		}
		envelope, err := json.Marshal(map[string]any{"atomic": rapid.Bool().Draw(t, "atomic"), "operations": append([]map[string]any{}, operations...)})
		if err != nil {
			t.Fatal(err)
		}
		b, fault := schema.ParseBatch("orders", envelope)
		if fault != nil {
			t.Fatal(fault)
		}
		more := rapid.IntRange(-500, 20_000).Draw(t, "more")
		size := (len(operations)+1)*smallResult + more
		before := m.Pending()
		o, err := m.DecideBatch(1000_000, NewBatchRun(b, size), math.MaxInt)
		if err != nil {
			t.Fatal(err)
		}
		if len(o.Body) > size && more >= 0 {
			t.Fatalf("the reply has %d bytes of %d", len(o.Body), size)
		}
		var reply struct{ Results []struct{ Code int } }
		if err := json.Unmarshal(o.Body, &reply); err != nil {
			t.Fatal(err)
		}
		happened := 0
		for i, r := range reply.Results {
			if r.Code < 300 && operations[i]["op"] != "get" {
				happened++
			}
		}
		if happened > 0 && more < 0 {
			t.Fatalf("%d happened with no room to say so", happened)
		}
		if events := m.Pending() - before; events != happened || len(reply.Results) != len(operations) {
			t.Fatalf("%d events of %d operations that happened, %d results of %d", events, happened, len(reply.Results), len(operations))
		}
	})
}

// TestSmallResultReserve: smallResult is enough for each result that it is reserved for.
func TestSmallResultReserve(t *testing.T) {
	for _, r := range []schema.OperationResult{
		{Code: 204},
		{Fault: tooLargeReply()},
		DependsOn(schema.MaxOperations - 1),
	} {
		two := len(schema.AppendResults(nil, []schema.OperationResult{r, r}))
		one := len(schema.AppendResults(nil, []schema.OperationResult{r}))
		if two-one > smallResult {
			t.Errorf("%d bytes are kept for %s, which takes %d", smallResult, fmt.Sprint(r), two-one)
		}
	}
}
