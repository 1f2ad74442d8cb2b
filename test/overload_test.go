package test

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/client"
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

// flooded is the result of a flood: the number of replies by code, and the latency of the
// refused requests.
type flooded struct {
	sent    int
	codes   map[int]int
	refused []time.Duration
}

func (f flooded) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d requests, replies by code %v", f.sent, f.codes)
	if len(f.refused) > 0 {
		fmt.Fprintf(&b, ", refused within p50 %s, p99 %s, at most %s",
			versus.Quantile(f.refused, 0.5), versus.Quantile(f.refused, 0.99), slices.Max(f.refused))
	}
	return b.String()
}

// flooding describes a flood: the number of requests on each connection, sent as fast as
// possible. At most window of them wait for their replies; 0 means all.
type flooding struct {
	connections, requests, window int
	request                       func(n int) (subject string, body []byte)
}

// run returns when each request has its reply, and fails the test if one has no reply or
// two.
func (f flooding) run(t *testing.T, url string) flooded {
	t.Helper()
	var (
		all     = flooded{sent: f.connections * f.requests, codes: make(map[int]int)}
		mu      sync.Mutex
		running sync.WaitGroup
		number  atomic.Int64
	)
	window := f.window
	if window == 0 {
		window = f.requests
	}
	for range f.connections {
		c, err := attack.Dial(url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		sent := make([]time.Time, f.requests)
		room, ended := make(chan struct{}, window), make(chan struct{})
		running.Go(func() {
			for n := range sent {
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
				sent[n] = time.Now()
				if err := c.Send(f.request(int(number.Add(1)))); err != nil {
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
			codes, refused, seen := make(map[int]int), []time.Duration(nil), make([]bool, f.requests)
			for n := range f.requests {
				_ = c.SetDeadline(time.Now().Add(10 * time.Minute)) // not for ever
				r, err := c.Read()
				if err != nil {
					t.Errorf("after %d of %d replies: %v", n, f.requests, err)
					return
				}
				<-room
				if seen[r.N] || r.Code == 0 {
					t.Errorf("request %d has the reply %d, answered before: %v", r.N, r.Code, seen[r.N])
				}
				seen[r.N] = true
				if codes[r.Code]++; r.Code == 429 {
					refused = append(refused, time.Since(sent[r.N]))
				}
			}
			mu.Lock()
			defer mu.Unlock()
			for code, n := range codes {
				all.codes[code] += n
			}
			all.refused = append(all.refused, refused...)
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
		f := flooding{connections: 4, requests: stress.Pick(200, 500_000), request: request}
		if strings.HasPrefix(name, "large") {
			f.requests, f.window = stress.Pick(2, 200), 20
		}
		all := f.run(t, s.URL())
		t.Logf("%s: %s; memory %s", name, all, s.Memory())
		if all.codes[503] > 0 {
			t.Logf("stderr: %s", s.Stderr())
		}
		s.Run("document", "get", "orders", "a")
	}
	for name, hoard := range hoards {
		for range stress.Pick(6, 60) {
			c, err := attack.Dial(s.URL())
			if err != nil {
				t.Fatal(name, err)
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(10 * time.Minute)) // not for ever
			if err := hoard(c); err == nil {
				_ = c.Ping() // an error means that it was cut off
			}
		}
		t.Logf("%s: memory %s", name, s.Memory())
		s.Run("document", "upsert", "orders", "a", `{"total":1}`).OK()
	}
	if most := s.Memory().Most; most > mostMemory {
		t.Errorf("it took %d MiB", most>>20)
	}
}

// TestSlowReadersAreDisconnected: a client that never reads its replies is cut off before
// they take all memory, and others are answered meanwhile.
func TestSlowReadersAreDisconnected(t *testing.T) {
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
		if err != nil {
			t.Fatal(err)
		}
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

// hoards make the server keep as much memory for one connection as it allows, without a
// request to lapse.
var hoards = map[string]func(c *attack.Client) error{
	"subscriptions": func(c *attack.Client) (err error) {
		for n := 0; n < 16384 && err == nil; n++ {
			err = c.Subscribe(fmt.Sprintf("_INBOX.%s.%d.a.b.c.d.e", rand.Text(), n), 2+n)
		}
		return err
	},
	"long subjects": func(c *attack.Client) (err error) {
		for n := 0; n < 4096 && err == nil; n++ {
			err = c.Subscribe(fmt.Sprintf("_INBOX.%s%d%s", rand.Text(), n, strings.Repeat("x", 3900)), 2+n)
		}
		return err
	},
	"many tokens": func(c *attack.Client) (err error) {
		for n := 0; n < 1024 && err == nil; n++ {
			err = c.Subscribe(fmt.Sprintf("_INBOX.%s%d%s", rand.Text(), n, strings.Repeat(".x", 1000)), 2+n)
		}
		return err
	},
	"direct consumers":             consumers(`"direct":true,"ack_policy":"none","deliver_subject":"_INBOX.x"`),
	"push consumers":               consumers(`"max_ack_pending":-1,"ack_policy":"explicit","deliver_subject":"_INBOX.x"`),
	"consumers with much metadata": consumers(`"ack_policy":"explicit","metadata":{"x":"` + strings.Repeat("x", 120_000) + `"}`),
	"pull requests":                pulls,
}

// consumers creates consumers of the log, each with a name of its own.
func consumers(config string) func(c *attack.Client) error {
	return func(c *attack.Client) (err error) {
		for n := 0; n < 100 && err == nil; n++ {
			name := rand.Text()
			err = c.Send("$JS.API.CONSUMER.CREATE.LAPSE_main."+name,
				fmt.Appendf(nil, `{"stream_name":"LAPSE_main","config":{"name":%q,"inactive_threshold":600000000000,%s}}`, name, config))
		}
		return err
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

// TestOverloadRefusedFast measures the latency of a refusal while one and a half times as
// many requests as there are places wait for their replies; sixteen times as many for
// queries.
func TestOverloadRefusedFast(t *testing.T) {
	if !stress.Long() {
		t.Skip("it only measures")
	}
	s := harness.Serve(t, smallCaches...)
	s.Run("collection", "create", "orders", "--default-ttl", "1h")
	for _, name := range []string{"upsert", "query", "status"} {
		f := flooding{connections: 4, requests: 100_000, window: 3072, request: floods()[name]}
		if name == "query" {
			f.window = 256 // queries have few places
		}
		t.Logf("%s: %s", name, f.run(t, s.URL()))
	}
}

// TestBacklog: a server that starts with a backlog of a million mutations takes no more
// memory for it, and answers meanwhile.
func TestBacklog(t *testing.T) {
	if !stress.Long() {
		t.Skip("there is one without a process, in processor")
	}
	const mutations = 1_000_000
	s := harness.Serve(t, append(smallCaches, "--durability", "os")...)
	s.Run("collection", "create", "orders", "--default-ttl", "1h")
	s.Run("document", "upsert", "orders", "a", `{"total":1}`)
	nc := dial(t, s)
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(4096))
	if err != nil {
		t.Fatal(err)
	}
	for n := range mutations {
		if n%2000 == 0 {
			<-js.PublishAsyncComplete()
		}
		if _, err := js.PublishAsync("lapse.main.mutations.document.upsert.orders."+versus.ID(n%100_000), versus.Document(n%100_000)); err != nil {
			t.Fatal(err)
		}
	}
	<-js.PublishAsyncComplete()
	s.Kill()
	s.Restart()
	c, err := client.New(dial(t, s))
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	orders, err := c.Collection(ctx, "orders")
	if err != nil {
		t.Fatal(err)
	}
	served := 0
	for first := uint64(0); ; served++ {
		status, err := c.Status(ctx)
		if err != nil {
			t.Fatal(err)
		}
		first = max(first, status.MutationsBehind)
		if status.MutationsBehind == 0 {
			t.Logf("%d of %d waited at the start; %d gets answered meanwhile; memory %s", first, mutations, served, s.Memory())
			break
		}
		if _, err := client.Get[map[string]any](ctx, orders, "a"); err != nil {
			t.Fatal(err)
		}
	}
	if most := s.Memory().Most; most > mostMemory/2 {
		t.Errorf("it took %d MiB", most>>20)
	}
}
