package service

import (
	"context"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/micro"

	"github.com/lapsedb/lapse/processor/answer"
	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/machine"
	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/processor/peers"
	"github.com/lapsedb/lapse/processor/writer"
	"github.com/lapsedb/lapse/schema"
)

// The life of a request, on whose goroutine:
//
//	handle (nats.go) ─► begin ─► dispatch ─► a worker of a lane ─► reply
//	                      │          └─► the writer: Proposal, Done ─► reply
//	                      └─► waits for Lapse-Min-Seq ─► dispatch
//
// At each step it belongs to one goroutine, so it has no lock. It ends with reply, which
// every path reaches exactly once: a panic is a 503 (recover), a full queue a 429, a passed
// deadline a 504. reply gives back what the request held: bytes, and Service.accepting.

// Request is a request that has no reply yet.
type Request struct {
	*Service
	name          string // the subject after lapse.<db>.api.
	op            string // its operation: "document.get"
	info          schema.OperationInfo
	Tail          string        // the rest of name, without the dot
	Header        schema.Header // those of lapse
	data          []byte
	size          int64           // bytes counted in Service.Held
	to            string          // reply subject
	from          string          // its client, see senderOf
	term          *writer.Term    // the only term that may decide it; nil for any
	Seq           uint64          // of the answering state; 0: that at the time of the reply
	minSeq        uint64          // its Lapse-Min-Seq
	lifetime      schema.Lifetime // of the document that the reply is about
	peers.Attempt                 // earlier runs of a query
	came          time.Time
	until         time.Time // deadline of the reply, zero for none
	holds         bool      // it keeps Service.accepting locked for reading
}

// hold makes Settle wait for the request until release.
func (r *Request) hold() {
	r.accepting.RLock()
	r.holds = true
}

// release lets Settle go on as far as this request is concerned.
func (r *Request) release() {
	if r.holds {
		r.holds = false
		r.accepting.RUnlock()
	}
}

// begin dispatches a request once its Lapse-Min-Seq is folded.
func (r *Request) begin() {
	if values := r.Header[schema.HeaderMinSeq]; len(values) > 0 {
		seq, fault := answer.ParseMinSeq(values[0])
		if fault != nil {
			r.refuse(fault)
			return
		}
		r.minSeq = seq
		if r.Store.Cursor().Seq < seq {
			r.wait(seq)
			return
		}
	}
	r.dispatch()
}

// recover replies to a request that panicked, so that it cannot end the process.
func (r *Request) recover() {
	if p := recover(); p != nil {
		r.Config.Events(observe.RequestFailed{Operation: r.op, Panic: p, Stack: string(debug.Stack())})
		r.refuse(schema.ErrUnavailable.With("the request failed inside lapse"))
	}
}

// wait dispatches the request once seq is folded.
func (r *Request) wait(seq uint64) {
	r.waitFor(func(ctx context.Context) error { return r.Store.Wait(ctx, seq) }, answer.MinSeqLate(seq))
}

// waitFor dispatches the request once reached returns, or refuses it with late if that
// takes longer than answer.MinSeqTimeout.
func (r *Request) waitFor(reached func(context.Context) error, late *schema.Error) {
	if r.waiting.Add(1) > maxWaiting {
		r.waiting.Add(-1)
		r.refuse(schema.ErrOverloaded.With("too many requests wait for the log: try again later"))
		return
	}
	r.workers.Go(func() {
		defer r.waiting.Add(-1)
		defer r.recover()
		ctx, cancel := r.context(answer.MinSeqTimeout)
		defer cancel()
		if err := reached(ctx); err != nil {
			if r.late(time.Now()) {
				late = r.tooLate()
			}
			r.refuse(late)
			return
		}
		r.dispatch()
	})
}

// dispatch hands the request to the writer or to a worker. Mutations with small bodies
// reach the writer in the order of their arrival; one with a large body is parsed by a
// worker first, and may be overtaken.
func (r *Request) dispatch() {
	if r.info.Mutates() {
		if len(r.data) < largeBody {
			r.mutate()
		} else {
			r.large.put(r, r.mutate)
		}
		return
	}
	if fault := answer.Check(r.info, r.Tail, r.Header, r.data); fault != nil {
		r.refuse(fault)
		return
	}
	switch r.op {
	case "document.get":
		if !r.getRecent() {
			r.later(r.getDocument)
		}
	case "collection.get":
		r.later(r.getCollection)
	case "collection.list":
		r.later(r.listCollections)
	case "batch":
		r.later(r.batch)
	case "history":
		r.later(r.history)
	case "status":
		r.later(r.status)
	case "query":
		r.queueQuery(r.query)
	case "forecast":
		r.queueQuery(r.forecast)
	case "snapshot.list":
		r.later(r.snapshotList)
	case "snapshot.create":
		r.snapshotCreate()
	case "snapshot.verify":
		r.snapshotVerify()
	default:
		r.refuse(answer.UnknownOperation(r.op))
	}
}

// mutate parses the request as a mutation and submits it.
func (r *Request) mutate() {
	mutation := schema.NewMutation(r.name, r.data)
	mutation.SetHeaders(r.Header)
	// Most touches of a session store renew nothing. Answered as a read, they cost the
	// writer nothing. One with a Nats-Msg-Id may be a repeat, which the writer knows.
	if mutation.MinAge > 0 && mutation.Fault == nil && mutation.MsgID == "" && r.Writer.Writing() {
		r.touch(mutation)
		return
	}
	r.submit(&writer.Proposal{Mutation: mutation})
}

// later queues the request for a worker, which calls answer.
func (r *Request) later(answer func()) {
	lane := r.reads
	switch {
	case r.op == "document.get" || r.op == "document.touch":
		lane = r.gets
	case len(r.data) >= largeBody:
		lane = r.large
	}
	lane.put(r, func() {
		r.Seq = r.Store.Cursor().Seq // taken before the read, so that Lapse-Seq claims no more
		answer()
	})
}

// submit queues a proposal for the writer; its outcome is the reply.
func (r *Request) submit(p *writer.Proposal) {
	// Decided by another term, a request could be applied twice: by the process that is the
	// writer by then, too.
	p.Term = r.term
	p.Done = func(o machine.Outcome) {
		if o.Repeat != 0 {
			r.later(func() { r.repeat(p.Mutation, o.Repeat) })
			return
		}
		r.lifetime = o.Lifetime
		if o.Version != 0 {
			r.later(func() { r.replyContent(p.Mutation, o.Version, o.TS) })
			return
		}
		r.reply(o.Code, o.Fault, o.Body)
	}
	if !r.Writer.Submit(p) {
		r.refuse(tooManyMutations)
	}
}

// refuse replies with an error.
func (r *Request) refuse(fault *schema.Error) { r.reply(fault.Code, fault, nil) }

// reply publishes the reply with its headers. A body that exceeds the maximum message
// becomes a 413. Messages are reused (replies), so a reply allocates no headers; nats.go
// has copied them when PublishMsg returns.
func (r *Request) reply(code int, fault *schema.Error, body []byte) {
	defer r.release()
	if fault == nil && len(body) > r.MaxReply {
		fault = answer.TooLargeBody(len(body), r.MaxReply)
		code = fault.Code
	}
	operation := schema.OperationIndex(r.op)
	took := time.Since(r.came)
	r.Operations.count(operation, code, fault, took)
	r.Config.Meter.Answered(operation, took, r.Header)
	if code == schema.ErrOverloaded.Code {
		r.Config.Events(observe.RequestRejected{Operation: r.op, Code: code, Why: fault.Message})
	}
	// Before the reply is sent: its client may send the next request at once, which finds
	// the room.
	r.Held.Add(-r.size)
	r.Config.AllHeld.Add(-r.size)
	r.size, r.data = 0, nil
	m, _ := r.replies.Get().(*eventlog.ReusedMessage)
	if m == nil {
		m = eventlog.NewReusedMessage()
	}
	defer r.replies.Put(m)
	m.Reset(r.to)
	m.Data = body
	m.Set(schema.HeaderStatus, strconv.Itoa(code))
	if r.Seq == 0 {
		r.Seq = r.Store.Cursor().Seq
	}
	m.Set(schema.HeaderSeq, strconv.FormatUint(r.Seq, 10))
	if fault != nil {
		m.Set(micro.ErrorCodeHeader, strconv.Itoa(code))
		m.Set(micro.ErrorHeader, fault.Error())
		m.Data = fault.AppendJSON(nil)
	} else {
		r.lifetime.Headers(m.Set)
	}
	if err := r.NC.PublishMsg(&m.Msg); err != nil {
		r.Config.Events(observe.ReplyFailed{Operation: r.op, Err: err})
	}
	m.Data = nil
}
