package processor

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/stress"
)

// However little room there is and however much is asked for: the reply keeps
// to it, and what it calls too large has not happened.
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
		// An id whose every byte takes four in an error message.
		ids := []string{"a", strings.Repeat(`"`, schema.MaxIDBytes), strings.Repeat(`\`, schema.MaxIDBytes)}
		var operations []map[string]any
		for range rapid.IntRange(0, 50).Draw(t, "operations") {
			op := map[string]any{
				"op": rapid.SampledFrom([]string{"get", "create", "upsert", "patch", "delete", "fly"}).Draw(t, "op"),
				"id": rapid.SampledFrom(ids).Draw(t, "id"),
			}
			if op["op"] != "get" && op["op"] != "delete" {
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
		o, _, err := m.DecideBatch(1000_000, b, size)
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

// The places that are kept for results are large enough for what goes there.
func TestSmallResults(t *testing.T) {
	for _, r := range []schema.OperationResult{
		{Code: 204},
		{Fault: tooLargeReply()},
		dependsOn(schema.MaxOperations - 1),
	} {
		two := len(schema.AppendResults(nil, []schema.OperationResult{r, r}))
		one := len(schema.AppendResults(nil, []schema.OperationResult{r}))
		if two-one > smallResult {
			t.Errorf("%d bytes are kept for %s, which takes %d", smallResult, fmt.Sprint(r), two-one)
		}
	}
}

// TestBatchCodes: whatever mix of operations a batch has, fine, refused,
// ill-formed and gets, each has its code. In an atomic one that fails that is the
// first to blame, every other mutation is a 424, and nothing happens; gets are
// answered. Each operation has a document of its own, so that none meddles.
func TestBatchCodes(t *testing.T) {
	kinds := []struct {
		operation string
		reads     bool
		code      int
	}{
		{`{"op":"create","id":"new%d","body":{}}`, false, 201},
		{`{"op":"upsert","id":"new%d","body":{}}`, false, 201},
		{`{"op":"replace","id":"old%d","body":{}}`, false, 200},
		{`{"op":"delete","id":"old%d"}`, false, 204},
		{`{"op":"create","id":"old%d","body":{}}`, false, 409},
		{`{"op":"replace","id":"new%d","body":{}}`, false, 404},
		{`{"op":"patch","id":"old%d","body":{},"ifMatch":"1"}`, false, 412},
		{`{"op":"upsert","id":"new%d","body":[]}`, false, 400},
		{`{"op":"upsert","id":"new%d","body":{"id":"other"}}`, false, 400},
		{`{"op":"upsert","id":"new%d","body":{},"ifmatch":"1"}`, false, 400},
		{`{"op":"delete","id":%d}`, false, 400},
		{`{"op":"delete"}`, false, 400},
		{`{"op":"fly","id":"old%d"}`, false, 400},
		{`%d`, false, 400},
		{`{"op":"get","id":"old%d"}`, true, 200},
		{`{"op":"get","id":"new%d"}`, true, 404},
		{`{"op":"get","id":""}`, true, 400},
		{`{"more":1,"op":"get","id":"old%d"}`, true, 400},
	}
	random := stress.Rand(t)
	w := newWire(t)
	w.want(201, "collection.create.c", "")
	for round := range stress.Pick(150, 5000) {
		// Some have only a few kinds, or only what is ill-formed.
		some := random.Perm(len(kinds))[:1+random.IntN(len(kinds))]
		if random.IntN(3) == 0 {
			some = slices.DeleteFunc(some, func(k int) bool { return !kinds[k].reads && kinds[k].code != 400 })
		}
		var operations, prepare []string
		var want []int
		atomic, blamed := random.IntN(4) > 0, -1
		for i := range random.IntN(8) {
			if len(some) == 0 {
				break
			}
			k := kinds[some[random.IntN(len(some))]]
			n := 10*round + i
			prepare = append(prepare, fmt.Sprintf(`{"op":"create","id":"old%d","body":{}}`, n))
			operation := k.operation
			if strings.Contains(operation, "%d") {
				operation = fmt.Sprintf(operation, n)
			}
			operations = append(operations, operation)
			want = append(want, k.code)
			if atomic && blamed < 0 && (k.code == 400 || k.code > 400 && !k.reads) {
				blamed = i
			}
		}
		if blamed >= 0 {
			for i, operation := range operations {
				if i != blamed && !strings.Contains(operation, `"op":"get"`) {
					want[i] = 424
				}
			}
		}
		w.want(200, "batch.c", fmt.Sprintf(`{"operations":[%s]}`, strings.Join(prepare, ",")))
		before := w.end()
		body := fmt.Sprintf(`{"operations":[%s],"atomic":%t}`, strings.Join(operations, ","), atomic)
		var reply struct {
			Results []struct {
				Code int
				Body struct{ Code int }
			}
		}
		w.check(json.Unmarshal(w.want(200, "batch.c", body).body, &reply))
		var got []int
		happened := 0
		for i, r := range reply.Results {
			got = append(got, r.Code)
			if r.Code >= 400 && r.Body.Code != r.Code {
				t.Errorf("%s: result %d says %d and %d", body, i, r.Code, r.Body.Code)
			}
			if r.Code < 300 && !strings.Contains(operations[i], `"op":"get"`) {
				happened++
			}
		}
		if !slices.Equal(got, want) || int(w.end()-before) != happened {
			t.Errorf("%s:\n  %v, want %v, and the log has %s", body, got, want, w.summary(before))
		}
	}
}
