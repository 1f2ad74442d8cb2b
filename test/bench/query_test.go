package bench

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/lapsedb/lapse/test/versus"
)

// queryRound is the time for which callers query in one round. It is short, since many
// benchmarks share the one large set of orders.
var queryRound = versus.Size(500*time.Millisecond, 200*time.Millisecond)

// manyCallers is used where one caller would leave the machine idle.
const manyCallers = 16

// sizes returns the numbers of orders of a large and a small database. -short is for
// trying the benchmarks, not for figures.
func sizes() (large, small orders) {
	if testing.Short() {
		return 20_000, 2_000
	}
	return versus.Size[orders](1_000_000, 100_000), versus.Size[orders](10_000, 1_000)
}

// BenchmarkQuery queries a database with a million orders, loaded once.
func BenchmarkQuery(b *testing.B) {
	large, small := sizes()
	l := loadOrders(b, large)
	warm(b, l)
	b.Run("equality", func(b *testing.B) { benchmarkEquality(b, l) })
	b.Run("count", func(b *testing.B) { benchmarkCount(b, l) })
	b.Run("due", func(b *testing.B) { benchmarkDue(b, l) })
	b.Run("small", func(b *testing.B) {
		s := loadOrders(b, small)
		warm(b, s)
		b.Run("equality", func(b *testing.B) { benchmarkEquality(b, s) })
		b.Run("large-to-small", func(b *testing.B) {
			byCallers(b, func(b *testing.B, callers int) {
				versus.Run(b, queryWork(large, callers), askCustomers(b, l.PID(), callers, large, lapseStore(l.query)),
					versus.Peer{Name: fmt.Sprintf("the same of %s documents", small), Round: askCustomers(b, s.PID(), callers, small, lapseStore(s.query))})
			})
		})
	})
	b.Run(sqliteName, func(b *testing.B) {
		peer := startSQLite(b, large, manyCallers)
		ours := lapseStore(l.query)
		b.Run("equality", func(b *testing.B) {
			byCallers(b, func(b *testing.B, callers int) {
				versus.Run(b, queryWork(large, callers), askCustomers(b, l.PID(), callers, large, ours),
					versus.Peer{Name: sqlitePeer + " in process, indexed", Round: askCustomers(b, 0, callers, large, peer)})
			})
		})
		b.Run("scan", func(b *testing.B) {
			found := int(l.heavy.Load())
			versus.Run(b, fmt.Sprintf("scan of %s documents for two fields, requests", large), scanOnce(b, l.PID(), found, ours),
				versus.Peer{Name: sqlitePeer + " in process", Round: scanOnce(b, 0, found, peer)})
		})
	})
}

// queryWork names a query by an index in the table.
func queryWork(all orders, callers int) string {
	return fmt.Sprintf("query for %d of %s documents by an index, requests, %s", perCustomer, all, countCallers(callers))
}

// warm reads all orders once, so that they are cached as in a database in use: a round is
// too short to read a million one by one.
func warm(b *testing.B, l *loaded) {
	if _, _, err := lapseStore(l.query).scan(); err != nil {
		b.Fatal(err)
	}
}

// byCallers runs a benchmark with one caller and with many.
func byCallers(b *testing.B, run func(b *testing.B, callers int)) {
	for _, callers := range []int{1, manyCallers} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) { run(b, callers) })
	}
}

// askCustomers fetches the orders of random customers. process is the PID of the process
// that answers, 0 for this one, also below.
func askCustomers(b *testing.B, process, callers int, all orders, from store) versus.Side {
	return fetchCustomers(b, process, callers, func(caller, n int) (int, error) {
		return from.customer(caller, customer(all.random(n)))
	})
}

func fetchCustomers(b *testing.B, process, callers int, fetch func(caller, n int) (found int, err error)) versus.Side {
	side := &versus.Callers{N: callers, For: queryRound, Process: process, Do: func(caller, n int) error {
		found, err := fetch(caller, n)
		if err == nil && found != perCustomer {
			err = fmt.Errorf("%d orders of a customer, want %d", found, perCustomer)
		}
		return err
	}}
	return side.Round(b)
}

// benchmarkEquality queries the orders of a customer by the index, against a batch that
// gets the same orders by their ids.
func benchmarkEquality(b *testing.B, l *loaded) {
	byCallers(b, func(b *testing.B, callers int) {
		versus.Run(b, queryWork(l.orders, callers), askCustomers(b, l.PID(), callers, l.orders, lapseStore(l.query)),
			versus.Peer{Name: "`batch` get of the same ten ids", Round: fetchCustomers(b, l.PID(), callers, func(caller, n int) (int, error) {
				return l.byID(caller, l.random(n))
			})})
	})
}

// benchmarkDue reads pages of documents by deadline, against pages of the same size by an
// index of the same size.
func benchmarkDue(b *testing.B, l *loaded) {
	const page = 100
	pages := func(query string) versus.Side {
		return (&versus.Callers{N: 1, For: queryRound, Process: l.PID(), Each: page, Do: func(caller, _ int) error {
			reply, err := l.query(caller, query)
			if err != nil {
				return err
			}
			if found := bytes.Count(reply, []byte(`"_etag":`)); found != page {
				return fmt.Errorf("a page of %d documents, want %d", found, page)
			}
			return nil
		}}).Round(b)
	}
	versus.Run(b, fmt.Sprintf("query for a page of %d of %s documents that come due, documents", page, l.orders),
		pages(`{"due":{},"limit":100}`), versus.Peer{Name: "a page by an index", Goal: versus.AtLeast(0.5),
			Round: pages(`{"where":"doc.total > 0.0","orderBy":[{"path":"/total"}],"limit":100}`)})
}

// scanOnce measures one query that scans every order, and counts orders.
func scanOnce(b *testing.B, process, want int, from store) versus.Side {
	return func() versus.Rate {
		clock := versus.Start(process)
		scanned, found, err := from.scan()
		rate := clock.Stop(scanned)
		if err != nil {
			b.Fatal(err)
		}
		if found != want {
			b.Fatalf("a scan finds %d orders, want %d", found, want)
		}
		return rate
	}
}

// benchmarkCount counts the sizable orders, most of all, by a range of an index.
func benchmarkCount(b *testing.B, l *loaded) {
	versus.Alone(b, fmt.Sprintf("`count` of a range of an index, %s documents", l.orders), "entries", versus.Goal{}, func() versus.Rate {
		clock := versus.Start(l.PID())
		counted, err := lapseStore(l.query).count()
		rate := clock.Stop(counted)
		if err != nil {
			b.Fatal(err)
		}
		if want := int(l.sizable.Load()); counted != want {
			b.Fatalf("counted %d orders, want %d", counted, want)
		}
		return rate
	})
}
