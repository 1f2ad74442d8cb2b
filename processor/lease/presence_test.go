package lease_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/processor/lease"
	"github.com/lapsedb/lapse/processor/processortest"
	"github.com/lapsedb/lapse/schema"
)

// TestPresence: processes hear of each other at once. One that leaves is gone at once, one
// that is silent after two leases, and what is no announcement counts for nothing.
func TestPresence(t *testing.T) {
	processortest.InCrew(t, 2, func(c *processortest.Crew) {
		const ttl = 5 * time.Second
		began := time.Now()
		join := func(node string) (p *lease.Presence, leave func()) {
			p = lease.NewPresence(c.Members[0].Log, lease.Config{Database: "main", TTL: ttl, Node: node, Elapsed: func() time.Duration { return time.Since(began) }})
			ctx, cancel := context.WithCancel(c.T.Context())
			done := make(chan error, 1)
			go func() {
				done <- p.Run(ctx, func() lease.Member { return lease.Member{Weight: 1, Role: "copy", Seq: 7, Behind: 2, BehindMs: 30} })
			}()
			return p, func() { cancel(); c.Members[0].Check(<-done) }
		}
		there := func(p *lease.Presence) (ids string) {
			synctest.Wait()
			for _, m := range p.Members() {
				if ids += m.ID + " "; m.Weight != 1 || m.Role != "copy" || m.Seq != 7 || m.Behind != 2 || m.BehindMs != 30 {
					t.Errorf("it hears %+v", m)
				}
			}
			return ids
		}
		a, leaveA := join("a")
		defer leaveA()
		if got := there(a); got != "a " {
			t.Errorf("alone it hears %q", got)
		}
		time.Sleep(ttl / 4)
		b, leaveB := join("b")
		if gotA, gotB := there(a), there(b); gotA != "a b " || gotB != "a b " {
			t.Errorf("at once they hear %q and %q", gotA, gotB)
		}
		leaveB()
		if got := there(a); got != "a " {
			t.Errorf("after one has left: %q", got)
		}
		say := func(id, text string) {
			c.Members[0].Check(c.Members[0].Log.Publish("$KV.LAPSE_main_LEASE.process."+id, []byte(text)))
		}
		say("c", `{"id":"c","weight":1,"role":"copy","seq":7,"behind":2,"behindMs":30}`)
		say("d", `{"id":"e","weight":1}`)
		say("f", `{`)
		say("g", `{"id":"g","weight":1,"role":"`+strings.Repeat("x", 100)+`"}`)
		say("h", `{"id":"h","weight":1,"role":"copy","host":"`+strings.Repeat("x", 300)+`"}`)
		say("i", `{"id":"i","weight":1,"role":"copy","databases":["`+strings.Repeat("x", 8<<10)+`"]}`)
		if got := there(a); got != "a c " {
			t.Errorf("it hears %q", got)
		}
		time.Sleep(2 * ttl)
		if got := there(a); got != "a c " {
			t.Errorf("after two leases: %q", got)
		}
		time.Sleep(time.Millisecond)
		if got := there(a); got != "a " {
			t.Errorf("later: %q", got)
		}
		for i := range 1000 {
			id := fmt.Sprint("z", i)
			say(id, `{"id":"`+id+`","weight":1,"role":"copy","seq":7,"behind":2,"behindMs":30}`)
		}
		if got := strings.Fields(there(a)); len(got) != 256 || got[0] != "a" {
			t.Errorf("of a thousand it hears %d", len(got))
		}
	})
}

// TestPresenceKeys: announcements are keys of the lease's bucket that expire.
func TestPresenceKeys(t *testing.T) {
	processortest.InCrew(t, 1, func(c *processortest.Crew) {
		c.Start()
		m := c.Members[0]
		p := lease.NewPresence(m.Log, lease.Config{Database: "main", TTL: 5 * time.Second, Node: "a", Elapsed: func() time.Duration { return 0 }})
		ctx, cancel := context.WithCancel(c.T.Context())
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx, func() lease.Member { return lease.Member{} }) }()
		synctest.Wait()
		if e, err := m.Leases().Get(c.T.Context(), "process.a"); err != nil || len(e.Value()) == 0 {
			t.Errorf("the key: %v, %v", e, err)
		}
		sub, err := m.Log.SubscribeSync("$KV.LAPSE_main_LEASE.process.a")
		m.Check(err)
		cancel()
		m.Check(<-done)
		if last, err := sub.NextMsg(processortest.Patience); err != nil || last.Header.Get("KV-Operation") != "DEL" {
			t.Errorf("it leaves with %v, %v", last, err)
		}
		m.Check(m.Log.PublishMsg(&nats.Msg{Subject: "$KV.LAPSE_main_LEASE.process.b", Data: []byte("{}"), Header: nats.Header{"Nats-TTL": {"10s"}}}))
		time.Sleep(12 * time.Second)
		if e, err := m.Leases().Get(c.T.Context(), "process.b"); err == nil {
			t.Errorf("after its ttl there is %s", e.Value())
		}
	})
}

// TestTwin: of two processes with one id, the younger hears of the older. A late announcement
// of an earlier process is no twin.
func TestTwin(t *testing.T) {
	processortest.InCrew(t, 1, func(c *processortest.Crew) {
		began := time.Now()
		m := c.Members[0]
		join := func() (twins *atomic.Int64, leave func()) {
			twins = new(atomic.Int64)
			elapsed, born := func() time.Duration { return time.Since(began) }, time.Now()
			p := lease.NewPresence(m.Log, lease.Config{Database: "main", TTL: 5 * time.Second, Node: "a", Elapsed: elapsed, Twin: func(lease.Member) { twins.Add(1) }})
			ctx, cancel := context.WithCancel(c.T.Context())
			done := make(chan error, 1)
			go func() {
				done <- p.Run(ctx, func() lease.Member { return lease.Member{Role: schema.RoleNone, UpMs: time.Since(born).Milliseconds()} })
			}()
			synctest.Wait()
			return twins, func() { cancel(); m.Check(<-done) }
		}
		older, leave := join()
		defer leave()
		m.Check(m.Log.Publish("$KV.LAPSE_main_LEASE.process.a", []byte(`{"id":"a","run":"earlier","role":"none","upMs":100000}`)))
		time.Sleep(time.Minute)
		younger, leave := join()
		defer leave()
		time.Sleep(5 * time.Second)
		if older.Load() != 0 || younger.Load() == 0 {
			t.Errorf("the older hears of %d, the younger of %d", older.Load(), younger.Load())
		}
	})
}
