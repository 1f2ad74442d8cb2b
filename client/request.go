package client

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/lapsedb/lapse/schema"
)

// Reply is a reply as received.
type Reply struct {
	Status int    // 200 to 504
	Seq    uint64 // log sequence of the state that answered
	Body   []byte

	// Lifetime is set if the reply is about one document.
	Lifetime
}

// Lifetime says when a live document expires, as of the reply.
type Lifetime struct {
	Deadline time.Time // zero if it does not expire
	Rule     Rule      // origin of the deadline; NoRule if it does not expire
	Held     bool      // until its release it does not expire and cannot be deleted
	Reason   string    // of the hold
}

// LifetimeOf decodes the lifetime in the headers of a reply.
func LifetimeOf(header nats.Header) (l Lifetime) {
	return lifetimeOf(schema.ReadLifetime(schema.Header(header)))
}

func lifetimeOf(read schema.Lifetime) (l Lifetime) {
	l.Rule, l.Held, l.Reason = read.Deadline.Rule, read.Held, read.Reason
	if read.Deadline.At != 0 {
		l.Deadline = timeOf(read.Deadline.At)
	}
	return l
}

// Schema returns the lifetime in the form of package schema.
func (l Lifetime) Schema() schema.Lifetime {
	out := schema.Lifetime{Held: l.Held, Reason: l.Reason}
	if l.Rule != NoRule {
		out.Deadline = schema.Deadline{At: l.Deadline.Unix(), Rule: l.Rule}
	}
	return out
}

type headers struct{ nats.Header }

// RequestOption changes one request.
type RequestOption func(headers)

// Apply sets the option in the headers of a request that the caller sends itself.
func (opt RequestOption) Apply(header nats.Header) { opt(headers{header}) }

// IfMatch makes a replace, upsert, patch or delete fail with ErrPreconditionFailed unless
// the document or collection has this etag, or with ErrDocumentNotFound if the
// document does not exist any more.
func IfMatch(etag string) RequestOption {
	return func(h headers) { h.Set(schema.HeaderIfMatch, etag) }
}

// MsgID deduplicates a write that is sent again within two minutes: after ErrTimeout,
// retry with the same id. An id that succeeded for another operation, collection or
// document fails with ErrBadRequest. It is for single writes, not for batches.
func MsgID(id string) RequestOption {
	return func(h headers) { h.Set(schema.HeaderRequestID, id) }
}

// MinSeq waits until the state of the answering process includes log sequence seq, or
// fails with ErrTimeout after two seconds.
func MinSeq(seq uint64) RequestOption {
	return func(h headers) { h.Set(schema.HeaderMinSeq, strconv.FormatUint(seq, 10)) }
}

// TraceOf passes on the W3C trace context in the headers of another message, such as an HTTP
// request: it stands on the events of a write.
func TraceOf[H ~map[string][]string](from H) RequestOption {
	own, _ := schema.OwnHeaders(from)
	trace := own.Trace()
	return func(h headers) { trace.Headers(h.Set) }
}

// Do sends one request with an encoded body. op is the head of its subject
// ("document.upsert", "collection.list", "status"); collection and id are empty if the
// op has none. The typed calls of this package encode and decode around Do.
//
// For an error reply it returns both, the Reply with its Status and the coded error. A
// write may have been applied if the error is ErrTimeout or context.Canceled.
func (c *Client) Do(ctx context.Context, op, collection, id string, body []byte, opts ...RequestOption) (reply *Reply, err error) {
	tail, err := subjectTail(op, collection, id)
	if err != nil {
		return nil, err
	}
	msg := nats.NewMsg(c.database.API() + tail)
	msg.Data = body
	if seq := c.lastSeq.Load(); c.session && seq > 0 {
		MinSeq(seq)(headers{msg.Header})
	}
	for _, opt := range opts {
		opt(headers{msg.Header})
	}
	if c.tracer != nil {
		ctx = c.tracer.Call(ctx, Call{Client: c, Operation: op, Collection: collection, DocumentID: id, Header: msg.Header})
		defer func() { c.tracer.End(ctx, err) }()
	}
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.timeout)
		defer cancel()
	}
	if c.nc.IsClosed() {
		return nil, c.transportError(nats.ErrConnectionClosed)
	}
	ctx, release := c.denials.guard(ctx, msg.Subject)
	defer release()
	c.awaitLimits(len(body))
	answer, err := c.nc.RequestMsgWithContext(ctx, msg)
	if err != nil {
		err = c.lost(c.denied(ctx, err, c.noPermission(msg.Subject)), msg)
		if errors.Is(err, nats.ErrNoResponders) && !schema.OperationOf(op).Standby {
			err = c.absent.explain(ctx, c, err)
		}
		return nil, c.transportError(err)
	}
	return c.parseReply(answer)
}

// alwaysFits is the size in bytes of a body that each user of NATS may send.
const alwaysFits = 1 << 10

// awaitLimits waits for the max_payload of the user, which NATS sends after it has answered
// the login. NATS closes a connection for good that sends more, with all its requests.
func (c *Client) awaitLimits(size int) {
	of := c.nc.Stats().Reconnects + 1
	if size > alwaysFits && c.limitsOf.Load() != of && c.nc.IsConnected() && c.nc.FlushTimeout(c.timeout) == nil {
		c.limitsOf.Store(of)
	}
}

// subjectTail returns the part of a subject after lapse.<db>.api. or
// lapse.<db>.mutations. It validates the names: an illegal one would give a subject
// without subscribers.
func subjectTail(op, collection, id string) (string, error) {
	about := schema.OperationOf(op).Tail
	if about == schema.NoTail || op == schema.MoveOperation {
		return op, nil
	}
	name, err := schema.ParseCollectionName(collection)
	if err != nil {
		return "", err
	}
	tail := op + "." + string(name)
	if about != schema.DocumentTail {
		return tail, nil
	}
	document, err := schema.ParseDocumentID(id)
	if err != nil {
		return "", err
	}
	return tail + "." + document.Token(), nil
}

func (c *Client) parseReply(msg *nats.Msg) (*Reply, error) {
	code := msg.Header.Get(schema.HeaderStatus)
	if code == "" { // refused by the service framework, before lapse received it
		code = msg.Header.Get(micro.ErrorCodeHeader)
	}
	status, err := strconv.Atoi(code)
	if err != nil {
		return nil, ErrTimeout.With("the first reply is not from lapse, since it has no %s header: stop the other responder; a write may have been applied", schema.HeaderStatus)
	}
	reply := &Reply{Status: status, Body: msg.Data}
	reply.Seq, _ = strconv.ParseUint(msg.Header.Get(schema.HeaderSeq), 10, 64)
	if status >= 400 {
		return reply, parseError(status, msg.Data, msg.Header.Get(micro.ErrorHeader))
	}
	c.advance(reply.Seq)
	reply.Lifetime = LifetimeOf(msg.Header)
	return reply, nil
}

// advance records the sequence that later reads must include.
func (c *Client) advance(seq uint64) {
	for c.session {
		last := c.lastSeq.Load()
		if seq <= last || c.lastSeq.CompareAndSwap(last, seq) {
			return
		}
	}
}

// parseError decodes the error of a reply or of a batch operation. A malformed body gives
// an error with that status.
func parseError(status int, body []byte, fallback string) *Error {
	var e struct {
		Error   string `json:"error"`
		Message string `json:"message"`
	}
	if json.Unmarshal(body, &e) != nil || e.Error == "" {
		e.Error, e.Message = nameOf(status), fallback
	}
	return &Error{Code: status, Name: e.Error, Message: inGo.Replace(e.Message)}
}

func nameOf(status int) string {
	for _, e := range []*Error{ErrBadRequest, ErrPreconditionFailed, ErrTooLarge, ErrFailedDependency, ErrOverloaded, ErrTimeout} {
		if e.Code == status {
			return e.Name
		}
	}
	if status >= 500 {
		return ErrUnavailable.Name
	}
	return "status_" + strconv.Itoa(status)
}
