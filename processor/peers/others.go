package peers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/schema"
)

// Member is a process by its last reply.
type Member struct {
	schema.Presence
	At           time.Time // of the reply
	Since        time.Time // of the first one without a gap
	noResponders bool      // nobody listens to its subject
}

// heard is a process, or a database of one of 0.3.0, that has replied.
type heard struct {
	Member
	pinged bool // by its own subject since then
	full   bool // its connections were filled since then
}

const (
	callInterval = time.Second
	// othersTimeout is how long to wait for the others, who reply within milliseconds.
	othersTimeout = 300 * time.Millisecond

	// A process that hangs stays in the queue groups and receives its share of all reads until
	// it has missed two pings of NATS: minutes by default. NATS notices sooner if a write to
	// the connection blocks for its write_deadline. So the writer sends a process that no
	// longer replies enough messages to fill the buffers of its connections.
	hungAfter   = 4 * callInterval
	hungBytes   = 16 << 20
	hungMessage = 64 << 10

	maxHeard = 4096 // processes, or databases of those of 0.3.0
	maxHints = 100  // between two calls
	toAll    = "all"
)

// lasts returns how long a reply counts.
func (p *Process) lasts() time.Duration { return max(2*p.Lease, hungAfter) }

// discover asks for the others. It returns once all have replied that they know: where one of
// 0.3.0 has, which knows none, and where one hangs, after othersTimeout.
func (p *Process) discover(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, othersTimeout)
	defer cancel()
	p.ping(toAll)
	_ = p.Await(ctx, func(members []Member) bool {
		var roll schema.Roll
		for _, m := range members {
			roll.Add(&m.Presence)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.noOthers || len(members) > 0 && !roll.Older && len(roll.Missing) == 0
	})
}

// Watch asks the other processes every second until ctx ends. While this one writes a database,
// it disconnects those that hang and have a copy of it.
func (p *Process) Watch(ctx context.Context) {
	next := time.NewTicker(callInterval)
	defer next.Stop()
	for {
		if p.nc.IsConnected() {
			p.call()
		}
		select {
		case <-next.C:
		case <-ctx.Done():
			return
		}
	}
}

// ping asks one process, or all, for a reply to hear.
func (p *Process) ping(service string) {
	subject := micro.APIPrefix + ".PING" + ofLapse
	if service != toAll {
		subject += "." + service
	}
	_ = p.nc.PublishRequest(subject, p.inbox+service, nil) // or there is no connection
}

func (p *Process) call() {
	writes := make(map[schema.DatabaseName]bool)
	for _, db := range p.served() {
		writes[db.Database] = db.OnlyWriter()
	}
	p.ping(toAll)
	p.mu.Lock()
	p.hints = 0
	var hung []string
	for id, h := range p.heard {
		silent := time.Since(h.At)
		switch {
		case silent > p.lasts()+hungAfter:
			delete(p.heard, id)
		case silent > hungAfter && h.pinged && !h.noResponders && !h.full && h.hasCopy(writes):
			h.full = true
			hung = append(hung, id)
		case silent > callInterval+callInterval/2:
			h.pinged, h.noResponders = true, false
			p.ping(id)
		}
	}
	p.mu.Unlock()
	for _, id := range hung {
		p.Events(observe.PeerHangs{ID: id})
		fill := make([]byte, hungMessage)
		for range hungBytes / hungMessage {
			_ = p.nc.Publish(micro.APIPrefix+".PING"+ofLapse+"."+id, fill)
		}
	}
}

// hasCopy reports whether the process serves one of some databases.
func (m *Member) hasCopy(of map[schema.DatabaseName]bool) bool {
	for _, s := range m.Databases {
		if of[s.Database] && s.Role != schema.RoleNone {
			return true
		}
	}
	return false
}

// hint asks a process that says it has changed.
func (p *Process) hint(m *nats.Msg) {
	id := string(m.Data)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hints++; p.Lease == 0 || id == p.ID || p.hints > maxHints || !schema.IsProcessID(id) {
		return
	}
	p.ping(id)
}

// hear handles a reply to a ping: the last token of the subject is whom it asked.
func (p *Process) hear(m *nats.Msg) {
	presence, ok := schema.ReadPresence(m.Data)
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.changed()
	if m.Header.Get("Status") != "" { // no responders
		whom := m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]
		p.noOthers = whom == toAll
		if h := p.heard[whom]; h != nil {
			h.noResponders = true
		}
		return
	}
	if !ok || presence.Older && presence.ID == p.ID {
		return
	}
	now := time.Now()
	if presence.ID == p.ID && presence.Run != p.run {
		if up := time.Duration(presence.UpMs) * time.Millisecond; up > now.Sub(p.started) && p.Twin != nil {
			p.Twin(presence)
		}
		return
	}
	before, since := p.heard[presence.Service], now
	if before != nil && now.Sub(before.At) <= p.lasts() {
		since = before.Since
	} else if before == nil && len(p.heard) >= maxHeard {
		return
	}
	p.heard[presence.Service] = &heard{Member: Member{Presence: presence, At: now, Since: since}}
}

// changed tells Await that there is a reply. The caller holds mu.
func (p *Process) changed() {
	close(p.news)
	p.news = make(chan struct{})
}

// Await returns when done does of the replies so far, or with the error of ctx.
func (p *Process) Await(ctx context.Context, done func([]Member) bool) error {
	for {
		p.mu.Lock()
		news := p.news
		p.mu.Unlock()
		if done(p.Members()) {
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Hear returns the first process that matches, of those that have replied since a time, or the
// error of ctx.
func (p *Process) Hear(ctx context.Context, since time.Time, match func(Member) bool) (m Member, err error) {
	err = p.Await(ctx, func(all []Member) bool {
		i := slices.IndexFunc(all, func(m Member) bool { return !m.At.Before(since) && match(m) })
		if i >= 0 {
			m = all[i]
		}
		return i >= 0
	})
	return m, err
}

// answerTimeout is how long a process that is there may take to reply: it takes milliseconds.
const answerTimeout = time.Second

// Answers asks a process now, and reports whether it replies.
func (p *Process) Answers(ctx context.Context, id string) bool {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	began := time.Now()
	p.ping(id)
	_, err := p.Hear(ctx, began, func(m Member) bool { return m.ID == id })
	return err == nil
}

// CheckOthers returns an error if another process answers requests for a database from another
// log: clients would get either, at random.
func (p *Process) CheckOthers(db schema.DatabaseName, log string) error {
	for _, m := range p.Members() {
		if s, _ := m.Of(db); m.ID != p.ID && s.Log != "" && s.Log != log {
			return fmt.Errorf("another process serves database %s from a different log: use another --database, or stop that lapse", db)
		}
	}
	return nil
}

// CheckNobody returns an error if any process answers requests for a database: its log must not
// be replaced under it.
func CheckNobody(ctx context.Context, nc *nats.Conn, db schema.DatabaseName) error {
	p, err := look(ctx, nc, Self{})
	defer p.Leave()
	for _, m := range p.Members() {
		if s, ok := m.Of(db); ok && s.Role != schema.RoleNone {
			return fmt.Errorf("a lapse serves database %s, as the %s: stop every lapse of this database before you begin a new log", db, s.Role)
		}
	}
	return err
}
