package query

import (
	"context"
	"math"
	"slices"

	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema/values"
)

// access is one way to read the documents that may match. An access is either a scan, a
// list of ids, or spans of one index. Its flags say what the run can save: exact the
// reading of documents, single and ordered the sort.
type access struct {
	index projections.Index
	scan  bool     // no index: all documents, by id
	ids   []string // no index, and only these documents, by id
	space projections.Space
	spans []span // in order, not overlapping
	used  int    // parts of the condition that made the spans
	// exact: a document matches if one of its whole entries is in the spans.
	exact bool
	// single: all entries have the same key, so they are in the order of the ids.
	single bool
	// ordered: the entries are in the query's order.
	ordered, desc bool
}

var scan = access{scan: true}

// planner finds the possible accesses of a query. It plans by the top-level && alone: each
// part must be true, so each part alone narrows the documents. A part below || or !
// narrows nothing.
type planner struct {
	ctx       context.Context
	view      *projections.View
	condition *condition
	constants []constant
	orderBy   []order
	indexes   []projections.Index
	special   bool // the request says itself what to read
	unindexed bool // the indexes lag behind the sequence that the answer must include
}

// index returns the complete index on a path.
func (p *planner) index(path string) (projections.Index, bool) {
	for _, x := range p.indexes {
		if x.Path == path && x.Complete {
			return x, true
		}
	}
	return projections.Index{}, false
}

// conjuncts returns the predicates that must all be true.
func (c *condition) conjuncts() []predicate {
	if c == nil {
		return nil
	}
	if all, ok := c.predicate.(and); ok {
		return all
	}
	return []predicate{c.predicate}
}

// plan returns the accesses that narrow the query, and the one in its order, nil if
// there is none; it may be one of the former. An id beats every index: it reads at most
// the documents named. Two conditions on one path, such as doc.a > 1 && doc.a < 9, are one
// access with the intersection of their spans.
func (p *planner) plan() (narrow []*access, ordered *access, err error) {
	if p.special {
		return nil, nil, nil
	}
	if a := p.byID(); a != nil {
		return []*access{a}, nil, nil
	}
	if p.unindexed {
		return nil, nil, nil
	}
	p.indexes = p.view.Indexes()
	if len(p.indexes) == 0 {
		return nil, nil, nil
	}
	conjuncts := p.condition.conjuncts()
	for _, part := range conjuncts {
		if err := p.ctx.Err(); err != nil {
			return nil, nil, err
		}
		path, space, spans, ok := p.spans(part)
		if !ok {
			continue
		}
		index, ok := p.index(path)
		if !ok {
			continue
		}
		if a := onPath(narrow, path); a != nil && space == projections.ValueSpace {
			a.spans = intersect(a.spans, spans)
			a.used++
			continue
		}
		narrow = append(narrow, &access{index: index, space: space, spans: spans, used: 1})
	}
	for _, a := range narrow {
		if a.space == projections.ValueSpace {
			a.exact = a.used == len(conjuncts) && !a.index.Lazy
			a.single = len(a.spans) == 1 && a.spans[0].single
		}
	}
	if len(p.orderBy) != 1 {
		return narrow, nil, nil
	}
	path := p.orderBy[0].path.String()
	index, ok := p.index(path)
	if !ok {
		return narrow, nil, nil
	}
	if ordered = onPath(narrow, path); ordered == nil {
		ordered = &access{index: index, spans: []span{{}}, exact: len(conjuncts) == 0 && !index.Lazy}
	}
	ordered.ordered, ordered.desc = true, p.orderBy[0].desc
	return narrow, ordered, nil
}

// onPath returns the access by the values at a path, nil if there is none yet.
func onPath(all []*access, path string) *access {
	for _, a := range all {
		if a.space == projections.ValueSpace && a.index.Path == path {
			return a
		}
	}
	return nil
}

// byID returns the access to the documents whose ids a condition names, nil if
// it names none.
func (p *planner) byID() *access {
	for _, part := range p.condition.conjuncts() {
		var named []operand
		slot := -1
		switch part := part.(type) {
		case comparison:
			if part.relation == equal {
				slot, named = part.slot, []operand{p.constants[part.constant].operand}
			}
		case oneOf:
			slot = part.slot
			if list := &p.constants[part.constant]; !list.broken {
				named = list.members
			}
		}
		if slot < 0 || p.condition.names[slot] != "/id" {
			continue
		}
		a := &access{scan: true, ids: []string{}}
		for _, o := range named {
			if o.kind == values.String {
				a.ids = append(a.ids, string(o.text))
			}
		}
		slices.Sort(a.ids)
		a.ids = slices.Compact(a.ids)
		return a
	}
	return nil
}

// spans returns the spans, in an index on a path, of the documents for which a part of
// the condition may be true.
func (p *planner) spans(part predicate) (path string, space projections.Space, spans []span, ok bool) {
	slot := -1
	switch part := part.(type) {
	case comparison:
		slot = part.slot
		spans, ok = relationSpans(part.relation, &p.constants[part.constant].operand)
	case oneOf:
		slot, ok = part.slot, true
		if list := &p.constants[part.constant]; !list.broken {
			for i := range list.members {
				spans = append(spans, equalSpan(&list.members[i]))
			}
		}
	case truth:
		slot = part.slot
		spans, ok = []span{equalSpan(&operand{kind: values.True})}, true
	case textTest:
		slot = part.slot
		if o := &p.constants[part.constant].operand; part.function == startsWith && o.kind == values.String {
			spans, ok = []span{prefixSpan(o.text)}, true
		}
	case member:
		slot, space, ok = part.slot, projections.MemberSpace, true
		if o := &p.constants[part.constant].operand; o.kind != values.Missing {
			many := []byte(projections.ManyMembers)
			spans = []span{{lower: many, upper: projections.KeyAfter(many)}, equalSpan(o)}
		}
	}
	if !ok {
		return "", 0, nil, false
	}
	return p.condition.names[slot], space, union(spans), true
}

// Bounds of the entries counted to choose an access.
const (
	minProbe = 1000
	maxProbe = 20_000
)

// choose returns the access that reads the fewest documents. If there are several, it
// counts the entries of each that narrows the query, up to a bound; beyond it, an
// access in the query's order is better, since it needs no sort. Counting costs at most
// maxProbe entries for each access.
func (p *planner) choose(narrow []*access, ordered *access, limit int) (*access, error) {
	switch {
	case len(narrow) == 0 && ordered == nil:
		return &scan, nil
	case len(narrow) == 0:
		return ordered, nil
	case len(narrow) == 1 && (ordered == nil || ordered == narrow[0]):
		return narrow[0], nil
	}
	// With n of N documents in a range, a walk in the query's order instead reads about
	// limit·N/n of them until a page is full: as many as n at this bound.
	bound := int(math.Sqrt(float64(limit) * float64(p.view.Len())))
	bound = min(max(bound, minProbe), maxProbe)
	best, fewest := narrow[0], bound
	for _, a := range narrow {
		n, err := p.count(a, fewest)
		if err != nil {
			return nil, err
		}
		if n < fewest {
			best, fewest = a, n
		}
	}
	if fewest == bound && ordered != nil {
		return ordered, nil
	}
	return best, nil
}

// count counts the entries of an access, up to most. It counts entries, not documents:
// overdue ones are included, and in MemberSpace one document may have several entries.
func (p *planner) count(a *access, most int) (n int, err error) {
	for _, s := range a.spans {
		if err := p.ctx.Err(); err != nil {
			return n, err
		}
		entries := p.view.Entries(a.index, a.space, s.lower, s.upper)
		for ok := entries.First(); ok && n < most; ok = entries.Next() {
			n++
		}
		if err := entries.Close(); err != nil {
			return n, err
		}
	}
	return n, nil
}
