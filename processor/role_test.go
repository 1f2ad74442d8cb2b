package processor_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/processor/peers"
	"github.com/lapsedb/lapse/processor/processortest"
	"github.com/lapsedb/lapse/schema"
)

// away reports whether a write gets no reply: nobody receives it, or a writer whose lease
// may have expired ignores it.
func away(m *processortest.Member) bool {
	m.T.Helper()
	_, err := m.Client.Request("lapse.main.api.document.upsert.c.probe", []byte(`{}`), time.Second)
	if err != nil && err != nats.ErrNoResponders && err != nats.ErrTimeout {
		m.T.Fatal(err)
	}
	return err != nil
}

// TestStandby: a standby answers reads, of the sequence that they ask for, and no writes.
func TestStandby(t *testing.T) {
	processortest.InCrew(t, 2, func(c *processortest.Crew) {
		c.Start()
		a, b := c.Members[0], c.Members[1]
		a.Want(201, "collection.create.c", `{"defaultTtl":60,"indexingPolicy":{"includedPaths":[{"path":"/n"}]}}`)
		r := a.Want(201, "document.create.c.a", `{"n":1}`)
		seq := fmt.Sprint(r.Seq)
		if got := b.Want(200, "document.get.c.a", "", schema.HeaderMinSeq, seq); string(got.Body) != string(r.Body) || got.Seq < r.Seq {
			t.Errorf("the standby has %s at %d, the writer %s at %d", got, got.Seq, r, r.Seq)
		}
		for tail, body := range map[string]string{"query.c": `{"where":"doc.n == 1","explain":true}`, "query.c ": `{"count":true}`, "collection.get.c": "", "collection.list": "", "history.c.a": "", "forecast.c": ""} {
			tail = strings.TrimSpace(tail)
			if want, got := a.Want(200, tail, body), b.Want(200, tail, body, schema.HeaderMinSeq, seq); string(want.Body) != string(got.Body) {
				t.Errorf("%s: the standby says %s, the writer %s", tail, got, want)
			}
		}
		b.Want(404, "document.get.c.b", "", schema.HeaderMinSeq, seq)
		b.Want(400, "query.c", `{"limit":0}`)
		if r := b.Ask("document.get.c.a", "", schema.HeaderMinSeq, fmt.Sprint(a.End()+1)); r.Code != 504 {
			t.Errorf("a state that is not there: %s", r)
		}
		for member, role := range map[*processortest.Member]observe.Role{a: observe.Writer, b: observe.Standby} {
			var status schema.Status
			m := member.Want(200, "status", "")
			member.Check(json.Unmarshal(m.Body, &status))
			if status.Role != string(role) || status.Documents != 1 {
				t.Errorf("status of the %s: %s", role, m)
			}
		}
		if away(a) || !away(b) {
			t.Error("writes are taken by the standby, or not by the writer")
		}
		// The standby expires nothing, and knows what has expired.
		time.Sleep(61 * time.Second)
		b.Want(404, "document.get.c.a", "")
		c.Agree()
	})
}

// TestHandOver: a stopping writer releases the lease, so a standby takes over at once.
func TestHandOver(t *testing.T) {
	processortest.InCrew(t, 3, func(c *processortest.Crew) {
		c.Start()
		a := c.Members[0]
		a.Want(201, "collection.create.c", `{"defaultTtl":10}`)
		a.Want(201, "document.create.c.a", `{}`)
		began := time.Now()
		a.Stop()
		var next *processortest.Member
		for next == nil {
			for _, m := range c.Members[1:] {
				if m.Processor.Role() == observe.Writer {
					next = m
				}
			}
			time.Sleep(time.Millisecond)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("the hand-over took %s", took)
		}
		next.Want(201, "document.create.c.b", `{}`)
		next.Want(200, "document.get.c.a", "")
		time.Sleep(11 * time.Second)
		c.Agree()
		if n := next.Count(schema.DocumentExpired); n != 2 {
			t.Errorf("%d documents expired, want 2", n)
		}
	})
}

// TestTakeOver: a standby takes over from a silent writer when the lease expires, and the
// old writer can no longer append. When it reconnects it becomes a standby.
func TestTakeOver(t *testing.T) {
	processortest.InCrew(t, 2, func(c *processortest.Crew) {
		c.Start()
		a, b := c.Members[0], c.Members[1]
		a.Want(201, "collection.create.c", `{"defaultTtl":3}`)
		a.Want(201, "document.create.c.a", `{"by":"a"}`, "Nats-Msg-Id", "m")
		b.Has(a)
		a.Cut()
		if took := b.Becomes(observe.Writer); took > 2*processortest.LeaseTTL {
			t.Errorf("it took %s, and a lease is %s", took, processortest.LeaseTTL)
		}
		b.Want(201, "document.create.c.a", `{}`, "Nats-Msg-Id", "m")
		b.Refused(400, "bad_request", "document.create.c.b", `{}`, "Nats-Msg-Id", "m")
		b.Want(201, "document.create.c.b", `{"by":"b"}`)
		// The old writer refuses writes.
		if !away(a) {
			if r := a.Ask("document.upsert.c.x", `{"by":"a"}`); r.Code != 503 && r.Code != 504 {
				t.Errorf("one that was cut off says %s", r)
			}
		}
		time.Sleep(30 * time.Second)
		a.Mend()
		a.Becomes(observe.Standby)
		time.Sleep(20 * time.Second) // until it has noticed
		if a.Processor.Role() != observe.Standby || b.Processor.Role() != observe.Writer {
			t.Errorf("they are %s and %s", a.Processor.Role(), b.Processor.Role())
		}
		b.Want(201, "document.create.c.c", `{}`)
		a.Has(b)
		a.Want(200, "document.get.c.c", "")
		time.Sleep(5 * time.Second)
		c.Agree()
		if n := b.Count(schema.DocumentExpired); n != 3 {
			t.Errorf("%d documents expired, want 3", n)
		}
	})
}

// TestTwoWriters: if two processes both believe to be the writer, the log accepts only
// one. The other steps down by the refusal of the log alone.
func TestTwoWriters(t *testing.T) {
	processortest.InCrew(t, 2, func(c *processortest.Crew) {
		c.Start()
		a, b := c.Members[0], c.Members[1]
		a.Want(201, "collection.create.c", `{"defaultTtl":3}`)
		b.Has(a)
		b.TakeLease()
		for b.Processor.Role() != observe.Writer || a.Processor.Role() != observe.Writer {
			time.Sleep(time.Millisecond) // both are for a moment
			if b.Processor.Role() == observe.Writer && a.Processor.Role() == observe.Standby {
				break
			}
		}
		var wg sync.WaitGroup
		for i := range 20 {
			for _, m := range c.Members {
				wg.Go(func() {
					_, _ = m.Client.Request(fmt.Sprintf("lapse.main.api.document.upsert.c.d%d", i), []byte(`{}`), 10*time.Second)
				})
			}
		}
		wg.Wait()
		a.Becomes(observe.Standby)
		b.Becomes(observe.Writer)
		b.Want(201, "document.create.c.after", `{}`)
		time.Sleep(10 * time.Second)
		c.Agree()
	})
}

// TestRequestOfEarlierTerm: a request received in an ended term is not decided in a later
// term of the same process. The writer in between may have received and applied it, too.
func TestRequestOfEarlierTerm(t *testing.T) {
	processortest.InCrew(t, 2, func(c *processortest.Crew) {
		c.Start()
		a, b := c.Members[0], c.Members[1]
		a.Want(201, "collection.create.c", "")
		b.Has(a)
		b.TakeLease()
		b.Becomes(observe.Writer)
		// It waits for the event with which this process becomes the writer again: b's
		// was the next one.
		request := nats.NewMsg("lapse.main.api.document.create.c.a")
		request.Data = []byte(`{}`)
		request.Header.Set("Lapse-Min-Seq", fmt.Sprint(a.Processor.Seq()+2))
		reply := make(chan *nats.Msg, 1)
		go func() {
			m, err := a.Client.RequestMsg(request, processortest.Patience)
			a.Check(err)
			reply <- m
		}()
		synctest.Wait()
		if a.Processor.Role() != observe.Writer {
			t.Fatal("it knows already that it does not write")
		}
		away(a) // the log refuses the append
		a.Becomes(observe.Standby)
		a.TakeLease()
		a.Becomes(observe.Writer)
		if m := <-reply; m.Header.Get("Lapse-Status") != "503" {
			t.Errorf("the reply is %v %s", m.Header, m.Data)
		}
		b.Becomes(observe.Standby)
		a.Want(404, "document.get.c.a", "")
		c.Agree()
	})
}

// TestNoRequestsToDemotedWriter: if a writer loses its connections while it becomes a
// standby, a reconnect does not restore its writer endpoints. Nobody would answer their
// requests.
func TestNoRequestsToDemotedWriter(t *testing.T) {
	for how, lose := range map[string]func(*processortest.Network){
		"silent": (*processortest.Network).Cut,
		"closed": func(n *processortest.Network) { n.Use(nil); n.Mend() },
	} {
		t.Run(how, func(t *testing.T) {
			processortest.InCrew(t, 2, func(c *processortest.Crew) {
				c.Start()
				a, b := c.Members[0], c.Members[1]
				a.Want(201, "collection.create.c", "")
				a.Cut()
				lose(&a.Services)
				b.Becomes(observe.Writer)
				a.Becomes(observe.Standby)
				time.Sleep(2 * time.Second) // it drains, which NATS does not learn
				a.Services.Mend()
				a.Services.Use(c.Server)
				a.Mend()
				time.Sleep(10 * time.Second)
				for range 20 {
					if reply, err := a.Client.Request("lapse.main.api.document.upsert.c.a", []byte(`{}`), time.Second); err != nats.ErrNoResponders {
						t.Fatalf("a standby is asked to write: %v %v", reply, err)
					}
					a.Want(200, "collection.get.c", "")
				}
				b.Want(201, "document.create.c.after", `{}`)
				time.Sleep(10 * time.Second)
				c.Agree()
			})
		})
	}
}

// TestServiceConnectionLostWhileStarting: a start that loses the service connection while
// it subscribes succeeds after the reconnect.
func TestServiceConnectionLostWhileStarting(t *testing.T) {
	processortest.InCrew(t, 1, func(c *processortest.Crew) {
		a := c.Members[0]
		a.Services.Cut()
		lost := time.AfterFunc(time.Second, a.Services.Mend)
		a.Start()
		if lost.Stop() {
			t.Fatal("it serves before NATS has its subscriptions")
		}
		a.Want(201, "collection.create.c", "")
	})
}

// TestStandbyWaitsForRenewal: a standby reports an overdue document as gone if its expiry is
// folded or nobody can have renewed it, and waits if a renewal is on its way.
func TestStandbyWaitsForRenewal(t *testing.T) {
	processortest.InCrew(t, 2, func(c *processortest.Crew) {
		c.Start()
		a, b := c.Members[0], c.Members[1]
		a.Want(201, "collection.create.c", `{"defaultTtl":10}`)
		ts := a.TS(a.Want(201, "document.create.c.renewed", `{}`))
		a.Want(201, "document.create.c.gone", `{}`)
		b.Has(a)
		// The log connection of the standby is silent for a while, but not long enough
		// for it to look for another server.
		processortest.SleepUntil(ts+5, 0)
		b.Cut()
		processortest.SleepUntil(ts+9, 900)
		a.Want(200, "document.upsert.c.renewed", `{"n":2}`)
		processortest.SleepUntil(ts+10, 1)
		type answer struct {
			tail string
			processortest.Reply
		}
		answers := make(chan answer, 8)
		asked := []string{"document.get.c.renewed", "document.get.c.gone", "query.c", "collection.get.c", "forecast.c"}
		for _, tail := range asked {
			go func() {
				a := answer{tail: tail}
				defer func() { answers <- a }() // also if it fails
				a.Reply = b.Ask(tail, "")
			}()
		}
		time.Sleep(time.Second)
		if n := len(answers); n > 0 {
			t.Errorf("it does not know, and gives %d answers", n)
		}
		b.Mend()
		for range asked {
			switch r := <-answers; {
			case r.tail == "document.get.c.renewed" && r.Code == 404,
				r.tail == "document.get.c.gone" && r.Code == 200,
				r.tail == "query.c" && r.Code == 200 && !strings.Contains(string(r.Body), `"n":2`),
				(r.tail == "collection.get.c" || r.tail == "forecast.c") && r.Code == 200 && !strings.Contains(string(r.Body), `"documents":1`):
				t.Errorf("%s: %s", r.tail, r)
			}
		}
		// Without a writer, the standby still knows what has expired.
		b.Has(a)
		ts = a.TS(a.Want(201, "document.create.c.last", `{"ttl":2}`))
		a.Want(204, "document.delete.c.renewed", "")
		b.Has(a)
		a.Cut()
		processortest.SleepUntil(ts+2, 1)
		began := time.Now()
		b.Want(404, "document.get.c.last", "")
		b.Want(404, "document.get.c.last", "")
		if r := b.Want(200, "query.c", `{"count":true}`); string(r.Body) != `{"count":0}` {
			t.Errorf("with nobody to write: %s", r)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("that took %s", took)
		}
		if b.Processor.Role() != observe.Standby {
			t.Error("somebody writes already")
		}
		a.Mend()
		time.Sleep(processortest.LeaseTTL) // until it has recovered its appends from the log
	})
}

// TestStandbyAsksWriterForRenewals: a standby asks the writer for renewals in flight, since the
// end of the log does not rule them out.
func TestStandbyAsksWriterForRenewals(t *testing.T) {
	processortest.InCrew(t, 2, func(c *processortest.Crew) {
		c.Start()
		a, b := c.Members[0], c.Members[1]
		a.Want(201, "collection.create.c", `{"defaultTtl":10}`)
		ts := a.TS(a.Want(201, "document.create.c.renewed", `{}`))
		a.Want(201, "document.create.c.gone", `{}`)
		b.Has(a)
		processortest.SleepUntil(ts+9, 800)
		arrive := a.Delay()
		renewed := make(chan processortest.Reply, 1)
		go func() { renewed <- a.Ask("document.upsert.c.renewed", `{"n":2}`) }()
		processortest.SleepUntil(ts+10, 1)
		replies := make(map[string]chan processortest.Reply)
		for _, tail := range []string{"document.get.c.renewed", "document.get.c.gone", "query.c", "collection.get.c"} {
			reply := make(chan processortest.Reply, 1)
			replies[tail] = reply
			go func() { reply <- b.Ask(tail, "") }()
		}
		time.Sleep(1500 * time.Millisecond)
		for tail, reply := range replies {
			if len(reply) > 0 {
				t.Errorf("%s, while the renewal is on its way: %s", tail, <-reply)
			}
		}
		arrive()
		if t.Failed() {
			return
		}
		if r := <-renewed; r.Code != 200 {
			t.Errorf("the renewal: %s", r)
		}
		for tail, want := range map[string]struct {
			code int
			body string
		}{
			"document.get.c.renewed": {200, `"n":2`},
			"document.get.c.gone":    {404, ``},
			"query.c":                {200, `"n":2`},
			"collection.get.c":       {200, `"documents":1,`},
		} {
			if r := <-replies[tail]; r.Code != want.code || !strings.Contains(string(r.Body), want.body) {
				t.Errorf("%s: %s, want %d and %s", tail, r, want.code, want.body)
			}
		}
		time.Sleep(20 * time.Second)
		c.Agree()
	})
}

// TestStandbyReconnectKeepsFence: reconnects of a standby do not make it doubt its
// appends as the writer.
func TestStandbyReconnectKeepsFence(t *testing.T) {
	processortest.InCrew(t, 2, func(c *processortest.Crew) {
		c.Start()
		a, b := c.Members[0], c.Members[1]
		for range 5 {
			b.Check(b.Log.ForceReconnect())
			time.Sleep(2 * time.Second)
		}
		a.Want(201, "collection.create.c", `{"defaultTtl":1}`)
		a.Want(201, "document.create.c.due", `{}`) // due without a writer, so the next one appends at once
		b.Has(a)
		a.Cut()
		b.Becomes(observe.Writer)
		time.Sleep(time.Second)
		processortest.Gather(t, b.Monitor).Want(t, processortest.Metrics{"lapse_append_failures_total": 0, "lapse_fence_moves_total": 1})
		a.Mend()
		a.Becomes(observe.Standby)
	})
}

// TestOtherDatabase: a second database with the same name and the same clients does not
// start.
func TestOtherDatabase(t *testing.T) {
	processortest.InCrew(t, 2, func(c *processortest.Crew) {
		a, b := c.Members[0], c.Members[1]
		a.Start()
		// The other one's streams are on another server.
		so := &server.Options{DontListen: true, JetStream: true, StoreDir: filepath.Join(t.TempDir(), "other"), NoSigs: true, NoLog: true}
		other, err := server.NewServer(so)
		a.Check(err)
		other.Start()
		defer func() { other.Shutdown(); other.WaitForShutdown() }()
		log, err := nats.Connect("", nats.InProcessServer(other))
		a.Check(err)
		defer log.Close()
		_, err = processor.Start(a.Ctx(), eventlog.Connections{Log: log, Service: a.Service}, b.Options)
		if err == nil || !strings.Contains(err.Error(), "another process serves database main from a different log") {
			t.Errorf("it says %v", err)
		}
		js, err := jetstream.New(log)
		a.Check(err)
		for name := range js.StreamNames(a.Ctx()).Name() {
			t.Errorf("it has created stream %s, which would look like the log", name)
		}
		if a.Processor.Role() != observe.Writer {
			t.Error("the first one has stopped to write")
		}
	})
}

// TestRestoreRefusedWhileServing: the log of a database that is served is not replaced.
func TestRestoreRefusedWhileServing(t *testing.T) {
	processortest.InCrew(t, 1, func(c *processortest.Crew) {
		m := c.Members[0]
		m.Check(peers.CheckNobody(m.Ctx(), m.Service, "main"))
		m.Start()
		m.Check(peers.CheckNobody(m.Ctx(), m.Service, "other"))
		if err := peers.CheckNobody(m.Ctx(), m.Service, "main"); err == nil || !strings.Contains(err.Error(), "a lapse serves database main, as the writer: stop every lapse") {
			t.Errorf("it says %v", err)
		}
	})
}

// TestStandbyLeavesServerWithoutJetStream: a standby whose NATS server has no JetStream, such as one cut off from its
// cluster, reconnects to another server.
func TestStandbyLeavesServerWithoutJetStream(t *testing.T) {
	processortest.InCrew(t, 2, func(c *processortest.Crew) {
		c.Start()
		a, b := c.Members[0], c.Members[1]
		a.Want(201, "collection.create.c", `{}`)
		b.Has(a)
		before := b.Log.Stats().Reconnects
		b.Cut()
		// Pings would notice this cut after 15 s, but not one of JetStream alone.
		time.Sleep(5 * time.Second)
		processortest.Gather(t, b.Monitor).Want(t, processortest.Metrics{"lapse_lease_unreachable": 1})
		time.Sleep(8 * time.Second)
		if after := b.Log.Stats().Reconnects; after == before {
			t.Error("it stays where nobody answers")
		}
		processortest.Gather(t, b.Monitor).Want(t, processortest.Metrics{"lapse_lease_unreachable": 0})
		a.Want(201, "document.create.c.a", `{}`)
		b.Has(a)
		c.Agree()
	})
}
