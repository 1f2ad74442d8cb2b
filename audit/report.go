package audit

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/lapsedb/lapse/schema"
)

// Rule is the rule that a finding violates. The names are stable. They are in the output
// of lapse audit and in docs/audit.md, and programs may depend on them.
type Rule string

const (
	Foreign     Rule = "foreign"       // a message of the log is no event
	Sequence    Rule = "sequence"      // sequences rise, in a stream one by one
	Time        Rule = "time"          // log time never decreases
	Cause       Rule = "cause"         // mutations are decided once, in order, and expiries have no cause
	Collection  Rule = "collection"    // collections are created, then replaced, then deleted; documents need an existing one
	Life        Rule = "life"          // documents are created, then replaced, then deleted or expired
	Previous    Rule = "previous"      // a document's event ends the version before it
	Missing     Rule = "missing"       // a version came due and has no DocumentExpired
	Double      Rule = "double"        // a version has two DocumentExpired
	Stale       Rule = "stale"         // a version expired after it was replaced or deleted
	Early       Rule = "early"         // a version expired before its deadline
	Never       Rule = "never"         // a version without a TTL expired, or was warned of
	Deadline    Rule = "deadline"      // the event's deadline is not _ts + ttl
	TTL         Rule = "ttl"           // the event's ttl is not the one in force, or an illegal ttl was accepted
	ByRule      Rule = "rule"          // the event's rule is not the one in force
	Body        Rule = "body"          // the body does not fit its event
	Restored    Rule = "restored"      // a restored document does not match the version that it names
	ExpiredHeld Rule = "expired-held"  // a held document expired
	DeletedHeld Rule = "deleted-held"  // a held document or its collection was deleted
	Unwarned    Rule = "unwarned"      // a deadline has no DocumentExpiring, although there was time for one
	WarnedTwice Rule = "warned-twice"  // a deadline has two DocumentExpiring
	EarlyWarn   Rule = "early-warning" // a DocumentExpiring came before its time, without warnBefore, or during a hold
	Rejected    Rule = "rejected"      // a mutation was rejected for a false reason
)

// Finding is one violation of a rule.
type Finding struct {
	// Seq is the sequence of the faulty event or, for Missing and Unwarned, of the version
	// that lacks the event.
	Seq        uint64                `json:"seq"`
	Rule       Rule                  `json:"rule"`
	Collection schema.CollectionName `json:"collection,omitempty"`
	ID         schema.DocumentID     `json:"id,omitempty"`
	Message    string                `json:"message"`
}

// Report is the result of an audit. Due is what a user asks first: 10,000 versions came
// due, 9,998 expired, 2 are pending.
type Report struct {
	// Complete reports whether the log has its beginning. Otherwise events before First
	// are not audited.
	Complete bool

	First, Last         uint64 // sequences
	FirstTime, LastTime int64  // log time, ms
	Events              uint64 // including messages that are no events
	Types               map[schema.EventType]uint64
	Collections         int    // number at the end
	Documents           int64  // live at the end, as far as the log shows them
	Mutations           uint64 // mutations that are the cause of an event

	// Unexplained counts mutations between the first and the last without an event. In a
	// stream they are findings; in an export they may be repeats, whose events are
	// internal and not exported.
	Unexplained uint64

	Due     uint64 // versions that came due before the log's end: the sum of
	Expired uint64 // those that expired,
	Pending uint64 // those that came due so late that they may still expire,
	Lost    uint64 // and those that did not expire, which are Missing

	// Headless reports that a log which should be complete has collections that no event
	// created, as in a log without its beginning.
	Headless bool

	Findings []Finding       // the first of each rule, sorted by sequence
	Found    map[Rule]uint64 // number of findings per rule
}

// Count returns the number of findings, kept or not.
func (r *Report) Count() (n uint64) {
	for _, found := range r.Found {
		n += found
	}
	return n
}

// Rules returns the violated rules, the most frequent first.
func (r *Report) Rules() []Rule {
	rules := make([]Rule, 0, len(r.Found))
	for rule := range r.Found {
		rules = append(rules, rule)
	}
	slices.SortFunc(rules, func(a, b Rule) int {
		return cmp.Or(cmp.Compare(r.Found[b], r.Found[a]), cmp.Compare(a, b))
	})
	return rules
}

// MarshalJSON encodes the report as `lapse audit --json` prints it.
func (r *Report) MarshalJSON() ([]byte, error) {
	types := make(map[string]uint64, len(r.Types))
	for t, n := range r.Types {
		types[t.String()] = n
	}
	when := func(ms int64) string {
		if r.Events == 0 {
			return ""
		}
		return moment(ms)
	}
	findings := r.Findings
	if findings == nil {
		findings = []Finding{} // encodes as [], not null
	}
	return json.Marshal(struct {
		OK          bool              `json:"ok"`
		Complete    bool              `json:"complete"`
		First       uint64            `json:"first"`
		Last        uint64            `json:"last"`
		FirstTime   string            `json:"firstTime,omitempty"`
		LastTime    string            `json:"lastTime,omitempty"`
		Events      uint64            `json:"events"`
		Types       map[string]uint64 `json:"types"`
		Collections int               `json:"collections"`
		Documents   int64             `json:"documents"`
		Mutations   uint64            `json:"mutations"`
		Unexplained uint64            `json:"unexplainedMutations"`
		Due         uint64            `json:"due"`
		Expired     uint64            `json:"expired"`
		Pending     uint64            `json:"pending"`
		Missing     uint64            `json:"missing"`
		Found       map[Rule]uint64   `json:"found"`
		Findings    []Finding         `json:"findings"`
	}{r.Count() == 0, r.Complete, r.First, r.Last, when(r.FirstTime), when(r.LastTime), r.Events, types, r.Collections, r.Documents,
		r.Mutations, r.Unexplained, r.Due, r.Expired, r.Pending, r.Lost, r.Found, findings})
}

// moment formats a log time in ms as in an export.
func moment(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") }

// clock formats a second for messages.
func clock(second int64) string { return time.Unix(second, 0).UTC().Format(time.RFC3339) }
