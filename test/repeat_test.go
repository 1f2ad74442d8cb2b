package test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/test/harness"
	"github.com/lapsedb/lapse/test/stress"
)

// TestRetriesAcrossKills: clients that retry each mutation under its Nats-Msg-Id get the
// same replies as if none had been lost, while the server is killed and loses its
// projection. Each client has documents and a collection of its own, so the test knows
// every reply, and every event of the log.
func TestRetriesAcrossKills(t *testing.T) {
	t.Parallel()
	random := stress.Rand(t)
	s := harness.Serve(t, "--durability", []string{"fsync", "os"}[random.IntN(2)])
	mustAsk(t, dial(t, s), 201, "collection.create.c", `{"defaultTtl":3600}`)
	var clients []*repeater
	var wg sync.WaitGroup
	for i := range 6 {
		nc := dial(t, s)
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		c := &repeater{t: t, name: fmt.Sprint("r", i), nc: nc, js: js, random: rand.New(rand.NewPCG(random.Uint64(), 0))}
		clients = append(clients, c)
		wg.Go(func() {
			for !c.ended.Load() && !t.Failed() {
				c.life()
			}
		})
	}
	for i := range stress.Pick(4, 60) {
		time.Sleep(time.Duration(100+random.IntN(500)) * time.Millisecond) // of load
		s.Kill()
		if i%2 == 1 {
			if err := os.RemoveAll(filepath.Join(s.Dir, "projection")); err != nil {
				t.Fatal(err)
			}
		}
		s.Restart()
	}
	for _, c := range clients {
		c.ended.Store(true)
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	got := make(map[string][]string)
	events := wholeLog(t, dial(t, s))
	checkLog(t, events)
	for _, e := range events {
		name := e.Collection
		if e.ID != "" {
			name = e.ID
		}
		got[name] = append(got[name], e.Type)
	}
	for _, c := range clients {
		for _, name := range []string{c.name, "own" + c.name} {
			var want []string
			for range c.lives {
				if name == c.name {
					want = append(want, "DocumentCreated", "DocumentReplaced", "DocumentReplaced", "DocumentReplaced", "DocumentDeleted")
				} else {
					want = append(want, "CollectionCreated", "CollectionReplaced", "CollectionDeleted")
				}
			}
			if fmt.Sprint(got[name]) != fmt.Sprint(want) {
				t.Errorf("%d lives of %s made %v", c.lives, name, got[name])
			}
		}
		t.Logf("%s: %d lives, %d mutations sent %d times", c.name, c.lives, 8*c.lives, c.sent)
	}
	s.Stop()
}

// repeater is a client that creates, changes and deletes a document and a collection,
// again and again.
type repeater struct {
	t      *testing.T
	name   string
	nc     *nats.Conn
	js     jetstream.JetStream
	random *rand.Rand
	lives  int
	sent   int
	ended  atomic.Bool
}

func (c *repeater) life() {
	c.lives++
	document, own := "c."+c.name, "own"+c.name
	c.do(201, "collection.create."+own, `{"defaultTtl":60}`)
	c.do(201, "document.create."+document, `{"n":1}`)
	c.do(200, "document.patch."+document, `{"patched":1}`)
	c.do(200, "collection.replace."+own, `{"defaultTtl":-1}`)
	c.do(200, "document.replace."+document, `{"n":2}`)
	c.do(200, "document.upsert."+document, `{"n":3}`)
	c.do(204, "document.delete."+document, "")
	c.do(204, "collection.delete."+own, "")
}

// do sends a mutation until its outcome is known, and sometimes once more.
func (c *repeater) do(code int, tail, body string) {
	id := fmt.Sprintf("%s %d %s", c.name, c.lives, tail)
	if c.random.IntN(4) == 0 {
		// First publish it to the stream, which may store it or not.
		c.sent++
		ctx, cancel := context.WithTimeout(c.t.Context(), time.Second)
		m := nats.NewMsg("lapse.main.mutations." + tail)
		m.Data = []byte(body)
		m.Header.Set("Nats-Msg-Id", id)
		_, _ = c.js.PublishMsg(ctx, m, jetstream.WithRetryAttempts(1))
		cancel()
	}
	first := c.until(code, tail, body, id)
	if c.random.IntN(4) == 0 && !c.t.Failed() {
		if again := c.until(code, tail, body, id); !bytes.Equal(again.body, first.body) || again.code != first.code {
			c.t.Errorf("%s came out with %d %s and then with %d %s", id, first.code, first.body, again.code, again.body)
		}
	}
}

func (c *repeater) until(code int, tail, body, id string) answer {
	for began := time.Now(); ; {
		c.sent++
		timeout := time.Second
		if c.random.IntN(4) == 0 {
			timeout = time.Duration(c.random.IntN(3000)) * time.Microsecond // too short for most replies
		}
		a, err := tryAskWith(c.nc, tail, body, timeout, "Nats-Msg-Id", id)
		switch {
		case err == nil && a.code == code:
			return a
		case err == nil && a.code != 503 && a.code != 504 && a.code != 429:
			c.t.Errorf("%s came out with %d %s", id, a.code, a.body)
			return a
		case time.Since(began) > patience:
			c.t.Errorf("%s came to nothing: %v", id, err)
			return a
		}
	}
}
