package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
)

// Process is one process that serves the database.
type Process struct {
	ID       string `json:"id"`
	Version  string `json:"version"`
	Role     string `json:"role"` // "writer" or "standby"
	Seq      uint64 `json:"seq"`
	Waiting  int    `json:"waiting"` // queued requests
	Requests int    `json:"requests"`
	Errors   int    `json:"errors"`
	Started  string `json:"started,omitempty"` // RFC 3339
}

// quiet is the time without another answer after which all have answered.
const quiet = 300 * time.Millisecond

// Processes asks every process that serves the database, the writer first. It fails with
// ErrUnavailable if none does.
func (c *Client) Processes(ctx context.Context) ([]Process, error) {
	infos, err := gather[micro.Info](ctx, c, "$SRV.INFO.lapse")
	if err != nil {
		return nil, c.transportError(err)
	}
	found := make(map[string]*Process)
	for _, info := range infos {
		if info.Metadata["database"] == c.Database() {
			found[info.ID] = &Process{ID: info.ID, Version: info.Version, Role: cmp.Or(info.Metadata["role"], "writer")}
		}
	}
	if len(found) == 0 {
		return nil, c.codeOf(nats.ErrNoResponders)
	}
	stats, err := gather[micro.Stats](ctx, c, "$SRV.STATS.lapse")
	if err != nil {
		return nil, c.transportError(err)
	}
	for _, one := range stats {
		if p := found[one.ID]; p != nil {
			p.read(&one)
		}
	}
	var all []Process
	for _, p := range found {
		all = append(all, *p)
	}
	slices.SortFunc(all, func(a, b Process) int {
		return cmp.Or(cmp.Compare(b.Role, a.Role), cmp.Compare(a.Started, b.Started), cmp.Compare(a.ID, b.ID))
	})
	return all, nil
}

// read takes over the statistics of a service.
func (p *Process) read(stats *micro.Stats) {
	p.Started = stats.Started.UTC().Format(time.RFC3339)
	for _, endpoint := range stats.Endpoints { // each has the same data
		var said struct {
			Process struct {
				Seq     uint64 `json:"seq"`
				Waiting int    `json:"waiting"`
			} `json:"process"`
		}
		var operations map[string]struct{ Requests, Errors int }
		if json.Unmarshal(endpoint.Data, &said) != nil || json.Unmarshal(endpoint.Data, &operations) != nil {
			continue
		}
		p.Seq, p.Waiting, p.Requests, p.Errors = said.Process.Seq, said.Process.Waiting, 0, 0
		for _, n := range operations {
			p.Requests += n.Requests
			p.Errors += n.Errors
		}
		return
	}
}

// gather sends a request to all subscribers and returns all answers.
func gather[T any](ctx context.Context, c *Client, subject string) (all []T, err error) {
	guarded, release := c.denials.guard(ctx, subject)
	defer release()
	inbox := c.nc.NewInbox()
	sub, err := c.nc.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := c.nc.PublishRequest(subject, inbox, nil); err != nil {
		return nil, err
	}
	wait := c.timeout // for the first answer
	for {
		ctx, cancel := context.WithTimeout(guarded, wait)
		m, err := sub.NextMsgWithContext(ctx)
		cancel()
		if err != nil || len(m.Data) == 0 && m.Header.Get("Status") == noResponders {
			if len(all) == 0 && err != nil && !isTimeout(err) {
				return nil, c.denied(guarded, err)
			}
			return all, nil
		}
		var one T
		if json.Unmarshal(m.Data, &one) == nil {
			all = append(all, one)
		}
		wait = quiet
	}
}

const noResponders = "503"

func isTimeout(err error) bool {
	return errors.Is(err, nats.ErrTimeout) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrNoResponders)
}
