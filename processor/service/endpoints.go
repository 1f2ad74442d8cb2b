package service

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/processor/writer"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/schema/asyncapi"
)

// The micro service depends on the role. The writer's has one endpoint for everything,
// so that mutations are handled in the order of their arrival, and a misspelt operation
// gets a 400 rather than "no responders". A standby's has one for each operation that it
// answers. All are in one queue group: a request goes to one process that can answer it.
//
// With standbys, a writer that hangs keeps its subscriptions until NATS notices. In a
// queue group it would receive a share of the requests that only its successor can
// answer. So with standbys the writer's endpoint is in no queue group. It ignores
// everything once its lease may have expired, which is before another process has it.
// Reads arrive at endpoints like a standby's. If the lease misleads two processes, both
// get each request. The fence ends the term of one of them, and no later term of that
// process decides requests of this endpoint: the other process may have applied them.

// endpoints are the subscriptions of one role. They are none of micro.Service, which would
// count a request as served, without an error, when its handler returns, which is when it
// is queued. They are made by listen, and stopped when the role ends; none changes in
// between.
type endpoints struct {
	*Service
	infos         []micro.EndpointInfo
	operations    map[string][]string // by name of the endpoint
	subscriptions []*nats.Subscription
}

// queueGroup is the queue group of requests that several processes can answer.
const queueGroup = micro.DefaultQueueGroup

// add adds an endpoint for requests with this subject tail, in a queue group or "".
func (e *endpoints) add(name, tail, queue string, handle nats.MsgHandler, operations ...string) error {
	subject := e.Config.Database.API() + tail
	sub, err := e.NC.QueueSubscribe(subject, queue, handle)
	if err != nil {
		return err
	}
	e.subscriptions = append(e.subscriptions, sub)
	e.operations[name] = operations
	e.infos = append(e.infos, micro.EndpointInfo{Name: name, Subject: subject,
		QueueGroup: queue, Metadata: maps.Clone(asyncapi.Metadata(operations...))})
	return sub.SetPendingLimits(-1, pendingBytes)
}

// stop drains the subscriptions.
func (e *endpoints) stop() error {
	for _, sub := range e.subscriptions {
		if err := sub.Drain(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) && !errors.Is(err, nats.ErrBadSubscription) {
			return err
		}
	}
	return nil
}

// Become serves the endpoints of a role. It subscribes to the new ones before it drains the
// old ones, so that every read has a responder. For a moment both are there.
func (s *Service) Become(role observe.Role) error {
	s.roles.Lock()
	defer s.roles.Unlock()
	if s.ended {
		return nil
	}
	s.writes.Store(role == observe.Writer)
	if role == observe.Standby {
		s.Writer.Renewals.Clear()
	}
	reconnects := s.NC.Stats().Reconnects
	next, err := s.listen(role)
	if err != nil {
		return fmt.Errorf("serve requests: %w", err)
	}
	before := s.endpoints
	s.endpoints = next
	s.subscriptions.Store(int64(len(next.subscriptions)))
	s.peers.Process.Changed()
	if before != nil {
		if err := before.stop(); err != nil && !s.NC.IsClosed() {
			return fmt.Errorf("stop the endpoints of the last role: %w", err)
		}
		s.workers.Go(func() { s.dropSubscriptions(reconnects) })
	}
	return nil
}

// dropSubscriptions makes sure that NATS drops the subscriptions of the last role. If the
// connection reconnects during their drain, nats.go subscribes again and never
// unsubscribes: a share of the requests would be lost for ever. In that case it
// reconnects once more, after the drain. reconnects is the number of reconnects before
// the drain.
func (s *Service) dropSubscriptions(reconnects uint64) {
	drained := false // once true, reconnects is the count at the end of the drain
	for s.ctx.Err() == nil && !s.NC.IsClosed() {
		flushed := s.NC.FlushTimeout(serveTimeout) == nil
		now := s.NC.Stats().Reconnects
		switch {
		case drained && now > reconnects, !drained && flushed && now == reconnects:
			return // NATS knows only the subscriptions of the role now
		case !drained && flushed && s.NC.NumSubscriptions() <= int(s.subscriptions.Load())+s.ofProcess():
			drained, reconnects = true, now
			_ = s.NC.ForceReconnect() // or it is closed
		}
		select {
		case <-time.After(eventlog.ResumeInterval):
		case <-s.ctx.Done():
		}
	}
}

// Role returns the role of the process. A writer whose lease has expired is a standby,
// even while it waits for NATS to serve one's endpoints.
func (s *Service) Role() observe.Role {
	if s.OnlyWriter() {
		return observe.Writer
	}
	return observe.Standby
}

// listen subscribes to the endpoints of a role.
func (s *Service) listen(role observe.Role) (_ *endpoints, err error) {
	next := &endpoints{Service: s, operations: make(map[string][]string)}
	defer func() {
		if err != nil {
			_ = next.stop()
		}
	}()
	handle := func(m *nats.Msg) { s.handle(m, nil) }
	if role == observe.Writer && s.Lease == nil {
		err = next.add("api", ">", queueGroup, handle, schema.OperationNames(nil)...)
	} else if role == observe.Writer {
		term := s.Writer.Term.Load()
		if term == nil {
			term = new(writer.Term) // it has ended already
		}
		err = next.add("api", ">", "", func(m *nats.Msg) { s.handleMutation(m, term) }, schema.OperationNames(func(o schema.OperationInfo) bool { return !o.Standby })...)
	}
	if s.Lease != nil || role == observe.Standby {
		for _, o := range schema.Operations {
			tail := o.Name + ".>"
			if o.Tail == schema.NoTail {
				tail = o.Name
			}
			if err == nil && o.Standby {
				err = next.add(strings.ReplaceAll(o.Name, ".", "-"), tail, queueGroup, handle, o.Name)
			}
		}
	}
	if err == nil {
		var announced []*nats.Subscription
		announced, err = s.peers.Announce(next.infos, next.stats, role == observe.Writer && s.Lease != nil)
		next.subscriptions = append(next.subscriptions, announced...)
	}
	if err == nil && s.NC.IsConnected() {
		// Wait until NATS has the subscriptions, or gets them at a reconnect.
		if s.endpoints == nil {
			if err = flush(s.NC); err == nil {
				err = next.refused()
			}
		} else {
			_ = s.NC.FlushTimeout(becomeTimeout)
		}
	}
	return next, err
}

// refused returns an error if NATS has refused one of the subscriptions.
func (e *endpoints) refused() error {
	subjects := e.peers.Process.Subjects(e.NC)
	for _, sub := range e.subscriptions {
		subjects = append(subjects, sub.Subject)
	}
	return eventlog.Refused(e.NC, subjects...)
}

// flush waits until NATS has received everything sent before. FlushTimeout also fails
// with ErrConnectionClosed if the connection is lost meanwhile and reconnects.
func flush(nc *nats.Conn) error {
	for {
		err := nc.FlushTimeout(serveTimeout)
		if !errors.Is(err, nats.ErrConnectionClosed) || nc.IsClosed() {
			return err
		}
	}
}

// isRead reports whether the endpoints of a standby receive a request.
func isRead(name string) bool {
	op, tail := schema.SplitOperation(name)
	o := schema.OperationOf(op)
	return o.Standby && (o.Tail == schema.NoTail) == (tail == "")
}
