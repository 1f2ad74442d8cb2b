package test

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lapsedb/lapse/test/flood"
	"github.com/lapsedb/lapse/test/harness"
	"github.com/lapsedb/lapse/test/stress"
	"github.com/lapsedb/lapse/test/versus"
)

// flooded is what came of a flood: how many replies had which code, and how
// long those took that were refused.
type flooded struct {
	sent    int
	codes   map[int]int
	refused []time.Duration
}

// floodFor sends requests over several connections for a while, as fast as they
// go and without waiting for replies, which are read all the same, and returns
// when each has its reply.
func floodFor(t *testing.T, url string, connections int, duration time.Duration, request func(n int) (subject string, body []byte)) flooded {
	t.Helper()
	var (
		all     = flooded{codes: make(map[int]int)}
		mu      sync.Mutex
		running sync.WaitGroup
		end     = time.Now().Add(duration)
		number  atomic.Int64
	)
	for range connections {
		c, err := flood.Dial(url)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		var (
			times [1 << 20]atomic.Int64 // when requests were sent, by number
			sent  atomic.Int64
		)
		done := make(chan struct{})
		running.Go(func() {
			defer close(done)
			for time.Now().Before(end) {
				for range 32 {
					times[c.Sent()%len(times)].Store(time.Now().UnixNano())
					if err := c.Send(request(int(number.Add(1)))); err != nil {
						t.Errorf("send: %v", err)
						return
					}
				}
				if err := c.Flush(); err != nil {
					t.Errorf("send: %v", err)
					return
				}
				sent.Store(int64(c.Sent()))
			}
		})
		running.Go(func() {
			codes, refused := make(map[int]int), []time.Duration(nil)
			seen := make(map[int]bool)
			defer func() {
				mu.Lock()
				defer mu.Unlock()
				all.sent += int(sent.Load())
				for code, n := range codes {
					all.codes[code] += n
				}
				all.refused = append(all.refused, refused...)
			}()
			for finished := false; ; {
				if !finished {
					select {
					case <-done:
						finished = true
						c.SetDeadline(time.Now().Add(time.Minute))
					default:
					}
				}
				if finished && len(seen) >= int(sent.Load()) {
					return
				}
				r, err := c.Read()
				if err != nil {
					t.Errorf("after %d of %d replies: %v", len(seen), sent.Load(), err)
					return
				}
				if seen[r.N] {
					t.Errorf("request %d was answered twice", r.N)
				}
				seen[r.N] = true
				codes[r.Code]++
				if r.Code == 429 {
					refused = append(refused, time.Duration(time.Now().UnixNano()-times[r.N%len(times)].Load()))
				}
			}
		})
	}
	running.Wait()
	return all
}

func (f flooded) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d requests, replies by code %v", f.sent, f.codes)
	if n := len(f.refused); n > 0 {
		fmt.Fprintf(&b, ", refused within p50 %s p99 %s max %s",
			versus.Quantile(f.refused, 0.5), versus.Quantile(f.refused, 0.99), slices.Max(f.refused))
	}
	return b.String()
}

var _ = io.EOF

func TestFloodProbe(t *testing.T) {
	s := harness.Serve(t, "--durability", "os")
	s.Run("collection", "create", "orders", "--default-ttl", "1h")
	s.Run("document", "upsert", "orders", "a", `{"x":1}`)
	for _, kind := range []string{"get", "upsert", "status", "query", "large"} {
		large := []byte(`{"x":"` + strings.Repeat("x", 1<<20) + `"}`)
		f := floodFor(t, s.URL(), stress.Pick(4, 4), 4*time.Second, func(n int) (string, []byte) {
			switch kind {
			case "get":
				return "lapse.main.api.document.get.orders.a", nil
			case "upsert":
				return "lapse.main.api.document.upsert.orders." + versus.ID(n%100000), versus.Document(n % 100000)
			case "query":
				return "lapse.main.api.query.orders", []byte(`{"where":"doc.total > 100","orderBy":[{"path":"/customer"}]}`)
			case "large":
				return "lapse.main.api.document.upsert.orders." + versus.ID(n%100), large
			}
			return "lapse.main.api.status", nil
		})
		t.Logf("%s: %v; memory %s", kind, f, s.Memory())
	}
}
