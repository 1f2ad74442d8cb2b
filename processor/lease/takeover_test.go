package lease_test

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

	"context"
	"errors"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/processor/clock"
	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/lease"
	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/processor/processortest"
	"github.com/lapsedb/lapse/schema"
)

// TestLeaseOutlivesTTL: a key that NATS keeps although its TTL has passed is not a held
// lease. The TTL that counts is the holder's.
func TestLeaseOutlivesTTL(t *testing.T) {
	for name, row := range map[string]struct {
		ttl  string // as the key has it
		free time.Duration
	}{
		"kept":         {"", processortest.LeaseTTL},
		"longer lease": {"20s", 20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			processortest.InCrew(t, 2, func(c *processortest.Crew) {
				c.Start()
				a, b := c.Members[0], c.Members[1]
				a.Stop()
				b.Becomes(observe.Writer)
				b.Stop()
				var options []jetstream.KVCreateOpt
				if row.ttl != "" {
					options = append(options, jetstream.KeyTTL(row.free))
				}
				_, err := a.Leases().Create(a.Ctx(), "writer", []byte(`{"node":"another","host":"h","term":"t"}`), options...)
				a.Check(err)
				b.Start()
				if took := b.Becomes(observe.Writer); took < row.free || took > row.free+processortest.LeaseTTL {
					t.Errorf("it took %s, and the lease is %s", took, row.free)
				}
			})
		})
	}
}

// TestStandbyOfFullJetStream: a standby that could not take over says so: while JetStream
// is full it stores no lease, and removes none.
func TestStandbyOfFullJetStream(t *testing.T) {
	processortest.InCrew(t, 2, func(c *processortest.Crew) {
		c.Start()
		a, b := c.Members[0], c.Members[1]
		account, err := c.Server.LookupAccount("LOG")
		a.Check(err)
		limit := func(bytes int64) {
			a.Check(account.UpdateJetStreamLimits(map[string]server.JetStreamAccountLimits{"": {MaxMemory: -1, MaxStore: bytes, MaxStreams: -1, MaxConsumers: -1}}))
		}
		limit(1)
		reconnects := b.Log.Stats().Reconnects
		a.Becomes(observe.Standby)
		time.Sleep(6 * processortest.LeaseTTL)
		for _, m := range c.Members {
			processortest.Gather(t, m.Monitor).Want(t, processortest.Metrics{"lapse_lease_unreachable": 1, "lapse_ready": 0, "lapse_role{role=writer}": 0})
			if reasons := fmt.Sprint(m.Monitor.Ready()); !strings.Contains(reasons, "cannot take over") || !strings.Contains(reasons, eventlog.ErrFull.Error()) {
				t.Errorf("not ready because of %s", reasons)
			}
			lapse, err := client.New(m.Client)
			m.Check(err)
			if status, err := lapse.Status(m.Ctx()); err != nil || !strings.Contains(status.CannotTakeOver, eventlog.ErrFull.Error()) {
				t.Errorf("the status is %+v, %v", status, err)
			}
			if _, err := lapse.Do(m.Ctx(), "collection.create", "c", "", nil); !errors.Is(err, client.ErrUnavailable) || !strings.Contains(err.Error(), eventlog.ErrFull.Error()) {
				t.Errorf("a write: %v", err)
			}
		}
		if got := b.Log.Stats().Reconnects; got != reconnects {
			t.Errorf("it leaves a NATS server that answers: %d reconnects", got-reconnects)
		}
		limit(-1)
		processortest.Await(func() bool { return a.Processor.Role() == observe.Writer || b.Processor.Role() == observe.Writer })
		time.Sleep(processortest.LeaseTTL)
		for _, m := range c.Members {
			processortest.Gather(t, m.Monitor).Want(t, processortest.Metrics{"lapse_lease_unreachable": 0, "lapse_ready": 1})
			var status schema.Status
			m.Check(json.Unmarshal(m.Want(200, "status", "").Body, &status))
			if status.CannotTakeOver != "" {
				t.Errorf("it has space again, and the status is %+v", status)
			}
		}
	})
}

// TestRoleEndsWithLease: nothing calls a process the writer whose lease has expired, even
// before it has noticed.
func TestRoleEndsWithLease(t *testing.T) {
	processortest.InCrew(t, 2, func(c *processortest.Crew) {
		a, b := c.Members[0], c.Members[1]
		var later atomic.Int64 // ns
		clock := clock.GoClock()
		a.Options.Clock = func() (time.Time, time.Duration) {
			wall, elapsed := clock()
			return wall.Add(time.Duration(later.Load())), elapsed + time.Duration(later.Load())
		}
		c.Start()
		says := func(role observe.Role) {
			t.Helper()
			var status schema.Status
			a.Check(json.Unmarshal(a.Want(200, "status", "").Body, &status))
			reply, err := a.Client.Request("$SRV.INFO.lapse", nil, time.Second)
			a.Check(err)
			var info micro.Info
			a.Check(json.Unmarshal(reply.Data, &info))
			if status.Role != string(role) || info.Metadata["role"] != string(role) || a.Processor.Role() != role {
				t.Errorf("the %s is the %s in its status, the %s in its description", role, status.Role, info.Metadata["role"])
			}
		}
		m := a.Monitor
		says(observe.Writer)
		changes := func() int { return strings.Count(a.Wire.Logs.String(), "role changed") }
		before := changes()
		processortest.Gather(t, m).Want(t, processortest.Metrics{"lapse_role{role=writer}": 1, "lapse_role{role=standby}": 0, "lapse_ready": 1})
		later.Store(int64(processortest.LeaseTTL))
		says(observe.Standby)
		processortest.Gather(t, m).Want(t, processortest.Metrics{"lapse_role{role=writer}": 0, "lapse_role{role=standby}": 1, "lapse_ready": 0})
		if changes() != before {
			t.Error("it had noticed")
		}
		processortest.Await(func() bool { return a.Processor.Role() != b.Processor.Role() })
		c.Agree()
	})
}

// TestFrozenWriterRefuses: a process that was frozen for longer than its lease refuses what it had
// taken in: its successor may have created or renewed what it does not find.
func TestFrozenWriterRefuses(t *testing.T) {
	processortest.InCrew(t, 2, func(c *processortest.Crew) {
		a, b := c.Members[0], c.Members[1]
		open, frozen, clock := make(chan struct{}), make(chan struct{}), clock.GoClock()
		close(open)
		var way atomic.Pointer[chan struct{}] // through which the clock is read
		way.Store(&open)
		a.Options.Clock = func() (time.Time, time.Duration) {
			<-*way.Load()
			return clock()
		}
		c.Start()
		a.Want(201, "collection.create.c", `{}`)
		b.Has(a)
		release := a.HoldWriter()
		var asking sync.WaitGroup
		for tail, body := range map[string]string{
			"document.delete.c.new": ``,
			"batch.c":               `{"operations":[{"op":"touch","id":"new"}]}`,
		} {
			asking.Go(func() {
				m, err := a.Client.Request("lapse.main.api."+tail, []byte(body), processortest.Patience)
				if err != nil || m.Header.Get("Lapse-Status") != "503" {
					t.Errorf("%s: %v, %+v", tail, err, m)
				}
			})
		}
		synctest.Wait() // until they are in the queue
		way.Store(&frozen)
		release()
		b.Becomes(observe.Writer)
		b.Want(201, "document.create.c.new", `{}`)
		close(frozen)
		asking.Wait()
		a.Becomes(observe.Standby)
		c.Agree()
	})
}

// TestLeaseBucketOfLaterVersion: keys of the lease bucket that this version does not know are
// left alone, at a start and later.
func TestLeaseBucketOfLaterVersion(t *testing.T) {
	processortest.InCrew(t, 2, func(c *processortest.Crew) {
		a, b := c.Members[0], c.Members[1]
		a.Start()
		before, err := a.Leases().PutString(a.Ctx(), "process.x", "later")
		a.Check(err)
		b.Start()
		a.Stop()
		b.Becomes(observe.Writer)
		if e, err := b.Leases().Get(b.Ctx(), "process.x"); err != nil || e.Revision() != before {
			t.Errorf("%v, %v", e, err)
		}
	})
}

// TestStartFails: a processor that cannot serve leaves nothing behind and releases the
// lease.
func TestStartFails(t *testing.T) {
	processortest.InCrew(t, 1, func(c *processortest.Crew) {
		a := c.Members[0]
		o := a.Options
		o.Events = func(e observe.Event) {
			if _, ok := e.(observe.FenceMoved); ok {
				a.Service.Close()
			}
		}
		p, err := processor.Start(a.Ctx(), a.Connections(), o)
		if err == nil {
			_ = p.Stop()
			t.Fatal("it starts")
		}
		t.Log(err)
		gaveLeaseUp(a)
	})
}

// TestReleaseAfterRenewal: the lease is released even if the last renewal got no reply.
func TestReleaseAfterRenewal(t *testing.T) {
	processortest.InCrew(t, 1, func(c *processortest.Crew) {
		a := c.Members[0]
		a.Start()
		time.Sleep(processortest.LeaseTTL)
		synctest.Wait()
		a.Inside().Lease.ForgetRenewal()
		a.Stop()
		gaveLeaseUp(a)
	})
}

// TestLeaseTimeoutIsTransient: a timeout of the lease bucket is transient, and does not mean that
// the bucket belongs to something else.
func TestLeaseTimeoutIsTransient(t *testing.T) {
	processortest.InCrew(t, 1, func(c *processortest.Crew) {
		a := c.Members[0]
		a.Start()
		late, cancel := context.WithTimeout(a.Ctx(), time.Nanosecond)
		defer cancel()
		<-late.Done()
		if err := lease.Check(late, a.Log, "main", 0); !eventlog.Transient(err) {
			t.Errorf("%v does not pass", err)
		}
	})
}

// gaveLeaseUp checks that nobody holds the lease.
func gaveLeaseUp(m *processortest.Member) {
	m.T.Helper()
	if e, err := m.Leases().Get(m.Ctx(), "writer"); !errors.Is(err, jetstream.ErrKeyNotFound) {
		m.T.Errorf("the lease stays: %v %v", e, err)
	}
}

// TestStopWhileTaking: a standby that is stopped while it takes the lease leaves it free.
func TestStopWhileTaking(t *testing.T) {
	processortest.InOutage(t, processor.OS, func(o *processortest.Outage) {
		js, err := jetstream.New(o.Log)
		o.Check(err)
		join := func(node string) *lease.Lease {
			return lease.New(js, lease.Config{Database: "other", TTL: processortest.LeaseTTL, Node: node, Elapsed: func() time.Duration { return 0 }})
		}
		a, b := join("a"), join("b")
		o.Check(a.Acquire(o.Ctx(), false))
		waiting, stop := context.WithCancel(o.Ctx())
		o.LogNet.Intercept(func(sent []byte) {
			// The first attempt of a KV fails, since the key was deleted before.
			if text := string(sent); strings.Contains(text, `"node":"b"`) && !strings.Contains(text, "Sequence: 0\r\n") {
				stop()
			}
		})
		awaited := make(chan error)
		go func() { awaited <- b.Await(waiting, func(error) {}) }()
		synctest.Wait()
		o.Check(a.Release(o.Ctx(), ""))
		if err := <-awaited; !errors.Is(err, context.Canceled) {
			t.Errorf("the standby returns %v", err)
		}
		o.Check(join("c").Acquire(o.Ctx(), false))
	})
}

// TestLeaseRemoved: removing the lease key or its bucket does no harm.
func TestLeaseRemoved(t *testing.T) {
	for what, remove := range map[string]func(context.Context, jetstream.JetStream) error{
		"the key": func(ctx context.Context, js jetstream.JetStream) error {
			kv, err := js.KeyValue(ctx, "LAPSE_main_LEASE")
			if err != nil {
				return err
			}
			return kv.Delete(ctx, "writer")
		},
		"the bucket": func(ctx context.Context, js jetstream.JetStream) error {
			return js.DeleteKeyValue(ctx, "LAPSE_main_LEASE")
		},
	} {
		processortest.InCrew(t, 2, func(c *processortest.Crew) {
			c.Start()
			a := c.Members[0]
			a.Want(201, "collection.create.c", `{"defaultTtl":3}`)
			js := a.JS()
			a.Check(remove(a.Ctx(), js))
			for range 20 {
				time.Sleep(time.Second)
				for _, m := range c.Members {
					if m.Processor.Role() == observe.Writer {
						// It may have lost the lease, and notice that now or later.
						_, _ = m.Client.Request(fmt.Sprintf("lapse.main.api.document.create.c.d%d", time.Now().UnixNano()), []byte(`{}`), time.Second)
						break
					}
				}
			}
			writers := 0
			for _, m := range c.Members {
				if m.Processor.Role() == observe.Writer {
					writers++
				}
			}
			if writers != 1 {
				t.Errorf("without %s there are %d writers", what, writers)
			}
			time.Sleep(5 * time.Second)
			c.Agree()
			_, err := js.KeyValue(a.Ctx(), "LAPSE_main_LEASE")
			a.Check(err)
		})
	}
}

// TestRestartReusesOwnLease: after a kill, a restarted process does not wait for its own
// lease to expire.
func TestRestartReusesOwnLease(t *testing.T) {
	processortest.InCrew(t, 2, func(c *processortest.Crew) {
		a, other := c.Members[0], c.Members[1]
		a.Start()
		a.Want(201, "collection.create.c", `{}`)
		// As after a kill: the lease stays.
		held, err := a.Leases().Get(a.Ctx(), "writer")
		a.Check(err)
		a.Stop()
		_, err = other.Leases().Create(a.Ctx(), "writer", held.Value(), jetstream.KeyTTL(processortest.LeaseTTL))
		a.Check(err)
		other.Start()
		if other.Processor.Role() != observe.Standby {
			t.Errorf("another one is the %s", other.Processor.Role())
		}
		began := time.Now()
		a.Start()
		if a.Processor.Role() != observe.Writer || time.Since(began) > time.Second {
			t.Errorf("it is the %s after %s", a.Processor.Role(), time.Since(began))
		}
	})
}

// TestCopyDoesNotTakeLease: a process takes back the lease of an earlier process of its
// directory, and not that of a process from whose directory its own was copied.
func TestCopyDoesNotTakeLease(t *testing.T) {
	processortest.InCrew(t, 1, func(c *processortest.Crew) {
		m := c.Members[0]
		js, err := jetstream.New(m.Log)
		m.Check(err)
		began := time.Now()
		acquire := func(dir string) error {
			return lease.New(js, lease.Config{Database: "main", TTL: processortest.LeaseTTL, Replicas: 1, Node: "node", Dir: dir,
				Elapsed: func() time.Duration { return time.Since(began) }}).Acquire(m.Ctx(), true)
		}
		m.Check(acquire("original"))
		if err := acquire("copy"); !errors.Is(err, lease.ErrHeld) {
			t.Errorf("the copy: %v", err)
		}
		m.Check(acquire("original"))
	})
}
