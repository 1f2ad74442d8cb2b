package service

import (
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/schema"
)

// Operations counts replies by operation and code, for $SRV.STATS and metrics.
type Operations struct {
	answers [len(schema.Operations) + 1][len(replyCodes) + 1]atomic.Uint64
}

// replyCodes are the codes of replies; any other is counted as one more.
var replyCodes = [...]int{200, 201, 204, 400, 404, 409, 412, 413, 424, 429, 503, 504}

func (o *Operations) count(operation, code int) {
	i := slices.Index(replyCodes[:], code)
	if i < 0 {
		i = len(replyCodes)
	}
	o.answers[operation][i].Add(1)
}

// All returns the counts.
func (o *Operations) All() (all []observe.Answered) {
	for i := range o.answers {
		for code := range o.answers[i] {
			name := "other"
			if code < len(replyCodes) {
				name = strconv.Itoa(replyCodes[code])
			}
			if n := o.answers[i][code].Load(); n > 0 {
				all = append(all, observe.Answered{Operation: schema.OperationName(i), Code: name, Requests: n})
			}
		}
	}
	return all
}

type operationStats struct {
	Requests uint64 `json:"requests"`
	Errors   uint64 `json:"errors"`
}

// stats is the data of $SRV.STATS: counts by operation, and the state of this process,
// by which an operator tells several apart.
func (s *Service) stats() map[string]any {
	all := map[string]any{"process": processStats{Seq: s.Store.Cursor().Seq, Waiting: s.waits()}}
	for _, a := range s.Operations.All() {
		n, _ := all[a.Operation].(operationStats)
		n.Requests += a.Requests
		if a.Code == "other" || a.Code >= "400" {
			n.Errors += a.Requests
		}
		all[a.Operation] = n
	}
	return all
}

type processStats struct {
	Seq     uint64 `json:"seq"`     // last sequence folded
	Waiting int    `json:"waiting"` // requests
}

// Queues returns the queues of requests and mutations.
func (s *Service) Queues() []observe.Queue {
	return []observe.Queue{
		{Name: "changes", Length: len(s.changes), Places: cap(s.changes)},
		{Name: "gets", Length: s.Gets.Len(), Places: s.Gets.jobs.places},
		{Name: "looks", Length: s.Looks.Len(), Places: s.Looks.jobs.places},
		{Name: "bodies", Length: s.Bodies.Len(), Places: s.Bodies.jobs.places},
		{Name: "queries", Length: s.Queries.Len(), Places: s.Queries.jobs.places},
		{Name: "wishes", Length: len(s.Writer.Proposals), Places: cap(s.Writer.Proposals)},
		{Name: "mutations", Length: len(s.Writer.Mutations), Places: cap(s.Writer.Mutations)},
		{Name: "waiting", Length: int(s.Waiting.Load()), Places: MaxWaiting},
	}
}

// waits returns the number of requests in queues.
func (s *Service) waits() (n int) {
	for _, q := range s.Queues() {
		if q.Name != "mutations" { // of the stream: no requests
			n += q.Length
		}
	}
	return n
}
