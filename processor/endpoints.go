package processor

import (
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/micro"

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

// become says to NATS what this processor answers from now on. What was known
// before ends after that: nobody who reads finds nobody here.
func (s *service) become(role Role) error {
	s.roles.Lock()
	defer s.roles.Unlock()
	if s.ended {
		return nil
	}
	s.writes.Store(role == Writer)
	reconnects := s.nc.Stats().Reconnects
	next, err := s.listen(role)
	if err != nil {
		return fmt.Errorf("serve requests: %w", err)
	}
	before := s.micro
	s.micro = next
	s.subscriptions.Store(int64(len(next.Info().Endpoints) + verbSubscriptions))
	if before != nil {
		if err := before.Stop(); err != nil && !s.nc.IsClosed() {
			return fmt.Errorf("end serving as before: %w", err)
		}
		s.workers.Go(func() { s.forget(reconnects) })
	}
	return nil
}

// verbSubscriptions is how many a service has besides those of its endpoints: PING,
// INFO and STATS for all, for its name and for its id.
const verbSubscriptions = 9

// forget sees to it that NATS forgets what was served before. While that is
// drained, nats.go subscribes to it again when it connects again, and then says
// nothing of its end: a share of the requests would go there for ever. So where
// that happened it connects once more, to what is left. reconnects is how often
// the connection was made again before the end.
func (s *service) forget(reconnects uint64) {
	left := false // there is nothing but what is left, since reconnects
	for s.ctx.Err() == nil && !s.nc.IsClosed() {
		flushed := s.nc.FlushTimeout(serveTimeout) == nil
		now := s.nc.Stats().Reconnects
		switch {
		case left && now > reconnects, !left && flushed && now == reconnects:
			return // NATS has heard of the end
		case !left && flushed && int64(s.nc.NumSubscriptions()) <= s.subscriptions.Load():
			left, reconnects = true, now
			_ = s.nc.ForceReconnect() // or it is closed
		}
		select {
		case <-time.After(resumeInterval):
		case <-s.ctx.Done():
		}
	}
}

// role is what this processor does for its database.
func (s *service) role() Role {
	if s.writes.Load() {
		return Writer
	}
	return Standby
}

// listen adds the service of a role.
func (s *service) listen(role Role) (_ micro.Service, err error) {
	added, err := micro.AddService(s.nc, micro.Config{
		Name:        "lapse",
		Version:     s.config.Version,
		Description: "documents with a time to live",
		Metadata: map[string]string{
			metaDatabase: string(s.config.Database),
			metaRole:     string(role),
			metaLog:      s.log.Identity(),
			metaNode:     s.config.Node,
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
	if role == Writer {
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
	if err == nil && s.nc.IsConnected() {
		// Who asks from now on finds somebody here. If the connection is about to
		// be lost, that is so when it is back.
		if s.micro == nil {
			err = s.nc.FlushTimeout(serveTimeout)
		} else {
			_ = s.nc.FlushTimeout(becomeTimeout)
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
func (s *service) answer(to micro.Service, name, tail string, operations ...string) error {
	return to.AddEndpoint(name, micro.HandlerFunc(s.handle),
		micro.WithEndpointSubject(s.config.Database.API()+tail),
		micro.WithEndpointPendingLimits(-1, pendingBytes),
		micro.WithEndpointMetadata(asyncapi.Metadata(operations...)))
}

// leaseTrouble notes what keeps this processor from finding out who should
// write, nil for nothing.
func (s *service) leaseTrouble(err error) {
	before := s.trouble.Swap(&err)
	troubled := before != nil && *before != nil
	switch {
	case err != nil && !troubled:
		s.config.Events.LeaseOutOfReach(err)
	case err == nil && troubled:
		s.config.Events.LeaseInReach(struct{}{})
	}
}
