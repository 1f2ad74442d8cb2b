package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/test/versus"
)

// ordersCollection is the collection of the orders.
const ordersCollection = "orders"

// loaded is a database with orders.
type loaded struct {
	*lapse
	orders
	tally
	conns []*nats.Conn
}

// startOrders starts a database without orders, whose collection includes paths. Orders
// live for a day, so that queries have deadlines to check, none of which passes during
// the benchmark.
func startOrders(b *testing.B, paths ...string) *loaded {
	b.Helper()
	l := &loaded{lapse: startLapse(b, processor.OS)}
	l.create(b, ordersCollection, client.DefaultTTL(24*time.Hour), client.IncludePaths(paths...))
	l.conns = versus.Connections(b, l.URL(), connections)
	return l
}

// loadOrders starts a database and stores all orders in it. It fails at once if the
// database does not answer queries.
func loadOrders(b *testing.B, all orders) *loaded {
	b.Helper()
	l := startOrders(b, "/customer", "/total")
	l.orders = all
	if _, err := l.query(0, `{}`); err != nil {
		b.Fatalf("lapse answers no queries: %v", err)
	}
	const batch = client.MaxBatch
	if err := l.write(2*connections, (int(all)+batch-1)/batch, func(i int) ([]byte, int) {
		var body batchBody
		from, to := i*batch, min((i+1)*batch, int(all))
		for n := from; n < to; n++ {
			l.add(body.upsert(all, n, 0))
		}
		return body.end(), to - from
	}); err != nil {
		b.Fatal(err)
	}
	l.check(b)
	return l
}

// batchBody is the body of a batch request. The client's Batch would encode each document
// again, on the machine that is measured.
type batchBody struct{ text []byte }

func (w *batchBody) next(op string, n int) {
	if w.text == nil {
		w.text = append(w.text, `{"operations":[`...)
	} else {
		w.text = append(w.text, ',')
	}
	w.text = fmt.Appendf(w.text, `{"op":%q,"id":%q`, op, versus.ID(n))
}

func (w *batchBody) get(n int) {
	w.next("get", n)
	w.text = append(w.text, '}')
}

func (w *batchBody) document(n int) {
	w.next("upsert", n)
	w.text = append(append(append(w.text, `,"body":`...), versus.Document(n)...), '}')
}

func (w *batchBody) upsert(all orders, n, revision int) (o order) {
	w.next("upsert", n)
	w.text = append(w.text, `,"body":`...)
	w.text, o = all.append(w.text, n, revision)
	w.text = append(w.text, '}')
	return o
}

func (w *batchBody) end() []byte { return append(w.text, `]}`...) }

// write sends batches, one at a time for each caller, and checks that every operation
// succeeded. batch returns the body of batch i and its number of operations.
func (l *loaded) write(callers, batches int, batch func(i int) (body []byte, operations int)) error {
	var (
		working sync.WaitGroup
		next    atomic.Int64
		failed  atomic.Pointer[error]
	)
	for caller := range callers {
		working.Go(func() {
			for failed.Load() == nil {
				i := int(next.Add(1) - 1)
				if i >= batches {
					return
				}
				body, operations := batch(i)
				reply, err := l.request(caller, "batch", body)
				if err == nil && documents(reply) != operations {
					err = fmt.Errorf("a batch of %d has the reply %.300s", operations, reply)
				}
				if err != nil {
					failed.Store(&err)
				}
			}
		})
	}
	working.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// documents counts the documents in a reply without parsing it, since callers share the
// machine with the server that is measured. No order contains these bytes.
func documents(reply []byte) int { return bytes.Count(reply, []byte(`"_etag":"`)) }

// request sends a request about the orders.
func (l *loaded) request(caller int, op string, body []byte) ([]byte, error) {
	reply, err := request(l.conns[caller%len(l.conns)], "lapse.main.api."+op+"."+ordersCollection, body, read)
	if err != nil {
		return nil, err
	}
	return reply.Data, nil
}

// byID fetches the orders of customer c by their ids.
func (l *loaded) byID(caller, c int) (int, error) {
	var body batchBody
	for _, n := range l.of(c) {
		body.get(n)
	}
	reply, err := l.request(caller, "batch", body.end())
	return documents(reply), err
}

// query sends a query by request.
func (l *loaded) query(caller int, body string) ([]byte, error) {
	return l.request(caller, "query", []byte(body))
}

// check fails the benchmark unless queries by customer find the orders of that customer,
// by the index.
func (l *loaded) check(b *testing.B) {
	b.Helper()
	for c := 0; c < l.customers(); c += 1 + l.customers()/10 {
		query := customerQuery(customer(c))
		reply, err := lapseStore(l.query).explain(query[:len(query)-1] + `,"explain":true}`)
		if err != nil {
			b.Fatal(err)
		}
		if reply.Plan.Index == nil || *reply.Plan.Index != "/customer" {
			b.Fatalf("%s goes by the index %v, want /customer", query, reply.Plan.Index)
		}
		numbers := l.of(c)
		if len(reply.Documents) != len(numbers) {
			b.Fatalf("%s finds %d orders, want %d", query, len(reply.Documents), len(numbers))
		}
		for i, n := range numbers {
			var doc struct{ ID, Customer string }
			if err := json.Unmarshal(reply.Documents[i], &doc); err != nil {
				b.Fatal(err)
			}
			if doc.ID != versus.ID(n) || doc.Customer != customer(c) {
				b.Fatalf("%s finds %s, want order %d", query, reply.Documents[i], n)
			}
		}
	}
}
