package service

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/schema/asyncapi"
)

// endpoints are the subscriptions of one role: to requests, and to $SRV.>, by which NATS
// finds services (ADR-32). micro.Service would count a request as served, without an
// error, when its handler returns, which is when it is queued.
type endpoints struct {
	*Service
	info          micro.Info
	operations    map[string][]string // by name of the endpoint
	subscriptions []*nats.Subscription
}

func (s *Service) newEndpoints(metadata map[string]string) *endpoints {
	return &endpoints{Service: s, operations: make(map[string][]string), info: micro.Info{
		ServiceIdentity: micro.ServiceIdentity{Name: "lapse", ID: rand.Text(), Version: s.Config.Version, Metadata: metadata},
		Type:            micro.InfoResponseType,
		Description:     "documents with a time to live",
	}}
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
	e.info.Endpoints = append(e.info.Endpoints, micro.EndpointInfo{Name: name, Subject: subject,
		QueueGroup: queue, Metadata: maps.Clone(asyncapi.Metadata(operations...))})
	return sub.SetPendingLimits(-1, pendingBytes)
}

// announce subscribes to PING, INFO and STATS of all services, of lapse, of this
// process, and of the processes of its database, and answers them.
func (e *endpoints) announce() error {
	if err := e.subscribe(e.inbox()+"*", e.hear); err != nil {
		return err
	}
	for verb, value := range map[micro.Verb]func() any{
		micro.PingVerb: func() any { return micro.Ping{ServiceIdentity: e.identity(), Type: micro.PingResponseType} },
		micro.InfoVerb: func() any {
			info := e.info
			info.ServiceIdentity = e.identity()
			return info
		},
		micro.StatsVerb: func() any { return e.stats() },
	} {
		for _, of := range [][2]string{{}, {e.info.Name}, {e.info.Name, e.info.ID}, {e.info.Name, string(e.Config.Database)}} {
			subject, err := micro.ControlSubject(verb, of[0], of[1])
			if err != nil {
				return err
			}
			err = e.subscribe(subject, func(m *nats.Msg) {
				text, err := json.Marshal(value())
				if err == nil {
					_ = m.Respond(text) // or there is no reply subject, or no connection
				}
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// identity returns who answers, in the role of this moment: a writer whose lease has
// expired is a standby.
func (e *endpoints) identity() micro.ServiceIdentity {
	is := e.info.ServiceIdentity
	if is.Metadata[metaRole] == string(observe.Writer) && !e.OnlyWriter() {
		is.Metadata = maps.Clone(is.Metadata)
		is.Metadata[metaRole] = string(observe.Standby)
	}
	return is
}

func (e *endpoints) subscribe(subject string, handle nats.MsgHandler) error {
	sub, err := e.NC.Subscribe(subject, handle)
	if err == nil {
		e.subscriptions = append(e.subscriptions, sub)
	}
	return err
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

// stats returns the statistics of all requests of this process, in any role, by endpoint.
func (e *endpoints) stats() micro.Stats {
	data, err := json.Marshal(e.statsData())
	if err != nil {
		data = nil
	}
	stats := micro.Stats{ServiceIdentity: e.identity(), Type: micro.StatsResponseType, Started: e.started, Endpoints: []*micro.EndpointStats{}}
	for _, info := range e.info.Endpoints {
		one := &micro.EndpointStats{Name: info.Name, Subject: info.Subject, QueueGroup: info.QueueGroup, Data: data}
		operations := e.operations[info.Name]
		var last replyError
		for i := range e.served {
			misspelt := i == len(schema.Operations) && info.Name == "api"
			if !misspelt && !slices.Contains(operations, schema.OperationName(i)) {
				continue
			}
			requests, failed := e.Operations.sum(i)
			one.NumRequests += int(requests)
			one.NumErrors += int(failed)
			one.ProcessingTime += time.Duration(e.served[i].took.Load())
			if newest := e.served[i].lastError.Load(); newest != nil && newest.at.After(last.at) {
				last = *newest
			}
		}
		if last.fault != nil {
			one.LastError = fmt.Sprintf("%d:%s", last.fault.Code, last.fault)
		}
		if one.NumRequests > 0 {
			one.AverageProcessingTime = one.ProcessingTime / time.Duration(one.NumRequests)
		}
		stats.Endpoints = append(stats.Endpoints, one)
	}
	return stats
}
