package service

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/schema"
)

// Requests come in on one goroutine of NATS, which keeps without a bound what
// it has no time for. So nothing happens on it but this: a request finds a place
// in a queue or is refused. Places and bytes are bounded from there on,
// until its reply.

// Bounds of what requests hold on to.
const (
	// MaxHeldBytes bounds the bodies of requests that have no reply yet. What
	// is made of them while they are judged may be three times as much.
	MaxHeldBytes = 128 << 20
	// SmallRequest is the size up to which a request takes a place and counts
	// no bytes, so that bodies of megabytes keep nobody from reading.
	SmallRequest = 4 << 10
	// LargeBody is the size from which a body is parsed on a worker, not while
	// others wait behind it: that takes 0.1 ms.
	LargeBody = 16 << 10
	// aheadMessages and aheadBytes are what may be read of the connection before
	// it is looked at. The rest waits in the NATS server, which makes those wait
	// who send too much.
	aheadMessages = 8192
	aheadBytes    = 32 << 20
	// pendingBytes is more than can be read ahead: beyond it NATS would drop
	// requests without a word.
	pendingBytes = 512 << 20
)

// What requests are told for which there is no place.
var (
	tooManyRequests  = schema.ErrOverloaded.With("too many requests are waiting: try again later")
	tooManyBytes     = schema.ErrOverloaded.With("too many bytes of requests are waiting: try again later")
	tooManyMutations = schema.ErrOverloaded.With("too many mutations are waiting: try again later")
	tooManyQueries   = schema.ErrOverloaded.With("too many queries are waiting: try again later")
)

// replyPrefix is what a request's reply subject has to start with. A service
// publishes wherever a client says, so it says no to everything but inboxes.
// A message without a reply subject is no request either: NATS publishes
// acknowledgements of mutations, which have none, wherever the sender of the
// mutation says, so one who may only hand in mutations could make requests.
const replyPrefix = "_INBOX."

// handle takes one request.
func (s *Service) handle(m micro.Request) {
	data := m.Data()
	defer s.reading.took(len(data))
	r := &Request{Service: s, To: m.Reply(), came: time.Now()}
	if !strings.HasPrefix(r.To, replyPrefix) {
		s.Config.Events(observe.ReplyRefused{Subject: m.Subject(), Reply: r.To})
		return
	}
	defer r.recover()
	r.name = strings.TrimPrefix(m.Subject(), s.Config.Database.API())
	r.Op, r.Tail = schema.SplitOperation(r.name)
	if r.Op != "query" && r.Op != "forecast" {
		r.Others.Add(1)
	}
	headers := m.Headers()
	var fault *schema.Error
	if r.Header, fault = schema.OwnHeaders(headers); fault != nil {
		r.refuse(fault)
		return
	}
	r.size = sizeOf(headers)
	if r.Op == "document.get" && r.Header == nil && r.getRecent() {
		return
	}
	if limit := s.timeLimit(r.Op); limit > 0 {
		if r.To == "" && r.Op != "batch" {
			return // nobody waits for the answer
		}
		r.until = r.came.Add(limit)
	}
	if takesBody(r.Op) {
		r.data = data
		r.size += int64(len(data))
	}
	if r.size <= SmallRequest {
		r.size = 0
	} else if r.Held.Add(r.size) > MaxHeldBytes {
		r.refuse(tooManyBytes)
		return
	}
	if schema.ParseOp(r.Op) == schema.NoOp {
		r.Begin() // which is to queue it
		return
	}
	select {
	case s.changes <- r:
	default:
		r.refuse(tooManyRequests)
	}
}

// takesBody tells whether anything in the body of a request is looked at.
func takesBody(op string) bool {
	switch op {
	case "document.get", "collection.get", "status":
		return false
	}
	return true
}

// sizeOf returns how many bytes the headers of a request have.
func sizeOf(headers micro.Headers) (size int64) {
	for name, values := range headers {
		for _, value := range values {
			size += int64(len(name) + len(value))
		}
	}
	return size
}

// receive lets mutations go on, in the order in which they came, until the
// service ends.
func (s *Service) receive() {
	for {
		select {
		case r := <-s.changes:
			r.Begin()
		case <-s.ctx.Done():
			return
		}
	}
}

// reading knows how far a connection is ahead of those who look at what it read.
type reading struct {
	nc       *nats.Conn
	messages atomic.Uint64 // taken
	bytes    atomic.Uint64
	// The rest of what came was for others: $SRV.>, and headers.
	otherMessages, otherBytes atomic.Int64
}

func (r *reading) took(bytes int) {
	r.bytes.Add(uint64(bytes))
	r.messages.Add(1)
}

// throttled is a connection that can be made to wait before it reads on.
type throttled interface{ Throttle(wait func()) }

// throttle keeps the connection from reading further ahead than is good.
func (r *reading) throttle(nc *nats.Conn) {
	r.nc = nc
	if conn, ok := nc.Opts.InProcessServer.(throttled); ok {
		conn.Throttle(r.wait)
	}
}

// ahead is how much of what came waits to be taken, others being for others. If
// less than that is left, some of it was taken after all.
func ahead(came, took uint64, others *atomic.Int64) int64 {
	left := max(0, int64(came-took)) // it may have been taken since came was read
	if others.Load() > left {
		others.Store(left)
	}
	return left - others.Load()
}

// wait returns when not much waits that was read, and at once as a rule.
func (r *reading) wait() {
	for {
		messages, bytes := atomic.LoadUint64(&r.nc.InMsgs), atomic.LoadUint64(&r.nc.InBytes)
		took := r.messages.Load()
		waiting, size := ahead(messages, took, &r.otherMessages), ahead(bytes, r.bytes.Load(), &r.otherBytes)
		if waiting <= aheadMessages && size <= aheadBytes {
			return
		}
		time.Sleep(time.Millisecond)
		if r.messages.Load() == took {
			// Nobody takes anything, so there is nothing left to take.
			r.otherMessages.Add(waiting)
			r.otherBytes.Add(size)
			return
		}
	}
}
