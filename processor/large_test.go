package processor

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/stress"
)

// largeDocuments is how many documents of megabytes take more than a batch may.
const largeDocuments = maxBatchBytes>>20 + 8

// large returns a machine with documents of 1 MiB in orders, which live ten
// seconds from second 1000.
func large(t *testing.T, documents int) *Machine {
	t.Helper()
	m := fresh(t)
	for i := range documents {
		body := fmt.Sprintf(`{"x":%q}`, strings.Repeat("x", 1<<20))
		decideNow(t, m, 1000, schema.NewNamedMutation("document.create", "orders", fmt.Sprint(i), []byte(body)))
	}
	return m
}

// What is handed to the log at a time is bounded in bytes, too: a stream queues
// only so much, and refuses what comes on top.
func TestLargeExpiries(t *testing.T) {
	stress.OneGoroutine(t)
	const documents, limit = 20, 4 << 20 / expiryBytes
	m := large(t, documents)
	expired := 0
	for more := true; more; {
		var err error
		if more, err = m.Expire(1010_000, limit); err != nil {
			t.Fatal(err)
		}
		if m.Pending() == 0 || m.PendingBytes() > 5<<20 {
			t.Fatalf("%d expiries of %d bytes at once", m.Pending(), m.PendingBytes())
		}
		expired += len(m.Take())
		if err := m.Commit(m.Seq()); err != nil {
			t.Fatal(err)
		}
		if m.PendingBytes() != 0 {
			t.Fatalf("nothing is pending and has %d bytes", m.PendingBytes())
		}
	}
	if expired != documents {
		t.Fatalf("%d of %d documents expired", expired, documents)
	}
}

// Small operations can make large events: those that are too much for one batch
// are refused, and all of an atomic one.
func TestLargeEventsOfBatch(t *testing.T) {
	stress.OneGoroutine(t)
	m := large(t, largeDocuments)
	for _, atomic := range []bool{true, false} {
		codes := deleteAll(t, m, 1001, atomic)
		if atomic && (codes[204] > 0 || codes[413] != 1 || m.PendingBytes() > 0) {
			t.Errorf("atomic: %v, %d bytes pending", codes, m.PendingBytes())
		}
		if !atomic && (codes[204] == 0 || codes[413] == 0 || m.PendingBytes() > maxBatchBytes) {
			t.Errorf("%v, %d bytes pending", codes, m.PendingBytes())
		}
	}
}

// The same of what an atomic batch finds expired, which it may not refuse.
func TestLargeTargetsExpire(t *testing.T) {
	stress.OneGoroutine(t)
	m := large(t, largeDocuments)
	if codes := deleteAll(t, m, 1010, true); codes != nil {
		t.Fatalf("decided at once: %v", codes)
	}
	expired := len(m.Take())
	if err := m.Commit(m.Seq()); err != nil {
		t.Fatal(err)
	}
	if codes := deleteAll(t, m, 1010, true); codes[404] != 1 {
		t.Fatalf("then: %v", codes)
	}
	if expired += len(m.Take()); expired != largeDocuments {
		t.Fatalf("%d of %d documents expired", expired, largeDocuments)
	}
}

// deleteAll decides a batch that deletes all large documents and returns how
// many results have each code, nil if it is to be decided again.
func deleteAll(t *testing.T, m *Machine, second int64, atomic bool) (codes map[int]int) {
	t.Helper()
	var operations []string
	for i := range largeDocuments {
		operations = append(operations, fmt.Sprintf(`{"op":"delete","id":"%d"}`, i))
	}
	b, fault := schema.ParseBatch("orders", fmt.Appendf(nil, `{"atomic":%t,"operations":[%s]}`, atomic, strings.Join(operations, ",")))
	if fault != nil {
		t.Fatal(fault)
	}
	o, _, err := m.DecideBatch(second*1000, b, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if o.Again {
		return nil
	}
	var reply struct{ Results []struct{ Code int } }
	if err := json.Unmarshal(o.Body, &reply); err != nil {
		t.Fatal(err)
	}
	codes = make(map[int]int)
	for _, r := range reply.Results {
		codes[r.Code]++
	}
	return codes
}

// However much is due, a change of policy, which everybody else waits for, is
// decided as soon as nothing is pending.
func TestPolicyChangeDoesNotWaitForOthers(t *testing.T) {
	inBubble(t, func(w *wire) {
		w.want(201, "collection.create.sessions", `{"defaultTtl":60}`)
		w.want(201, "collection.create.orders", `{}`)
		sleepUntil(time.Now().Unix()+1, 100)
		const documents = 20 * turnExpiries
		for done := 0; done < documents; done += schema.MaxOperations {
			var operations []string
			for i := range min(schema.MaxOperations, documents-done) {
				operations = append(operations, fmt.Sprintf(`{"op":"create","id":"%d","body":{}}`, done+i))
			}
			w.want(200, "batch.sessions", fmt.Sprintf(`{"operations":[%s]}`, strings.Join(operations, ",")))
		}
		release := w.holdWriter()
		w.check(w.client.PublishRequest("lapse.main.api.collection.replace.orders", w.client.NewInbox(), []byte(`{"previousImages":false}`)))
		time.Sleep(2 * time.Minute)
		release()
		w.eventually("all expired", func() bool { return w.end() >= documents+documents+3 })
		time.Sleep(time.Second)
		expired := 0
		for _, e := range w.events() {
			switch e.Type {
			case schema.DocumentExpired:
				expired++
			case schema.CollectionReplaced:
				if expired > documents/2 {
					t.Errorf("the policy changed after %d of %d expiries", expired, documents)
				}
				return
			}
		}
		t.Error("the policy did not change")
	})
}
