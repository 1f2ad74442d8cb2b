package processor

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

	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/query"
	"github.com/lapsedb/lapse/schema"
)

const (
	maxWaiting    = 1024             // requests that wait for a sequence or a renewal
	serveTimeout  = 10 * time.Second // until NATS knows what is served
	becomeTimeout = time.Second      // until it knows that after a change of role
)

// serviceConfig is what a service needs to know; see Options.
type serviceConfig struct {
	Database schema.DatabaseName
	Version  string
	Node     string
	Events   *EventListener
	Meter    serviceMeter
	Queue    int // proposals and reads that may wait
	Workers  int
	Query    query.Limits

	QueryWorkers, QueryQueue int
}

// serviceMeter counts requests; it must not block.
type serviceMeter interface {
	// answered is called for each reply with the schema.OperationIndex of the
	// request and how long it took.
	answered(operation int, took time.Duration)
}

// service answers requests: reads from the projection on bounded workers,
// mutations through the writer.
type service struct {
	config    serviceConfig
	nc        *nats.Conn
	store     *projections.Store
	log       *eventLog
	mutations *mutationStream
	writer    *writer
	keeper    *keeper
	clock     *timekeeper
	lease     *lease // nil where there is no other processor
	live      *liveness
	operations

	roles sync.Mutex
	micro micro.Service // as which it is known now
	ended bool          // it is known as nothing any more
	// subscriptions is how many that one has, which are all there are.
	subscriptions atomic.Int64
	writes        atomic.Bool           // as the writer
	trouble       atomic.Pointer[error] // what keeps it from finding out who should write

	changes chan *request // mutations that arrived
	reading reading
	held    atomic.Int64 // bytes of requests that have no reply yet

	// Each class of work has its own queue, so slow requests cannot delay fast
	// ones, and in it each client a share, so one client cannot delay the others.
	clients *clients
	gets    *lane // of one document
	looks   *lane // small batches, and what goes through much or asks the log
	bodies  *lane // large bodies, to be parsed
	queries *lane

	engine  *query.Engine
	others  atomic.Uint64 // requests that are no queries
	waiting atomic.Int64
	workers sync.WaitGroup
	ctx     context.Context // ends when the service does
	cancel  context.CancelFunc
	room    int       // bytes that a reply's body may have
	replies sync.Pool // of *reusedMessage
}

// serve starts answering on nc.
func (s *service) serve(nc *nats.Conn, role Role) error {
	s.nc = nc
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.room = int(nc.MaxPayload()) - schema.HeaderRoom
	s.changes = make(chan *request, s.config.Queue)
	s.replies.New = func() any { return newReusedMessage() }
	s.clients = newClients()
	s.gets = s.lane(s.config.Queue, s.config.Workers, tooManyRequests)
	s.looks = s.lane(s.config.Queue, s.config.Workers, tooManyRequests)
	s.bodies = s.lane(s.config.Queue, max(2, runtime.GOMAXPROCS(0)/2), tooManyRequests)
	s.queries = s.lane(s.config.QueryQueue, s.config.QueryWorkers, tooManyQueries)
	s.workers.Go(s.receive)
	s.reading.throttle(nc)
	if err := s.become(role); err != nil {
		s.cancel()
		s.workers.Wait()
		return err
	}
	return nil
}

// stop ends taking requests. Those taken are answered as long as the writer
// runs, until finish.
func (s *service) stop() error {
	s.roles.Lock()
	defer s.roles.Unlock()
	s.ended = true
	err := s.micro.Stop()
	waitUntil(stopTimeout, func() bool { return s.nc.NumSubscriptions() == 0 || s.nc.IsClosed() })
	waitUntil(stopTimeout, func() bool { return len(s.changes) == 0 && s.bodies.len() == 0 })
	return err
}

// finish answers what is left and waits for the workers.
func (s *service) finish() {
	waitUntil(stopTimeout, func() bool { return s.gets.len() == 0 && s.looks.len() == 0 })
	s.cancel() // and with it queries, which may take long
	s.workers.Wait()
	for len(s.changes) > 0 {
		(<-s.changes).begin()
	}
	all := func(job) bool { return true }
	for _, lane := range []*lane{s.bodies, s.looks, s.gets, s.queries} { // one that waited for a Lapse-Min-Seq may have come late
		for _, left := range lane.jobs.drop(all) {
			left.answer()
		}
	}
	s.workers.Wait()
	_ = s.nc.FlushTimeout(stopTimeout)
}

// request is a request under way.
type request struct {
	*service
	name    string        // what follows lapse.<db>.api. in the subject
	op      string        // its operation: "document.get"
	tail    string        // what follows that, without the dot
	header  schema.Header // those that matter
	data    []byte
	size    int64  // that it holds of service.held
	to      string // reply subject
	seq     uint64 // of the state that answers; 0 for that at the time of the reply
	minSeq  uint64 // that the state has to hold
	attempt        // of a query, before this one
	came    time.Time
	until   time.Time // when it has to be answered, zero for any time
}

// begin goes on with a request that arrived.
func (r *request) begin() {
	defer r.recover()
	if values := r.header[schema.HeaderMinSeq]; len(values) > 0 {
		seq, fault := parseMinSeq(values[0])
		if fault != nil {
			r.refuse(fault)
			return
		}
		r.minSeq = seq
		if r.store.Cursor().Seq < seq {
			r.wait(seq)
			return
		}
	}
	r.dispatch()
}

// recover makes a reply of a panic: one poisoned request ends no process.
func (r *request) recover() {
	if p := recover(); p != nil {
		r.config.Events.RequestFailed(RequestFailure{Operation: r.op, Panic: p, Stack: string(debug.Stack())})
		r.refuse(schema.ErrUnavailable.With("the request failed inside lapse"))
	}
}

// wait goes on with the request when seq is folded.
func (r *request) wait(seq uint64) {
	r.waitFor(func(ctx context.Context) error { return r.store.Wait(ctx, seq) }, minSeqLate(seq))
}

// waitFor goes on with the request when reached returns, or refuses it with
// late if that takes too long.
func (r *request) waitFor(reached func(context.Context) error, late *schema.Error) {
	if r.waiting.Add(1) > maxWaiting {
		r.waiting.Add(-1)
		r.refuse(schema.ErrOverloaded.With("too many requests wait for the log: try again later"))
		return
	}
	r.workers.Go(func() {
		defer r.waiting.Add(-1)
		defer r.recover()
		ctx, cancel := r.context(minSeqTimeout)
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
func (r *request) dispatch() {
	if op := schema.ParseOp(r.op); op != schema.NoOp {
		if len(r.data) < largeBody {
			r.mutate()
		} else {
			r.bodies.put(r, r.mutate)
		}
		return
	}
	switch {
	case r.op == "query":
		r.query()
		return
	case r.op == "forecast":
		r.forecast()
		return
	case r.op == "snapshot.create":
		r.snapshotCreate()
		return
	case r.op == "snapshot.verify":
		r.snapshotVerify()
		return
	case r.op == "document.get" && r.header != nil && r.getRecent(): // others were tried on arrival
		return
	}
	if read, ok := r.read(); ok {
		r.later(read)
	}
}

// mutate reads the request as a mutation and submits it.
func (r *request) mutate() {
	mutation := schema.NewMutation(r.name, r.data)
	mutation.SetHeaders(r.header)
	r.submit(&Proposal{Mutation: mutation})
}

// later has a worker answer the request.
func (r *request) later(answer func()) {
	lane := r.looks
	switch {
	case r.op == "document.get":
		lane = r.gets
	case len(r.data) >= largeBody:
		lane = r.bodies
	}
	lane.put(r, func() {
		r.seq = r.store.Cursor().Seq // before it reads, so that it claims no more than it saw
		answer()
	})
}

// submit queues a proposal for the writer and replies when it is decided.
func (r *request) submit(p *Proposal) {
	p.Done = func(o Outcome) {
		if o.Repeat != 0 {
			r.later(func() { r.repeat(p.Mutation, o.Repeat) })
			return
		}
		r.reply(o.Code, o.Fault, o.Body)
	}
	if !r.writer.Submit(p) {
		r.refuse(tooManyMutations)
	}
}

func (r *request) refuse(fault *schema.Error) { r.reply(fault.Code, fault, nil) }

// reply answers the request. The headers say how it went and which state
// answered; a body that no message can carry becomes a 413.
func (r *request) reply(code int, fault *schema.Error, body []byte) {
	if fault == nil && len(body) > r.room {
		fault = tooLargeBody(len(body), r.room)
		code = fault.Code
	}
	operation := schema.OperationIndex(r.op)
	r.operations.count(operation, code)
	r.config.Meter.answered(operation, time.Since(r.came))
	if code == schema.ErrOverloaded.Code {
		r.config.Events.RequestsRefused(Refusals{Operation: r.op, Code: code, Why: fault.Message})
	}
	r.held.Add(-r.size)
	r.size, r.data = 0, nil
	m := r.replies.Get().(*reusedMessage)
	defer r.replies.Put(m)
	m.reset(r.to)
	m.Data = body
	m.set(schema.HeaderStatus, strconv.Itoa(code))
	if r.seq == 0 {
		r.seq = r.store.Cursor().Seq
	}
	m.set(schema.HeaderSeq, strconv.FormatUint(r.seq, 10))
	if fault != nil {
		m.set(micro.ErrorCodeHeader, strconv.Itoa(code))
		m.set(micro.ErrorHeader, fault.Error())
		m.Data = fault.AppendJSON(nil)
	}
	if err := r.nc.PublishMsg(&m.Msg); err != nil {
		r.config.Events.ReplyFailed(ReplyFailure{Operation: r.op, Err: err})
	}
	m.Data = nil
}

// waitUntil polls, since NATS tells nobody when a subscription has drained.
func waitUntil(timeout time.Duration, done func() bool) {
	for deadline := time.Now().Add(timeout); !done() && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
}

// sole reports whether no other process can write.
func (s *service) sole() bool {
	return s.writes.Load() && (s.lease == nil || s.lease.held())
}
