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
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/versus"
)

// ordersCollection is where orders are kept.
const ordersCollection = "orders"

// loaded is a database with orders.
type loaded struct {
	*lapse
	orders
	tally
	conns []*nats.Conn
}

// startOrders starts a database without orders, whose collection includes
// paths. Orders live for a day, so queries have deadlines to look at, and none
// passes meanwhile.
func startOrders(b *testing.B, paths ...string) *loaded {
	b.Helper()
	l := &loaded{lapse: startLapse(b, processor.OS)}
	l.create(b, ordersCollection, client.DefaultTTL(24*time.Hour), client.IncludePaths(paths...))
	l.conns = versus.Connections(b, l.URL(), connections)
	return l
}

// loadOrders starts a database and stores all orders in it. It fails at once if
// that database answers no queries.
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

// batchBody is a batch request being written. The client's Batch would encode
// each document anew, on the machine that is measured.
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

// write sends so many batches, one after the other by each caller, and checks
// that every operation succeeded. batch returns the body of batch i and how many
// operations it has.
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

// documents counts the documents in a reply, without parsing it: what a caller
// does shares the machine with what is measured. No order has these bytes.
func documents(reply []byte) int { return bytes.Count(reply, []byte(`"_etag":"`)) }

// request sends a request about the orders.
func (l *loaded) request(caller int, op string, body []byte) ([]byte, error) {
	reply, err := request(l.conns[caller%len(l.conns)], "lapse.main.api."+op+"."+ordersCollection, body, read)
	if err != nil {
		return nil, err
	}
	return reply.Data, nil
}

// byID fetches the orders of customer c as who knows their ids does.
func (l *loaded) byID(caller, c int) (int, error) {
	var body batchBody
	for _, n := range l.of(c) {
		body.get(n)
	}
	reply, err := l.request(caller, "batch", body.end())
	return documents(reply), err
}

// query asks by request.
func (l *loaded) query(caller int, body string) ([]byte, error) {
	return l.request(caller, "query", []byte(body))
}

// check fails the benchmark unless queries by customer find the customer's
// orders, by the index.
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

// scanners keep queries on the way that look at every document, until they are
// stopped. One that is refused, as too many queries wait, is sent again.
type scanners struct {
	working      sync.WaitGroup
	done         atomic.Bool
	ran, refused atomic.Int64
	failed       atomic.Pointer[error]
}

// pauseRefused is how long a scanner waits that was told to try again later.
const pauseRefused = 10 * time.Millisecond

// scan keeps so many queries on the way, over connections of their own.
func (s *scanners) scan(conns []*nats.Conn, n int) {
	s.done.Store(false)
	for i := range n {
		s.working.Go(func() {
			for !s.done.Load() {
				if err := s.once(conns[i%len(conns)]); err != nil {
					s.failed.Store(&err)
					return
				}
			}
		})
	}
}

func (s *scanners) once(nc *nats.Conn) error {
	m, err := nc.Request("lapse.main.api.query."+ordersCollection, []byte(heavyQuery), timeout)
	if err != nil {
		return err
	}
	switch code := m.Header.Get(schema.HeaderStatus); code {
	case "200":
		s.ran.Add(1)
	case "429", "504":
		s.refused.Add(1)
		time.Sleep(pauseRefused)
	default:
		return fmt.Errorf("%s: %s %s", heavyQuery, code, m.Data)
	}
	return nil
}

// stop returns when no query is on the way any more.
func (s *scanners) stop() error {
	s.done.Store(true)
	s.working.Wait()
	if err := s.failed.Load(); err != nil {
		return *err
	}
	return nil
}
