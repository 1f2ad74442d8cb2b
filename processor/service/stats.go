package service

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/micro"

	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/schema"
)

// Operations counts replies by operation and code, for $SRV.STATS and metrics.
type Operations struct {
	served [len(schema.Operations) + 1]served
}

// served counts the replies of one operation.
type served struct {
	answers   [len(replyCodes) + 1]atomic.Uint64
	took      atomic.Int64 // ns from arrival to reply, summed
	lastError atomic.Pointer[replyError]
}

type replyError struct {
	at    time.Time
	fault *schema.Error
}

// replyCodes are the codes counted separately; all others share one count.
var replyCodes = [...]int{200, 201, 204, 400, 404, 409, 412, 413, 423, 424, 429, 503, 504}

// count counts a reply, without a lock. operation is a schema.OperationIndex.
func (o *Operations) count(operation, code int, fault *schema.Error, took time.Duration) {
	i := slices.Index(replyCodes[:], code)
	if i < 0 {
		i = len(replyCodes)
	}
	to := &o.served[operation]
	to.answers[i].Add(1)
	to.took.Add(int64(took))
	if fault != nil {
		to.lastError.Store(&replyError{at: time.Now(), fault: fault})
	}
}

// sum returns the number of replies of an operation, and of errors among them.
func (o *Operations) sum(operation int) (requests, failed uint64) {
	for i := range o.served[operation].answers {
		n := o.served[operation].answers[i].Load()
		requests += n
		if i == len(replyCodes) || replyCodes[i] >= 400 {
			failed += n
		}
	}
	return requests, failed
}

// writeCodes are those of replies to operations that only the writer answers.
var writeCodes = []int{201, 204, 409, 412, 423, 424}

// expects reports whether an operation may be answered with a code: the count is known before
// the first such reply, which a rate would miss otherwise.
func expects(operation, code int) bool {
	if operation == len(schema.Operations) {
		return code == schema.ErrBadRequest.Code // there is no such operation
	}
	return !schema.Operations[operation].Standby || !slices.Contains(writeCodes, code)
}

// All returns the counts, 0 for replies that have not occurred and may.
func (o *Operations) All() (all []observe.Answered) {
	for i := range o.served {
		for code := range o.served[i].answers {
			name, expected := "other", false
			if code < len(replyCodes) {
				name, expected = strconv.Itoa(replyCodes[code]), expects(i, replyCodes[code])
			}
			if n := o.served[i].answers[code].Load(); n > 0 || expected {
				all = append(all, observe.Answered{Operation: schema.OperationName(i), Code: name, Requests: n})
			}
		}
	}
	return all
}

// count returns the requests that wait, and those so far with the failed ones.
func (s *Service) count() (waiting int, requests, failed uint64) {
	for i := range s.served {
		n, f := s.Operations.sum(i)
		requests, failed = requests+n, failed+f
	}
	return s.waits(), requests, failed
}

// operationStats are the counts of an operation in the data of $SRV.STATS.
type operationStats struct {
	Requests uint64 `json:"requests"`
	Errors   uint64 `json:"errors"`
}

// statsData returns the data of $SRV.STATS: counts by operation, and the state of this
// process, by which an operator distinguishes several processes.
func (s *Service) statsData() map[string]any {
	all := map[string]any{"process": processStats{Seq: s.Store.Cursor().Seq, Waiting: s.waits()}}
	for i := range s.served {
		if requests, failed := s.Operations.sum(i); requests > 0 {
			all[schema.OperationName(i)] = operationStats{requests, failed}
		}
	}
	return all
}

// processStats is the state of this process there.
type processStats struct {
	Seq     uint64 `json:"seq"`     // last sequence folded
	Waiting int    `json:"waiting"` // requests
}

// stats returns the statistics of all requests of this process, in any role, by endpoint.
func (e *endpoints) stats() (all []*micro.EndpointStats) {
	data, err := json.Marshal(e.statsData())
	if err != nil {
		data = nil
	}
	for _, info := range e.infos {
		stats := &micro.EndpointStats{Name: info.Name, Subject: info.Subject, QueueGroup: info.QueueGroup, Data: data}
		operations := e.operations[info.Name]
		var last replyError
		for i := range e.served {
			misspelt := i == len(schema.Operations) && info.Name == "api"
			if !misspelt && !slices.Contains(operations, schema.OperationName(i)) {
				continue
			}
			requests, failed := e.Operations.sum(i)
			stats.NumRequests += int(requests)
			stats.NumErrors += int(failed)
			stats.ProcessingTime += time.Duration(e.served[i].took.Load())
			if newest := e.served[i].lastError.Load(); newest != nil && newest.at.After(last.at) {
				last = *newest
			}
		}
		if last.fault != nil {
			stats.LastError = fmt.Sprintf("%d:%s", last.fault.Code, last.fault)
		}
		if stats.NumRequests > 0 {
			stats.AverageProcessingTime = stats.ProcessingTime / time.Duration(stats.NumRequests)
		}
		all = append(all, stats)
	}
	return all
}

// Queues returns the queues of requests and mutations.
func (s *Service) Queues() []observe.Queue {
	return []observe.Queue{
		{Name: "gets", Length: s.gets.len(), Places: s.gets.jobs.places},
		{Name: "reads", Length: s.reads.len(), Places: s.reads.jobs.places},
		{Name: "large", Length: s.large.len(), Places: s.large.jobs.places},
		{Name: "queries", Length: s.queries.len(), Places: s.queries.jobs.places},
		{Name: "proposals", Length: len(s.Writer.Proposals), Places: cap(s.Writer.Proposals)},
		{Name: "mutations", Length: len(s.Writer.Mutations), Places: cap(s.Writer.Mutations)},
		{Name: "waiting", Length: int(s.waiting.Load()), Places: maxWaiting},
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
