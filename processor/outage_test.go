package processor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/stress"
)

// network is between the connections of one user and a server that comes and goes. A
// fault of a connection lasts until the connection is closed; the next one is good.
type network struct {
	mu     sync.Mutex
	server *server.Server // nil while there is none
	conns  []*faultyConn
	before func(sent []byte) // called before anything is sent, if not nil
}

// InProcessConn implements nats.InProcessConnProvider.
func (n *network) InProcessConn() (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.server == nil {
		return nil, errors.New("nobody listens")
	}
	c, err := n.server.InProcessConn()
	if err != nil {
		return nil, err
	}
	faulty := &faultyConn{Conn: c, network: n}
	n.conns = append(n.conns, faulty)
	return faulty, nil
}

// use makes new connections go to s.
func (n *network) use(s *server.Server) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.server = s
}

// intercept calls before ahead of everything that is sent.
func (n *network) intercept(before func(sent []byte)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.before = before
}

// each calls do for the present connections, and forgets them.
func (n *network) each(do func(*faultyConn)) {
	n.mu.Lock()
	conns := n.conns
	n.conns = nil
	n.mu.Unlock()
	for _, c := range conns {
		do(c)
	}
}

// faultyConn is a connection that can be dead in one direction, unnoticed by both ends.
type faultyConn struct {
	net.Conn
	network    *network
	deaf, mute atomic.Bool // drop what is received, drop what is sent

	mu      sync.Mutex
	delayed bool   // hold back what is sent
	kept    []byte // until arrive
}

func (c *faultyConn) Read(p []byte) (n int, err error) {
	for {
		n, err = c.Conn.Read(p)
		if err != nil || !c.deaf.Load() {
			return n, err
		}
	}
}

func (c *faultyConn) Write(p []byte) (int, error) {
	c.network.mu.Lock()
	before := c.network.before
	c.network.mu.Unlock()
	if before != nil {
		before(p)
	}
	if c.mute.Load() {
		return len(p), nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.delayed {
		c.kept = append(c.kept, p...)
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// arrive sends what was held back, and ends the delay.
func (c *faultyConn) arrive() {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = c.Conn.Write(c.kept)
	c.delayed, c.kept = false, nil
}

// outage is a processor, in a bubble, that keeps running while its NATS server and its
// connections fail.
type outage struct {
	*wire
	random *rand.Rand
	store  string
	// Networks of the log connection, the service connection and the clients.
	logs, services, clients network
}

func inOutage(t *testing.T, durability Durability, test func(*outage)) {
	t.Helper()
	random := stress.Rand(t)
	forgetTimers()
	defer forgetTimers()
	synctest.Test(t, func(t *testing.T) {
		o := &outage{random: random, store: t.TempDir(), wire: &wire{t: t, logs: &logBuffer{}, options: Options{
			Dir: "projection", Durability: durability, Version: "1.2.3",
			Projection: projections.Options{FS: vfs.NewMem(), CacheBytes: 1 << 20, MemTableBytes: 1 << 20},
		}}}
		o.options.Logger = slog.New(slog.NewTextHandler(o.wire.logs, nil))
		o.startServer()
		var err error
		for nc, network := range map[**nats.Conn]*network{&o.log: &o.logs, &o.service: &o.services, &o.client: &o.clients} {
			*nc, err = nats.Connect("", append(eventlog.ConnectOptions(), nats.InProcessServer(network))...)
			o.check(err)
		}
		o.run()
		test(o)
	})
}

func (o *outage) startServer() {
	o.t.Helper()
	ns, err := server.NewServer(&server.Options{DontListen: true, JetStream: true, StoreDir: o.store,
		MaxPayload: 4 << 20, NoSigs: true, NoLog: true, SyncAlways: o.options.Durability == Fsync})
	o.check(err)
	ns.Start()
	if !ns.ReadyForConnections(patience) {
		o.t.Fatal("the NATS server does not start")
	}
	for _, n := range []*network{&o.logs, &o.services, &o.clients} {
		n.use(ns)
	}
	o.shutdown = func() { ns.Shutdown(); ns.WaitForShutdown() }
}

// fault is a failure while the processor runs.
type fault struct {
	name  string
	begin func(*outage)
}

var faults = []fault{
	{"the server restarts", func(o *outage) { o.restartServer(0) }},
	{"the server is away", func(o *outage) { o.restartServer(time.Duration(o.random.IntN(20000)) * time.Millisecond) }},
	{"the log's connection breaks", func(o *outage) { o.logs.each(func(c *faultyConn) { c.Close() }) }},
	{"the log hears nothing", func(o *outage) { o.logs.each(func(c *faultyConn) { c.deaf.Store(true) }) }},
	{"the log says nothing", func(o *outage) { o.logs.each(func(c *faultyConn) { c.mute.Store(true) }) }},
	{"the log is cut off", func(o *outage) { o.logs.each(func(c *faultyConn) { c.mute.Store(true); c.deaf.Store(true) }) }},
	{"acknowledgements are lost with the connection", func(o *outage) {
		o.logs.each(func(c *faultyConn) {
			c.deaf.Store(true)
			time.Sleep(time.Duration(o.random.IntN(3000)) * time.Millisecond)
			c.Close()
		})
	}},
	{"the service's connection breaks", func(o *outage) { o.services.each(func(c *faultyConn) { c.Close() }) }},
	{"the service hears nothing", func(o *outage) { o.services.each(func(c *faultyConn) { c.deaf.Store(true) }) }},
	{"the service says nothing", func(o *outage) { o.services.each(func(c *faultyConn) { c.mute.Store(true) }) }},
	{"both are cut off", func(o *outage) {
		for _, n := range []*network{&o.logs, &o.services} {
			n.each(func(c *faultyConn) { c.mute.Store(true); c.deaf.Store(true) })
		}
	}},
}

// losesReplies loses the replies to the first request of each kind that is sent to n: the
// connections of the log receive nothing from then on, until pings time out. lost counts
// the kinds that were sent.
func (o *outage) losesReplies(n *network, requests ...string) (lost func() int) {
	var mu sync.Mutex
	left := slices.Clone(requests)
	n.intercept(func(sent []byte) {
		mu.Lock()
		defer mu.Unlock()
		left = slices.DeleteFunc(left, func(request string) bool {
			is := bytes.Contains(sent, []byte(request))
			if is {
				o.logs.each(func(c *faultyConn) { c.deaf.Store(true) })
			}
			return is
		})
	})
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(requests) - len(left)
	}
}

// restartServer stops the server and starts it again after away.
func (o *outage) restartServer(away time.Duration) {
	for _, n := range []*network{&o.logs, &o.services, &o.clients} {
		n.use(nil)
	}
	o.shutdown()
	time.Sleep(away)
	o.startServer()
}

// recovery is the longest time after a fault until writes succeed again: the connection
// is given up and made again, and the log is read.
const recovery = 40 * time.Second

// TestOutages: under load the NATS server restarts, connections break or are half open,
// and acknowledgements are lost. The processor recovers on its own: the log has every
// acknowledged write once, and no other write twice.
func TestOutages(t *testing.T) {
	for _, durability := range []Durability{OS, Fsync} {
		t.Run(string(durability), func(t *testing.T) {
			inOutage(t, durability, func(o *outage) {
				o.want(201, "collection.create.load", `{"defaultTtl":60}`)
				l := o.startLoad(6, 300*time.Millisecond)
				// Each fault; in long runs then server restarts.
				kinds := o.random.Perm(len(faults))
				for i := range stress.Pick(len(faults)+3, 100+5*len(faults)) {
					f := faults[0]
					if i < 5*len(faults) {
						f = faults[kinds[i%len(faults)]]
					}
					time.Sleep(time.Duration(o.random.IntN(3000)) * time.Millisecond)
					f.begin(o)
					l.probe(f.name, i)
				}
				l.finish()
			})
		})
	}
}

// TestStartRetriesLostReply: a start succeeds although a request after its first ones gets no
// reply.
func TestStartRetriesLostReply(t *testing.T) {
	inOutage(t, OS, func(o *outage) {
		o.want(201, "collection.create.c", `{}`)
		o.stop()
		// A start opens the streams, looks for other processors, then reads the log.
		lost := o.losesReplies(&o.services, "$SRV.INFO.lapse ")
		var err error
		o.processor, err = Start(o.t.Context(), o.connections(), o.options)
		o.check(err)
		if lost() == 0 {
			o.t.Error("nothing went wrong")
		}
		o.want(200, "collection.get.c", "")
	})
}

// TestRestoreRetriesLostReply: a restore with a new log succeeds although the replies to the
// creation of the log and of its snapshot are lost.
func TestRestoreRetriesLostReply(t *testing.T) {
	inOutage(t, OS, func(o *outage) {
		o.want(201, "collection.create.c", `{}`)
		o.want(201, "document.create.c.a", `{}`)
		digest, seq := o.processor.store.Digest(), o.processor.Seq()
		o.want(201, "snapshot.create", "")
		o.stop()
		js, err := jetstream.New(o.client)
		o.check(err)
		o.check(js.DeleteStream(o.ctx(), "LAPSE_main"))
		lost := o.losesReplies(&o.logs, "$JS.API.STREAM.CREATE.LAPSE_main ", "$JS.API.STREAM.CREATE.OBJ_LAPSE_main_SNAPSHOT_3 ")
		snapshot, err := RestoreSnapshot(o.t.Context(), o.connections(), o.options, 0, true)
		o.check(err)
		if snapshot.Seq != seq || snapshot.Digest != digest.String() || lost() != 2 {
			o.t.Errorf("it restored %+v, and was at %d with digest %s; the replies of %d requests were lost", snapshot, seq, digest, lost())
		}
		o.start()
		o.want(200, "document.get.c.a", "")
		o.want(201, "document.create.c.b", "{}")
	})
}

// fate is the outcome of a write as its client knows it.
type fate int

const (
	unsure fate = iota // may or may not be applied
	done
	refusedFate
)

type outageLoad struct {
	*outage
	pause  time.Duration
	wg     sync.WaitGroup
	ending atomic.Bool

	longest   time.Duration // until a write succeeded again
	longestOf string

	mu    sync.Mutex
	fates map[string]fate
}

// startLoad starts concurrent writers to the collection load. Each pauses for up to pause
// before a write.
func (o *outage) startLoad(writers int, pause time.Duration) *outageLoad {
	l := &outageLoad{outage: o, pause: pause, fates: make(map[string]fate)}
	for i := range writers {
		random := rand.New(rand.NewPCG(o.random.Uint64(), 0))
		l.wg.Go(func() { l.request(i, random) })
	}
	random := rand.New(rand.NewPCG(o.random.Uint64(), 1))
	l.wg.Go(func() { l.publish(random) })
	return l
}

// probe waits until a write succeeds again, for recovery at most.
func (l *outageLoad) probe(fault string, i int) {
	l.t.Helper()
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		r, err := l.asker(time.Second)("document.upsert.load.probe", fmt.Sprintf(`{"n":"probe%d"}`, i))
		waited := time.Since(began)
		if err == nil && r.Code < 300 {
			if waited > l.longest {
				l.longest, l.longestOf = waited, fault
			}
			return
		}
		if waited > recovery {
			l.t.Fatalf("%s: no write within %s\n%s", fault, waited, l.wire.logs)
		}
	}
}

// finish ends the load and verifies the log.
func (l *outageLoad) finish() {
	l.t.Helper()
	l.ending.Store(true)
	l.wg.Wait()
	l.verify()
	l.t.Logf("the longest was %s: %s", l.longest, l.longestOf)
}

func (l *outageLoad) note(n string, f fate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fates[n] = f
}

// request writes; half of the writes have a Nats-Msg-Id and are retried until they
// succeed.
func (l *outageLoad) request(writer int, random *rand.Rand) {
	ask := l.asker(2 * time.Second)
	for i := 0; !l.ending.Load(); i++ {
		time.Sleep(time.Duration(random.Int64N(int64(l.pause))))
		n := fmt.Sprintf("%d-%d", writer, i)
		tail, body := fmt.Sprintf("document.upsert.load.%d", random.IntN(20)), fmt.Sprintf(`{"n":%q}`, n)
		var headers []string
		switch random.IntN(4) {
		case 0, 1:
			headers = []string{"Nats-Msg-Id", n}
		case 2:
			tail, body = "batch.load", fmt.Sprintf(`{"atomic":%t,"operations":[{"op":"upsert","id":"pair%d","body":{}},{"op":"upsert","id":"%d","body":{"n":%q}}]}`, random.IntN(2) == 0, writer, random.IntN(20), n)
		}
		f := refusedFate
		for first := time.Now(); ; time.Sleep(100 * time.Millisecond) {
			r, err := ask(tail, body, headers...)
			switch {
			case err == nil && r.Code < 300:
				f = done
			case err != nil || r.Code == 504:
				f = unsure
			case r.Code != 503 && r.Code != 429:
				l.t.Errorf("write %s: %d %s", n, r.Code, r.Body)
			}
			if f == done || headers == nil {
				break
			}
			if time.Since(first) > 110*time.Second { // ids are remembered for two minutes
				l.t.Errorf("write %s came to nothing in %s", n, time.Since(first))
				break
			}
		}
		l.note(n, f)
	}
}

// publish publishes mutations, and retries each until the stream acknowledges it.
func (l *outageLoad) publish(random *rand.Rand) {
	js, err := jetstream.New(l.client)
	if err != nil {
		l.t.Error(err)
		return
	}
	for i := 0; !l.ending.Load(); i++ {
		time.Sleep(time.Duration(random.Int64N(int64(l.pause))))
		n := fmt.Sprintf("m-%d", i)
		m := nats.NewMsg(fmt.Sprintf("lapse.main.mutations.document.upsert.load.%d", random.IntN(20)))
		m.Data = fmt.Appendf(nil, `{"n":%q}`, n)
		m.Header.Set("Nats-Msg-Id", n)
		for {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			_, err := js.PublishMsg(ctx, m, jetstream.WithRetryAttempts(1))
			cancel()
			if err == nil {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		l.note(n, done)
	}
}

// verify compares the log with the clients' knowledge, and the projection with one folded
// from scratch.
func (l *outageLoad) verify() {
	l.t.Helper()
	mutations := l.stream("LAPSE_main_MUTATIONS").CachedInfo().State.LastSeq
	l.judged(mutations)
	found := make(map[string]int)
	version := make(map[schema.DocumentID]schema.Version)
	place := make(map[string]int) // by writer, the number of its last write
	var cause uint64
	var at int64
	counts := make(map[schema.EventType]int)
	for i, e := range l.everything() {
		if e.Seq != uint64(i+1) || e.Type == schema.NoEvent {
			l.t.Fatalf("event %d is %d of the log, type %v", e.Seq, i+1, e.Type)
		}
		if e.Time < at {
			l.t.Fatalf("event %d: log time goes back", e.Seq)
		}
		at = e.Time
		counts[e.Type]++
		if e.Cause != 0 {
			if e.Cause != cause+1 {
				l.t.Fatalf("event %d has the cause %d after %d", e.Seq, e.Cause, cause)
			}
			cause = e.Cause
		}
		if !e.Type.OnDocument() {
			continue
		}
		if e.Previous != version[e.ID] {
			l.t.Fatalf("event %d ends version %d of %s, which is at %d", e.Seq, e.Previous, e.ID, version[e.ID])
		}
		version[e.ID] = schema.Version(e.Seq)
		if e.Type == schema.DocumentExpired {
			version[e.ID] = 0
			continue
		}
		var document struct{ N string }
		l.check(json.Unmarshal(e.Body, &document))
		found[document.N]++
		if writer, number, ok := strings.Cut(document.N, "-"); ok && l.fates[document.N] == done {
			n, err := strconv.Atoi(number)
			l.check(err)
			if n < place[writer] {
				l.t.Errorf("event %d: write %s comes after %s-%d, of which it was told before", e.Seq, document.N, writer, place[writer])
			}
			place[writer] = n
		}
	}
	if cause != mutations {
		l.t.Errorf("mutations were judged up to %d of %d", cause, mutations)
	}
	told := make(map[fate]int)
	for n, f := range l.fates {
		told[f]++
		if times := found[n]; times > 1 || f == done && times == 0 || f == refusedFate && times > 0 {
			l.t.Errorf("write %s is in the log %d times; told %d", n, times, f)
		}
	}
	l.t.Logf("%d done, %d unsure, %d refused; the log has %v", told[done], told[unsure], told[refusedFate], counts)
	if told[done] == 0 {
		l.t.Error("nothing was done")
	}
	before, end := l.content(), l.end()
	l.stop()
	l.check(l.options.EnsureDefaults().Projection.FS.RemoveAll(l.options.Dir))
	l.start()
	if after := l.content(); after != before && l.end() == end+1 { // only a WriterStarted, no expiry
		l.t.Errorf("folded again it is\n%s, before\n%s", after, before)
	}
}
