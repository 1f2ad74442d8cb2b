package schema

// DefaultDatabase is the name of a database if none is given.
const DefaultDatabase DatabaseName = "main"

// NoVersionName is the version of a build that has no version.
const NoVersionName = "0.0.0"

// Status is the reply to a status request.
type Status struct {
	Version         string   `json:"version"`
	Database        string   `json:"database"`
	Role            string   `json:"role"` // "writer" or "standby"
	Seq             uint64   `json:"seq"`
	LogTime         int64    `json:"logTime"` // ms since 1970
	Documents       int64    `json:"documents"`
	PendingExpiry   int64    `json:"pendingExpiry"` // live documents with a deadline
	Held            int64    `json:"held"`          // neither expire nor can be deleted
	Overdue         int64    `json:"overdue"`       // expired, without DocumentExpired in the log
	LatenessMs      Lateness `json:"latenessMs"`
	MutationsBehind uint64   `json:"mutationsBehind"`

	// LogEnd is the last sequence in the log, 0 while the log does not answer; Waiting
	// is the number of queued requests in this process.
	LogEnd  uint64 `json:"logEnd"`
	Waiting int    `json:"waiting"`

	// Host and PID are the machine and the process that answer; left out where none does.
	Host string `json:"host,omitempty"`
	PID  int    `json:"pid,omitempty"`

	// Digest is the sequence of the last event that is not internal, a colon, and a hash
	// of collections and documents: equal after folding the same log, also in lapse
	// replay.
	Digest string `json:"digest"`

	Clock Clock `json:"clock"`

	// Test: a client moves the clock of this database, which is in memory.
	Test bool `json:"test,omitempty"`

	// LatenessObjective is nil if none is set.
	LatenessObjective *LatenessObjective `json:"latenessObjective,omitempty"`

	// Storage is nil until the process has a sample of it.
	Storage *Storage `json:"storage,omitempty"`

	// Memory is nil where no process answers.
	Memory *Memory `json:"memory,omitempty"`

	// CannotTakeOver is why this standby cannot become the writer although none has the
	// lease, such as a full JetStream; "" if nothing keeps it from that.
	CannotTakeOver string `json:"cannotTakeOver,omitempty"`

	// Copies is the number of processes that serve the database, of those in Processes that
	// may. They are left out where no process answers.
	Copies    int       `json:"copies,omitempty"`
	Processes []Process `json:"processes,omitempty"`
}

// Memory is what the process takes, in bytes.
type Memory struct {
	LimitBytes    int64 `json:"limitBytes"`    // what it should stay below; 0 if it has no limit
	ResidentBytes int64 `json:"residentBytes"` // physical memory; 0 if not known
	HeapBytes     int64 `json:"heapBytes"`     // of objects in Go's heap, garbage included
	CacheBytes    int64 `json:"cacheBytes"`    // of the block cache, which its databases share
	MemtableBytes int64 `json:"memtableBytes"` // of the database
}

// Storage is how much the streams of a database take, and what ends their growth, from a
// sample that the process takes every minute.
type Storage struct {
	LogBytes       uint64 `json:"logBytes"`
	MutationsBytes uint64 `json:"mutationsBytes"`
	// Limit is the one with the least space left; nil if none is known.
	Limit *StorageLimit `json:"limit,omitempty"`
}

// StorageLimit is a limit of the space that streams may take. With replicas, the bytes are
// those of one.
type StorageLimit struct {
	// Name is "log" or "mutations" for max_bytes of that stream, "account" for max_file of
	// the account, "server" for max_file_store, or "disk"; the last two are known only of
	// a server that lapse runs.
	Name      string `json:"name"`
	Bytes     uint64 `json:"bytes"`
	LeftBytes uint64 `json:"leftBytes"`
	// FullInHours is when nothing is left at the rate of the last hour; nil if LeftBytes
	// has not become less, or is known for less than ten minutes.
	FullInHours *float64 `json:"fullInHours,omitempty"`
}

// Limits from which the space for streams needs an operator.
const (
	StorageShareLeft = 0.2 // of StorageLimit.Bytes
	StorageHoursLeft = 24
)

// Low reports whether the space needs an operator.
func (l *StorageLimit) Low() bool {
	return float64(l.LeftBytes) < StorageShareLeft*float64(l.Bytes) || l.FullInHours != nil && *l.FullInHours < StorageHoursLeft
}

// Clock describes whether the process trusts its machine's clock. While the clock is
// suspect nothing expires and writes are refused.
type Clock struct {
	Suspect bool   `json:"suspect"`
	OffByMs int64  `json:"offByMs"`          // ahead, if positive
	ForMs   int64  `json:"forMs,omitempty"`  // since it became suspect
	Reason  string `json:"reason,omitempty"` // why it is suspect
	Refused uint64 `json:"refused"`          // requests, since the start
}

// Lateness is the log time of DocumentExpired minus the deadline, in ms, over the last
// minute.
type Lateness struct {
	P50 int64 `json:"p50"`
	P99 int64 `json:"p99"`
	Max int64 `json:"max"`
}

// LatenessShare is the share of expiries that an objective covers.
const LatenessShare = 0.99

// LatenessObjective is a limit on lateness, and the expiries of the last minute that
// exceeded it.
type LatenessObjective struct {
	Ms      int64   `json:"ms"`
	Share   float64 `json:"share"`   // of expiries that must be no later than Ms
	Expired int64   `json:"expired"` // over the last minute
	Late    int64   `json:"late"`    // of these, later than Ms
	// OverdueMs is how long the oldest overdue document has been overdue, to the second;
	// 0 if none is.
	OverdueMs int64 `json:"overdueMs"`
	// Kept means that no more than the allowed share were late, and no document is
	// overdue for longer than Ms.
	Kept bool `json:"kept"`
}

// Judge sets Kept.
func (o *LatenessObjective) Judge() {
	o.Kept = float64(o.Late) <= (1-o.Share)*float64(o.Expired) && o.OverdueMs <= o.Ms
}

// Snapshot is a copy of the projection in a JetStream object store.
type Snapshot struct {
	Seq     uint64 `json:"seq"`     // last log sequence in the snapshot; its name
	LogTime int64  `json:"logTime"` // at Seq, ms since 1970
	Digest  string `json:"digest"`  // of the state, as in Status
	Bytes   uint64 `json:"bytes"`   // stored
	Created int64  `json:"created"` // ms since 1970
	Format  int    `json:"format"`  // of the projection
	// Sound means that it was read back and matches the log.
	Sound bool `json:"sound"`
	// Fault is why it is not Sound, if known.
	Fault string `json:"fault,omitempty"`
}

// Process is a process that may serve a database.
type Process struct {
	ID      string `json:"id"`      // the same over restarts
	Host    string `json:"host"`    // name of the machine, "" if unknown
	PID     int    `json:"pid"`     // its process id there
	Version string `json:"version"` // of lapse
	Role    string `json:"role"`    // RoleWriter, RoleCopy or RoleNone
	Seq     uint64 `json:"seq"`     // folded
	Behind  uint64 `json:"behind"`  // events of the log that are not folded
}

// Roles of a Process.
const (
	RoleWriter = "writer"
	RoleCopy   = "copy" // folds the log and answers reads
	RoleNone   = "none" // neither, but it may become one of them
)

// Moved is the reply to MoveOperation.
type Moved struct {
	Database string `json:"database"`
	From     string `json:"from"` // ID of a Process
	To       string `json:"to"`   // the writer now
}
