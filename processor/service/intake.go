package service

import (
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/processor/writer"
	"github.com/lapsedb/lapse/schema"
)

// Requests arrive on one goroutine of nats.go, which queues without a limit the messages
// that it cannot hand over. So handle parses at most a small body before it queues or
// refuses a request; from there to its reply, requests are limited in number and bytes.

// Limits of requests without a reply.
const (
	// MaxHeldBytes is the default of the most bytes of their bodies, in all databases of
	// the process. While they are decided they may take three times as much.
	MaxHeldBytes = 128 << 20
	// smallRequest is the size in bytes up to which a request is not counted, so that
	// large bodies cannot keep small requests out.
	smallRequest = 4 << 10
	// largeBody is the size in bytes from which a worker parses the body: that takes
	// 0.1 ms, which other requests need not wait for.
	largeBody = 16 << 10
)

// Replies to requests that find a limit reached.
var (
	tooManyRequests  = schema.ErrOverloaded.With("too many requests are waiting: try again later")
	tooManyBytes     = schema.ErrOverloaded.With("too many bytes of requests are waiting: try again later")
	tooManyMutations = schema.ErrOverloaded.With("too many mutations are waiting: try again later")
	tooManyQueries   = schema.ErrOverloaded.With("too many queries are waiting: try again later")
)

// handleMutation is handle for the writer's own endpoint when there are standbys. It
// ignores what a standby's endpoint receives as well, and everything once the lease may
// have expired.
func (s *Service) handleMutation(m *nats.Msg, term *writer.Term) {
	if !s.Lease.Held() || isRead(strings.TrimPrefix(m.Subject, s.Config.Database.API())) {
		s.reading.took(len(m.Data))
		return
	}
	s.handle(m, term)
}

var notForClients = schema.ErrPreconditionFailed.With("clients may not move databases: connect as a user of the account of the streams, such as the operator")

// handle queues or refuses one request, which only this term may decide; nil allows any
// term. It runs on nats.go's goroutine, one request at a time, so it does nothing that
// takes long. The order: is there a reader of the reply, is it for operators, are the
// headers legal, is there room for its bytes. From begin on the request has exactly one
// reply.
func (s *Service) handle(m *nats.Msg, term *writer.Term) {
	data := m.Data
	defer s.reading.took(len(data))
	r := &Request{Service: s, to: m.Reply, term: term, came: time.Now()}
	// The service publishes to any reply subject it is given, so it replies to inboxes
	// only. A message without one is no request. NATS publishes acknowledgements of
	// mutations, which have no reply subject, to the subject that the mutation's sender
	// named, so a client that may only publish mutations could make requests.
	if !schema.IsReply(r.to) || !schema.Covers(m.Sub.Subject, m.Subject) {
		s.Config.Events(observe.ReplyRefused{Subject: m.Subject, Reply: r.to})
		return
	}
	r.hold()
	defer r.recover()
	r.from = senderOf(m)
	r.name = strings.TrimPrefix(m.Subject, s.Config.Database.API())
	r.op, r.Tail = schema.SplitOperation(r.name)
	r.info = schema.OperationOf(r.op)
	if r.op == schema.MoveOperation && s.Lease != nil {
		if s.Config.ClientsApart {
			r.refuse(notForClients)
		}
		r.release()
		return // the connection log answers it, to operators
	}
	if r.info.Limit != schema.QueryLimit {
		r.Writer.Requests.Add(1)
	}
	headers := m.Header
	var fault *schema.Error
	if r.Header, fault = schema.OwnHeaders(headers); fault != nil {
		r.refuse(fault)
		return
	}
	r.data = data
	r.size = sizeOf(headers) + int64(len(data))
	if limit := s.timeLimit(r.info); limit > 0 {
		r.until = r.came.Add(limit)
	}
	if r.size <= smallRequest {
		r.size = 0
	} else if r.Held.Add(r.size); r.Config.AllHeld.Add(r.size) > r.Config.HeldBytes {
		r.refuse(tooManyBytes)
		return
	}
	r.begin()
}

// sizeOf returns the size of headers in bytes.
func sizeOf(headers nats.Header) (size int64) {
	for name, values := range headers {
		for _, value := range values {
			size += int64(len(name) + len(value))
		}
	}
	return size
}
