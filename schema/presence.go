package schema

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// Presence is what a process says of itself to whoever asks $SRV.PING, INFO or STATS, as the
// member "process" of its reply. Each process asks all others each second
// (processor/peers). Anybody who may subscribe to $SRV.> could answer, so ReadPresence
// checks sizes and names.
type Presence struct {
	ID      string    `json:"id"` // the same over restarts
	Host    string    `json:"host"`
	PID     int       `json:"pid"`
	Version string    `json:"version"`
	Weight  int       `json:"weight"` // 0: it never writes
	Run     string    `json:"run"`    // new for each start
	Started time.Time `json:"started"`
	UpMs    int64     `json:"upMs"` // since its start, whatever the clock was set to

	Databases []Standing `json:"databases"` // all that it may serve
	// Knows has the roles of the other processes that answer this one, by id and database, so
	// that whoever asks knows when all have replied.
	Knows map[string]map[DatabaseName]string `json:"knows,omitempty"`

	// Service is the id of the micro service that replied, and Older that it is one of 0.3.0,
	// which replies once for each database, and only of those that it serves.
	Service string `json:"-"`
	Older   bool   `json:"-"`
}

// Standing is how a process stands in one database.
type Standing struct {
	Database DatabaseName `json:"database"`
	Role     string       `json:"role"`          // as in Process
	Log      string       `json:"log,omitempty"` // identity of its log
	Seq      uint64       `json:"seq"`
	Behind   uint64       `json:"behind"`
	BehindMs int64        `json:"behindMs"` // how long it takes to fold them, a second at most
	Waiting  int          `json:"waiting"`  // requests
	Requests uint64       `json:"requests"` // since its start
	Errors   uint64       `json:"errors"`   // of these
}

// Whoever may subscribe to $SRV.> could reply more than a reader can hold.
const (
	MaxPresence = 256 << 10 // bytes of a reply; that of a process with 128 databases has some 80 KiB
	maxWord     = 255       // bytes of an id, host, version, role or log
)

// ReadPresence reads a reply to $SRV.PING or INFO; ok is false for what no process replies.
func ReadPresence(reply []byte) (p Presence, ok bool) {
	var r struct {
		ID       string            `json:"id"`
		Version  string            `json:"version"`
		Metadata map[string]string `json:"metadata"`
		Process  *Presence         `json:"process"`
	}
	if len(reply) > MaxPresence || json.Unmarshal(reply, &r) != nil || r.ID == "" {
		return p, false
	}
	if r.Process != nil {
		p = *r.Process
	} else {
		s := Standing{Database: DatabaseName(r.Metadata["database"]), Role: RoleCopy, Log: r.Metadata["log"]}
		if cmp.Or(r.Metadata["role"], RoleWriter) == RoleWriter {
			s.Role = RoleWriter
		}
		p = Presence{ID: cmp.Or(r.Metadata["node"], r.ID), Version: r.Version, Databases: []Standing{s}, Older: true}
	}
	p.Service = r.ID
	words := []string{p.ID, p.Host, p.Version, p.Run, p.Service}
	for _, s := range p.Databases {
		words = append(words, s.Log)
		if _, err := ParseDatabaseName(string(s.Database)); err != nil || !slices.Contains([]string{RoleWriter, RoleCopy, RoleNone}, s.Role) {
			return p, false
		}
	}
	long := func(word string) bool { return len(word) > maxWord }
	return p, IsProcessID(p.ID) && IsProcessID(p.Service) && !slices.ContainsFunc(words, long)
}

// IsProcessID reports whether an id can be that of a process, which is a token of subjects.
func IsProcessID(id string) bool {
	return id != "" && len(id) <= maxWord && !strings.ContainsAny(id, ".*> \t\r\n\x00")
}

// Of returns how the process stands in a database.
func (p *Presence) Of(db DatabaseName) (s Standing, ok bool) {
	i := slices.IndexFunc(p.Databases, func(s Standing) bool { return s.Database == db })
	if i < 0 {
		return s, false
	}
	return p.Databases[i], true
}

// Process returns the process as status shows it.
func (p *Presence) Process(s Standing) Process {
	return Process{ID: p.ID, Host: p.Host, PID: p.PID, Version: p.Version, Role: s.Role, Seq: s.Seq, Behind: s.Behind}
}

// Roll tells whether all processes have replied. An Add takes no longer after thousands of
// replies, which anybody may send, than at first.
type Roll struct {
	// Missing are the processes that some know and that have not replied, as Presence.Knows.
	Missing map[string]map[DatabaseName]string
	Older   bool // a process of 0.3.0 has replied, which names no others
	replied map[string]bool
}

// Add adds the reply of a process.
func (r *Roll) Add(p *Presence) {
	if r.replied == nil {
		r.Missing, r.replied = make(map[string]map[DatabaseName]string), make(map[string]bool)
	}
	r.replied[p.ID] = true
	r.Older = r.Older || p.Older
	delete(r.Missing, p.ID)
	for id, roles := range p.Knows {
		if !r.replied[id] {
			r.Missing[id] = roles
		}
	}
}
