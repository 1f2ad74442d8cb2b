package machine

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// counting counts the bytes of documents that are read.
type counting struct {
	Projection
	read int
}

func (c *counting) Document(of *schema.Collection, id schema.DocumentID) (projections.Record, bool, error) {
	r, ok, err := c.Projection.Document(of, id)
	c.read += len(r.Body)
	return r, ok, err
}

func (c *counting) Lookup(of *schema.Collection) projections.Lookup {
	return countingLookup{c.Projection.Lookup(of), c}
}

type countingLookup struct {
	projections.Lookup
	*counting
}

func (l countingLookup) Document(id schema.DocumentID) (projections.Record, bool, error) {
	r, ok, err := l.Lookup.Document(id)
	l.read += len(r.Body)
	return r, ok, err
}

func (l countingLookup) Close() error { return l.Lookup.Close() }

// small are operations that send little, whatever the size of their document.
var small = []string{
	`{"op":"patch","id":"%d","body":{"n":1}}`, `{"op":"delete","id":"%d"}`, `{"op":"touch","id":"%d"}`,
	`{"op":"hold","id":"%d"}`, `{"op":"release","id":"%d"}`, `{"op":"restore","id":"%d"}`, `{"op":"get","id":"%d"}`,
	`{"op":"replace","id":"%d","body":{}}`, `{"op":"upsert","id":"%d","body":{}}`, `{"op":"create","id":"%d","body":{}}`,
	`{"op":"patch","id":"%d","body":{"_":1},"ifMatch":"1"}`,
}

const workDocuments, workBytes = 20, 1 << 20

// workMachine returns a machine with large documents in orders, due if they are overdue.
func workMachine(t *testing.T, overdue bool) (*Machine, *counting) {
	t.Helper()
	m := large(t, workDocuments)
	counts := &counting{Projection: m.Store}
	m.Store = counts
	m.History = AtHand{eventsOf(nil)}
	if !overdue {
		_, _ = decideNow(t, m, 1000, schema.NewNamedMutation("collection.replace", "orders", "", []byte(`{"defaultTtl":100000}`)))
	}
	return m, counts
}

// eventsOf is a Log of some events.
type eventsOf []*schema.Event

func (l eventsOf) Last(schema.CollectionName, schema.DocumentID) (uint64, error) { return 0, nil }
func (l eventsOf) Event(uint64) (*schema.Event, error)                           { return nil, nil }

// TestBatchInPieces: whatever its small operations do to large documents, a batch is decided
// in pieces of limited work, and the work covers all bytes that are read and written. An
// atomic batch has a limit as a whole, apart from the documents that it ends.
func TestBatchInPieces(t *testing.T) {
	const piece = 3 * workBytes
	for _, overdue := range []bool{false, true} {
		m, counts := workMachine(t, overdue)
		for _, operation := range small {
			for _, atomic := range []bool{false, true} {
				name := fmt.Sprintf("%s overdue=%t atomic=%t", operation, overdue, atomic)
				var operations []string
				for i := range 2 * workDocuments {
					operations = append(operations, fmt.Sprintf(operation, i%workDocuments))
				}
				run := NewBatchRun(parseBatch(t, atomic, strings.Join(operations, ",")), math.MaxInt)
				pieces := 0
				for more := true; more; pieces++ {
					work, read, bytes := m.Work(), counts.read, m.bytes
					o, err := m.DecideBatch(1020_000, run, piece)
					if err != nil || o.Need == NeedCommit || o.Need == NeedLog {
						t.Fatalf("%s: %+v, %v", name, o, err)
					}
					more = o.Need == NeedTurn
					work, read, bytes = m.Work()-work, counts.read-read, m.bytes-bytes
					if work < read+bytes {
						t.Errorf("%s: work %d for %d bytes read and %d written", name, work, read, bytes)
					}
					ends := strings.Contains(operation, "delete") || overdue
					if !atomic && work > piece+3*workBytes || atomic && !ends && work > MaxAtomicWork+3*workBytes {
						t.Errorf("%s: a piece with work %d", name, work)
					}
				}
				if atomic && pieces > 1 {
					t.Errorf("%s: in %d pieces", name, pieces)
				}
				if err := m.Abort(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// TestIndexedWork: the work of a small operation on an indexed document covers its index
// entries. An atomic batch counts them: documents with few are not refused, though they are
// as large.
func TestIndexedWork(t *testing.T) {
	m := fresh(t)
	var paths, many, few []string
	for i := range schema.MaxIncludedPaths {
		paths = append(paths, fmt.Sprintf(`{"path":"/a%d"}`, i))
		numbers, _ := json.Marshal(make([]struct{}, 0))
		numbers = numbers[:1]
		for n := range projections.MaxMembers {
			numbers = fmt.Appendf(numbers, "%d,", n)
		}
		many = append(many, fmt.Sprintf(`"a%d":%s]`, i, numbers[:len(numbers)-1]))
		few = append(few, fmt.Sprintf(`"a%d":1`, i))
	}
	policy := `{"indexingPolicy":{"includedPaths":[` + strings.Join(paths, ",") + `]}}`
	_, _ = decideNow(t, m, 1000, schema.NewNamedMutation("collection.replace", "orders", "", []byte(policy)))
	bodies := map[string]string{"many": "{" + strings.Join(many, ",") + "}",
		"few": `{"pad":"` + strings.Repeat("x", 10_000) + `",` + strings.Join(few, ",") + "}"}
	for id, body := range bodies {
		if o, _ := decideNow(t, m, 1000, schema.NewNamedMutation("document.create", "orders", id, []byte(body))); o.Code != 201 {
			t.Fatal(o.Fault)
		}
	}
	for id, body := range bodies {
		entries := m.Store.IndexEntries(m.Collection("orders"), []byte(body))
		if id == "many" && entries < schema.MaxIncludedPaths*projections.MaxMembers {
			t.Fatalf("%d entries", entries)
		}
		for _, op := range []string{"touch", "hold", "release", "patch", "replace", "delete"} {
			work := m.Work()
			body := ""
			if op == "patch" || op == "replace" {
				body = `{}`
			}
			o, err := m.Decide(1000_000, schema.NewNamedMutation("document."+op, "orders", id, []byte(body)))
			if err != nil || o.Fault != nil {
				t.Fatal(o.Fault, err)
			}
			if work = m.Work() - work; op == "touch" && work < entries*indexEntryWork {
				t.Errorf("%s: %s has work %d for %d entries", id, op, work, entries)
			}
			if err := m.Abort(); err != nil {
				t.Fatal(err)
			}
			if op == "hold" {
				decideNow(t, m, 1000, schema.NewNamedMutation("document.hold", "orders", id, nil))
			} else if op == "release" {
				decideNow(t, m, 1000, schema.NewNamedMutation("document.release", "orders", id, nil))
			}
		}
		touches := strings.Repeat(fmt.Sprintf(`{"op":"touch","id":%q},`, id), 400)
		b := parseBatch(t, true, touches[:len(touches)-1])
		o, err := m.DecideBatch(1000_000, NewBatchRun(b, 1<<20), math.MaxInt)
		if refused := strings.Contains(string(o.Body), `"too_large"`); err != nil || refused != (id == "many") {
			t.Errorf("%s: 400 touches are refused: %t, %v", id, refused, err)
		}
		if err := m.Abort(); err != nil {
			t.Fatal(err)
		}
	}
}
