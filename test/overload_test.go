package test

import (
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lapsedb/lapse/test/attack"
	"github.com/lapsedb/lapse/test/harness"
	"github.com/lapsedb/lapse/test/stress"
	"github.com/lapsedb/lapse/test/versus"
)

// mostMemory bounds the memory of lapse with small caches, whatever clients do.
const mostMemory = 2 << 30

// smallCaches are flags of serve that limit caches, so that the load of clients decides
// the memory.
var smallCaches = []string{"--cache-bytes", "67108864"}

// flood sends requests on each of four connections, as fast as possible, of which at most
// window wait for their replies. It returns the number of replies by code when each
// request has one, and fails the test if one has none or two.
func flood(t *testing.T, url string, requests, window int, request func(n int) (subject string, body []byte)) map[int]int {
	t.Helper()
	var (
		all     = make(map[int]int)
		mu      sync.Mutex
		running sync.WaitGroup
		number  atomic.Int64
	)
	for range 4 {
		c, err := attack.Dial(url)
		check(t, err)
		t.Cleanup(func() { c.Close() })
		room, ended := make(chan struct{}, window), make(chan struct{})
		running.Go(func() {
			for n := range requests {
				select {
				case room <- struct{}{}:
				default:
					err := c.Flush()
					select {
					case room <- struct{}{}:
					case <-ended:
						return
					}
					if err != nil {
						t.Errorf("request %d: %v", n, err)
						return
					}
				}
				if err := c.Send(request(int(number.Add(1)))); err != nil {
					t.Errorf("request %d: %v", n, err)
					return
				}
			}
			if err := c.Flush(); err != nil {
				t.Error(err)
			}
		})
		running.Go(func() {
			defer close(ended)
			seen := make([]bool, requests)
			for n := range requests {
				_ = c.SetDeadline(time.Now().Add(10 * time.Minute)) // not for ever
				r, err := c.Read()
				if err != nil {
					t.Errorf("after %d of %d replies: %v", n, requests, err)
					return
				}
				<-room
				if seen[r.N] || r.Code == 0 {
					t.Errorf("request %d has the reply %d, answered before: %v", r.N, r.Code, seen[r.N])
				}
				seen[r.N] = true
				mu.Lock()
				all[r.Code]++
				mu.Unlock()
			}
		})
	}
	running.Wait()
	return all
}

// floods are requests that are cheap, or expensive, or large.
func floods() map[string]func(n int) (subject string, body []byte) {
	large := []byte(`{"x":"` + strings.Repeat("x", 1<<20) + `"}`)
	gets := []byte(`{"operations":[` + strings.TrimSuffix(strings.Repeat(`{"op":"get","id":"large"},`, 1000), ",") + `]}`)
	patches := []byte(`{"operations":[` + strings.TrimSuffix(strings.Repeat(`{"op":"patch","id":"large","body":{"y":1}},`, 1000), ",") + `]}`)
	plain := func(tail, body string) func(int) (string, []byte) {
		return func(int) (string, []byte) { return "lapse.main.api." + tail, []byte(body) }
	}
	return map[string]func(int) (string, []byte){
		"get": plain("document.get.orders.a", ""),
		"upsert": func(n int) (string, []byte) {
			return "lapse.main.api.document.upsert.orders." + versus.ID(n%100_000), versus.Document(n % 100_000)
		},
		"status":  plain("status", ""),
		"history": plain("history.orders.a", ""),
		"query":   plain("query.orders", `{"where":"doc.total > 100","orderBy":[{"path":"/customer"}]}`),
		"unknown": plain("misspelt", ""),
		"large": func(n int) (string, []byte) {
			return "lapse.main.api.document.upsert.orders." + versus.ID(n%100), large
		},
		"large gets":    plain("document.get.orders.large", ""),
		"large batches": plain("batch.orders", string(gets)),
		"large patches": plain("batch.orders", string(patches)),
	}
}

// TestFloods: under a flood of any kind of request each one has one reply, memory is
// bounded, and the next client is served.
func TestFloods(t *testing.T) {
	s := harness.Serve(t, append(smallCaches, "--durability", "os")...)
	s.Run("collection", "create", "orders", "--default-ttl", "1h")
	s.Run("document", "upsert", "orders", "a", `{"total":1}`)
	s.RunInput(`{"x":"`+strings.Repeat("x", 1<<20)+`"}`, "document", "upsert", "orders", "large", "-")
	for name, request := range floods() {
		requests, window := stress.Pick(200, 500_000), stress.Pick(200, 500_000)
		if strings.HasPrefix(name, "large") {
			requests, window = stress.Pick(2, 200), 20
		}
		codes := flood(t, s.URL(), requests, window, request)
		t.Logf("%s: replies by code %v; memory %s", name, codes, s.Memory())
		s.Run("document", "get", "orders", "a")
	}
	for range stress.Pick(6, 60) {
		c, err := attack.Dial(s.URL())
		check(t, err)
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(10 * time.Minute)) // not for ever
		if err := pulls(c); err == nil {
			_ = c.Ping() // an error means that it was cut off
		}
	}
	s.Run("document", "upsert", "orders", "a", `{"total":1}`).OK()
	if most := s.Memory().Most; most > mostMemory {
		t.Errorf("it took %d MiB", most>>20)
	}
}

// TestSlowReadersAreDisconnected: a client that never reads its replies is cut off before
// they take all memory, and others are answered meanwhile.
func TestSlowReadersAreDisconnected(t *testing.T) {
	if !stress.Long() {
		t.Skip("filling the memory of replies takes long: set TEST_STRESS=1")
	}
	t.Parallel()
	const readers, each = 3, 250 // MiB each, more than may wait for all of them
	s := harness.Serve(t, append(smallCaches, "--durability", "os")...)
	nc := dial(t, s)
	mustAsk(t, nc, 201, "collection.create.c", "")
	mustAsk(t, nc, 201, "document.create.c.large", `{"x":"`+strings.Repeat("x", 1<<20)+`"}`)
	mustAsk(t, nc, 201, "document.create.c.a", "{}")
	var blocked sync.WaitGroup
	for range readers {
		c, err := attack.Dial(s.URL())
		check(t, err)
		t.Cleanup(func() { c.Close() })
		blocked.Go(func() {
			for end := time.Now().Add(3 * patience); time.Now().Before(end); {
				subject := "lapse.main.api.document.get.c.large"
				if c.Sent() >= each {
					subject = "$SRV.NOBODY"
					time.Sleep(10 * time.Millisecond)
				}
				if c.Send(subject, nil) != nil || c.Flush() != nil {
					return // cut off
				}
			}
			t.Errorf("it did not read %d replies and is still there", each)
		})
	}
	done := make(chan struct{})
	go func() { blocked.Wait(); close(done) }()
	for served := 1; ; served++ {
		mustAsk(t, nc, 200, "document.get.c.a", "")
		select {
		case <-done:
			t.Logf("%d requests answered meanwhile; memory %s", served, s.Memory())
			if most := s.Memory().Most; most > mostMemory {
				t.Errorf("it took %d MiB", most>>20)
			}
			mustAsk(t, nc, 200, "document.get.c.large", "")
			return
		case <-time.After(5 * time.Millisecond): // leave the processors to the readers
		}
	}
}

// pulls sends many pull requests to a consumer, each for more messages than there are.
func pulls(c *attack.Client) (err error) {
	name := rand.Text()
	err = c.Send("$JS.API.CONSUMER.CREATE.LAPSE_main."+name,
		fmt.Appendf(nil, `{"stream_name":"LAPSE_main","config":{"name":%q,"inactive_threshold":600000000000,"ack_policy":"explicit"}}`, name))
	for n := 0; n < 10_000 && err == nil; n++ {
		err = c.Send("$JS.API.CONSUMER.MSG.NEXT.LAPSE_main."+name, []byte(`{"batch":1000000,"expires":600000000000}`))
	}
	return err
}
