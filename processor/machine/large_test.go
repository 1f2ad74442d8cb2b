package machine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/stress"
)

// largeDocuments is a number of 1 MiB documents that exceeds MaxBatchBytes.
const largeDocuments = MaxBatchBytes>>20 + 8

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

// TestLargeExpiries: one round of expiries is bounded in bytes, too: a stream's queue is
// limited, and the stream refuses more.
func TestLargeExpiries(t *testing.T) {
	stress.OneGoroutine(t)
	const documents, limit = 20, 2 * 4 << 20 / expiryWork // an expiry reads a document and writes it
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

// TestLargeEventsOfBatch: small operations can make large events. Those that exceed the
// limit of one batch are refused, and with them all of an atomic batch.
func TestLargeEventsOfBatch(t *testing.T) {
	stress.OneGoroutine(t)
	m := large(t, largeDocuments)
	for _, atomic := range []bool{true, false} {
		codes := deleteAll(t, m, 1001, atomic)
		if atomic && (codes[204] > 0 || codes[413] != 1 || m.PendingBytes() > 0) {
			t.Errorf("atomic: %v, %d bytes pending", codes, m.PendingBytes())
		}
		if !atomic && (codes[204] == 0 || codes[413] == 0 || m.PendingBytes() > MaxBatchBytes) {
			t.Errorf("%v, %d bytes pending", codes, m.PendingBytes())
		}
	}
}

// TestEventsOfAtomicBatch: a document that an atomic batch releases may be due, and
// expires within the batch. A batch with more events than a stream accepts as one is
// refused.
func TestEventsOfAtomicBatch(t *testing.T) {
	const held = schema.MaxOperations / 2
	m := fresh(t)
	var operations []string
	for i := range held {
		id := fmt.Sprint(i)
		decideNow(t, m, 1000, schema.NewNamedMutation("document.create", "orders", id, []byte(`{}`)))
		decideNow(t, m, 1000, schema.NewNamedMutation("document.hold", "orders", id, nil))
		operations = append(operations, fmt.Sprintf(`{"op":"release","id":%q},{"op":"create","id":%[1]q,"body":{}}`, id))
	}
	if codes := decideBatch(t, m, 1010, true, operations); codes[413] != 1 || codes[424] != 2*held-1 || m.Pending() > 0 {
		t.Errorf("%v, %d events pending", codes, m.Pending())
	}
	const most = schema.MaxOperations / 3
	if codes := decideBatch(t, m, 1010, true, operations[:most]); codes[200] != most || codes[201] != most || m.Pending() != 3*most {
		t.Errorf("%v, %d events pending", codes, m.Pending())
	}
}

// TestAtomicBatchManyExpiredTargets: an atomic batch that finds many large targets expired is
// decided again after they are folded, and not refused.
func TestAtomicBatchManyExpiredTargets(t *testing.T) {
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

// deleteAll decides a batch that deletes all large documents and returns the number of
// results by code, nil if it has to be decided again.
func deleteAll(t *testing.T, m *Machine, second int64, atomic bool) (codes map[int]int) {
	t.Helper()
	var operations []string
	for i := range largeDocuments {
		operations = append(operations, fmt.Sprintf(`{"op":"delete","id":"%d"}`, i))
	}
	return decideBatch(t, m, second, atomic, operations)
}

// parseBatch returns a batch of operations in orders.
func parseBatch(t *testing.T, atomic bool, operations string) *schema.Batch {
	t.Helper()
	b, fault := schema.ParseBatch("orders", fmt.Appendf(nil, `{"atomic":%t,"operations":[%s]}`, atomic, operations))
	if fault != nil {
		t.Fatal(fault)
	}
	return b
}

// decideBatch returns the number of results by code, nil if it has to be decided again.
func decideBatch(t *testing.T, m *Machine, second int64, atomic bool, operations []string) (codes map[int]int) {
	t.Helper()
	o, err := m.DecideBatch(second*1000, NewBatchRun(parseBatch(t, atomic, strings.Join(operations, ",")), 1<<20), math.MaxInt)
	if err != nil {
		t.Fatal(err)
	}
	if o.Need == NeedCommit {
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

// TestBatchOfLargeDocuments: the bytes that a batch reads are limited, whatever the
// outcome of its operations.
func TestBatchOfLargeDocuments(t *testing.T) {
	m := fresh(t)
	decideNow(t, m, 1000, schema.NewNamedMutation("document.create", "orders", "a", []byte(`{"x":"`+strings.Repeat("x", 1<<20)+`"}`)))
	for _, operation := range []string{`{"op":"patch","id":"a","body":{"y":1}}`, `{"op":"get","id":"a"},{"op":"patch","id":"b","body":{}}`,
		`{"op":"touch","id":"a","body":{"content":true}}`} {
		for _, atomic := range []bool{false, true} {
			before, seq := m.reads, m.Seq()
			operations := strings.Repeat(operation+",", 400) + operation
			b := parseBatch(t, atomic, operations)
			o, err := m.DecideBatch(1001_000, NewBatchRun(b, 4<<20), math.MaxInt)
			if err != nil || o.Code != 200 || len(o.Body) > 4<<20 {
				t.Fatalf("%d with %d bytes, %v", o.Code, len(o.Body), err)
			}
			if read := m.reads - before; read > MaxBatchBytes+4<<20 {
				t.Errorf("%s, atomic %t: %d MiB were read", operation, atomic, read>>20)
			}
			if !atomic && !bytes.Contains(o.Body, []byte("use smaller batches")) {
				t.Errorf("%s: nothing was refused", operation)
			}
			if renewed := bytes.Count(o.Body, []byte(`{"code":200`)); strings.Contains(operation, "touch") && m.Seq()-seq != uint64(renewed) {
				t.Errorf("atomic %t: %d were renewed, and %d replied to", atomic, m.Seq()-seq, renewed)
			}
		}
	}
}

// TestRejectionWaitsForLog: a rejection or repeat because of a pending event has the
// sequence of that event, so its reply waits until the log has it.
func TestRejectionWaitsForLog(t *testing.T) {
	m := fresh(t)
	create := schema.NewNamedMutation("document.create", "orders", "a", []byte(`{}`))
	create.MsgID = "m"
	made, err := m.Decide(1000_000, create)
	if err != nil || made.Code != 201 {
		t.Fatalf("%+v (%v)", made, err)
	}
	if again, err := m.Decide(1000_000, create); err != nil || again.Repeat != made.Seq || again.Seq != made.Seq {
		t.Errorf("the repeat of event %d is %+v (%v)", made.Seq, again, err)
	}
	other := schema.NewNamedMutation("document.create", "orders", "a", []byte(`{}`))
	if o, err := m.Decide(1000_000, other); err != nil || o.Code != 409 || o.Seq != made.Seq {
		t.Errorf("refused because of event %d it is %+v (%v)", made.Seq, o, err)
	}
	for _, atomic := range []bool{true, false} {
		b := parseBatch(t, atomic, `{"op":"create","id":"a","body":{}}`)
		if o, err := m.DecideBatch(1000_000, NewBatchRun(b, 1<<20), math.MaxInt); err != nil || o.Seq != made.Seq {
			t.Errorf("refused because of event %d the batch is %+v (%v)", made.Seq, o, err)
		}
	}
	m.Take()
	if err := m.Commit(m.Seq()); err != nil || len(m.overlay.messages) > 0 {
		t.Errorf("%d ids of folded events are held in memory (%v)", len(m.overlay.messages), err)
	}
}

// TestEarlierEntryRearmsQueue: an armed queue, of expiries or of warnings, fires for an
// entry that comes before all others.
func TestEarlierEntryRearmsQueue(t *testing.T) {
	for properties, before := range map[string]int64{`{"defaultTtl":10}`: 0, `{"defaultTtl":10,"warnBefore":3}`: 3} {
		m := fresh(t)
		decideNow(t, m, 1000, schema.NewNamedMutation("collection.replace", "orders", "", []byte(properties)))
		for id, ttl := range []int64{100, 50, 70, 5} {
			_, _ = decideNow(t, m, 1000, schema.NewNamedMutation("document.create", "orders", fmt.Sprint(id), fmt.Appendf(nil, `{"ttl":%d}`, ttl)))
			want := 1000 + ttl - before
			if id == 2 {
				want = 1050 - before
			}
			if second, ok := m.NextDue(); !ok || second != want {
				t.Errorf("%s, after a ttl of %d something is due at %d %t, want %d", properties, ttl, second, ok, want)
			}
		}
	}
}
