package audit

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/lapsedb/lapse/schema"
)

// Rule names what a finding is against. The names are stable.
type Rule string

const (
	Foreign    Rule = "foreign"    // what stands in the log is no event
	Sequence   Rule = "sequence"   // sequences rise, in a stream one by one
	Time       Rule = "time"       // log time never goes back
	Cause      Rule = "cause"      // mutations are judged once, in their order, and expiries have no cause
	Collection Rule = "collection" // collections are created, then replaced, then deleted; documents are in one that is there
	Life       Rule = "life"       // documents are created, then replaced, then deleted or expired
	Previous   Rule = "previous"   // a document's event ends the version before it
	Missing    Rule = "missing"    // a version came due and has no DocumentExpired
	Double     Rule = "double"     // it has two
	Stale      Rule = "stale"      // it was replaced or deleted before it expired
	Early      Rule = "early"      // it expired before its deadline
	Never      Rule = "never"      // it expired though nothing said it should
	Deadline   Rule = "deadline"   // the deadline told is not _ts + ttl
	TTL        Rule = "ttl"        // the ttl told is not the one in force, or one that is not legal was taken
	ByRule     Rule = "rule"       // the rule told is not the one in force
	Body       Rule = "body"       // a body is not what its event has to carry
	Rejected   Rule = "rejected"   // a mutation was rejected for what was not so
)

// Finding is one offence.
type Finding struct {
	// Seq is the sequence to look at: of the event that is wrong or, for
	// Missing, of the version that should have expired.
	Seq        uint64                `json:"seq"`
	Rule       Rule                  `json:"rule"`
	Collection schema.CollectionName `json:"collection,omitempty"`
	ID         schema.DocumentID     `json:"id,omitempty"`
	Message    string                `json:"message"`
}

// Report is what an audit found.
type Report struct {
	// Complete says that the log was there from its beginning. Otherwise what
	// was before First is not judged.
	Complete bool

	First, Last         uint64 // sequences
	FirstTime, LastTime int64  // log time, ms
	Events              uint64 // read, messages that are none included
	Types               map[schema.EventType]uint64
	Collections         int    // there at the end
	Documents           int64  // alive at the end, as far as they were seen
	Mutations           uint64 // that are the cause of an event

	// Unexplained are mutations between the first and the last that have no
	// event here. In a stream they are findings; in an exported log they may be
	// repeats, whose events are internal and left out.
	Unexplained uint64

	Due     uint64 // versions that came due before the log's end: the sum of
	Expired uint64 // those that expired,
	Pending uint64 // those that came due so late that they may yet,
	Lost    uint64 // and those that did not, which are Missing

	// Headless says that there were collections that nothing had created, as
	// in a log whose beginning is missing.
	Headless bool

	Findings []Finding       // the first ones of each rule, by sequence
	Found    map[Rule]uint64 // how many there are of each rule
}

// Count returns how many offences there are.
func (r *Report) Count() (n uint64) {
	for _, found := range r.Found {
		n += found
	}
	return n
}

// Rules returns the rules with offences, the most frequent first.
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

// MarshalJSON writes the report as `lapse audit --json` prints it.
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
		findings = []Finding{} // a list all the same
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

// moment is a log time, in ms, as the log's lines have it.
func moment(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") }

// clock is a second as messages tell it.
func clock(second int64) string { return time.Unix(second, 0).UTC().Format(time.RFC3339) }
