package processor

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/query"
	"github.com/lapsedb/lapse/schema"
)

// Bounds of what requests may hold on to.
const (
	maxQueuedBytes = 128 << 20 // bodies that wait for the writer
	maxWaiting     = 1024      // requests that wait for a sequence or a renewal
	minSeqTimeout  = 2 * time.Second
	serveTimeout   = 10 * time.Second // until NATS knows what is served
	headerRoom     = 4096             // of a message, for the headers of a reply or an event
	systemRoom     = 1024             // of a reply's body, for what it says around that of an event
	pendingBytes   = 512 << 20
)

// replyPrefix is what a request's reply subject has to start with. A service
// publishes wherever a client says, so it says no to everything but inboxes.
const replyPrefix = "_INBOX."

// service answers requests: reads from the projection on bounded workers,
// mutations through the writer.
type service struct {
	options   Options
	logger    *slog.Logger
	nc        *nats.Conn
	store     *projections.Store
	log       *eventLog
	mutations *mutationStream
	writer    *writer
	snapshots *snapshots
	clock     *timekeeper
	micro     micro.Service
	operations

	reads   chan func()
	engine  *query.Engine
	queries chan func()   // apart from the other reads, which they would keep waiting
	others  atomic.Uint64 // requests that are no queries
	waiting atomic.Int64
	queued  atomic.Int64 // bytes
	copying atomic.Bool  // a snapshot is being made or verified for a request
	workers sync.WaitGroup
	ctx     context.Context // ends when the service does
	cancel  context.CancelFunc
	room    int       // bytes that a reply's body may have
	replies sync.Pool // of *reusedMessage
}

// serve starts answering on nc.
func (s *service) serve(nc *nats.Conn) (err error) {
	s.nc = nc
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.room = int(nc.MaxPayload()) - headerRoom
	s.reads = make(chan func(), s.options.Queue)
	s.queries = make(chan func(), s.options.QueryQueue)
	s.replies.New = func() any { return newReusedMessage() }
	for range s.options.Workers {
		s.workers.Go(func() { s.work(s.reads) })
	}
	for range s.options.QueryWorkers {
		s.workers.Go(func() { s.work(s.queries) })
	}
	s.micro, err = micro.AddService(nc, micro.Config{
		Name:        "lapse",
		Version:     s.options.Version,
		Description: "documents with a time to live",
		Metadata:    map[string]string{"database": string(s.options.Database)},
		StatsHandler: func(*micro.Endpoint) any {
			return s.operations.snapshot()
		},
	})
	if err == nil {
		// One endpoint takes all, so that a misspelt operation is told so
		// instead of finding nobody there.
		err = s.micro.AddEndpoint("api", micro.HandlerFunc(s.handle),
			micro.WithEndpointSubject(s.options.Database.API()+">"),
			micro.WithEndpointPendingLimits(-1, pendingBytes),
			micro.WithEndpointMetadata(map[string]string{"operations": strings.Join(operationNames[:], " ")}))
	}
	if err == nil {
		// Who asks from now on finds somebody here.
		err = nc.FlushTimeout(serveTimeout)
	}
	if err != nil {
		s.cancel()
		s.workers.Wait()
		return fmt.Errorf("serve requests: %w", err)
	}
	return nil
}

// stop ends taking requests. Those taken are answered as long as the writer
// runs, until finish.
func (s *service) stop() error {
	err := s.micro.Stop()
	waitUntil(stopTimeout, func() bool { return s.nc.NumSubscriptions() == 0 || s.nc.IsClosed() })
	return err
}

// finish answers what is left and waits for the workers.
func (s *service) finish() {
	waitUntil(stopTimeout, func() bool { return len(s.reads) == 0 })
	s.cancel() // and with it queries, which may take long
	s.workers.Wait()
	for _, left := range []chan func(){s.reads, s.queries} { // one that waited for a Lapse-Min-Seq may have come late
		for len(left) > 0 {
			(<-left)()
		}
	}
	_ = s.nc.FlushTimeout(stopTimeout)
}

// work answers what is queued until the service ends.
func (s *service) work(queued <-chan func()) {
	for {
		select {
		case answer := <-queued:
			answer()
		case <-s.ctx.Done():
			return
		}
	}
}

// request is a request under way.
type request struct {
	*service
	name   string // what follows lapse.<db>.api. in the subject
	op     string // its operation: "document.get"
	tail   string // what follows that, without the dot
	header micro.Headers
	data   []byte
	to     string // reply subject, "" if nobody waits
	seq    uint64 // of the state that answers; 0 for that at the time of the reply
	minSeq uint64 // that the state has to hold
}

// handle takes one request. micro calls it for one at a time, so it hands on
// whatever may take time.
func (s *service) handle(m micro.Request) {
	r := &request{service: s, header: m.Headers(), data: m.Data(), to: m.Reply()}
	if r.to != "" && !strings.HasPrefix(r.to, replyPrefix) {
		s.logger.Warn("request refused: its reply subject is no inbox", "subject", m.Subject(), "reply", r.to)
		return
	}
	defer r.recover()
	r.name = strings.TrimPrefix(m.Subject(), s.options.Database.API())
	r.op, r.tail = splitOperation(r.name)
	if r.op != "query" {
		r.others.Add(1)
	}
	if values := r.header.Values(schema.HeaderMinSeq); len(values) > 0 {
		seq, fault := parseMinSeq(values[0])
		if fault != nil {
			r.refuse(fault)
			return
		}
		r.minSeq = seq
		if s.store.Cursor().Seq < seq {
			r.wait(seq)
			return
		}
	}
	r.dispatch()
}

// recover makes a reply of a panic: one poisoned request ends no process.
func (r *request) recover() {
	if p := recover(); p != nil {
		r.logger.Error("a request panicked", "op", r.op, "panic", p, "stack", string(debug.Stack()))
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
		ctx, cancel := context.WithTimeout(r.ctx, minSeqTimeout)
		defer cancel()
		if err := reached(ctx); err != nil {
			r.refuse(late)
			return
		}
		r.dispatch()
	})
}

// parseMinSeq reads a Lapse-Min-Seq.
func parseMinSeq(text string) (uint64, *schema.Error) {
	seq, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, schema.ErrBadRequest.With("%s is %.40q: use a sequence of the log", schema.HeaderMinSeq, text)
	}
	return seq, nil
}

func minSeqLate(seq uint64) *schema.Error {
	return schema.ErrTimeout.With("sequence %d was not reached within %s", seq, minSeqTimeout)
}

// dispatch hands the request to the writer or to a worker.
func (r *request) dispatch() {
	if op := schema.ParseOp(r.op); op != schema.NoOp {
		mutation := schema.NewMutation(r.name, r.data)
		setHeaders(mutation, nats.Header(r.header))
		r.submit(&wish{mutation: mutation})
		return
	}
	switch {
	case r.op == "query":
		r.query()
		return
	case r.op == "snapshot.create":
		r.snapshotCreate()
		return
	case r.op == "snapshot.verify":
		r.snapshotVerify()
		return
	case r.op == "document.get" && r.getRecent():
		return
	}
	if read, ok := r.read(); ok {
		r.later(read)
	}
}

// later has a worker answer the request.
func (r *request) later(answer func()) {
	select {
	case r.reads <- func() {
		defer r.recover()
		r.seq = r.store.Cursor().Seq // before it reads, so that it claims no more than it saw
		answer()
	}:
	default:
		r.refuse(schema.ErrOverloaded.With("too many requests are waiting: try again later"))
	}
}

// submit queues a wish for the writer and replies when it is decided.
func (r *request) submit(one *wish) {
	size := int64(len(r.data))
	one.done = func(o Outcome) {
		r.queued.Add(-size)
		if o.Repeat != 0 {
			r.later(func() { r.repeat(o.Repeat) })
			return
		}
		r.reply(o.Code, o.Fault, o.Body)
	}
	if r.queued.Add(size) <= maxQueuedBytes {
		select {
		case r.writer.wishes <- one:
			if r.writer.gone.Load() {
				r.writer.refuse(stopping)
			}
			return
		default:
		}
	}
	r.queued.Add(-size)
	r.refuse(schema.ErrOverloaded.With("too many mutations are waiting: try again later"))
}

func tooLargeBody(bytes, room int) *schema.Error {
	return schema.ErrTooLarge.With("the reply has %d bytes and a message at most %d: ask for less at a time", bytes, room)
}

func (r *request) refuse(fault *schema.Error) { r.reply(fault.Code, fault, nil) }

// reply answers the request. The headers say how it went and which state
// answered; a body that no message can carry becomes a 413.
func (r *request) reply(code int, fault *schema.Error, body []byte) {
	if fault == nil && len(body) > r.room {
		fault = tooLargeBody(len(body), r.room)
		code = fault.Code
	}
	r.operations.count(r.op, fault != nil)
	if r.to == "" {
		return
	}
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
		r.logger.Warn("reply failed", "op", r.op, "err", err)
	}
	m.Data = nil
}
