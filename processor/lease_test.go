package processor

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"

	"github.com/lapsedb/lapse/processor/clock"
	"github.com/lapsedb/lapse/processor/lease"
	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/schema"
)

// TestLeaseOutlivesTTL: a key that NATS keeps although its TTL has passed is not a held
// lease. The TTL that counts is the holder's.
func TestLeaseOutlivesTTL(t *testing.T) {
	for name, one := range map[string]struct {
		ttl  string // as the key has it
		free time.Duration
	}{
		"kept":         {"", testLease},
		"longer lease": {"20s", 20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inCrew(t, 2, func(c *crew) {
				c.start()
				a, b := c.members[0], c.members[1]
				a.stop()
				b.becomes(observe.Writer)
				b.stop()
				var options []jetstream.KVCreateOpt
				if one.ttl != "" {
					options = append(options, jetstream.KeyTTL(one.free))
				}
				_, err := a.leases().Create(a.ctx(), lease.Key, []byte(`{"node":"another","host":"h","term":"t"}`), options...)
				a.check(err)
				b.start()
				if took := b.becomes(observe.Writer); took < one.free || took > one.free+testLease {
					t.Errorf("it took %s, and the lease is %s", took, one.free)
				}
			})
		})
	}
}

// TestStandbyOfFullJetStream: a standby that could not take over says so: while JetStream
// is full it stores no lease, and removes none.
func TestStandbyOfFullJetStream(t *testing.T) {
	inCrew(t, 2, func(c *crew) {
		c.start()
		a, b := c.members[0], c.members[1]
		account, err := c.server.LookupAccount("LOG")
		a.check(err)
		limit := func(bytes int64) {
			a.check(account.UpdateJetStreamLimits(map[string]server.JetStreamAccountLimits{"": {MaxMemory: -1, MaxStore: bytes, MaxStreams: -1, MaxConsumers: -1}}))
		}
		limit(1)
		reconnects := b.log.Stats().Reconnects
		a.becomes(observe.Standby)
		time.Sleep(6 * testLease)
		for _, m := range c.members {
			gather(t, m.processor.options.Monitor).want(t, metrics{"lapse_lease_unreachable": 1, "lapse_ready": 0, "lapse_role{role=writer}": 0})
			if reasons := fmt.Sprint(m.processor.options.Monitor.Ready()); !strings.Contains(reasons, "cannot take over") || !strings.Contains(reasons, "resource") {
				t.Errorf("not ready because of %s", reasons)
			}
		}
		if got := b.log.Stats().Reconnects; got != reconnects {
			t.Errorf("it leaves a NATS server that answers: %d reconnects", got-reconnects)
		}
		limit(-1)
		await(func() bool { return a.processor.Role() == observe.Writer || b.processor.Role() == observe.Writer })
		time.Sleep(testLease)
		for _, m := range c.members {
			gather(t, m.processor.options.Monitor).want(t, metrics{"lapse_lease_unreachable": 0, "lapse_ready": 1})
		}
	})
}

// TestRoleEndsWithLease: nothing calls a process the writer whose lease has expired, even
// before it has noticed.
func TestRoleEndsWithLease(t *testing.T) {
	inCrew(t, 2, func(c *crew) {
		a, b := c.members[0], c.members[1]
		var later atomic.Int64 // ns
		clock := clock.GoClock()
		a.options.Clock = func() (time.Time, time.Duration) {
			wall, elapsed := clock()
			return wall.Add(time.Duration(later.Load())), elapsed + time.Duration(later.Load())
		}
		c.start()
		says := func(role observe.Role) {
			t.Helper()
			var status schema.Status
			a.check(json.Unmarshal(a.want(200, "status", "").body, &status))
			reply, err := a.client.Request("$SRV.INFO.lapse", nil, time.Second)
			a.check(err)
			var info micro.Info
			a.check(json.Unmarshal(reply.Data, &info))
			if status.Role != string(role) || info.Metadata["role"] != string(role) || a.processor.Role() != role {
				t.Errorf("the %s is the %s in its status, the %s in its description", role, status.Role, info.Metadata["role"])
			}
		}
		m := a.processor.options.Monitor
		says(observe.Writer)
		gather(t, m).want(t, metrics{"lapse_role{role=writer}": 1, "lapse_role{role=standby}": 0, "lapse_ready": 1})
		later.Store(int64(testLease))
		says(observe.Standby)
		gather(t, m).want(t, metrics{"lapse_role{role=writer}": 0, "lapse_role{role=standby}": 1, "lapse_ready": 0})
		if n := strings.Count(a.wire.logs.String(), "role changed"); n != 0 {
			t.Error("it had noticed")
		}
		await(func() bool { return a.processor.Role() != b.processor.Role() })
		c.agree()
	})
}

// TestFrozenWriterRefuses: a process that was frozen for longer than its lease refuses what it had
// taken in: its successor may have created or renewed what it does not find.
func TestFrozenWriterRefuses(t *testing.T) {
	inCrew(t, 2, func(c *crew) {
		a, b := c.members[0], c.members[1]
		open, frozen, clock := make(chan struct{}), make(chan struct{}), clock.GoClock()
		close(open)
		var way atomic.Pointer[chan struct{}] // through which the clock is read
		way.Store(&open)
		a.options.Clock = func() (time.Time, time.Duration) {
			<-*way.Load()
			return clock()
		}
		c.start()
		a.want(201, "collection.create.c", `{}`)
		b.has(a)
		release := a.holdWriter()
		var asking sync.WaitGroup
		for tail, body := range map[string]string{
			"document.delete.c.new": ``,
			"batch.c":               `{"operations":[{"op":"touch","id":"new"}]}`,
		} {
			asking.Go(func() {
				m, err := a.client.Request("lapse.main.api."+tail, []byte(body), patience)
				if err != nil || m.Header.Get("Lapse-Status") != "503" {
					t.Errorf("%s: %v, %+v", tail, err, m)
				}
			})
		}
		synctest.Wait() // until they are in the queue
		way.Store(&frozen)
		release()
		b.becomes(observe.Writer)
		b.want(201, "document.create.c.new", `{}`)
		close(frozen)
		asking.Wait()
		a.becomes(observe.Standby)
		c.agree()
	})
}

// TestLeaseBucketOfLaterVersion: keys of the lease bucket that this version does not know are
// left alone, at a start and later.
func TestLeaseBucketOfLaterVersion(t *testing.T) {
	inCrew(t, 2, func(c *crew) {
		a, b := c.members[0], c.members[1]
		a.start()
		before, err := a.leases().PutString(a.ctx(), "process.x", "later")
		a.check(err)
		b.start()
		a.stop()
		b.becomes(observe.Writer)
		if e, err := b.leases().Get(b.ctx(), "process.x"); err != nil || e.Revision() != before {
			t.Errorf("%v, %v", e, err)
		}
	})
}
