package schema

// What a database and a build are called that have no other name.
const (
	DefaultDatabase DatabaseName = "main"
	NoVersionName                = "0.0.0"
)

// Status is the reply to a status request.
type Status struct {
	Version         string   `json:"version"`
	Database        string   `json:"database"`
	Role            string   `json:"role"` // "writer" or "standby"
	Seq             uint64   `json:"seq"`
	LogTime         int64    `json:"logTime"` // ms since 1970
	Documents       int64    `json:"documents"`
	PendingExpiry   int64    `json:"pendingExpiry"` // live documents with a deadline
	Overdue         int64    `json:"overdue"`       // past it and not yet in the log
	LatenessMs      Lateness `json:"latenessMs"`
	MutationsBehind uint64   `json:"mutationsBehind"`

	// LogEnd is the last sequence that the log has, 0 while it does not answer;
	// Waiting is how many requests wait in this process.
	LogEnd  uint64 `json:"logEnd"`
	Waiting int    `json:"waiting"`

	// Digest is a hash over the collections and documents and, before a colon,
	// the last event in it that is not internal: equal for all who folded the
	// same log so far, also for lapse replay.
	Digest string `json:"digest"`

	Clock Clock `json:"clock"`

	// LatenessObjective is nil where nobody set one.
	LatenessObjective *LatenessObjective `json:"latenessObjective,omitempty"`
}

// Clock is what the process thinks of its machine's clock. While it is suspect
// nothing expires and writes are refused.
type Clock struct {
	Suspect bool   `json:"suspect"`
	OffByMs int64  `json:"offByMs"`          // ahead of what it should say, if positive
	ForMs   int64  `json:"forMs,omitempty"`  // since it became suspect
	Reason  string `json:"reason,omitempty"` // why it is
	Refused uint64 `json:"refused"`          // requests, since the start
}

// Lateness is the log time of DocumentExpired minus the moment the document
// became due, in ms, over the last minute.
type Lateness struct {
	P50 int64 `json:"p50"`
	P99 int64 `json:"p99"`
	Max int64 `json:"max"`
}

// LatenessShare is how many of the expiries an objective is about.
const LatenessShare = 0.99

// LatenessObjective says how late expiries may be, and what of the last minute's
// were.
type LatenessObjective struct {
	Ms      int64   `json:"ms"`
	Share   float64 `json:"share"`   // of the expiries that are to be no later than Ms
	Expired int64   `json:"expired"` // over the last minute
	Late    int64   `json:"late"`    // of these, later than Ms
	// OverdueMs is for how long that document has been overdue which has been
	// longest, to the second; 0 if none is.
	OverdueMs int64 `json:"overdueMs"`
	// Kept says that no more were late than may be, and that none is overdue for
	// longer than Ms.
	Kept bool `json:"kept"`
}

// Judge sets Kept.
func (o *LatenessObjective) Judge() {
	o.Kept = float64(o.Late) <= (1-o.Share)*float64(o.Expired) && o.OverdueMs <= o.Ms
}
