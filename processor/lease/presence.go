package lease

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/schema"
)

// Processes that may serve a database announce themselves in the bucket of its lease, each
// by a key with a TTL. They hear each other's announcements as messages, and read nothing.

// Member is what a process announces of itself and one database.
type Member struct {
	ID        string                `json:"id"` // the same over restarts
	Host      string                `json:"host,omitempty"`
	PID       int                   `json:"pid,omitempty"`
	Version   string                `json:"version,omitempty"`
	Run       string                `json:"run,omitempty"` // new for each start
	Weight    int                   `json:"weight"`        // 0: it never writes
	Databases []schema.DatabaseName `json:"databases"`     // all that it may serve
	UpMs      int64                 `json:"upMs"`          // since its start

	Role     string `json:"role"`     // schema.RoleWriter, RoleCopy or RoleNone
	Seq      uint64 `json:"seq"`      // folded
	Behind   uint64 `json:"behind"`   // events of the log that are not folded
	BehindMs int64  `json:"behindMs"` // how long it takes to fold them, a second at most

	At time.Duration `json:"-"` // when it was heard, as elapsed
}

const (
	memberPrefix = "process."
	// An announcement counts for two leases. A process announces itself four times in
	// them, and when it hears of another one.
	presenceLeases    = 2
	announcementsEach = 4

	// Whoever may write to the bucket could announce more than this process can hold.
	maxAnnouncement = 8 << 10 // bytes; that of a process with 128 databases has 5 KiB
	maxMembers      = 256
	maxName         = 255 // bytes of ID and Host

	// After a second, an announcement cannot be a late one of an earlier process.
	twinProof = time.Second
)

// Presence is the processes that may serve one database. Its methods may be called from any
// goroutine.
type Presence struct {
	Config
	nc   *nats.Conn
	host string
	run  string
	born time.Duration // elapsed
	now  chan struct{} // announce at once

	mu    sync.Mutex
	heard map[string]Member        // by id
	twins map[string]time.Duration // when another process with this id was first heard, by run
}

// NewPresence returns the presence of this process, c.Node, among those that may serve
// c.Database. It does not use Replicas and Leave.
func NewPresence(nc *nats.Conn, c Config) *Presence {
	host, _ := os.Hostname() // informative
	return &Presence{Config: c, nc: nc, host: host, run: rand.Text(), born: c.Elapsed(), now: make(chan struct{}, 1), heard: make(map[string]Member), twins: make(map[string]time.Duration)}
}

// Members returns the processes that are there, this one too, by id. That this one is not
// among them means that NATS does not take its announcements.
func (p *Presence) Members() (all []Member) {
	now := p.Elapsed() // a clock may wait: before the lock
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, m := range p.heard {
		if now-m.At > presenceLeases*p.TTL {
			delete(p.heard, id)
			continue
		}
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// Announce has Run announce this process at once.
func (p *Presence) Announce() {
	select {
	case p.now <- struct{}{}:
	default:
	}
}

// Run announces this process and hears of the others until ctx ends; then it says that it
// leaves. self returns what to announce.
func (p *Presence) Run(ctx context.Context, self func() Member) error {
	subject := "$KV." + p.Database.LeaseBucket() + "." + memberPrefix
	sub, err := p.nc.Subscribe(subject+"*", p.hear)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }()
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-next.C:
		case <-p.now:
		case <-ctx.Done():
			// It is no harm if this is lost: the key expires.
			leave := nats.NewMsg(subject + p.Node)
			leave.Header.Set(operationHeader, operationDelete)
			return p.nc.PublishMsg(leave)
		}
		m := self()
		m.ID, m.Host, m.Run = p.Node, p.host, p.run
		value, err := json.Marshal(m)
		if err != nil {
			return err
		}
		// Without waiting for the acknowledgement: it hears itself.
		msg := &nats.Msg{Subject: subject + m.ID, Data: value, Header: nats.Header{jetstream.MsgTTLHeader: {(presenceLeases * p.TTL).String()}}}
		_ = p.nc.PublishMsg(msg) // or there is no connection
		next.Reset(presenceLeases * p.TTL / announcementsEach)
	}
}

// Headers of a key that is deleted, as of NATS KV, and of a lease that is left for one
// process.
const (
	operationHeader = "KV-Operation"
	operationDelete = "DEL"
	successorHeader = "Lapse-For"
)

func (p *Presence) hear(m *nats.Msg) {
	id := m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]
	member, now := Member{}, p.Elapsed()
	gone := m.Header.Get(operationHeader) != "" || len(m.Data) > maxAnnouncement || json.Unmarshal(m.Data, &member) != nil || member.ID != id || !member.legal()
	p.mu.Lock()
	defer p.mu.Unlock()
	if gone {
		delete(p.heard, id)
		return
	}
	member.At = now
	if id == p.Node && member.Run != p.run {
		p.hearTwin(member)
		return
	}
	if _, known := p.heard[id]; !known && id != p.Node {
		if len(p.heard) >= maxMembers {
			return
		}
		p.Announce() // so that a new process knows the others at once
	}
	p.heard[id] = member
}

// legal reports whether a process announces itself like this.
func (m *Member) legal() bool {
	return len(m.ID) <= maxName && len(m.Host) <= maxName && len(m.Run) <= maxName && slices.Contains([]string{schema.RoleWriter, schema.RoleCopy, schema.RoleNone}, m.Role)
}

// hearTwin hears of another process with the id of this one. The caller holds mu.
func (p *Presence) hearTwin(member Member) {
	first, known := p.twins[member.Run]
	if !known {
		if len(p.twins) >= maxMembers {
			return
		}
		p.twins[member.Run] = member.At
		p.Announce() // the other one has to know, too
		return
	}
	older := time.Duration(member.UpMs)*time.Millisecond > member.At-p.born
	if older && member.At-first >= twinProof && p.Twin != nil {
		p.Twin(member)
	}
}
