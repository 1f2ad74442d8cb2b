package client

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/schema"
)

// Consumer is the state of a consumer of the log.
type Consumer struct {
	Name        string     `json:"name"`
	Description string     `json:"description,omitempty"`
	Account     string     `json:"account,omitempty"` // that created it by imports; "" for the account of lapse's clients
	Pending     uint64     `json:"pending"`           // events that it has not delivered yet, of those it wants
	Unacked     int        `json:"unacked"`           // delivered, and not acknowledged yet
	Seq         uint64     `json:"seq"`               // of the log, up to which all is delivered and acknowledged
	LastAck     *time.Time `json:"lastAck,omitempty"` // nil for none since the NATS server began, or where nothing is acknowledged
	Paused      bool       `json:"paused,omitempty"`
	Failing     uint64     `json:"failing,omitempty"`  // sequence of the first event that Handle has not brought to an end
	Failures    uint64     `json:"failures,omitempty"` // of that event
	Reader      bool       `json:"reader,omitempty"`   // of a program that reads for a while, as watch, export or Changes do
}

// Consumers returns the consumers of the log, lapse's own left out, by name. It fails with
// ErrUnavailable if the NATS user may not list them.
//
// It asks page by page, 256 consumers each. Between two pages some may come or go: a list
// is not one moment's.
func (c *Client) Consumers(ctx context.Context) (all []Consumer, err error) {
	subject := c.api() + "CONSUMER.LIST." + c.database.LogStream()
	if _, has := ctx.Deadline(); !has {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.timeout)
		defer cancel()
	}
	ctx, release := c.denials.guard(ctx, subject)
	defer release()
	for seen, total := 0, 1; seen < total; {
		reply, err := c.nc.RequestWithContext(ctx, subject, fmt.Appendf(nil, `{"offset":%d}`, seen))
		if err != nil {
			return nil, c.readError(ctx, c.denied(ctx, err, ErrUnavailable.With("this NATS user may not list the consumers of the log: permit it %s", subject)))
		}
		var page struct {
			Total     int                       `json:"total"`
			Consumers []*jetstream.ConsumerInfo `json:"consumers"`
			Error     *jetstream.APIError       `json:"error"`
		}
		if err := json.Unmarshal(reply.Data, &page); err != nil {
			return nil, ErrUnavailable.With("the reply to %s is no list of consumers: %v", subject, err)
		}
		if page.Error != nil {
			return nil, c.readError(ctx, page.Error)
		}
		for _, info := range page.Consumers {
			if strings.HasPrefix(info.Name, schema.ServerConsumer) {
				continue
			}
			state := Consumer{Name: info.Name, Description: info.Config.Description, Account: info.Config.Metadata[schema.ConsumerAccount], Pending: info.NumPending, Unacked: info.NumAckPending,
				Seq: info.AckFloor.Stream, Paused: info.Paused, Reader: strings.HasPrefix(info.Name, schema.ReaderConsumer)}
			if info.Config.AckPolicy != jetstream.AckNonePolicy {
				state.LastAck = info.AckFloor.Last
			}
			if t := readTries(info.Config.Metadata); t.Seq > info.AckFloor.Stream {
				state.Failing, state.Failures = t.Seq, t.Failed
			}
			all = append(all, state)
		}
		if total = page.Total; len(page.Consumers) == 0 {
			break // the last ones have gone meanwhile
		}
		seen += len(page.Consumers)
	}
	slices.SortFunc(all, func(a, b Consumer) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}
