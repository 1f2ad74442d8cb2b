package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// create makes a consumer as rules allow, or edits one, see edit. One at a time: between
// counting the consumers and making one no other is made by this gate. Requests that wait
// meanwhile are limited by their subscription (maxPassing).
func (g *Gate) create(m *nats.Msg, o operation) {
	g.creating.Lock()
	defer g.creating.Unlock()
	ctx, cancel := context.WithTimeout(g.ctx, callTimeout)
	defer cancel()
	answer, err := g.createConsumer(ctx, m, o.stream(m))
	var refusal *server.ApiError
	if errors.As(err, &refusal) {
		g.answer(m, server.ApiResponse{Type: o.reply, Error: refusal})
		return
	}
	if err == nil {
		err = g.clients.Publish(m.Reply, answer)
	}
	if err != nil {
		g.failCall(m, o, len(answer), err)
	}
}

// createConsumer returns JetStream's reply for a consumer of a log. A *server.ApiError is
// the reply, too.
func (g *Gate) createConsumer(ctx context.Context, m *nats.Msg, log string) (answer []byte, err error) {
	r, err := readCreate(m.Data)
	if err != nil {
		return nil, server.NewJSInvalidJSONError(err)
	}
	c := &r.Config
	if err := g.admit(ctx, m, log, r); err != nil {
		return nil, err
	}
	// An edit has to know what was asked for, before defaults and limits change it.
	original := *r
	// Never update: what may be edited is decided by edit.
	r.Action = server.ActionCreate
	c.MaxAckPending = min(c.MaxAckPending, maxAckPending)
	answer, fault, err := g.createOnly(ctx, m, r)
	if err == nil && exists(fault) {
		answer, fault, err = g.edit(ctx, m, original, fault)
	}
	switch {
	case err != nil:
		return nil, err
	case fault == nil:
		return shown(answer, senderOf(m))
	case fault.ErrCode == uint16(server.JSMaximumConsumersLimitErr):
		fault.Description += fmt.Sprintf(": the NATS server allows %s fewer than lapse: remove those that nobody uses (nats consumer ls %[1]s, nats consumer rm), or raise max_consumers there", log)
		if now := time.Now(); now.Sub(g.warned) > time.Minute {
			g.warned = now
			g.logger.Warn("the NATS server allows fewer consumers of the log than lapse: raise max_consumers there, or remove those that nobody uses",
				"stream", log, "needed", neededConsumers)
		}
	}
	return nil, fault
}

// admit completes a request for a consumer, and returns an error if the client may not have it.
func (g *Gate) admit(ctx context.Context, m *nats.Msg, log string, r *server.CreateConsumerRequest) error {
	c, by := &r.Config, senderOf(m)
	nameConsumer(c, strings.TrimPrefix(m.Subject, "$JS.API.CONSUMER."), log)
	if err := check(c, inboxPrefix(m.Reply)); err != nil {
		return notPermitted(err)
	} else if by.account != "" && c.DeliverSubject != "" && strings.Count(c.DeliverSubject, ".") < 2 {
		return notPermitted(errPush)
	}
	c.DeliverSubject = streamsInbox(c.DeliverSubject)
	if c.Durable == "" && c.InactiveThreshold <= 0 {
		// The server stores this default, but compares a request without it.
		c.InactiveThreshold = server.JsDeleteWaitTimeDefault
	}
	by.mark(c)
	names, err := g.consumers(ctx, log)
	switch {
	case err != nil:
		return err
	case c.DeliverSubject != "" && g.taken(ctx, log, names, c, by):
		return notPermitted(errTaken)
	case r.Action != server.ActionUpdate:
		return g.full(ctx, log, names, c.Name, by.account)
	}
	if there, err := g.exists(ctx, log, c.Name); err != nil || there {
		return err
	}
	return server.NewJSConsumerDoesNotExistError()
}

// createOnly has JetStream create a consumer. JetStream fills in defaults, and refuses
// a consumer that exists with another configuration.
func (g *Gate) createOnly(ctx context.Context, m *nats.Msg, r *server.CreateConsumerRequest) (answer []byte, fault *server.ApiError, err error) {
	body, err := json.Marshal(r)
	if err != nil {
		return nil, nil, err
	}
	made, err := g.ask(ctx, &nats.Msg{Subject: m.Subject, Header: apiHeader(m), Data: body})
	if err != nil {
		return nil, nil, err
	}
	var response server.ApiResponse
	err = json.Unmarshal(made.Data, &response)
	return made.Data, response.Error, err
}

func exists(e *server.ApiError) bool {
	return e != nil && e.ErrCode == uint16(server.JSConsumerAlreadyExists)
}

// nameConsumer sets the name that the server will use: that of the subject, if it has
// one.
func nameConsumer(c *server.ConsumerConfig, subject, stream string) {
	if rest, ok := strings.CutPrefix(subject, "DURABLE.CREATE."+stream+"."); ok {
		c.Name = rest
	} else if rest, ok := strings.CutPrefix(subject, "CREATE."+stream+"."); ok {
		c.Name, _, _ = strings.Cut(rest, ".")
	}
}
