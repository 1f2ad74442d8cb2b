package service

import (
	"context"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/lapsedb/lapse/processor/answer"
	"github.com/lapsedb/lapse/processor/clock"
	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/lease"
	"github.com/lapsedb/lapse/processor/machine"
	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/processor/snapshot"
	"github.com/lapsedb/lapse/processor/writer"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/projections/query"
	"github.com/lapsedb/lapse/schema"
)

const (
	MaxWaiting    = 1024             // requests that wait for a sequence or a renewal
	serveTimeout  = 10 * time.Second // until NATS knows what is served
	BecomeTimeout = time.Second      // until it knows that after a change of role
)

// Config is what a service needs to know; see Options.
type Config struct {
	Database schema.DatabaseName
	Version  string
	Node     string
	Events   observe.EventListener
	Meter    Meter
	Queue    int // proposals and reads that may wait
	Workers  int
	Query    query.Limits

	QueryWorkers, QueryQueue int
}

// Meter counts requests; it must not block.
type Meter interface {
	// Answered is called for each reply with the schema.OperationIndex of the
	// request and how long it took.
	Answered(operation int, took time.Duration)
}

// Service answers requests: reads from the projection on bounded workers,
// mutations through the writer.
type Service struct {
	Config    Config
	NC        *nats.Conn
	Store     *projections.Store
	Log       *eventlog.Log
	Mutations *eventlog.Mutations
	Writer    *writer.Writer
	Keeper    *snapshot.Retention
	Clock     *clock.Timekeeper
	Lease     *lease.Lease // nil where there is no other processor
	Live      *Liveness
	Operations

	roles sync.Mutex
	micro micro.Service // as which it is known now
	ended bool          // it is known as nothing any more
	// subscriptions is how many that one has, which are all there are.
	subscriptions atomic.Int64
	Writes        atomic.Bool           // as the writer
	trouble       atomic.Pointer[error] // what keeps it from finding out who should write

	changes chan *Request // mutations that arrived
	reading reading
	Held    atomic.Int64 // bytes of requests that have no reply yet

	// Each class of work has its own queue, so slow requests cannot delay fast
	// ones, and in it each client a share, so one client cannot delay the others.
	clients *clients
	Gets    *Lane // of one document
	Looks   *Lane // small batches, and what goes through much or asks the log
	Bodies  *Lane // large bodies, to be parsed
	Queries *Lane

	Engine  *query.Engine
	Others  atomic.Uint64 // requests that are no queries
	Waiting atomic.Int64
	workers sync.WaitGroup
	ctx     context.Context // ends when the service does
	cancel  context.CancelFunc
	Room    int       // bytes that a reply's body may have
	Replies sync.Pool // of *reusedMessage
}

// Serve starts answering on nc.
func (s *Service) Serve(nc *nats.Conn, role observe.Role) error {
	s.NC = nc
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.Room = int(nc.MaxPayload()) - schema.HeaderRoom
	s.changes = make(chan *Request, s.Config.Queue)
	s.Replies.New = func() any { return eventlog.NewReusedMessage() }
	s.clients = newClients()
	s.Gets = s.lane(s.Config.Queue, s.Config.Workers, tooManyRequests)
	s.Looks = s.lane(s.Config.Queue, s.Config.Workers, tooManyRequests)
	s.Bodies = s.lane(s.Config.Queue, max(2, runtime.GOMAXPROCS(0)/2), tooManyRequests)
	s.Queries = s.lane(s.Config.QueryQueue, s.Config.QueryWorkers, tooManyQueries)
	s.workers.Go(s.receive)
	s.reading.throttle(nc)
	if err := s.Become(role); err != nil {
		s.cancel()
		s.workers.Wait()
		return err
	}
	return nil
}

// Stop ends taking requests. Those taken are answered as long as the writer
// runs, until finish.
func (s *Service) Stop() error {
	s.roles.Lock()
	defer s.roles.Unlock()
	s.ended = true
	err := s.micro.Stop()
	WaitUntil(writer.StopTimeout, func() bool { return s.NC.NumSubscriptions() == 0 || s.NC.IsClosed() })
	WaitUntil(writer.StopTimeout, func() bool { return len(s.changes) == 0 && s.Bodies.Len() == 0 })
	return err
}

// Finish answers what is left and waits for the workers.
func (s *Service) Finish() {
	WaitUntil(writer.StopTimeout, func() bool { return s.Gets.Len() == 0 && s.Looks.Len() == 0 })
	s.cancel() // and with it queries, which may take long
	s.workers.Wait()
	for len(s.changes) > 0 {
		(<-s.changes).Begin()
	}
	all := func(Job) bool { return true }
	for _, lane := range []*Lane{s.Bodies, s.Looks, s.Gets, s.Queries} { // one that waited for a Lapse-Min-Seq may have come late
		for _, left := range lane.Jobs.drop(all) {
			left.answer()
		}
	}
	s.workers.Wait()
	_ = s.NC.FlushTimeout(writer.StopTimeout)
}

// Request is a request under way.
type Request struct {
	*Service
	name    string        // what follows lapse.<db>.api. in the subject
	Op      string        // its operation: "document.get"
	Tail    string        // what follows that, without the dot
	Header  schema.Header // those that matter
	data    []byte
	size    int64  // that it holds of service.held
	To      string // reply subject
	Seq     uint64 // of the state that answers; 0 for that at the time of the reply
	minSeq  uint64 // that the state has to hold
	Attempt        // of a query, before this one
	came    time.Time
	until   time.Time // when it has to be answered, zero for any time
}

// Begin goes on with a request that arrived.
func (r *Request) Begin() {
	defer r.recover()
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

// recover makes a reply of a panic: one poisoned request ends no process.
func (r *Request) recover() {
	if p := recover(); p != nil {
		r.Config.Events(observe.RequestFailed{Operation: r.Op, Panic: p, Stack: string(debug.Stack())})
		r.refuse(schema.ErrUnavailable.With("the request failed inside lapse"))
	}
}

// wait goes on with the request when seq is folded.
func (r *Request) wait(seq uint64) {
	r.waitFor(func(ctx context.Context) error { return r.Store.Wait(ctx, seq) }, answer.MinSeqLate(seq))
}

// waitFor goes on with the request when reached returns, or refuses it with
// late if that takes too long.
func (r *Request) waitFor(reached func(context.Context) error, late *schema.Error) {
	if r.Waiting.Add(1) > MaxWaiting {
		r.Waiting.Add(-1)
		r.refuse(schema.ErrOverloaded.With("too many requests wait for the log: try again later"))
		return
	}
	r.workers.Go(func() {
		defer r.Waiting.Add(-1)
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

// dispatch hands the request to the writer or to a worker. Requests with small
// bodies reach the writer in the order in which they came.
func (r *Request) dispatch() {
	if op := schema.ParseOp(r.Op); op != schema.NoOp {
		if len(r.data) < LargeBody {
			r.mutate()
		} else {
			r.Bodies.Put(r, r.mutate)
		}
		return
	}
	switch {
	case r.Op == "query":
		r.query()
		return
	case r.Op == "forecast":
		r.forecast()
		return
	case r.Op == "snapshot.create":
		r.snapshotCreate()
		return
	case r.Op == "snapshot.verify":
		r.snapshotVerify()
		return
	case r.Op == "document.get" && r.Header != nil && r.getRecent(): // others were tried on arrival
		return
	}
	if read, ok := r.read(); ok {
		r.later(read)
	}
}

// mutate reads the request as a mutation and submits it.
func (r *Request) mutate() {
	mutation := schema.NewMutation(r.name, r.data)
	mutation.SetHeaders(r.Header)
	r.submit(&writer.Proposal{Mutation: mutation})
}

// later has a worker answer the request.
func (r *Request) later(answer func()) {
	lane := r.Looks
	switch {
	case r.Op == "document.get":
		lane = r.Gets
	case len(r.data) >= LargeBody:
		lane = r.Bodies
	}
	lane.Put(r, func() {
		r.Seq = r.Store.Cursor().Seq // before it reads, so that it claims no more than it saw
		answer()
	})
}

// submit queues a proposal for the writer and replies when it is decided.
func (r *Request) submit(p *writer.Proposal) {
	p.Done = func(o machine.Outcome) {
		if o.Repeat != 0 {
			r.later(func() { r.repeat(p.Mutation, o.Repeat) })
			return
		}
		r.reply(o.Code, o.Fault, o.Body)
	}
	if !r.Writer.Submit(p) {
		r.refuse(tooManyMutations)
	}
}

func (r *Request) refuse(fault *schema.Error) { r.reply(fault.Code, fault, nil) }

// reply answers the request. The headers say how it went and which state
// answered; a body that no message can carry becomes a 413.
func (r *Request) reply(code int, fault *schema.Error, body []byte) {
	if fault == nil && len(body) > r.Room {
		fault = answer.TooLargeBody(len(body), r.Room)
		code = fault.Code
	}
	operation := schema.OperationIndex(r.Op)
	r.Operations.count(operation, code)
	r.Config.Meter.Answered(operation, time.Since(r.came))
	if code == schema.ErrOverloaded.Code {
		r.Config.Events(observe.RequestRejected{Operation: r.Op, Code: code, Why: fault.Message})
	}
	r.Held.Add(-r.size)
	r.size, r.data = 0, nil
	m := r.Replies.Get().(*eventlog.ReusedMessage)
	defer r.Replies.Put(m)
	m.Reset(r.To)
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
	}
	if err := r.NC.PublishMsg(&m.Msg); err != nil {
		r.Config.Events(observe.ReplyFailed{Operation: r.Op, Err: err})
	}
	m.Data = nil
}

// WaitUntil polls, since NATS tells nobody when a subscription has drained.
func WaitUntil(timeout time.Duration, done func() bool) {
	for deadline := time.Now().Add(timeout); !done() && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
}

// Sole reports whether no other process can write.
func (s *Service) Sole() bool {
	return s.Writes.Load() && (s.Lease == nil || s.Lease.Held())
}
