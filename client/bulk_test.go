package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/test/harness"
)

// bulkServer stores what batches upsert, a request at a time.
type bulkServer struct {
	mu       sync.Mutex
	requests [][]string        // ids
	stored   map[string]string // by id
	refuse   func(request int, ids []string) (status int)
}

func (s *bulkServer) answer(body []byte) (int, string) {
	var request struct {
		Operations []struct {
			ID   string
			Body json.RawMessage
		}
	}
	if err := json.Unmarshal(body, &request); err != nil {
		return 400, `{}`
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids, results []string
	for _, op := range request.Operations {
		ids = append(ids, op.ID)
	}
	s.requests = append(s.requests, ids)
	if s.refuse != nil {
		if status := s.refuse(len(s.requests), ids); status != 0 {
			return status, `{}`
		}
	}
	for _, op := range request.Operations {
		s.stored[op.ID] = string(op.Body)
		results = append(results, fmt.Sprintf(`{"code":201,"body":%s}`, op.Body))
	}
	return 200, `{"results":[` + strings.Join(results, ",") + `]}`
}

// TestRunBatches: many small batches share few requests, each has its own results in
// order, and the last of two writes of a document wins.
func TestRunBatches(t *testing.T) {
	s := newStandin(t).serve()
	coll := s.collection(s.client())
	server := &bulkServer{stored: make(map[string]string)}
	s.respond("batch.orders", server.answer)

	const documents = 2000
	batches := func(yield func(*client.Batch) bool) {
		for n := range 2 * documents {
			b := coll.Batch().Upsert(fmt.Sprint("d", n%documents), order{Total: n})
			if n%3 == 0 {
				b.Upsert(fmt.Sprint("e", n), order{Total: n})
			}
			if !yield(b) {
				return
			}
		}
	}
	n := 0
	for results, err := range client.RunBatches(t.Context(), batches, 4) {
		item, fault := client.Decode[order](results[0])
		if want := 1 + (3-n%3)/3; err != nil || fault != nil || len(results) != want || item.Value.Total != n {
			t.Fatalf("batch %d: %d results, %+v, %v, %v", n, len(results), item, err, fault)
		}
		n++
	}
	if n != 2*documents || server.stored["d7"] != fmt.Sprintf(`{"total":%d}`, documents+7) {
		t.Errorf("%d batches, d7 is %s", n, server.stored["d7"])
	}
	if requests := len(server.requests); requests > 14 {
		t.Errorf("%d requests", requests)
	}
}

// TestRunBatchesPause: at a nil batch, what came before it is sent and its results are
// yielded, however few, before the sequence goes on.
func TestRunBatchesPause(t *testing.T) {
	s := newStandin(t).serve()
	coll := s.collection(s.client())
	s.respond("batch.orders", (&bulkServer{stored: make(map[string]string)}).answer)
	sent, done := 0, 0
	batches := func(yield func(*client.Batch) bool) {
		for sent < 9 {
			for range sent%3 + 1 {
				if sent++; !yield(coll.Batch().Upsert(fmt.Sprint(sent), order{})) {
					return
				}
			}
			for range 2 {
				if !yield(nil) {
					return
				}
			}
			if done != sent {
				t.Errorf("%d of %d have results when the sequence goes on", done, sent)
			}
		}
	}
	for _, err := range client.RunBatches(t.Context(), batches, 4) {
		if done++; err != nil {
			t.Error(err)
		}
	}
	if done != sent {
		t.Errorf("%d results of %d", done, sent)
	}
}

// TestRunBatchesErrors: a request that changed nothing is sent again, others fail alone, and
// a loop that ends early ends what is in flight.
func TestRunBatchesErrors(t *testing.T) {
	s := newStandin(t).serve()
	coll := s.collection(s.client())
	server := &bulkServer{stored: make(map[string]string)}
	s.respond("batch.orders", server.answer)
	run := func(ctx context.Context, batches ...*client.Batch) (got []string) {
		for results, err := range client.RunBatches(ctx, slices.Values(batches), 2) {
			text := fmt.Sprint(len(results))
			if err != nil {
				text = "failed"
			}
			got = append(got, text)
		}
		return got
	}
	expect := func(name string, got []string, want ...string) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	large := order{Note: strings.Repeat("x", 200<<10)}
	of := func(id string) *client.Batch { return coll.Batch().Upsert(id, large) }

	server.refuse = func(request int, _ []string) int { return []int{503, 429, 504, 0}[min(request-1, 3)] }
	expect("sent again", run(t.Context(), of("a"), coll.Batch()), "1", "0")
	if n := len(server.requests); n != 4 {
		t.Errorf("%d requests, want 4", n)
	}
	for status, want := range map[int]bool{503: false, 504: true} {
		first := len(server.requests) + 1
		server.refuse = func(request int, _ []string) int { return map[bool]int{true: status}[request == first] }
		for results, err := range client.RunBatches(t.Context(), slices.Values([]*client.Batch{of("a")}), 1) {
			if err != nil || results[0].Again != want {
				t.Errorf("after a %d: %+v, %v", status, results, err)
			}
		}
	}
	server.refuse = func(_ int, ids []string) int {
		if slices.Contains(ids, "b") {
			return 504
		}
		return 0
	}
	create := coll.Batch().Create("b", large)
	expect("not repeatable", run(t.Context(), of("a"), create, of("c")), "1", "failed", "1")
	expect("not JSON", run(t.Context(), coll.Batch().Upsert("a", 1), coll.Batch().Upsert("b2", func() {}), coll.Batch().Upsert("c", 1)), "1", "failed", "1")

	done, cancel := context.WithCancel(t.Context())
	cancel()
	expect("cancelled", run(done, of("d")), "failed")
	if server.stored["d"] != "" {
		t.Error("a cancelled batch is stored")
	}
	server.refuse = func(int, []string) int { return 503 }
	for _, err := range client.RunBatches(done, slices.Values([]*client.Batch{of("d"), of("e"), of("f")}), 2) {
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		break
	}
}

// TestAccountMaxPayload: a request beyond the max_payload of the account is refused at once,
// although the one of the server is larger, and the connection stays. Requests for several
// batches keep within it.
func TestAccountMaxPayload(t *testing.T) {
	o := harness.NATSOptions("")
	o.JetStream = false
	check(t, o.ProcessConfigString(`accounts { A { limits: { max_payload: 20000 }, users: [{ user: app, password: x }] } }`))
	s := &standin{t: t, server: harness.StartNATS(t, o), answers: map[string]answer{}}
	s.nc = s.connect("app")
	s.serve()
	for range 20 {
		c := s.client()
		_, err := c.Do(t.Context(), "document.upsert", "orders", "a", []byte(`"`+strings.Repeat("x", 21000)+`"`))
		if !errors.Is(err, client.ErrTooLarge) || !strings.Contains(err.Error(), "(20000 bytes)") || c.Conn().IsClosed() {
			t.Fatalf("%v, closed: %v", err, c.Conn().IsClosed())
		}
	}
	coll := s.collection(s.client())
	server := &bulkServer{stored: make(map[string]string)}
	s.respond("batch.orders", server.answer)
	const batches = 600
	n := 0
	for _, err := range client.RunBatches(t.Context(), func(yield func(*client.Batch) bool) {
		for n := range batches {
			if !yield(coll.Batch().Upsert(fmt.Sprint(n), strings.Repeat("y", n%2*200))) {
				return
			}
		}
	}, 1) {
		if n++; err != nil {
			t.Fatal(err)
		}
	}
	if n != batches || len(server.stored) != batches || len(server.requests) > 10 {
		t.Errorf("%d results, %d stored by %d requests", n, len(server.stored), len(server.requests))
	}
}
