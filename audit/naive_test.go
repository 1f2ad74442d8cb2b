package audit

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/lapsedb/lapse/schema"
)

// naive checks the contract's rules over a whole log, each in a loop of its own over all
// events, without regard to speed or memory. It returns the first violated rule and its
// sequence, "" for none.
//
// The log must have its beginning.
func naive(log []schema.Event, stream bool) (Rule, uint64) {
	for i, e := range log {
		if e.Type == schema.NoEvent {
			return Foreign, e.Seq
		}
		if i > 0 && e.Seq <= log[i-1].Seq || stream && e.Seq != uint64(i+1) {
			return Sequence, e.Seq
		}
		if i > 0 && e.Time < log[i-1].Time {
			return Time, e.Seq
		}
	}
	cause := uint64(0)
	for _, e := range log {
		if e.Cause == 0 {
			continue
		}
		if e.Type.HasDeadline() || e.Cause <= cause || stream && e.Cause != cause+1 {
			return Cause, e.Seq
		}
		cause = e.Cause
	}
	for i, e := range log {
		if e.Collection == schema.InternalCollection || e.Collection == schema.InvalidCollection {
			continue
		}
		before := properties(log[:i], e.Collection)
		switch e.Type {
		case schema.CollectionCreated:
			if before != nil {
				return Collection, e.Seq
			}
		case schema.MutationRejected:
		default:
			if before == nil {
				return Collection, e.Seq
			}
		}
		switch e.Type {
		case schema.DocumentCreated, schema.DocumentReplaced:
			var body map[string]any
			if json.Unmarshal(e.Body, &body) != nil || body["id"] != string(e.ID) || body["_ts"] != nil {
				return Body, e.Seq
			}
		case schema.CollectionCreated, schema.CollectionReplaced, schema.CollectionDeleted:
			p, fault := schema.ReadProperties(e.Collection, e.Body)
			if fault != nil || len(e.Body) == 0 || e.Type == schema.CollectionDeleted && fmt.Sprint(p) != fmt.Sprint(*before) {
				return Body, e.Seq
			}
		}
	}
	// A missing expiry comes first, since it excuses its consequences.
	if rule, at := naiveDue(log); rule != "" {
		return rule, at
	}
	for i, e := range log {
		switch {
		case e.Type == schema.MutationRejected:
			if rule := naiveRejection(log[:i], e); rule != "" {
				return rule, e.Seq
			}
		case e.Type.OnDocument():
			if rule := naiveDocument(log[:i], e); rule != "" {
				return rule, e.Seq
			}
		}
	}
	return naiveUnwarned(log)
}

// properties returns the properties of a collection after a log, nil if it is missing.
func properties(log []schema.Event, name schema.CollectionName) *schema.Properties {
	for _, e := range slices.Backward(log) {
		if e.Collection != name {
			continue
		}
		switch e.Type {
		case schema.CollectionCreated, schema.CollectionReplaced:
			p, _ := schema.ReadProperties(name, e.Body)
			return &p
		case schema.CollectionDeleted:
			return nil
		}
	}
	return nil
}

// latest returns the last event of a document in the present incarnation of the
// collection, nil if there is none.
func latest(log []schema.Event, collection schema.CollectionName, id schema.DocumentID) *schema.Event {
	for i, e := range slices.Backward(log) {
		if e.Collection == collection && e.Type == schema.CollectionCreated {
			return nil
		}
		if e.Collection == collection && e.Type.OnDocument() && e.ID == id && e.Type < schema.DocumentHeld {
			return &log[i]
		}
	}
	return nil
}

// living returns latest if it is a live version, else nil.
func living(log []schema.Event, collection schema.CollectionName, id schema.DocumentID) *schema.Event {
	e := latest(log, collection, id)
	if e == nil || e.Type == schema.DocumentDeleted || e.Type == schema.DocumentExpired {
		return nil
	}
	if e.Type == schema.DocumentTouched {
		touched := *e
		for _, before := range slices.Backward(log) {
			if before.Collection != collection || before.ID != id || !before.Type.OnDocument() || before.Type >= schema.DocumentHeld {
				continue
			}
			if before.Type == schema.DocumentDeleted || before.Type == schema.DocumentExpired {
				return nil // a touch does not revive a document
			}
			if before.Type != schema.DocumentTouched {
				touched.Body = before.Body // the body of the touched version
				return &touched
			}
		}
		return nil
	}
	return e
}

// ttlOf returns a version's own ttl: nil if it inherits; an illegal ttl inherits.
func ttlOf(e *schema.Event) (ttl *float64, legal bool) {
	var body struct {
		TTL any `json:"ttl"`
	}
	if json.Unmarshal(e.Body, &body) != nil {
		return nil, false
	}
	n, number := body.TTL.(float64)
	if body.TTL == nil {
		return nil, true
	}
	if !number || n != -1 && (n < 1 || n > math.MaxInt32 || n != math.Trunc(n)) {
		return nil, false
	}
	return &n, true
}

// rawTTL returns a version's ttl as written.
func rawTTL(e *schema.Event) string {
	var body struct {
		TTL json.RawMessage `json:"ttl"`
	}
	_ = json.Unmarshal(e.Body, &body)
	return string(body.TTL)
}

// wait returns the seconds that a version lives, 0 for ever, and the rule.
func wait(p *schema.Properties, e *schema.Event) (int64, schema.Rule) {
	ttl, _ := ttlOf(e)
	switch {
	case p == nil || p.DefaultTTL == 0:
		return 0, 0
	case ttl != nil && *ttl > 0:
		return int64(*ttl), schema.RuleDocument
	case ttl == nil && p.DefaultTTL > 0:
		return int64(p.DefaultTTL), schema.RuleCollection
	}
	return 0, 0
}

// isDue reports whether a version is due at a log time.
func isDue(p *schema.Properties, e *schema.Event, ms int64) bool {
	seconds, by := wait(p, e)
	return by != 0 && e.Time/1000+seconds <= ms/1000
}

func naiveDocument(log []schema.Event, e schema.Event) Rule {
	p, was := properties(log, e.Collection), living(log, e.Collection, e.ID)
	if e.Type == schema.DocumentCreated || e.Type == schema.DocumentReplaced {
		_, legal := ttlOf(&e)
		kept := was != nil && e.Type == schema.DocumentReplaced && rawTTL(was) == rawTTL(&e)
		if !legal && p.DefaultTTL != 0 && !kept {
			return TTL
		}
	}
	if e.Type == schema.DocumentTouched && len(e.Body) > 0 {
		return Body
	}
	if e.Restored != 0 {
		last := latest(log, e.Collection, e.ID)
		version := uint64(0)
		if last != nil && was == nil {
			version = uint64(last.Previous)
		}
		created := uint64(0)
		for _, b := range log {
			if b.Collection == e.Collection && b.Type == schema.CollectionCreated {
				created = b.Seq
			}
		}
		switch restored := uint64(e.Restored); {
		case restored >= e.Seq, last == nil && restored >= created, was == nil && last != nil && restored > version:
			return Restored
		case last != nil && was == nil && restored == version:
			content := living(log[:slices.IndexFunc(log, func(l schema.Event) bool { return l.Seq == last.Seq })], e.Collection, e.ID)
			if content != nil && string(content.Body) != string(e.Body) {
				return Restored
			}
		}
	}
	if e.Type == schema.DocumentExpired {
		before := latest(log, e.Collection, e.ID)
		switch {
		case before == nil:
			return Life
		case was == nil && before.Type == schema.DocumentExpired && before.Previous == e.Previous:
			return Double
		case was == nil && e.Previous > before.Previous || was != nil && uint64(e.Previous) > was.Seq:
			return Previous
		case was == nil || uint64(e.Previous) != was.Seq:
			return Stale
		}
		seconds, by := wait(p, was)
		switch {
		case by == 0:
			return Never
		case was.Time/1000+seconds > e.Time/1000:
			return Early
		case by != e.Deadline.Rule:
			return ByRule
		case seconds != int64(e.Deadline.TTL):
			return TTL
		case was.Time/1000+seconds != e.Deadline.At:
			return Deadline
		}
	} else {
		if was != nil && isDue(p, was, e.Time) {
			return Missing
		}
		if (e.Type == schema.DocumentCreated) != (was == nil) {
			return Life
		}
		if was != nil && uint64(e.Previous) != was.Seq {
			return Previous
		}
	}
	if e.Type == schema.DocumentExpiring {
		seconds, by := wait(p, was)
		at := was.Time/1000 + seconds
		switch {
		case by == 0:
			return Never
		case p.WarnBefore == 0 || at-int64(p.WarnBefore) > e.Time/1000:
			return EarlyWarn
		case isWarned(log, was, at):
			return WarnedTwice
		case by != e.Deadline.Rule:
			return ByRule
		case seconds != int64(e.Deadline.TTL):
			return TTL
		case at != e.Deadline.At:
			return Deadline
		}
	}
	if e.Type.HasDeadline() || e.Type == schema.DocumentDeleted {
		if p.PreviousImages && string(e.Body) != string(was.Body) || !p.PreviousImages && len(e.Body) > 0 {
			return Body
		}
	}
	return ""
}

func naiveRejection(log []schema.Event, e schema.Event) Rule {
	var body struct {
		Error    string
		Mutation map[string]any
	}
	if json.Unmarshal(e.Body, &body) != nil || body.Mutation == nil {
		return Body
	}
	there := properties(log, e.Collection) != nil
	id, _ := body.Mutation["id"].(string)
	was := living(log, e.Collection, schema.DocumentID(id))
	if was != nil && there && isDue(properties(log, e.Collection), was, e.Time) &&
		(body.Error == "document_not_found" || body.Error == "document_exists") {
		return Missing
	}
	for error, so := range map[string]bool{"collection_not_found": !there, "collection_exists": there,
		"document_not_found": was == nil || !there, "document_exists": was != nil || !there} {
		if body.Error == error && !so && e.Collection != schema.InvalidCollection {
			return Rejected
		}
	}
	return ""
}

// naiveDue finds a live version that should have expired: it was due at a change or the
// end of its collection, or long before the log's end.
func naiveDue(log []schema.Event) (Rule, uint64) {
	for v, version := range log {
		if version.Type != schema.DocumentCreated && version.Type != schema.DocumentReplaced && version.Type != schema.DocumentTouched {
			continue
		}
		for i := v + 1; i < len(log); i++ {
			e := log[i]
			if e.Collection != version.Collection || e.Type > schema.CollectionDeleted {
				continue
			}
			if l := living(log[:i], version.Collection, version.ID); l != nil && l.Seq == version.Seq && isDue(properties(log[:i], e.Collection), l, e.Time) {
				return Missing, version.Seq
			}
		}
		p := properties(log, version.Collection)
		l := living(log, version.Collection, version.ID)
		end := log[len(log)-1].Time
		if p == nil || l == nil || l.Seq != version.Seq || !isDue(p, l, end) {
			continue
		}
		seconds, _ := wait(p, l)
		came := max((l.Time/1000+seconds)*1000, policySince(log, version.Collection))
		if end-came >= 60_000 {
			return Missing, version.Seq
		}
	}
	return "", 0
}

// policySince returns the log time since which the present defaultTtl is in force.
func policySince(log []schema.Event, name schema.CollectionName) (since int64) {
	return sinceSame(log, name, func(a, b *schema.Properties) bool { return a.DefaultTTL == b.DefaultTTL })
}

// sinceSame returns the log time since which same holds for a collection's properties.
func sinceSame(log []schema.Event, name schema.CollectionName, same func(a, b *schema.Properties) bool) (since int64) {
	var now *schema.Properties
	for i, e := range log {
		if e.Collection != name || e.Type > schema.CollectionDeleted {
			continue
		}
		p := properties(log[:i+1], name)
		if p != nil && (now == nil || !same(now, p)) {
			since = e.Time
		}
		now = p
	}
	return since
}

// warningsSince returns the log time since which the present defaultTtl and warnBefore
// are in force.
func warningsSince(log []schema.Event, name schema.CollectionName) int64 {
	return sinceSame(log, name, func(a, b *schema.Properties) bool {
		return a.DefaultTTL == b.DefaultTTL && a.WarnBefore == b.WarnBefore
	})
}

// isWarned reports whether a version has a warning of a deadline.
func isWarned(log []schema.Event, version *schema.Event, at int64) bool {
	return slices.ContainsFunc(log, func(e schema.Event) bool {
		return e.Type == schema.DocumentExpiring && e.Collection == version.Collection && e.ID == version.ID && uint64(e.Previous) == version.Seq && e.Deadline.At == at
	})
}

// lateBefore returns, for each place in a log, the time of the last expiry or warning
// before it that was late by a second or more.
func lateBefore(log []schema.Event) []int64 {
	late := make([]int64, len(log)+1)
	for i, e := range log {
		late[i+1] = late[i]
		if !e.Type.HasDeadline() {
			continue
		}
		was := living(log[:i], e.Collection, e.ID)
		due := max(e.Deadline.At*1000, policySince(log[:i], e.Collection))
		if e.Type == schema.DocumentExpiring {
			due = max((e.Deadline.At-int64(properties(log[:i], e.Collection).WarnBefore))*1000, was.Time/1000*1000+999, warningsSince(log[:i], e.Collection))
		}
		if e.Time-due >= 1000 {
			late[i+1] = e.Time
		}
	}
	return late
}

// naiveUnwarned finds a version whose deadline passed or was cancelled without a warning,
// though lapse had time for one. It reads the other events of its document, changes
// and the end of its collection, and the end of the log.
func naiveUnwarned(log []schema.Event) (Rule, uint64) {
	late := lateBefore(log)
	for v, version := range log {
		if !version.Type.MakesVersion() {
			continue
		}
		for i := v + 1; i <= len(log); i++ {
			l := living(log[:i], version.Collection, version.ID)
			if l == nil || l.Seq != version.Seq || properties(log[:i], version.Collection) == nil {
				break
			}
			p, now, grace, expires := properties(log[:i], version.Collection), log[len(log)-1].Time, int64(0), false
			if i < len(log) {
				e := log[i]
				now = e.Time
				expires = e.Type == schema.DocumentExpired
				ofDocument := e.Type.OnDocument() && e.Type < schema.DocumentHeld && e.ID == version.ID
				if e.Collection != version.Collection || !ofDocument && e.Type > schema.CollectionDeleted {
					continue
				}
				if next := properties(log[:i+1], version.Collection); !ofDocument && next != nil && next.DefaultTTL == p.DefaultTTL && next.WarnBefore == p.WarnBefore {
					continue
				}
			}
			seconds, by := wait(p, l)
			at := l.Time/1000 + seconds
			if by == 0 || p.WarnBefore == 0 || isWarned(log[:i], l, at) {
				continue
			}
			from := max((at-int64(p.WarnBefore))*1000, l.Time/1000*1000+999, warningsSince(log[:i], version.Collection), late[i])
			left := at*1000 - from
			if grace = max(1_000, min(5_000, left/2)); i == len(log) {
				grace = 60_000
			}
			if left <= 0 {
				continue
			}
			if now < at*1000 && from+grace <= now {
				return Unwarned, version.Seq
			}
			if !expires {
				continue
			}
			last := int64(0)
			for _, e := range log[:i] {
				if e.Time < at*1000 {
					last = e.Time
				}
			}
			if from+grace <= last || now < at*1000+500 && left >= 3_000 {
				return Unwarned, version.Seq
			}
		}
	}
	return "", 0
}
