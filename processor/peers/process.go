package peers

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/schema"
)

// Self is what a process says of itself, whatever it serves.
type Self struct {
	ID        string // the same over restarts
	Version   string
	Weight    int                   // 0: it never writes
	Databases []schema.DatabaseName // that it may serve, besides those that it does
	Lease     time.Duration         // of its databases
	Events    observe.EventListener
	Twin      func(other schema.Presence) // called when an older process has the id of this one; nil for none
}

// What a process knows of another one, by replies to its own pings:
//
//	          reply          silent for 1.5 s          for 4 s
//	unknown ────────► heard ────────────────► asked ──────────► hangs
//	   ▲                ▲                        │ nobody listens
//	   │                └── reply, in any state  ▼
//	   └── silent for two leases and 4 s       gone
//
// Each second it pings all, and those that are silent by their own subjects. A process that
// changed says so (Changed); whoever hears that pings it. One that hangs, and has a copy of a
// database that this one writes, is sent what fills its connections, once (others.go).
//
// Who may change what: mu guards serve and everything heard. NATS's goroutine hears replies and
// hints, Watch's pings and forgets; a database enters and leaves serve as it starts and stops.
//
// What may be in flight: a ping of all and one of each silent process a second, and maxHints
// pings for hints. No reply is matched with a ping: each says how its process stood when it
// replied, and the next one comes within a second.
//
// Why it is safe:
//
//   - Nobody else knows the subject of replies, so nobody can forge one. Anybody can send a hint,
//     which costs one ping.
//   - What is known may be old or lack a process. So it decides only who should write or have a
//     copy: the lease and the fence decide who can, and a hand-over ends by the new writer's
//     reply.
//   - An id stands for one directory. Of two processes with one id, the younger one stops (Twin).

// Process is this process among all of lapse that its NATS account has. It answers PING, INFO
// and STATS, by which NATS finds services (ADR-32), as one service for all its databases, and
// asks the others. What it knows of them they have replied to itself: at a subject that nobody
// else knows.
type Process struct {
	Self
	nc            *nats.Conn
	inbox         string // begins the subjects of replies
	host, run     string
	pid           int
	started       time.Time
	subscriptions []*nats.Subscription

	mu       sync.Mutex
	serve    map[schema.DatabaseName]*Peers // what it serves now
	heard    map[string]*heard              // by id of the service
	noOthers bool                           // nobody listened to the last ping of all
	hints    int                            // since the last call
	news     chan struct{}                  // is closed at the next reply
}

const (
	serviceName = "lapse" // of each process as a NATS service
	ofLapse     = "." + serviceName

	// peerInbox begins the subjects of replies between processes: the connection may
	// subscribe and publish below $SRV. and to requests only.
	peerInbox = micro.APIPrefix + ".REPLY."
	// hintSubject is where a process says that it has changed. Anybody may say that: whoever
	// hears it asks the process.
	hintSubject = micro.APIPrefix + ".CHANGED" + ofLapse
)

// look returns a process that has asked for the others, and does not answer.
func look(ctx context.Context, nc *nats.Conn, self Self) (*Process, error) {
	p := &Process{Self: self, nc: nc, inbox: peerInbox + rand.Text() + ".", run: rand.Text(), started: time.Now(),
		serve: make(map[schema.DatabaseName]*Peers), heard: make(map[string]*heard), news: make(chan struct{})}
	p.host, p.pid = observe.ThisProcess()
	err := p.subscribe(p.inbox+"*", p.hear)
	if err == nil {
		p.discover(ctx)
	}
	return p, err
}

// Join asks for the others, and then has this process answer at nc. Call Watch to have it go on
// asking, and Leave at the end.
func Join(ctx context.Context, nc *nats.Conn, self Self) (*Process, error) {
	p, err := look(ctx, nc, self)
	for _, verb := range []micro.Verb{micro.PingVerb, micro.InfoVerb, micro.StatsVerb} {
		of := micro.APIPrefix + "." + verb.String()
		for _, subject := range []string{of, of + ofLapse, of + ofLapse + "." + p.ID} {
			if err == nil {
				err = p.subscribe(subject, func(m *nats.Msg) { p.reply(m, verb) })
			}
		}
	}
	if err == nil {
		err = p.subscribe(hintSubject, p.hint)
	}
	p.Changed()
	return p, err
}

func (p *Process) subscribe(subject string, handle nats.MsgHandler) error {
	sub, err := p.nc.Subscribe(subject, handle)
	if err != nil {
		return fmt.Errorf("look for other processes: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.subscriptions = append(p.subscriptions, sub)
	return nil
}

// Leave ends the answers.
func (p *Process) Leave() {
	p.mu.Lock()
	subscriptions := p.subscriptions
	p.subscriptions = nil
	p.mu.Unlock()
	for _, sub := range subscriptions {
		_ = sub.Unsubscribe()
	}
	p.Changed()
}

// Subjects returns those that it has subscribed to at a connection.
func (p *Process) Subjects(nc *nats.Conn) (all []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, sub := range p.subscriptions {
		if nc == p.nc {
			all = append(all, sub.Subject)
		}
	}
	return all
}

// Changed has the others ask this process.
func (p *Process) Changed() { _ = p.nc.Publish(hintSubject, []byte(p.ID)) } // or there is no connection

// served returns the databases that it serves, by name.
func (p *Process) served() (all []*Peers) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, db := range slices.Sorted(maps.Keys(p.serve)) {
		all = append(all, p.serve[db])
	}
	return all
}

// reply answers a request, unless it comes without a reply subject: one that is to fill a
// connection, see call.
func (p *Process) reply(m *nats.Msg, verb micro.Verb) {
	if m.Reply == "" {
		return
	}
	served := p.served()
	presence, identity := p.presence(served)
	var value any
	switch verb {
	case micro.PingVerb:
		value = micro.Ping{ServiceIdentity: identity, Type: micro.PingResponseType}
	case micro.InfoVerb:
		value = micro.Info{ServiceIdentity: identity, Type: micro.InfoResponseType, Description: "documents with a time to live", Endpoints: endpoints(served)}
	default:
		stats := micro.Stats{ServiceIdentity: identity, Type: micro.StatsResponseType, Started: p.started.UTC()}
		for _, db := range served {
			stats.Endpoints = append(stats.Endpoints, db.announced.Load().stats()...)
		}
		value = stats
	}
	text, err := json.Marshal(value)
	if err != nil {
		return
	}
	own, err := json.Marshal(map[string]schema.Presence{"process": presence})
	if err == nil {
		_ = m.Respond(slices.Concat(text[:len(text)-1], []byte(","), own[1:])) // or there is no connection
	}
}

// presence returns what the process says of itself, and who it is as a NATS service.
func (p *Process) presence(served []*Peers) (schema.Presence, micro.ServiceIdentity) {
	all := schema.Presence{ID: p.ID, Host: p.host, PID: p.pid, Version: p.Version, Weight: p.Weight, Run: p.run,
		Started: p.started.UTC().Truncate(time.Second), UpMs: time.Since(p.started).Milliseconds(), Knows: p.knows()}
	for _, db := range served {
		all.Databases = append(all.Databases, db.standing())
	}
	for _, db := range p.Databases {
		if _, is := all.Of(db); !is {
			all.Databases = append(all.Databases, schema.Standing{Database: db, Role: schema.RoleNone})
		}
	}
	meta := map[string]string{"process": p.ID, "host": p.host, "pid": strconv.Itoa(p.pid)}
	if len(served) == 1 { // for clients and processes of 0.3.0
		s, role := all.Databases[0], observe.Standby
		if s.Role == schema.RoleWriter {
			role = observe.Writer
		}
		maps.Copy(meta, map[string]string{"database": string(s.Database), "role": string(role), "log": s.Log, "node": p.ID})
	}
	return all, micro.ServiceIdentity{Name: serviceName, ID: p.ID, Version: p.Version, Metadata: meta}
}

// endpoints returns the endpoints of all databases, each once: their description takes some
// 46 KB.
func endpoints(served []*Peers) (all []micro.EndpointInfo) {
	for _, db := range served {
		for _, e := range db.announced.Load().endpoints {
			if len(served) > 1 {
				e.Subject = schema.DatabaseName("*").API() + strings.TrimPrefix(e.Subject, db.Database.API())
			}
			if !slices.ContainsFunc(all, func(other micro.EndpointInfo) bool { return other.Name == e.Name }) {
				all = append(all, e)
			}
		}
	}
	return all
}

// knows returns the roles of the others that answer, by id and database.
func (p *Process) knows() map[string]map[schema.DatabaseName]string {
	all := make(map[string]map[schema.DatabaseName]string)
	for _, m := range p.Members() {
		if m.ID == p.ID || m.noResponders {
			continue
		}
		all[m.ID] = make(map[schema.DatabaseName]string)
		for _, s := range m.Databases {
			all[m.ID][s.Database] = s.Role
		}
	}
	return all
}

// Own returns this process as a Member.
func (p *Process) Own() Member {
	presence, _ := p.presence(p.served())
	return Member{Presence: presence, At: time.Now()}
}

// Members returns the processes that have replied within two leases, this one too, by id. A
// process without a connection counts for half a lease. None are there while NATS is away.
func (p *Process) Members() (all []Member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range p.heard {
		if silent := time.Since(h.At); silent <= p.lasts() && (!h.noResponders || silent <= p.Lease/2) {
			all = append(all, h.Member)
		}
	}
	slices.SortFunc(all, func(a, b Member) int { return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Service, b.Service)) })
	for i := len(all) - 1; i > 0; i-- { // those of 0.3.0 reply for each database
		if m := &all[i-1]; m.ID == all[i].ID {
			m.Databases = slices.Concat(m.Databases, all[i].Databases)
			all = slices.Delete(all, i, i+1)
		}
	}
	return all
}
