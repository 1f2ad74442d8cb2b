package gate

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// Whether a client may edit a consumer is found out by asking JetStream, rather than by
// comparing configurations here: JetStream fills in defaults that depend on its version.
// Three requests tell all:
//
//	create as asked                        it is so already: its info is the reply
//	create, the editable fields as now     no other field differs; else refuse
//	update as asked                        the edit
//
// Create never changes a consumer that exists, so nothing is changed before it is clear
// that it may be.

// editable names the fields that replace sets.
const editable = "description, metadata, filters, ack_wait, max_deliver, backoff and max_ack_pending"

// replace sets the fields of a consumer that clients may edit. The others say what a
// consumer is: another deliver_subject, or another end, would take it from its owner.
func replace(c, by *server.ConsumerConfig) {
	c.Description, c.Metadata = by.Description, by.Metadata
	c.FilterSubject, c.FilterSubjects = by.FilterSubject, by.FilterSubjects
	c.AckWait, c.MaxDeliver, c.BackOff, c.MaxAckPending = by.AckWait, by.MaxDeliver, by.BackOff, by.MaxAckPending
}

// edit answers a request for a consumer that exists with another configuration. It edits
// the consumer if the client asks for that, may do it, and changes editable fields only.
// JetStream compares the others, with its defaults: it finds a consumer that is to be
// created with the configuration that it has.
func (g *Gate) edit(ctx context.Context, m *nats.Msg, r server.CreateConsumerRequest, there *server.ApiError) (answer []byte, fault *server.ApiError, err error) {
	differs := there.Description + " with another configuration: "
	if isAuditor(m.Reply) {
		there.Description = differs + "an auditor edits no consumer: use another name"
		return nil, there, nil
	}
	action, name := r.Action, r.Config.Name
	info, err := g.info(ctx, r.Stream, name)
	if err != nil {
		return nil, nil, err
	} else if info.Error != nil {
		return nil, info.Error, nil
	}
	was := info.Config
	ownerOf(was.Metadata).mark(&r.Config)
	if r.Config.DeliverSubject == "" && senderOf(m) != ownerOf(was.Metadata) { // as it is shown to them
		r.Config.DeliverSubject = was.DeliverSubject
	}
	if r.Config.MaxAckPending != was.MaxAckPending { // one that is older than the limit keeps it
		r.Config.MaxAckPending = min(r.Config.MaxAckPending, maxAckPending)
	}
	try := func(r server.CreateConsumerRequest) (answer []byte, fault *server.ApiError, err error) {
		return g.createOnly(ctx, &nats.Msg{Subject: createSubject(r), Header: m.Header}, &r)
	}
	r.Action = server.ActionCreate
	if answer, fault, err = try(r); err != nil || !exists(fault) {
		return answer, fault, err
	}
	if action == server.ActionCreate {
		fault.Description = differs + fmt.Sprintf("update it (nats consumer edit %s %s), or use another name", r.Stream, name)
		return nil, fault, nil
	}
	if why, err := g.mayEdit(ctx, m, was); err != nil {
		return nil, nil, err
	} else if why != nil {
		fault.Description = differs + why.Error()
		return nil, fault, nil
	}
	same := r
	same.Pedantic = false
	replace(&same.Config, was)
	if _, fault, err = try(same); err != nil {
		return nil, nil, err
	} else if exists(fault) {
		fault.Description = differs + fmt.Sprintf("only %s can be edited: use another name, or delete it first (nats consumer rm %s %s)", editable, r.Stream, name)
		return nil, fault, nil
	} else if fault != nil {
		return nil, fault, nil
	}
	r.Action = server.ActionUpdate
	return try(r)
}

// createSubject has no filter, so that it fits the request with another one, too.
func createSubject(r server.CreateConsumerRequest) string {
	return "$JS.API.CONSUMER.CREATE." + r.Stream + "." + r.Config.Name
}

// mayEdit returns why a client may not edit a consumer, nil if it may: who may delete it
// may edit it.
func (g *Gate) mayEdit(ctx context.Context, m *nats.Msg, c *server.ConsumerConfig) (why, err error) {
	if byImport(m) {
		return notOwned(accountOf(m), c), nil
	} else if g.oneUser {
		return nil, nil
	}
	if own, err := g.ownInbox(ctx, m.Reply); own || err != nil {
		return nil, err
	}
	return errors.New("its sender must receive the reply by a wildcard of its own, such as _INBOX.<random>.*, to edit it, as client libraries do"), nil
}

// ownInbox reports whether reply is plausibly an inbox of the sender. An auditor, who
// creates consumers as others do, could name an inbox that is no auditor's. It can't guess
// where another client listens to all of its replies, and an inbox that it knows as a
// deliver_subject is the only one there. Where somebody listens to the inboxes of all
// clients, there is no telling.
func (g *Gate) ownInbox(ctx context.Context, inbox string) (bool, error) {
	client := strings.TrimSuffix(inbox, "."+lastToken(inbox))
	all := strings.TrimSuffix(client, lastToken(client))
	if all == "" {
		return false, nil
	}
	heard, err := g.hasSubscriber(ctx, client+"."+rand.Text())
	if err != nil || !heard {
		return false, err
	}
	heard, err = g.hasSubscriber(ctx, all+rand.Text()+"."+rand.Text())
	return !heard, err
}

// hasSubscriber probes subject with an empty message. NATS reports that nobody listens
// before it answers a flush.
func (g *Gate) hasSubscriber(ctx context.Context, subject string) (bool, error) {
	sub, err := g.clients.SubscribeSync("$KV." + rand.Text()) // as the gate may; NATS refuses replies below $JS.
	if err != nil {
		return false, err
	}
	defer unsubscribe([]*nats.Subscription{sub})
	if err := g.clients.PublishRequest(subject, sub.Subject, nil); err != nil {
		return false, err
	}
	if err := g.clients.FlushWithContext(ctx); err != nil {
		return false, err
	}
	reports, _, err := sub.Pending()
	return reports == 0, err
}
