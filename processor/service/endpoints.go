package service

import (
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/micro"

	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/schema/asyncapi"
)

// The service is one of two: the writer's has one endpoint, which takes all, so
// that requests that change something are taken in the order in which they came,
// and a misspelt operation is told so instead of finding nobody there. A
// standby's has one for each operation that it can answer. All are in one queue
// group, so a request goes to one of those who can answer it.

// readNames are the operations that a standby answers.
var readNames = [...]string{
	"collection.get", "collection.list", "document.get", "query", "forecast", "history", "status",
}

// Become says to NATS what this processor answers from now on. What was known
// before ends after that: nobody who reads finds nobody here.
func (s *Service) Become(role observe.Role) error {
	s.roles.Lock()
	defer s.roles.Unlock()
	if s.ended {
		return nil
	}
	s.Writes.Store(role == observe.Writer)
	reconnects := s.NC.Stats().Reconnects
	next, err := s.listen(role)
	if err != nil {
		return fmt.Errorf("serve requests: %w", err)
	}
	before := s.micro
	s.micro = next
	s.subscriptions.Store(int64(len(next.Info().Endpoints) + verbSubscriptions))
	if before != nil {
		if err := before.Stop(); err != nil && !s.NC.IsClosed() {
			return fmt.Errorf("end serving as before: %w", err)
		}
		s.workers.Go(func() { s.Forget(reconnects) })
	}
	return nil
}

// verbSubscriptions is how many a service has besides those of its endpoints: PING,
// INFO and STATS for all, for its name and for its id.
const verbSubscriptions = 9

// Forget sees to it that NATS forgets what was served before. While that is
// drained, nats.go subscribes to it again when it connects again, and then says
// nothing of its end: a share of the requests would go there for ever. So where
// that happened it connects once more, to what is left. reconnects is how often
// the connection was made again before the end.
func (s *Service) Forget(reconnects uint64) {
	left := false // there is nothing but what is left, since reconnects
	for s.ctx.Err() == nil && !s.NC.IsClosed() {
		flushed := s.NC.FlushTimeout(serveTimeout) == nil
		now := s.NC.Stats().Reconnects
		switch {
		case left && now > reconnects, !left && flushed && now == reconnects:
			return // NATS has heard of the end
		case !left && flushed && int64(s.NC.NumSubscriptions()) <= s.subscriptions.Load():
			left, reconnects = true, now
			_ = s.NC.ForceReconnect() // or it is closed
		}
		select {
		case <-time.After(eventlog.ResumeInterval):
		case <-s.ctx.Done():
		}
	}
}

// Role is what this processor does for its database.
func (s *Service) Role() observe.Role {
	if s.Writes.Load() {
		return observe.Writer
	}
	return observe.Standby
}

// listen adds the service of a role.
func (s *Service) listen(role observe.Role) (_ micro.Service, err error) {
	added, err := micro.AddService(s.NC, micro.Config{
		Name:        "lapse",
		Version:     s.Config.Version,
		Description: "documents with a time to live",
		Metadata: map[string]string{
			metaDatabase: string(s.Config.Database),
			metaRole:     string(role),
			metaLog:      s.Log.Identity(),
			metaNode:     s.Config.Node,
		},
		StatsHandler: func(*micro.Endpoint) any { return s.stats() },
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = added.Stop()
		}
	}()
	if role == observe.Writer {
		err = s.answer(added, "api", ">", schema.Operations[:]...)
	} else {
		for _, name := range readNames {
			tail := name + ".>"
			if name == "status" || name == "collection.list" {
				tail = name
			}
			if err = s.answer(added, strings.ReplaceAll(name, ".", "-"), tail, name); err != nil {
				break
			}
		}
	}
	if err == nil && s.NC.IsConnected() {
		// Who asks from now on finds somebody here. If the connection is about to
		// be lost, that is so when it is back.
		if s.micro == nil {
			err = s.NC.FlushTimeout(serveTimeout)
		} else {
			_ = s.NC.FlushTimeout(BecomeTimeout)
		}
	}
	return added, err
}

// What the service's metadata says.
const (
	metaDatabase = "database"
	metaRole     = "role"
	metaLog      = "log"  // identity of the log
	metaNode     = "node" // of the process, the same over restarts
)

// answer adds an endpoint for requests whose subject ends like this.
func (s *Service) answer(to micro.Service, name, tail string, operations ...string) error {
	return to.AddEndpoint(name, micro.HandlerFunc(s.handle),
		micro.WithEndpointSubject(s.Config.Database.API()+tail),
		micro.WithEndpointPendingLimits(-1, pendingBytes),
		micro.WithEndpointMetadata(asyncapi.Metadata(operations...)))
}

// LeaseTrouble notes what keeps this processor from finding out who should
// write, nil for nothing.
func (s *Service) LeaseTrouble(err error) {
	before := s.trouble.Swap(&err)
	troubled := before != nil && *before != nil
	switch {
	case err != nil && !troubled:
		s.Config.Events(observe.LeaseUnreachable{Err: err})
	case err == nil && troubled:
		s.Config.Events(observe.LeaseReachable{})
	}
}
