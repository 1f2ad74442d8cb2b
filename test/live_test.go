package test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/test/harness"
	"github.com/lapsedb/lapse/test/stress"
)

const (
	liveTTL   = 5    // TTL of every hit, in seconds
	addresses = 1753 // number of addresses in the hits
)

// TestLiveSessions: hits written to a running server by requests, batches and mutations
// are all in the log, and the document of every address expires once.
func TestLiveSessions(t *testing.T) {
	t.Parallel()
	hits, _ := readHits(t)
	byAddress := groupHits(hits)
	if len(byAddress) != addresses {
		t.Fatalf("%d addresses, want %d", len(byAddress), addresses)
	}
	byAddress = byAddress[:stress.Pick(addresses/3, addresses)]
	written := 0
	for _, group := range byAddress {
		written += len(group)
	}
	s := harness.Serve(t, "--durability", "os")
	for _, test := range []struct {
		collection string
		write      func(testing.TB, *nats.Conn, string, [][]hit)
	}{
		{"requests", writeRequests},
		{"batches", writeBatches},
		{"mutations", writeMutations},
	} {
		t.Run(test.collection, func(t *testing.T) {
			t.Parallel()
			nc := dial(t, s)
			mustAsk(t, nc, 201, "collection.create."+test.collection, `{"defaultTtl":-1}`)
			var complete atomic.Bool
			var watch sync.WaitGroup
			defer watch.Wait()
			watch.Go(func() { watchEnd(t, nc, test.collection, byAddress[len(byAddress)-40:], &complete) })
			test.write(t, nc, test.collection, byAddress)
			complete.Store(true)
			watch.Wait()
			checkLives(t, readFeed(t, nc, test.collection, allEnded(written)), byAddress)
			collection := mustAsk(t, nc, 200, "collection.get."+test.collection, "")
			if !strings.Contains(string(collection.body), `"documents":0,"bytes":0`) {
				t.Errorf("all has ended, and the collection is %s", collection.body)
			}
		})
	}
	t.Cleanup(func() {
		if !t.Failed() {
			s.Stop()
		}
	})
}

// groupHits groups the hits by address, in their order, and adds the member ttl to their
// documents. Between two hits of an address there is then no more than the time that one
// write takes.
func groupHits(hits []hit) (groups [][]hit) {
	index := make(map[string]int)
	for _, h := range hits {
		i, ok := index[h.ID]
		if !ok {
			i = len(groups)
			index[h.ID] = i
			groups = append(groups, nil)
		}
		h.Body = fmt.Appendf(nil, `{"ttl":%d,%s`, liveTTL, h.Body[1:])
		groups[i] = append(groups[i], h)
	}
	return groups
}

// token returns an id as a subject has it.
func token(id string) string { return strings.ReplaceAll(id, ".", "%2E") }

func writeRequests(t testing.TB, nc *nats.Conn, collection string, groups [][]hit) {
	const writers = 32
	work := make(chan []hit)
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for group := range work {
				for _, h := range group {
					a, err := tryAsk(nc, "document.upsert."+collection+"."+token(h.ID), string(h.Body))
					if err != nil || a.code != 200 && a.code != 201 {
						t.Errorf("upsert %s: %d %s %v", h.ID, a.code, a.body, err)
						break
					}
				}
			}
		})
	}
	for _, group := range groups {
		work <- group
	}
	close(work)
	wg.Wait()
}

func writeBatches(t testing.TB, nc *nats.Conn, collection string, groups [][]hit) {
	type operation struct {
		Op   string          `json:"op"`
		ID   string          `json:"id"`
		Body json.RawMessage `json:"body"`
	}
	var operations []operation
	for _, group := range groups {
		for _, h := range group {
			operations = append(operations, operation{"upsert", h.ID, h.Body})
		}
	}
	for len(operations) > 0 {
		n := min(1000, len(operations))
		var body strings.Builder
		encoder := json.NewEncoder(&body)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(map[string]any{"operations": operations[:n], "atomic": len(operations)%2000 < 1000}); err != nil {
			t.Fatal(err)
		}
		operations = operations[n:]
		a := mustAsk(t, nc, 200, "batch."+collection, body.String())
		var reply struct {
			Results []struct {
				Code int             `json:"code"`
				Body json.RawMessage `json:"body"`
			} `json:"results"`
		}
		if err := json.Unmarshal(a.body, &reply); err != nil || len(reply.Results) != n {
			t.Fatalf("%d results for %d operations: %v", len(reply.Results), n, err)
		}
		for i, r := range reply.Results {
			if r.Code != 200 && r.Code != 201 {
				t.Fatalf("operation %d: %d %s", i, r.Code, r.Body)
			}
		}
	}
}

func writeMutations(t testing.TB, nc *nats.Conn, collection string, groups [][]hit) {
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(1000))
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range groups {
		for _, h := range group {
			subject := "lapse.main.mutations.document.upsert." + collection + "." + token(h.ID)
			if _, err := js.PublishAsync(subject, h.Body, jetstream.WithStallWait(patience)); err != nil {
				t.Fatal(err)
			}
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-time.After(patience):
		t.Fatal("not all mutations were taken")
	}
	eventually(t, "all mutations judged", func() bool { return askStatus(t, nc).MutationsBehind == 0 })
}

// watchEnd polls some documents while they are written and until they expire: a request
// sent at or after the second of the deadline finds nothing, one answered before it finds
// the document.
func watchEnd(t testing.TB, nc *nats.Conn, collection string, groups [][]hit, complete *atomic.Bool) {
	deadlines := make(map[string]int64)
	seen := 0
	for ended := make(map[string]bool); len(ended) < len(groups); time.Sleep(5 * time.Millisecond) {
		if t.Failed() {
			return
		}
		for _, group := range groups {
			id := group[0].ID
			if ended[id] {
				continue
			}
			wasWritten, sent := complete.Load(), time.Now()
			a, err := tryAsk(nc, "document.get."+collection+"."+token(id), "")
			answered := time.Now()
			deadline, known := deadlines[id]
			switch {
			case a.code == 404:
				if known || wasWritten {
					ended[id] = true
				}
				if known && answered.Unix() < deadline {
					t.Errorf("%s was gone at %s, before its deadline %d", id, answered, deadline)
				}
			case a.code != 200:
				t.Errorf("get %s: %d %s %v", id, a.code, a.body, err)
				return
			default:
				var document struct {
					TS int64 `json:"_ts"`
				}
				if err := json.Unmarshal(a.body, &document); err != nil {
					t.Error(err)
					return
				}
				seen++
				deadlines[id] = document.TS + liveTTL
				if sent.Unix() >= deadlines[id] {
					t.Errorf("%s was there at %s, after its deadline %d", id, sent, deadlines[id])
				}
			}
		}
	}
	if seen == 0 {
		t.Error("every document was gone before it could be looked at")
	}
}

// allEnded returns a condition: that many writes, and every written document expired.
func allEnded(writes int) func([]event) bool {
	written, living, looked := 0, 0, 0
	return func(events []event) bool {
		for ; looked < len(events); looked++ {
			switch events[looked].Type {
			case "DocumentCreated":
				written++
				living++
			case "DocumentReplaced":
				written++
			case "DocumentExpired":
				living--
			}
		}
		return written == writes && living == 0
	}
}

// checkLives fails the test unless the log has all writes of each address, in order, and
// its expiry, once, with its last content.
func checkLives(t testing.TB, events []event, groups [][]hit) {
	t.Helper()
	checkLog(t, events)
	written := make(map[string][]string)
	expired := make(map[string]int)
	causes := make(map[string]bool)
	for _, e := range events {
		switch e.Type {
		case "DocumentCreated", "DocumentReplaced":
			written[e.ID] = append(written[e.ID], string(e.Body))
			if e.Cause != "" && causes[e.Cause] {
				t.Fatalf("event %d has the cause %s of another", e.Seq, e.Cause)
			}
			causes[e.Cause] = true
		case "DocumentExpired":
			expired[e.ID]++
			if e.TTL != liveTTL || e.Rule != "document" {
				t.Fatalf("event %d expired after %d by %s", e.Seq, e.TTL, e.Rule)
			}
		}
	}
	lives := 0
	for _, group := range groups {
		id := group[0].ID
		if len(written[id]) != len(group) {
			t.Fatalf("%s was written %d times, want %d", id, len(written[id]), len(group))
		}
		for i, h := range group {
			if written[id][i] != string(h.Body) {
				t.Fatalf("write %d of %s is %s, want %s", i, id, written[id][i], h.Body)
			}
		}
		lives += expired[id]
	}
	// On a machine that stalls for liveTTL between two writes of an address, its document
	// expires in between; checkLog has seen that the gap was there.
	if lives != len(groups) || len(expired) != len(groups) {
		t.Logf("%d addresses expired %d times", len(expired), lives)
	}
	if len(expired) != len(groups) || lives < len(groups) {
		t.Errorf("%d addresses expired, want %d", len(expired), len(groups))
	}
}
