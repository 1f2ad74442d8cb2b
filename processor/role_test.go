package processor

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"

	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/lease"
	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/processor/peers"
	"github.com/lapsedb/lapse/processor/service"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

const testLease = 5 * time.Second

// crew are several processors of one database, in a bubble, behind one NATS server. Each
// serves requests in its own account, so that a test chooses whom to ask.
type crew struct {
	t       *testing.T
	server  *server.Server
	members []*member
}

// member is a processor of a crew, with a client for it.
type member struct {
	*wire
	logs     network // between it and the streams
	services network // between it and its clients
}

// inCrew runs test with members that have not started.
func inCrew(t *testing.T, members int, test func(*crew)) {
	t.Helper()
	forgetTimers()
	defer forgetTimers()
	synctest.Test(t, func(t *testing.T) {
		c := &crew{t: t}
		so := &server.Options{DontListen: true, JetStream: true, StoreDir: t.TempDir(), MaxPayload: 4 << 20, NoSigs: true, NoLog: true}
		config := "accounts {\nLOG { jetstream: enabled, users: [ { user: log, password: x } ] }\n"
		for i := range members {
			// All can ask the first one, the writer.
			asks := `exports: [ { service: "$SRV.SETTLED.>" } ]`
			if i > 0 {
				asks = `imports: [ { service: { account: M0, subject: "$SRV.SETTLED.>" } } ]`
			}
			config += fmt.Sprintf("M%d { users: [ { user: m%d, password: x } ], %s }\n", i, i, asks)
		}
		if err := so.ProcessConfigString(config + "}"); err != nil {
			t.Fatal(err)
		}
		var err error
		if c.server, err = server.NewServer(so); err != nil {
			t.Fatal(err)
		}
		c.server.Start()
		t.Cleanup(func() { c.server.Shutdown(); c.server.WaitForShutdown() })
		for i := range members {
			c.members = append(c.members, c.join(i))
		}
		test(c)
	})
}

func (c *crew) join(i int) *member {
	c.t.Helper()
	m := &member{wire: &wire{t: c.t, logs: &logBuffer{}, options: Options{
		Dir: "projection", Durability: OS, Version: "1.2.3", Lease: testLease, Node: fmt.Sprint("node", i),
		Projection: projections.Options{FS: vfs.NewMem(), CacheBytes: 1 << 20, MemTableBytes: 1 << 20},
	}}}
	m.options.Logger = slog.New(slog.NewTextHandler(m.wire.logs, nil))
	m.logs.use(c.server)
	m.services.use(c.server)
	connect := func(as **nats.Conn, user string, through nats.InProcessConnProvider) {
		var err error
		*as, err = nats.Connect("", append(eventlog.ConnectOptions(), nats.PingInterval(silence), nats.InProcessServer(through), nats.UserInfo(user, "x"))...)
		m.check(err)
		c.t.Cleanup((*as).Close)
	}
	connect(&m.log, "log", &m.logs)
	connect(&m.service, fmt.Sprint("m", i), &m.services)
	connect(&m.client, fmt.Sprint("m", i), c.server)
	c.t.Cleanup(m.stop)
	return m
}

// start starts members, the first of which becomes the writer.
func (c *crew) start() {
	c.t.Helper()
	for i, m := range c.members {
		m.start()
		if want := []observe.Role{observe.Writer, observe.Standby}[min(i, 1)]; m.processor.Role() != want {
			c.t.Fatalf("member %d is the %s, want %s\n%s", i, m.processor.Role(), want, m.wire.logs)
		}
	}
}

// becomes waits until the member has a role, and returns the time it took.
func (m *member) becomes(role observe.Role) time.Duration {
	m.t.Helper()
	began := time.Now()
	for m.processor.Role() != role {
		if time.Sleep(10 * time.Millisecond); time.Since(began) > patience {
			m.t.Fatalf("it is not the %s after %s\n%s", role, patience, m.wire.logs)
		}
	}
	synctest.Wait() // until it receives the role's requests
	return time.Since(began)
}

// has waits until the member has folded all that another has.
func (m *member) has(other *member) {
	m.t.Helper()
	m.check(m.processor.store.Wait(m.ctx(), other.processor.Seq()))
}

// leases returns the KV bucket of the lease.
func (m *member) leases() jetstream.KeyValue {
	m.t.Helper()
	js, err := jetstream.New(m.log)
	m.check(err)
	kv, err := js.KeyValue(m.ctx(), "LAPSE_main_LEASE")
	m.check(err)
	return kv
}

// isGivenLease makes the member the holder in the lease key, so that it takes over.
func (m *member) isGivenLease() {
	m.t.Helper()
	value, err := json.Marshal(m.processor.lease.Mine)
	m.check(err)
	_, err = m.leases().Put(m.ctx(), lease.Key, value)
	m.check(err)
}

// away reports whether a write gets no reply: nobody receives it, or a writer whose lease
// may have expired ignores it.
func (m *member) away() bool {
	m.t.Helper()
	_, err := m.client.Request("lapse.main.api.document.upsert.c.probe", []byte(`{}`), time.Second)
	if err != nil && err != nats.ErrNoResponders && err != nats.ErrTimeout {
		m.t.Fatal(err)
	}
	return err != nil
}

// silence is the ping interval of connections: after a cut, some seconds pass before they
// reconnect.
const silence = 5 * time.Second

// delay holds back what the member sends to the streams, until arrive.
func (m *member) delay() (arrive func()) {
	m.logs.mu.Lock()
	defer m.logs.mu.Unlock()
	conns := slices.Clone(m.logs.conns)
	for _, c := range conns {
		c.mu.Lock()
		c.delayed = true
		c.mu.Unlock()
	}
	return func() {
		for _, c := range conns {
			c.arrive()
		}
	}
}

// cut blocks both directions between the member and the streams, until mend.
func (m *member) cut() { m.logs.cut() }

func (m *member) mend() { m.logs.mend() }

func (n *network) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.conns {
		c.deaf.Store(true)
		c.mute.Store(true)
	}
}

func (n *network) mend() {
	n.each(func(c *faultyConn) { _ = c.Close() })
}

// agree checks the log as an audit does: each version ends once, and nothing expires
// early. All projections must have the same digest.
func (c *crew) agree() {
	c.t.Helper()
	var running []*member
	for _, m := range c.members {
		if m.processor != nil {
			running = append(running, m)
		}
	}
	end := running[0].end()
	ended := make(map[schema.Version]*schema.Event)
	for _, e := range running[0].events() {
		if e.Previous == 0 {
			continue
		}
		if before := ended[e.Previous]; before != nil {
			c.t.Errorf("version %d ends twice: %s at %d and %s at %d", e.Previous, before.Type, before.Seq, e.Type, e.Seq)
		}
		ended[e.Previous] = e
		if e.Type == schema.DocumentExpired && e.Time < e.Deadline.At*1000 {
			c.t.Errorf("event %d expires what is due at %d at %d", e.Seq, e.Deadline.At, e.Time)
		}
	}
	digests := make(map[string]bool)
	for _, m := range running {
		m.check(m.processor.store.Wait(m.ctx(), end))
		digests[m.processor.store.Digest().String()] = true
	}
	if len(digests) != 1 {
		c.t.Errorf("the projections differ: %v", digests)
	}
}

// TestStandby: a standby answers reads, of the sequence that they ask for, and no writes.
func TestStandby(t *testing.T) {
	inCrew(t, 2, func(c *crew) {
		c.start()
		a, b := c.members[0], c.members[1]
		a.want(201, "collection.create.c", `{"defaultTtl":60,"indexingPolicy":{"includedPaths":[{"path":"/n"}]}}`)
		r := a.want(201, "document.create.c.a", `{"n":1}`)
		seq := fmt.Sprint(r.seq)
		if got := b.want(200, "document.get.c.a", "", schema.HeaderMinSeq, seq); string(got.body) != string(r.body) || got.seq < r.seq {
			t.Errorf("the standby has %s at %d, the writer %s at %d", got, got.seq, r, r.seq)
		}
		for tail, body := range map[string]string{"query.c": `{"where":"doc.n == 1","explain":true}`, "query.c ": `{"count":true}`, "collection.get.c": "", "collection.list": "", "history.c.a": "", "forecast.c": ""} {
			tail = strings.TrimSpace(tail)
			if want, got := a.want(200, tail, body), b.want(200, tail, body, schema.HeaderMinSeq, seq); string(want.body) != string(got.body) {
				t.Errorf("%s: the standby says %s, the writer %s", tail, got, want)
			}
		}
		b.want(404, "document.get.c.b", "", schema.HeaderMinSeq, seq)
		b.want(400, "query.c", `{"limit":0}`)
		if r := b.ask("document.get.c.a", "", schema.HeaderMinSeq, fmt.Sprint(a.end()+1)); r.code != 504 {
			t.Errorf("a state that is not there: %s", r)
		}
		for member, role := range map[*member]observe.Role{a: observe.Writer, b: observe.Standby} {
			var status schema.Status
			m := member.want(200, "status", "")
			member.check(json.Unmarshal(m.body, &status))
			if status.Role != string(role) || status.Documents != 1 {
				t.Errorf("status of the %s: %s", role, m)
			}
		}
		if a.away() || !b.away() {
			t.Error("writes are taken by the standby, or not by the writer")
		}
		// The standby expires nothing, and knows what has expired.
		time.Sleep(61 * time.Second)
		b.want(404, "document.get.c.a", "")
		c.agree()
	})
}

// TestStandbyEndpoints: the service's metadata and endpoints match its role.
func TestStandbyEndpoints(t *testing.T) {
	inCrew(t, 2, func(c *crew) {
		c.start()
		for i, m := range c.members {
			reply, err := m.client.Request("$SRV.INFO.lapse", nil, time.Second)
			m.check(err)
			var info micro.Info
			m.check(json.Unmarshal(reply.Data, &info))
			want := map[string]string{"database": "main", "role": string(m.processor.Role()), "log": m.processor.log.Identity(), "node": m.options.Node}
			if fmt.Sprint(info.Metadata) != fmt.Sprint(want) {
				t.Errorf("member %d: %v, want %v", i, info.Metadata, want)
			}
			endpointsAreDescribed(t, &info, len(reply.Data))
			var subjects []string
			for _, e := range info.Endpoints {
				subjects = append(subjects, strings.TrimPrefix(e.Subject, "lapse.main.api."))
			}
			slices.Sort(subjects)
			wantSubjects := []string{"collection.get.>", "collection.list", "document.get.>", "forecast.>", "history.>", "query.>", "status"}
			if i == 0 { // the writer
				wantSubjects = slices.Insert(wantSubjects, 0, ">")
			}
			if !slices.Equal(subjects, wantSubjects) {
				t.Errorf("member %d answers %v, want %v", i, subjects, wantSubjects)
			}
		}
	})
}

// TestHandOver: a stopping writer releases the lease, so a standby takes over at once.
func TestHandOver(t *testing.T) {
	inCrew(t, 3, func(c *crew) {
		c.start()
		a := c.members[0]
		a.want(201, "collection.create.c", `{"defaultTtl":10}`)
		a.want(201, "document.create.c.a", `{}`)
		began := time.Now()
		a.stop()
		var next *member
		for next == nil {
			for _, m := range c.members[1:] {
				if m.processor.Role() == observe.Writer {
					next = m
				}
			}
			time.Sleep(time.Millisecond)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("the hand-over took %s", took)
		}
		next.want(201, "document.create.c.b", `{}`)
		next.want(200, "document.get.c.a", "")
		time.Sleep(11 * time.Second)
		c.agree()
		if n := countOf(next.events(), schema.DocumentExpired); n != 2 {
			t.Errorf("%d documents expired, want 2", n)
		}
	})
}

func countOf(events []*schema.Event, of schema.EventType) (n int) {
	for _, e := range events {
		if e.Type == of {
			n++
		}
	}
	return n
}

// TestTakeOver: a standby takes over from a silent writer when the lease expires, and the
// old writer can no longer append. When it reconnects it becomes a standby.
func TestTakeOver(t *testing.T) {
	inCrew(t, 2, func(c *crew) {
		c.start()
		a, b := c.members[0], c.members[1]
		a.want(201, "collection.create.c", `{"defaultTtl":3}`)
		a.want(201, "document.create.c.a", `{"by":"a"}`, "Nats-Msg-Id", "m")
		b.has(a)
		a.cut()
		if took := b.becomes(observe.Writer); took > 2*testLease {
			t.Errorf("it took %s, and a lease is %s", took, testLease)
		}
		b.want(201, "document.create.c.a", `{}`, "Nats-Msg-Id", "m")
		b.refused(400, "bad_request", "document.create.c.b", `{}`, "Nats-Msg-Id", "m")
		b.want(201, "document.create.c.b", `{"by":"b"}`)
		// The old writer refuses writes.
		if !a.away() {
			if r := a.ask("document.upsert.c.x", `{"by":"a"}`); r.code != 503 && r.code != 504 {
				t.Errorf("one that was cut off says %s", r)
			}
		}
		time.Sleep(30 * time.Second)
		a.mend()
		a.becomes(observe.Standby)
		time.Sleep(20 * time.Second) // until it has noticed
		if a.processor.Role() != observe.Standby || b.processor.Role() != observe.Writer {
			t.Errorf("they are %s and %s", a.processor.Role(), b.processor.Role())
		}
		b.want(201, "document.create.c.c", `{}`)
		a.has(b)
		a.want(200, "document.get.c.c", "")
		time.Sleep(5 * time.Second)
		c.agree()
		if n := countOf(b.events(), schema.DocumentExpired); n != 3 {
			t.Errorf("%d documents expired, want 3", n)
		}
	})
}

// TestTwoWriters: if two processes both believe to be the writer, the log accepts only
// one. The other steps down by the refusal of the log alone.
func TestTwoWriters(t *testing.T) {
	inCrew(t, 2, func(c *crew) {
		c.start()
		a, b := c.members[0], c.members[1]
		a.want(201, "collection.create.c", `{"defaultTtl":3}`)
		b.has(a)
		b.isGivenLease()
		for b.processor.Role() != observe.Writer || a.processor.Role() != observe.Writer {
			time.Sleep(time.Millisecond) // both are for a moment
			if b.processor.Role() == observe.Writer && a.processor.Role() == observe.Standby {
				break
			}
		}
		var wg sync.WaitGroup
		for i := range 20 {
			for _, m := range c.members {
				wg.Go(func() {
					_, _ = m.client.Request(fmt.Sprintf("lapse.main.api.document.upsert.c.d%d", i), []byte(`{}`), 10*time.Second)
				})
			}
		}
		wg.Wait()
		a.becomes(observe.Standby)
		b.becomes(observe.Writer)
		b.want(201, "document.create.c.after", `{}`)
		time.Sleep(10 * time.Second)
		c.agree()
	})
}

// TestRequestOfEarlierTerm: a request received in an ended term is not decided in a later
// term of the same process. The writer in between may have received and applied it, too.
func TestRequestOfEarlierTerm(t *testing.T) {
	inCrew(t, 2, func(c *crew) {
		c.start()
		a, b := c.members[0], c.members[1]
		a.want(201, "collection.create.c", "")
		b.has(a)
		b.isGivenLease()
		b.becomes(observe.Writer)
		// It waits for the event with which this process becomes the writer again: b's
		// was the next one.
		request := nats.NewMsg("lapse.main.api.document.create.c.a")
		request.Data = []byte(`{}`)
		request.Header.Set("Lapse-Min-Seq", fmt.Sprint(a.processor.Seq()+2))
		reply := make(chan *nats.Msg, 1)
		go func() {
			m, err := a.client.RequestMsg(request, patience)
			a.check(err)
			reply <- m
		}()
		synctest.Wait()
		if a.processor.Role() != observe.Writer {
			t.Fatal("it knows already that it does not write")
		}
		a.away() // the log refuses the append
		a.becomes(observe.Standby)
		a.isGivenLease()
		a.becomes(observe.Writer)
		if m := <-reply; m.Header.Get("Lapse-Status") != "503" {
			t.Errorf("the reply is %v %s", m.Header, m.Data)
		}
		b.becomes(observe.Standby)
		a.want(404, "document.get.c.a", "")
		c.agree()
	})
}

// TestNoRequestsToDemotedWriter: if a writer loses its connections while it becomes a
// standby, a reconnect does not restore its writer endpoints. Nobody would answer their
// requests.
func TestNoRequestsToDemotedWriter(t *testing.T) {
	for how, lose := range map[string]func(*network){
		"silent": (*network).cut,
		"closed": func(n *network) { n.use(nil); n.mend() },
	} {
		t.Run(how, func(t *testing.T) {
			inCrew(t, 2, func(c *crew) {
				c.start()
				a, b := c.members[0], c.members[1]
				a.want(201, "collection.create.c", "")
				a.cut()
				lose(&a.services)
				b.becomes(observe.Writer)
				a.becomes(observe.Standby)
				time.Sleep(2 * service.BecomeTimeout) // it drains, which NATS does not learn
				a.services.mend()
				a.services.use(c.server)
				a.mend()
				time.Sleep(10 * time.Second)
				for range 20 {
					if reply, err := a.client.Request("lapse.main.api.document.upsert.c.a", []byte(`{}`), time.Second); err != nats.ErrNoResponders {
						t.Fatalf("a standby is asked to write: %v %v", reply, err)
					}
					a.want(200, "collection.get.c", "")
				}
				b.want(201, "document.create.c.after", `{}`)
				time.Sleep(10 * time.Second)
				c.agree()
			})
		})
	}
}

// TestServiceConnectionLostWhileStarting: a start that loses the service connection while
// it subscribes succeeds after the reconnect.
func TestServiceConnectionLostWhileStarting(t *testing.T) {
	inCrew(t, 1, func(c *crew) {
		a := c.members[0]
		a.services.cut()
		lost := time.AfterFunc(time.Second, a.services.mend)
		a.start()
		if lost.Stop() {
			t.Fatal("it serves before NATS has its subscriptions")
		}
		a.want(201, "collection.create.c", "")
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
			return kv.Delete(ctx, lease.Key)
		},
		"the bucket": func(ctx context.Context, js jetstream.JetStream) error {
			return js.DeleteKeyValue(ctx, "LAPSE_main_LEASE")
		},
	} {
		inCrew(t, 2, func(c *crew) {
			c.start()
			a := c.members[0]
			a.want(201, "collection.create.c", `{"defaultTtl":3}`)
			js, err := jetstream.New(a.log)
			a.check(err)
			a.check(remove(a.ctx(), js))
			for range 20 {
				time.Sleep(time.Second)
				for _, m := range c.members {
					if m.processor.Role() == observe.Writer {
						// It may have lost the lease, and notice that now or later.
						_, _ = m.client.Request(fmt.Sprintf("lapse.main.api.document.create.c.d%d", time.Now().UnixNano()), []byte(`{}`), time.Second)
						break
					}
				}
			}
			writers := 0
			for _, m := range c.members {
				if m.processor.Role() == observe.Writer {
					writers++
				}
			}
			if writers != 1 {
				t.Errorf("without %s there are %d writers", what, writers)
			}
			time.Sleep(5 * time.Second)
			c.agree()
			_, err = js.KeyValue(a.ctx(), "LAPSE_main_LEASE")
			a.check(err)
		})
	}
}

// TestRestartReusesOwnLease: after a kill, a restarted process does not wait for its own
// lease to expire.
func TestRestartReusesOwnLease(t *testing.T) {
	inCrew(t, 2, func(c *crew) {
		a, other := c.members[0], c.members[1]
		a.start()
		a.want(201, "collection.create.c", `{}`)
		// As after a kill: the lease stays.
		killed := a.processor.lease
		value, err := json.Marshal(killed.Mine)
		a.check(err)
		a.stop()
		_, err = other.leases().Create(a.ctx(), lease.Key, value, jetstream.KeyTTL(testLease))
		a.check(err)
		other.start()
		if other.processor.Role() != observe.Standby {
			t.Errorf("another one is the %s", other.processor.Role())
		}
		began := time.Now()
		a.start()
		if a.processor.Role() != observe.Writer || time.Since(began) > time.Second {
			t.Errorf("it is the %s after %s", a.processor.Role(), time.Since(began))
		}
	})
}

// TestStandbyWaitsForRenewal: a standby reports an overdue document as gone if its expiry is
// folded or nobody can have renewed it, and waits if a renewal is on its way.
func TestStandbyWaitsForRenewal(t *testing.T) {
	inCrew(t, 2, func(c *crew) {
		c.start()
		a, b := c.members[0], c.members[1]
		a.want(201, "collection.create.c", `{"defaultTtl":10}`)
		ts := a.tsOf(a.want(201, "document.create.c.renewed", `{}`))
		a.want(201, "document.create.c.gone", `{}`)
		b.has(a)
		// The log connection of the standby is silent for a while, but not long enough
		// for it to look for another server.
		sleepUntil(ts+5, 0)
		b.cut()
		sleepUntil(ts+9, 900)
		a.want(200, "document.upsert.c.renewed", `{"n":2}`)
		sleepUntil(ts+10, 1)
		type answer struct {
			tail string
			wireReply
		}
		answers := make(chan answer, 8)
		asked := []string{"document.get.c.renewed", "document.get.c.gone", "query.c", "collection.get.c", "forecast.c"}
		for _, tail := range asked {
			go func() {
				a := answer{tail: tail}
				defer func() { answers <- a }() // also if it fails
				a.wireReply = b.ask(tail, "")
			}()
		}
		time.Sleep(time.Second)
		if n := len(answers); n > 0 {
			t.Errorf("it does not know, and gives %d answers", n)
		}
		b.mend()
		for range asked {
			switch r := <-answers; {
			case r.tail == "document.get.c.renewed" && r.code == 404,
				r.tail == "document.get.c.gone" && r.code == 200,
				r.tail == "query.c" && r.code == 200 && !strings.Contains(string(r.body), `"n":2`),
				(r.tail == "collection.get.c" || r.tail == "forecast.c") && r.code == 200 && !strings.Contains(string(r.body), `"documents":1`):
				t.Errorf("%s: %s", r.tail, r)
			}
		}
		// Without a writer, the standby still knows what has expired.
		b.has(a)
		ts = a.tsOf(a.want(201, "document.create.c.last", `{"ttl":2}`))
		a.want(204, "document.delete.c.renewed", "")
		b.has(a)
		a.cut()
		sleepUntil(ts+2, 1)
		began := time.Now()
		b.want(404, "document.get.c.last", "")
		b.want(404, "document.get.c.last", "")
		if r := b.want(200, "query.c", `{"count":true}`); string(r.body) != `{"count":0}` {
			t.Errorf("with nobody to write: %s", r)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("that took %s", took)
		}
		if b.processor.Role() != observe.Standby {
			t.Error("somebody writes already")
		}
		a.mend()
		time.Sleep(testLease) // until it has recovered its appends from the log
	})
}

// TestStandbyAsksWriterForRenewals: a standby asks the writer for renewals in flight, since the
// end of the log does not rule them out.
func TestStandbyAsksWriterForRenewals(t *testing.T) {
	inCrew(t, 2, func(c *crew) {
		c.start()
		a, b := c.members[0], c.members[1]
		a.want(201, "collection.create.c", `{"defaultTtl":10}`)
		ts := a.tsOf(a.want(201, "document.create.c.renewed", `{}`))
		a.want(201, "document.create.c.gone", `{}`)
		b.has(a)
		sleepUntil(ts+9, 800)
		arrive := a.delay()
		renewed := make(chan wireReply, 1)
		go func() { renewed <- a.ask("document.upsert.c.renewed", `{"n":2}`) }()
		sleepUntil(ts+10, 1)
		replies := make(map[string]chan wireReply)
		for _, tail := range []string{"document.get.c.renewed", "document.get.c.gone", "query.c", "collection.get.c"} {
			reply := make(chan wireReply, 1)
			replies[tail] = reply
			go func() { reply <- b.ask(tail, "") }()
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
		if r := <-renewed; r.code != 200 {
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
			if r := <-replies[tail]; r.code != want.code || !strings.Contains(string(r.body), want.body) {
				t.Errorf("%s: %s, want %d and %s", tail, r, want.code, want.body)
			}
		}
		time.Sleep(20 * time.Second)
		c.agree()
	})
}

// TestStandbyReconnectKeepsFence: reconnects of a standby do not make it doubt its
// appends as the writer.
func TestStandbyReconnectKeepsFence(t *testing.T) {
	inCrew(t, 2, func(c *crew) {
		c.start()
		a, b := c.members[0], c.members[1]
		for range 5 {
			b.check(b.log.ForceReconnect())
			time.Sleep(2 * time.Second)
		}
		a.want(201, "collection.create.c", `{"defaultTtl":1}`)
		a.want(201, "document.create.c.due", `{}`) // due without a writer, so the next one appends at once
		b.has(a)
		a.cut()
		b.becomes(observe.Writer)
		time.Sleep(time.Second)
		gather(t, b.processor.options.Monitor).want(t, metrics{"lapse_append_failures_total": 0, "lapse_fence_moves_total": 1})
		a.mend()
		a.becomes(observe.Standby)
	})
}

// TestStandbyRechecksRenewal: a standby re-checks for a renewal, folded after its read, before
// it reports a document as gone.
func TestStandbyRechecksRenewal(t *testing.T) {
	inCrew(t, 2, func(c *crew) {
		c.start()
		a, b := c.members[0], c.members[1]
		a.want(201, "collection.create.c", `{"defaultTtl":2}`)
		ts := a.tsOf(a.want(201, "document.create.c.renewed", `{}`))
		a.want(201, "document.create.c.gone", `{}`)
		b.has(a)
		s := b.processor.service
		collection, _ := s.Store.Collection("c")
		records := make(map[schema.DocumentID]projections.Record)
		for _, id := range []schema.DocumentID{"renewed", "gone"} {
			record, _, err := s.Store.Document(collection, id)
			if err != nil {
				t.Fatal(err)
			}
			records[id] = record
		}
		sleepUntil(ts+1, 0)
		a.want(200, "document.upsert.c.renewed", `{"n":2}`)
		sleepUntil(ts+2, 500)
		a.want(201, "document.create.c.late", `{}`)
		b.has(a)
		if err := s.Live.Expired(collection, "renewed", records["renewed"]); err == nil {
			t.Error("it has gone by what was read before its renewal")
		}
		if err := s.Live.Expired(collection, "gone", records["gone"]); err != nil {
			t.Error(err)
		}
	})
}

// TestStandbyKeepsUp: a standby trims its history with the log, and a new standby begins
// with a snapshot.
func TestStandbyKeepsUp(t *testing.T) {
	inCrew(t, 2, func(c *crew) {
		for _, m := range c.members {
			m.options.Retain, m.options.SnapshotEvery = 20*time.Second, 5*time.Second
		}
		c.start()
		a, b := c.members[0], c.members[1]
		a.want(201, "collection.create.c", `{"defaultTtl":1000}`)
		for i := range 60 {
			a.want(201, fmt.Sprintf("document.create.c.d%d", i), `{}`)
			time.Sleep(time.Second)
		}
		first, _, err := a.processor.log.Bounds(a.ctx())
		a.check(err)
		if first < 2 {
			t.Fatalf("the log begins at %d", first)
		}
		time.Sleep(10 * time.Second)
		if got := b.processor.retention.Trimmed.Load(); got < first {
			t.Errorf("the standby keeps history from %d on, and the log begins at %d", got, first)
		}
		if made := b.processor.retention.Made.Load(); made != 0 {
			t.Errorf("the standby made %d snapshots", made)
		}
		b.stop()
		b.options.Projection.FS = vfs.NewMem()
		b.start()
		c.agree()
	})
}

// TestStreamsAreChecked: a start refuses an unfit stream or bucket with an error of one
// line, and changes nothing.
func TestStreamsAreChecked(t *testing.T) {
	ok := func(db schema.DatabaseName) jetstream.StreamConfig {
		return eventlog.LogConfig(db, db.Append()+"secret.")
	}
	mutations := func(change func(*jetstream.StreamConfig)) func(context.Context, jetstream.JetStream) error {
		return func(ctx context.Context, js jetstream.JetStream) error {
			config := jetstream.StreamConfig{Name: "LAPSE_main_MUTATIONS", Subjects: []string{"lapse.main.mutations.>"}, Duplicates: 100 * time.Millisecond}
			change(&config)
			_, err := js.CreateStream(ctx, config)
			return err
		}
	}
	log := func(change func(*jetstream.StreamConfig)) func(context.Context, jetstream.JetStream) error {
		return func(ctx context.Context, js jetstream.JetStream) error {
			config := ok("main")
			change(&config)
			_, err := js.CreateStream(ctx, config)
			return err
		}
	}
	bucket := func(config jetstream.KeyValueConfig, key, value string) func(context.Context, jetstream.JetStream) error {
		return func(ctx context.Context, js jetstream.JetStream) error {
			config.Bucket = "LAPSE_main_LEASE"
			kv, err := js.CreateKeyValue(ctx, config)
			if err == nil && key != "" {
				_, err = kv.PutString(ctx, key, value)
			}
			return err
		}
	}
	leases := jetstream.KeyValueConfig{LimitMarkerTTL: time.Minute}
	rows := []struct {
		there func(context.Context, jetstream.JetStream) error
		want  string
	}{
		{log(func(c *jetstream.StreamConfig) { c.SubjectTransform = nil }), "LAPSE_main exists but is not a lapse log: remove it, or serve another --database"},
		{log(func(c *jetstream.StreamConfig) { c.AllowAtomicPublish = false }), "LAPSE_main exists but is not a lapse log"},
		{log(func(c *jetstream.StreamConfig) { c.Subjects = []string{"orders.>"}; c.SubjectTransform = nil }), "is not a lapse log"},
		{log(func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour }), "LAPSE_main has max_age 1h0m0s; lapse needs unlimited"},
		{log(func(c *jetstream.StreamConfig) { c.MaxMsgs = 1000 }), "max_msgs 1000"},
		{log(func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 5 }), "max_msgs_per_subject 5"},
		{log(func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage }), "storage memory"},
		{log(func(c *jetstream.StreamConfig) { c.Duplicates = time.Minute }), "duplicate_window 1m0s"},
		{log(func(c *jetstream.StreamConfig) { c.DenyDelete, c.AllowMsgTTL = false, true }), "allow_msg_ttl"},
		{mutations(func(c *jetstream.StreamConfig) { c.Retention = jetstream.WorkQueuePolicy }), "retention workqueue"},
		{mutations(func(c *jetstream.StreamConfig) { c.Subjects = []string{"lapse.main.mutations.*"} }), "LAPSE_main_MUTATIONS exists but does not listen on lapse.main.mutations.>"},
		{mutations(func(c *jetstream.StreamConfig) { c.Name = "MINE" }), "stream MINE overlaps lapse.main.mutations.>, the subjects of LAPSE_main_MUTATIONS"},
		{mutations(func(c *jetstream.StreamConfig) { c.Name, c.Subjects = "MINE", []string{"lapse.>"} }), "stream MINE overlaps lapse.main."},
		{mutations(func(c *jetstream.StreamConfig) { c.Name, c.Subjects = "MINE", []string{"lapse.main.api.>"} }), "stream MINE overlaps lapse.main.api.>, the subjects of requests"},
		{mutations(func(c *jetstream.StreamConfig) { c.Name, c.Subjects = "MINE", []string{"lapse.*.events.>"} }), "stream MINE overlaps lapse.main.events.>, the subjects of events of LAPSE_main"},
		{bucket(jetstream.KeyValueConfig{}, "", ""), "LAPSE_main_LEASE exists but is not a lapse lease (its keys have no ttl)"},
		{bucket(jetstream.KeyValueConfig{LimitMarkerTTL: time.Minute, TTL: time.Hour}, "", ""), "a ttl of 1h0m0s for all keys"},
		{bucket(leases, "writer", "me"), `its key writer is "me"`},
		{bucket(leases, "writer", `{"node":"n"}`), "its key writer is"},
	}
	inCrew(t, 1, func(c *crew) {
		m := c.members[0]
		js, err := jetstream.New(m.log)
		m.check(err)
		for _, one := range rows {
			m.check(one.there(m.ctx(), js))
			before := m.streams(js)
			p, err := Start(m.ctx(), m.connections(), m.options)
			if err == nil {
				_ = p.Stop()
				t.Fatalf("it starts, want %q", one.want)
			}
			if !strings.Contains(err.Error(), one.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%q, want %q", err, one.want)
			}
			if after := m.streams(js); after != before {
				t.Errorf("%s: changed from\n%s to\n%s", one.want, before, after)
			}
			for name := range js.StreamNames(m.ctx()).Name() {
				m.check(js.DeleteStream(m.ctx(), name))
			}
		}
	})
}

// streams formats the configuration and last sequence of all streams.
func (m *member) streams(js jetstream.JetStream) string {
	m.t.Helper()
	var all []string
	list := js.ListStreams(m.ctx())
	for info := range list.Info() {
		text, err := json.Marshal(info.Config)
		m.check(err)
		all = append(all, fmt.Sprintf("%s %d", text, info.State.LastSeq))
	}
	m.check(list.Err())
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// TestOtherDatabase: a second database with the same name and the same clients does not
// start.
func TestOtherDatabase(t *testing.T) {
	inCrew(t, 2, func(c *crew) {
		a, b := c.members[0], c.members[1]
		a.start()
		// The other one's streams are on another server.
		so := &server.Options{DontListen: true, JetStream: true, StoreDir: filepath.Join(t.TempDir(), "other"), NoSigs: true, NoLog: true}
		other, err := server.NewServer(so)
		a.check(err)
		other.Start()
		defer func() { other.Shutdown(); other.WaitForShutdown() }()
		log, err := nats.Connect("", nats.InProcessServer(other))
		a.check(err)
		defer log.Close()
		_, err = Start(a.ctx(), eventlog.Connections{Log: log, Service: a.service}, b.options)
		if err == nil || !strings.Contains(err.Error(), "another process serves database main from a different log") {
			t.Errorf("it says %v", err)
		}
		if a.processor.Role() != observe.Writer {
			t.Error("the first one has stopped to write")
		}
	})
}

// TestRestoreRefusedWhileServing: the log of a database that is served is not replaced.
func TestRestoreRefusedWhileServing(t *testing.T) {
	inCrew(t, 1, func(c *crew) {
		m := c.members[0]
		m.check(peers.CheckNobody(m.ctx(), m.service, "main"))
		m.start()
		m.check(peers.CheckNobody(m.ctx(), m.service, "other"))
		if err := peers.CheckNobody(m.ctx(), m.service, "main"); err == nil || !strings.Contains(err.Error(), "a lapse serves database main, as the writer: stop every lapse") {
			t.Errorf("it says %v", err)
		}
	})
}

// TestStandbyLeavesServerWithoutJetStream: a standby whose NATS server has no JetStream, such as one cut off from its
// cluster, reconnects to another server.
func TestStandbyLeavesServerWithoutJetStream(t *testing.T) {
	inCrew(t, 2, func(c *crew) {
		c.start()
		a, b := c.members[0], c.members[1]
		a.want(201, "collection.create.c", `{}`)
		b.has(a)
		before := b.log.Stats().Reconnects
		b.cut()
		// Pings would notice this cut after 15 s, but not one of JetStream alone.
		time.Sleep(5 * time.Second)
		gather(t, b.processor.options.Monitor).want(t, metrics{"lapse_lease_unreachable": 1})
		time.Sleep(8 * time.Second)
		if after := b.log.Stats().Reconnects; after == before {
			t.Error("it stays where nobody answers")
		}
		gather(t, b.processor.options.Monitor).want(t, metrics{"lapse_lease_unreachable": 0})
		a.want(201, "document.create.c.a", `{}`)
		b.has(a)
		c.agree()
	})
}
