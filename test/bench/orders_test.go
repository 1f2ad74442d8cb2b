package bench

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"sync/atomic"

	"github.com/lapsedb/lapse/test/versus"
)

// orders is a set of documents that are the same in every run and for every peer. Its
// value is their number; each customer has perCustomer of them.
type orders int

const (
	perCustomer = 10
	// revisions is the maximum number of successive contents of an order.
	revisions = 1 << 20
)

// The words that orders are made of. The frequency of a status is that in its list.
var (
	statuses = []string{"open", "paid", "paid", "packed", "shipped", "shipped", "delivered", "delivered", "delivered",
		"delivered", "delivered", "delivered", "delivered", "delivered", "delivered", "delivered", "returned", "cancelled"}
	tags    = []string{"gift", "express", "fragile", "first", "wholesale", "pickup", "insured", "cold"}
	cities  = []string{"Bern", "Lyon", "Porto", "Ghent", "Turin", "Malmö", "Gdańsk", "Graz", "Cork", "Tartu"}
	streets = []string{"Station Road", "Rue de la Gare", "Lindenallee", "Via Roma", "Storgatan", "Rua Nova"}
	words   = []string{"please", "ring", "twice", "leave", "with", "the", "neighbour", "behind", "gate", "not", "before",
		"noon", "call", "when", "you", "are", "near", "it", "is", "a", "present", "for", "my", "sister", "thanks"}
)

// String writes a million as 1,000,000.
func (all orders) String() string {
	text := strconv.Itoa(int(all))
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// order has the fields that a benchmark checks without reading the document.
type order struct {
	customer string
	status   string
	total    float64 // 90 of 100 are above 100
	weight   float64 // kg; 1 of 200 is above 25
}

// heavyWhere is the condition of the scans: few orders meet it, and no index covers any
// part of it.
const heavyWhere = "doc.status == 'open' && doc.weight > 25.0"

func (o order) isHeavy() bool { return o.status == "open" && o.weight > 25 }

// sizableWhere is a condition that most orders meet and an index answers.
const sizableWhere = "doc.total > 100"

func (o order) isSizable() bool { return o.total > 100 }

// customers returns the number of customers.
func (all orders) customers() int { return int(all) / perCustomer }

// customer returns the name of customer c.
func customer(c int) string { return fmt.Sprintf("C%08d", c) }

// of returns the numbers of the orders of customer c. They are far apart, like those of a
// returning customer.
func (all orders) of(c int) (numbers [perCustomer]int) {
	for i := range numbers {
		numbers[i] = c + i*all.customers()
	}
	return numbers
}

// random returns the customer of operation n.
func (all orders) random(n int) int {
	return int(rand.NewPCG(1, uint64(n)).Uint64() % uint64(all.customers()))
}

// append appends order n to dst, as JSON of 200 to 500 bytes. Another revision keeps id
// and customer and draws the other values again.
func (all orders) append(dst []byte, n, revision int) ([]byte, order) {
	rnd := rand.New(rand.NewPCG(2, uint64(n*revisions+revision)))
	pick := func(from []string) string { return from[rnd.IntN(len(from))] }
	spread := func(median, sigma float64) float64 {
		return math.Round(100*median*math.Exp(sigma*rnd.NormFloat64())) / 100
	}
	o := order{customer(n % all.customers()), pick(statuses), spread(220, 0.6), spread(4, 0.7)}
	dst = fmt.Appendf(dst, `{"id":%q,"customer":%q,"status":%q,"total":%.2f,"weight":%.2f,"currency":"EUR",`,
		versus.ID(n), o.customer, o.status, o.total, o.weight)
	dst = fmt.Appendf(dst, `"placed":"2026-%02d-%02dT%02d:%02d:03Z","tags":[`,
		1+rnd.IntN(12), 1+rnd.IntN(28), rnd.IntN(24), rnd.IntN(60))
	for i, have := 0, rnd.IntN(4); i < have; i++ {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = fmt.Appendf(dst, "%q", pick(tags))
	}
	dst = fmt.Appendf(dst, `],"address":{"street":"%s %d","city":%q,"zip":"%05d"},"note":"`,
		pick(streets), 1+rnd.IntN(200), pick(cities), rnd.IntN(100_000))
	for i, have := 0, 2+rnd.IntN(30); i < have; i++ {
		if i > 0 {
			dst = append(dst, ' ')
		}
		dst = append(dst, pick(words)...)
	}
	return append(dst, `"}`...), o
}

// tally counts the orders that meet the benchmarks' conditions.
type tally struct{ heavy, sizable atomic.Int64 }

func (t *tally) add(o order) {
	if o.isHeavy() {
		t.heavy.Add(1)
	}
	if o.isSizable() {
		t.sizable.Add(1)
	}
}
