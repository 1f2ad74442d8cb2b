package service

import (
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/lapsedb/lapse/schema"
)

// operations counts replies by operation and code, for $SRV.STATS and metrics.
type Operations struct {
	answers [len(schema.Operations) + 1][len(replyCodes) + 1]atomic.Uint64
}

// replyCodes are what requests are answered with; any other one is counted
// behind them.
var replyCodes = [...]int{200, 201, 204, 400, 404, 409, 412, 413, 424, 429, 503, 504}

func (o *Operations) count(operation, code int) {
	i := slices.Index(replyCodes[:], code)
	if i < 0 {
		i = len(replyCodes)
	}
	o.answers[operation][i].Add(1)
}

// Answered is how many requests of an operation had a code, "other" for one that
// lapse does not use.
type Answered struct {
	Operation, Code string
	Requests        uint64
}

// all returns what was counted, by operation and code.
func (o *Operations) All() (all []Answered) {
	for i := range o.answers {
		for code := range o.answers[i] {
			name := "other"
			if code < len(replyCodes) {
				name = strconv.Itoa(replyCodes[code])
			}
			if n := o.answers[i][code].Load(); n > 0 {
				all = append(all, Answered{schema.OperationName(i), name, n})
			}
		}
	}
	return all
}

type operationStats struct {
	Requests uint64 `json:"requests"`
	Errors   uint64 `json:"errors"`
}

// stats is what $SRV.STATS says: the operations, and of the process what tells
// several of them apart.
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
	Seq     uint64 `json:"seq"`     // the last one folded
	Waiting int    `json:"waiting"` // requests
}

// Queue is something that waits in a place with room for so much.
type Queue struct {
	Name           string
	Length, Places int
}

// queues are where requests and mutations wait.
func (s *Service) Queues() []Queue {
	return []Queue{
		{"changes", len(s.changes), cap(s.changes)},
		{"gets", s.Gets.Len(), s.Gets.Jobs.places},
		{"looks", s.Looks.Len(), s.Looks.Jobs.places},
		{"bodies", s.Bodies.Len(), s.Bodies.Jobs.places},
		{"queries", s.Queries.Len(), s.Queries.Jobs.places},
		{"wishes", len(s.Writer.Proposals), cap(s.Writer.Proposals)},
		{"mutations", len(s.Writer.Mutations), cap(s.Writer.Mutations)},
		{"waiting", int(s.Waiting.Load()), MaxWaiting},
	}
}

// waits is how many requests wait for a place to be judged or answered.
func (s *Service) waits() (n int) {
	for _, q := range s.Queues() {
		if q.Name != "mutations" { // of the stream
			n += q.Length
		}
	}
	return n
}
