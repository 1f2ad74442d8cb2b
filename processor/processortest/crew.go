package processortest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/observe"
)

// LeaseTTL is that of every crew: a take-over after a failure takes about as long, in the
// time of the bubble.
const LeaseTTL = 5 * time.Second

// Crew are several processors of one database, in a bubble, behind one NATS server. Each
// serves requests in its own account, so that a test chooses whom to ask.
//
//	account LOG: streams and lease, to which each member's log connection goes
//	account Mi:  member i's service and its client; all import $SRV.SETTLED.> of M0
type Crew struct {
	T       *testing.T
	Server  *server.Server
	Members []*Member
}

// Member is a processor of a crew, with a client for it.
type Member struct {
	*Wire
	logs     Network // between it and the streams
	Services Network // between it and its clients
}

// InCrew runs test with members that have not started.
func InCrew(t *testing.T, members int, test func(*Crew)) {
	t.Helper()
	ForgetTimers()
	defer ForgetTimers()
	synctest.Test(t, func(t *testing.T) {
		c := &Crew{T: t}
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
		if c.Server, err = server.NewServer(so); err != nil {
			t.Fatal(err)
		}
		c.Server.Start()
		t.Cleanup(func() { c.Server.Shutdown(); c.Server.WaitForShutdown() })
		for i := range members {
			c.Members = append(c.Members, c.join(i))
		}
		test(c)
	})
}

// join connects a member, which does not run yet. Its projection is in memory and survives
// Stop and Start.
func (c *Crew) join(i int) *Member {
	c.T.Helper()
	m := &Member{Wire: newWire(c.T, nil)}
	m.Options.Lease, m.Options.Node = LeaseTTL, fmt.Sprint("node", i)
	m.logs.Use(c.Server)
	m.Services.Use(c.Server)
	connect := func(as **nats.Conn, user string, through nats.InProcessConnProvider) {
		var err error
		*as, err = nats.Connect("", append(eventlog.ConnectOptions(), nats.PingInterval(silence), nats.InProcessServer(through), nats.UserInfo(user, "x"))...)
		m.Check(err)
		c.T.Cleanup((*as).Close)
	}
	connect(&m.Log, "log", &m.logs)
	connect(&m.Service, fmt.Sprint("m", i), &m.Services)
	connect(&m.Client, fmt.Sprint("m", i), c.Server)
	c.T.Cleanup(m.Stop)
	return m
}

// Start starts members, the first of which becomes the writer.
func (c *Crew) Start() {
	c.T.Helper()
	for i, m := range c.Members {
		m.Start()
		if want := []observe.Role{observe.Writer, observe.Standby}[min(i, 1)]; m.Processor.Role() != want {
			c.T.Fatalf("member %d is the %s, want %s\n%s", i, m.Processor.Role(), want, m.Wire.Logs)
		}
	}
}

// Becomes waits until the member has a role, and returns the time it took.
func (m *Member) Becomes(role observe.Role) time.Duration {
	m.T.Helper()
	began := time.Now()
	for m.Processor.Role() != role {
		if time.Sleep(10 * time.Millisecond); time.Since(began) > Patience {
			m.T.Fatalf("it is not the %s after %s\n%s", role, Patience, m.Wire.Logs)
		}
	}
	synctest.Wait() // until it receives the role's requests
	return time.Since(began)
}

// Has waits until the member has folded all that another has.
func (m *Member) Has(other *Member) {
	m.T.Helper()
	m.Check(m.Inside().Store.Wait(m.Ctx(), other.Processor.Seq()))
}

// Leases returns the KV bucket of the lease.
func (m *Member) Leases() jetstream.KeyValue {
	m.T.Helper()
	js, err := jetstream.New(m.Log)
	m.Check(err)
	kv, err := js.KeyValue(m.Ctx(), "LAPSE_main_LEASE")
	m.Check(err)
	return kv
}

// silence is the ping interval of connections: after a cut, some seconds pass before they
// reconnect.
const silence = 5 * time.Second

// Delay holds back what the member sends to the streams, until arrive.
func (m *Member) Delay() (arrive func()) {
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

// Cut blocks both directions between the member and the streams, until mend.
func (m *Member) Cut() { m.logs.Cut() }

// Mend closes the connections that were cut, so that nats.go makes good ones.
func (m *Member) Mend() { m.logs.Mend() }

// Agree verifies the log. All projections must have the same digest.
func (c *Crew) Agree() {
	c.T.Helper()
	digests := make(map[string]bool)
	end := uint64(0)
	for _, m := range c.Members {
		if m.Processor == nil {
			continue
		}
		if end == 0 {
			events := m.VerifyLog(Patience) // a log that was cut off stores late
			end = events[len(events)-1].Seq
		}
		m.Check(m.Inside().Store.Wait(m.Ctx(), end))
		digests[m.Inside().Store.Digest().String()] = true
	}
	if len(digests) != 1 {
		c.T.Errorf("the projections differ: %v", digests)
	}
}

// TakeLease makes the member the holder in the lease key, so that it takes over.
func (m *Member) TakeLease() {
	m.T.Helper()
	mine := reflect.ValueOf(m.Inside().Lease).Elem().FieldByName("mine") // node, host and term
	value, err := json.Marshal(map[string]string{"node": mine.Field(0).String(), "host": mine.Field(1).String(), "term": mine.Field(2).String()})
	m.Check(err)
	_, err = m.Leases().Put(m.Ctx(), "writer", value)
	m.Check(err)
}
