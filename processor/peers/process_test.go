package peers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/processor/peers"
	"github.com/lapsedb/lapse/processor/processortest"
	"github.com/lapsedb/lapse/schema"
)

const (
	lease        = 5 * time.Second
	callInterval = time.Second // as in others.go
)

// company is processes at one connection, and one of their connections that is not theirs.
type company struct {
	*processortest.Crew
	nc    *nats.Conn
	other *nats.Conn
}

func inCompany(t *testing.T, test func(c *company)) {
	processortest.InCrew(t, 2, func(c *processortest.Crew) { test(&company{c, c.Members[0].Log, c.Members[1].Log}) })
}

func (c *company) join(id string, twin func(schema.Presence)) (p *peers.Process, leave func()) {
	p = c.discover(id, twin)
	return p, c.watch(p)
}

func (c *company) discover(id string, twin func(schema.Presence)) *peers.Process {
	p, err := peers.Join(c.T.Context(), c.nc, peers.Self{ID: id, Version: "1.2.3", Weight: 1, Databases: []schema.DatabaseName{"main"}, Lease: lease, Events: func(observe.Event) {}, Twin: twin})
	c.Members[0].Check(err)
	return p
}

// watch has a process ask the others until leave.
func (c *company) watch(p *peers.Process) (leave func()) {
	ctx, cancel := context.WithCancel(c.T.Context())
	done := make(chan struct{})
	go func() { defer close(done); p.Watch(ctx) }()
	return func() { p.Leave(); cancel(); <-done }
}

func there(p *peers.Process) (ids string) {
	synctest.Wait()
	for _, m := range p.Members() {
		ids += m.ID + " "
	}
	return ids
}

// stand has somebody reply as a process until the end of the test.
func (c *company) stand(id, reply string) (end func()) {
	var subs []*nats.Subscription
	for _, subject := range []string{"$SRV.PING.lapse", "$SRV.INFO.lapse", "$SRV.PING.lapse." + id} {
		sub, err := c.other.Subscribe(subject, func(m *nats.Msg) { _ = m.Respond([]byte(reply)) })
		c.Members[1].Check(err)
		subs = append(subs, sub)
	}
	c.Members[1].Check(c.other.Flush())
	return func() {
		for _, sub := range subs {
			c.Members[1].Check(sub.Unsubscribe())
		}
	}
}

// TestMembers: processes know each other at once. One that has no connection is gone after half a
// lease, one that is silent after two.
func TestMembers(t *testing.T) {
	inCompany(t, func(c *company) {
		a, leaveA := c.join("a", nil)
		defer leaveA()
		time.Sleep(1500 * time.Millisecond)
		if got := there(a); got != "a " {
			t.Errorf("alone it hears %q", got)
		}
		b, leaveB := c.join("b", nil)
		if gotA, gotB := there(a), there(b); gotA != "a b " || gotB != "a b " {
			t.Errorf("at once they hear %q and %q", gotA, gotB)
		}
		for _, m := range a.Members() {
			if s, ok := m.Of("main"); !ok || s.Role != schema.RoleNone || m.Version != "1.2.3" || m.Weight != 1 || m.PID == 0 {
				t.Errorf("it hears %+v", m)
			}
		}
		leaveB()
		time.Sleep(lease/2 + 600*time.Millisecond)
		if got := there(a); got != "a " {
			t.Errorf("after one has left: %q", got)
		}
		end := c.stand("c", `{"id":"c","process":{"id":"c"}}`)
		time.Sleep(time.Second)
		end()
		time.Sleep(lease/2 - time.Second)
		if got := there(a); got != "a c " {
			t.Errorf("before half a lease without a connection: %q", got)
		}
		time.Sleep(2500 * time.Millisecond)
		if got := there(a); got != "a " {
			t.Errorf("after half a lease without a connection: %q", got)
		}
		end = c.stand("d", `{"id":"d","process":{"id":"d"}}`)
		time.Sleep(time.Second)
		hangs, err := c.other.Subscribe("$SRV.PING.lapse.d", func(*nats.Msg) {})
		c.Members[1].Check(err)
		end()
		time.Sleep(2*lease - 1500*time.Millisecond)
		if got := there(a); got != "a d " {
			t.Errorf("before two leases of silence: %q", got)
		}
		time.Sleep(2 * time.Second)
		if got := there(a); got != "a " {
			t.Errorf("after two leases of silence: %q", got)
		}
		c.Members[1].Check(hangs.Unsubscribe())
	})
}

// TestForged: what nobody asked for counts for nothing, nor does a reply that no process sends.
// A hint costs one question, and only so many are heeded.
func TestForged(t *testing.T) {
	inCompany(t, func(c *company) {
		a, leave := c.join("a", nil)
		defer leave()
		time.Sleep(1500 * time.Millisecond)
		var asked atomic.Int64
		_, err := c.other.Subscribe("$SRV.PING.lapse.>", func(*nats.Msg) { asked.Add(1) })
		c.Members[1].Check(err)
		for _, subject := range []string{"$SRV.REPLY.a.all", "$SRV.REPLY.a", "$SRV.PING.lapse", "$SRV.CHANGED.lapse", "$KV.LAPSE_main_LEASE.process.z"} {
			c.Members[1].Check(c.other.Publish(subject, []byte(`{"id":"z","process":{"id":"z","databases":[{"database":"main","role":"writer"}]}}`)))
		}
		for i := range 1000 {
			c.Members[1].Check(c.other.Publish("$SRV.CHANGED.lapse", fmt.Append(nil, "z", i)))
		}
		c.Members[1].Check(c.other.Flush())
		if got := there(a); got != "a " || asked.Load() > 100 {
			t.Errorf("it hears %q, and asks %d times", got, asked.Load())
		}
		for i, reply := range []string{`{`, `{}`, `{"id":"d","process":{"id":"e.f"}}`, `{"id":"d"}`, `{"id":"d","process":{"id":"d","databases":[{"database":"main","role":"x"}]}}`,
			`{"id":"d","process":{"id":"d","host":"` + strings.Repeat("x", 300) + `"}}`, `{"id":"d","process":{"id":"d"}}` + strings.Repeat(" ", schema.MaxPresence)} {
			defer c.stand(fmt.Sprint("s", i), reply)()
		}
		time.Sleep(time.Second)
		if got := there(a); got != "a " {
			t.Errorf("it hears %q", got)
		}
	})
}

// TestTwin: of two processes with one id, the younger hears of the older.
func TestTwin(t *testing.T) {
	inCompany(t, func(c *company) {
		var older, younger atomic.Int64
		_, leave := c.join("a", func(schema.Presence) { older.Add(1) })
		defer leave()
		time.Sleep(time.Minute)
		_, leave = c.join("a", func(schema.Presence) { younger.Add(1) })
		defer leave()
		time.Sleep(5 * time.Second)
		if older.Load() != 0 || younger.Load() == 0 {
			t.Errorf("the older hears of %d, the younger of %d", older.Load(), younger.Load())
		}
	})
}

// TestBesideEarlier: a process of 0.3.0 replies for each database that it serves.
func TestBesideEarlier(t *testing.T) {
	inCompany(t, func(c *company) {
		a, leave := c.join("a", nil)
		defer leave()
		for id, reply := range map[string]micro.ServiceIdentity{
			"s1": {ID: "s1", Version: "0.3.0", Metadata: map[string]string{"database": "main", "role": "writer", "node": "old", "log": "L"}},
			"s2": {ID: "s2", Version: "0.3.0", Metadata: map[string]string{"database": "other", "role": "standby", "node": "old", "log": "L"}},
		} {
			text, err := json.Marshal(micro.Ping{ServiceIdentity: reply})
			c.Members[0].Check(err)
			defer c.stand(id, string(text))()
		}
		time.Sleep(1500 * time.Millisecond)
		if got := there(a); got != "a old " {
			t.Fatalf("it hears %q", got)
		}
		old := a.Members()[1]
		main, _ := old.Of("main")
		other, _ := old.Of("other")
		if old.Weight != 0 || old.Version != "0.3.0" || main.Role != schema.RoleWriter || other.Role != schema.RoleCopy {
			t.Errorf("it hears %+v", old)
		}
		c.Members[0].Check(a.CheckOthers("main", "L"))
		if err := a.CheckOthers("main", "M"); err == nil || !strings.Contains(err.Error(), "from a different log") {
			t.Errorf("beside another log: %v", err)
		}
	})
}

// TestJoin: who is alone knows that at once; with others it waits for those whom they know.
func TestJoin(t *testing.T) {
	inCompany(t, func(c *company) {
		join := func(id, hears string, within time.Duration) (leave func()) {
			t.Helper()
			began := time.Now()
			p := c.discover(id, nil)
			took, ids := time.Since(began), ""
			for _, m := range p.Members() {
				ids += m.ID + " "
			}
			if ids != hears || took != within {
				t.Errorf("%s hears %q after %s, want %q after %s", id, ids, took, hears, within)
			}
			leave = c.watch(p)
			time.Sleep(callInterval) // in which the earlier ones hear of it
			synctest.Wait()
			return leave
		}
		defer join("a", "", 0)()
		defer join("b", "a ", 0)()
		defer join("c", "a b ", 0)()
		defer c.stand("d", `{"id":"d","process":{"id":"d","knows":{"e":{"main":"copy"}}}}`)()
		time.Sleep(callInterval)
		synctest.Wait()
		defer join("f", "a b c d ", 300*time.Millisecond)()
	})
}
