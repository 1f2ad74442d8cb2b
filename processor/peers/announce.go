package peers

import (
	"encoding/json"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/lapsedb/lapse/processor/observe"
)

// serviceName is the name of each database as a NATS service.
const serviceName = "lapse"

// Keys of the metadata of the service.
const (
	metaDatabase = "database"
	metaRole     = "role"
	metaLog      = "log"     // identity of the log
	metaProcess  = "process" // id, the same over restarts
	metaNode     = "node"    // the same, for clients of 0.3.0
)

// Announce answers PING, INFO and STATS by which NATS finds services (ADR-32), at the
// subjects of all services, of lapse, of this process, and of the processes of its
// database. settles says that standbys may ask this process for its Settlement. The
// caller drains the subscriptions, also after an error.
func (p *Peers) Announce(endpoints []micro.EndpointInfo, stats func() []*micro.EndpointStats, settles bool) (subscriptions []*nats.Subscription, err error) {
	subscribe := func(subject string, handle nats.MsgHandler) {
		if err != nil {
			return
		}
		var sub *nats.Subscription
		if sub, err = p.nc.Subscribe(subject, handle); err == nil {
			subscriptions = append(subscriptions, sub)
		}
	}
	if settles {
		subscribe(p.settledSubject(), p.vouch)
	}
	subscribe(p.inbox()+"*", p.hear)
	for verb, value := range map[micro.Verb]func() any{
		micro.PingVerb: func() any { return micro.Ping{ServiceIdentity: p.identity(), Type: micro.PingResponseType} },
		micro.InfoVerb: func() any {
			return micro.Info{ServiceIdentity: p.identity(), Type: micro.InfoResponseType, Description: "documents with a time to live", Endpoints: endpoints}
		},
		micro.StatsVerb: func() any {
			return micro.Stats{ServiceIdentity: p.identity(), Type: micro.StatsResponseType, Started: p.started, Endpoints: stats()}
		},
	} {
		reply := func(m *nats.Msg) {
			text, err := json.Marshal(value())
			if err == nil {
				_ = m.Respond(text) // or there is no reply subject, or no connection
			}
		}
		prefix := micro.APIPrefix + "." + verb.String()
		of := prefix + "." + serviceName
		for _, subject := range []string{prefix, of, of + "." + p.id, of + "." + string(p.Database)} {
			subscribe(subject, reply)
		}
	}
	return subscriptions, err
}

// identity returns who answers, in the role of this moment: a writer whose lease has
// expired is a standby.
func (p *Peers) identity() micro.ServiceIdentity {
	role := observe.Standby
	if p.OnlyWriter() {
		role = observe.Writer
	}
	return micro.ServiceIdentity{Name: serviceName, ID: p.id, Version: p.Version, Metadata: map[string]string{
		metaDatabase: string(p.Database),
		metaRole:     string(role),
		metaLog:      p.Log.Identity(),
		metaProcess:  p.Node,
		metaNode:     p.Node,
	}}
}
