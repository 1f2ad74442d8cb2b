package service

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/schema"
)

// TestFairTurns: however much one client has queued, the item of another client is next
// but one, and the items of each client stay in order.
func TestFairTurns(t *testing.T) {
	f := newFairQueue[string](1000)
	for n := range 500 {
		f.put("flood", fmt.Sprint("flood ", n))
	}
	for n := range 3 {
		f.put("b", fmt.Sprint("b ", n))
		f.put("c", fmt.Sprint("c ", n))
	}
	var order []string
	f.serve(func(item string) {
		if order = append(order, item); len(order) == 506 {
			f.close()
		}
	})
	want := []string{"flood 0", "b 0", "c 0", "flood 1", "b 1", "c 1", "flood 2", "b 2", "c 2", "flood 3", "flood 4"}
	if got := order[:len(want)]; !slices.Equal(got, want) {
		t.Errorf("served %q, want %q", got, want)
	}
	if len(f.clients) != 0 || f.len() != 0 {
		t.Errorf("%d clients and %d items are left", len(f.clients), f.len())
	}
}

// TestFairReservesLastTaker: one client never occupies the last taker, which serves the first
// waiting client with no item being served.
func TestFairReservesLastTaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFairQueue[chan string](100)
		var takers sync.WaitGroup
		served := make(map[string]int)
		var mu sync.Mutex
		for range 3 {
			takers.Go(func() {
				f.serve(func(item chan string) {
					client := <-item
					mu.Lock()
					served[client]++
					mu.Unlock()
				})
			})
		}
		puts := func(client string, items int) (each []chan string) {
			for range items {
				item := make(chan string)
				f.put(client, item)
				each = append(each, item)
			}
			synctest.Wait()
			return each
		}
		want := func(what string, waiting int) {
			t.Helper()
			synctest.Wait()
			if n := f.len(); n != waiting {
				t.Errorf("%s: %d wait, want %d", what, n, waiting)
			}
		}
		a := puts("a", 10)
		want("a has two of three takers", 8)
		b := puts("b", 2)
		want("b has the last one", 8+1)
		c := puts("c", 1)
		want("none is left", 8+1+1)
		a[0] <- "a"
		want("c has the one that a left", 8+1)
		c[0] <- "c"
		want("which is then kept", 8+1)
		b[0] <- "b"
		want("a and b have one more each", 8-1+1-1)
		for _, item := range append(a[1:], b[1]) {
			go func() { item <- "rest" }()
		}
		synctest.Wait()
		f.close()
		takers.Wait()
		if served["a"] != 1 || served["b"] != 1 || served["c"] != 1 || served["rest"] != 10 || len(f.clients) != 0 || f.idle != 0 {
			t.Errorf("served %v, %d clients and %d takers are left", served, len(f.clients), f.idle)
		}
	})
}

// TestFairCapacity: one client may fill the queue, and loses places to other clients until
// the shares are equal.
func TestFairCapacity(t *testing.T) {
	f := newFairQueue[string](12)
	refused := make(map[string]int)
	put := func(client string, items int) {
		for range items {
			if item, ok := f.put(client, client); !ok {
				refused[item]++
			}
		}
	}
	want := func(a, b, c int) {
		t.Helper()
		if refused["a"] != a || refused["b"] != b || refused["c"] != c || f.len() != 12 {
			t.Errorf("%v were refused and %d wait, want a:%d b:%d c:%d", refused, f.len(), a, b, c)
		}
	}
	put("a", 20)
	want(8, 0, 0)
	put("b", 20)
	want(8+6, 20-6, 0)
	put("c", 1)
	put("c", 20)
	want(8+6+2, 20-6+2, 21-4)
}

// TestFairDrop: dropped items are not served, the others stay.
func TestFairDrop(t *testing.T) {
	f := newFairQueue[int](100)
	for n := range 20 {
		f.put(fmt.Sprint(n%3), n)
	}
	f.put("gone", 20)
	odd := f.drop(func(n int) bool { return n%2 == 1 || n == 20 })
	slices.Sort(odd)
	if !slices.Equal(odd, []int{1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 20}) || f.len() != 10 || len(f.clients) != 3 {
		t.Errorf("%v were dropped, %d items of %d clients are left", odd, f.len(), len(f.clients))
	}
	if rest := f.drop(func(int) bool { return true }); len(rest) != 10 || f.len() != 0 || len(f.clients) != 0 || len(f.turns) != 0 {
		t.Errorf("then %v, %d items of %d clients are left", rest, f.len(), len(f.clients))
	}
}

// TestFairConcurrent: under concurrent use every item comes out once, and no taker sleeps
// while there is an item it could serve.
func TestFairConcurrent(t *testing.T) {
	const putters, each = 8, 2000
	f := newFairQueue[[2]int](300)
	var takers, putting sync.WaitGroup
	var mu sync.Mutex
	out := make(map[[2]int]int)
	unserved := sync.WaitGroup{}
	unserved.Add(putters * each)
	done := func(item [2]int) {
		mu.Lock()
		defer mu.Unlock()
		out[item]++
		unserved.Done()
	}
	for range 4 {
		takers.Go(func() { f.serve(done) })
	}
	for p := range putters {
		putting.Go(func() {
			for n := range each {
				if refused, ok := f.put(fmt.Sprint(p%5), [2]int{p, n}); !ok {
					done(refused)
				}
				if n%100 == 0 {
					for _, item := range f.drop(func(item [2]int) bool { return item[1]%7 == 0 }) {
						done(item)
					}
				}
			}
		})
	}
	putting.Wait()
	unserved.Wait() // blocks for ever if a wake-up is lost
	f.close()
	takers.Wait()
	if len(out) != putters*each || len(f.clients) != 0 || f.idle != 0 {
		t.Errorf("%d items of %d came out, %d clients and %d takers are left", len(out), putters*each, len(f.clients), f.idle)
	}
}

func inboxOf(reply string) string { return senderOf(&nats.Msg{Reply: reply}) }

// TestClientsByAccount: requests from other accounts are of one client for each account,
// and a client cannot pretend to be an account.
func TestClientsByAccount(t *testing.T) {
	from := func(reply, info string) string {
		return senderOf(&nats.Msg{Reply: reply, Header: nats.Header{schema.RequestInfo: {info}}})
	}
	if a, b := from("_R_.oVbPyz.1", `{"acc":"APP","rtt":1}`), from("_R_.oVbPyz.2", `{"acc":"OTHER","rtt":1}`); a == b {
		t.Errorf("the clients are %q and %q", a, b)
	}
	if a, b := from("_R_.oVbPyz.1", `{"acc":"APP","rtt":1}`), from("_R_.x7Bq1d.2", `{"acc":"APP","rtt":1}`); a != b {
		t.Errorf("through two nodes it is %q and %q", a, b)
	}
	for _, reply := range []string{"_INBOX.x.1", "_INBOX.APP.1", "_INBOX._R_.APP.1"} {
		if got := from(reply, `{"acc":"APP"}`); got == from("_R_.oVbPyz.1", `{"acc":"APP"}`) {
			t.Errorf("%s with a header is %q", reply, got)
		}
	}
}

// TestClientsByInbox: an inbox identifies a connection, and all inboxes made up for single
// requests are one client, which does not evict known clients.
func TestClientsByInbox(t *testing.T) {
	for _, same := range [][2]string{
		{"_INBOX.jTvsWN4Gb9X3kPp2dYbGcQ.aaaaaaaa", "_INBOX.jTvsWN4Gb9X3kPp2dYbGcQ.bbbbbbbb"},
		{"_INBOX.producer.jTvsWN4Gb9X3kPp2dYbGcQ.a", "_INBOX.producer.jTvsWN4Gb9X3kPp2dYbGcQ.b"},
		{nats.NewInbox(), nats.NewInbox()}, // of one process
		{"_INBOX.x", "_INBOX.x"},
	} {
		if a, b := inboxOf(same[0]), inboxOf(same[1]); a != b {
			t.Errorf("%q is of %q and %q of %q", same[0], a, same[1], b)
		}
	}
	for _, other := range [][2]string{
		{nats.NewInbox() + ".a", nats.NewInbox() + ".a"}, // of two connections
		{"_INBOX.producer.a.1", "_INBOX.producer.b.1"},
		{"_INBOX.jTvsWN4Gb9X3kPp2dYbGcQ", "_INBOX.jTvsWN4Gb9X4kPp2dYbGcQ"},
	} {
		if a, b := inboxOf(other[0]), inboxOf(other[1]); a == b {
			t.Errorf("%q and %q are both of %q", other[0], other[1], a)
		}
	}
	c := newClients()
	for range 2 {
		c.of("known")
	}
	for n := range 10 * knownClients {
		if got := c.of(fmt.Sprintf("made-up-%d", n)); got != newcomers {
			t.Fatalf("an inbox that is used once is client %q", got)
		}
	}
	if got := c.of("known"); got != "known" {
		t.Errorf("an inbox that was used before is client %q", got)
	}
}
