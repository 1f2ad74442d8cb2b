package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
)

// Process is one process that serves a database.
type Process struct {
	Database string `json:"database,omitempty"` // set by AllProcesses only
	ID       string `json:"id"`
	Version  string `json:"version"`
	Role     string `json:"role"` // "writer" or "standby"
	Seq      uint64 `json:"seq"`
	Waiting  int    `json:"waiting"` // queued requests
	Requests int    `json:"requests"`
	Errors   int    `json:"errors"`
	Started  string `json:"started,omitempty"` // RFC 3339
	Error    string `json:"error,omitempty"`   // why the numbers are missing

	Node string `json:"-"` // the same for all databases of a process, and across restarts
}

// quiet is the time without a reply after which the list counts as complete.
const quiet = 300 * time.Millisecond

// Processes returns every process that serves the database, the writer first. It fails
// with ErrUnavailable if there is none.
func (c *Client) Processes(ctx context.Context) ([]Process, error) {
	all, err := c.processes(ctx, func(database string) bool { return database == c.Database() })
	if err == nil && len(all) == 0 {
		err = ErrUnavailable.With("no process serves database %q here: start `lapse serve --database %s`, or connect to the NATS server and account that has it", c.database, c.database)
	}
	for i := range all {
		all[i].Database = ""
	}
	return all, err
}

// AllProcesses is Processes for all databases that this NATS user reaches. A process that
// serves several databases is listed once for each.
func (c *Client) AllProcesses(ctx context.Context) ([]Process, error) {
	all, err := c.processes(ctx, func(string) bool { return true })
	if err == nil && len(all) == 0 {
		err = ErrUnavailable.With("no process serves a database here: start `lapse serve`, or connect to the NATS server and account that has it")
	}
	return all, err
}

// processes returns the sorted processes of some databases.
func (c *Client) processes(ctx context.Context, of func(database string) bool) ([]Process, error) {
	infos, err := gather[micro.Info](ctx, c, "$SRV.INFO.lapse", nil)
	if err != nil {
		return nil, err
	}
	found := make(map[string]*Process) // by ID of the service
	for _, info := range infos {
		if database := info.Metadata["database"]; of(database) {
			found[info.ID] = &Process{Database: database, ID: info.ID, Version: info.Version, Role: cmp.Or(info.Metadata["role"], "writer"),
				Error: fmt.Sprintf("no answer within %s", c.timeout), Node: cmp.Or(info.Metadata["node"], info.ID)}
		}
	}
	if len(found) == 0 {
		return nil, nil
	}
	answered := 0
	if _, err = gather(ctx, c, "$SRV.STATS.lapse", func(stats *micro.Stats) (all bool) {
		if p := found[stats.ID]; p != nil {
			p.read(stats)
			answered++
		}
		return answered == len(found)
	}); err != nil {
		return nil, err
	}
	var all []Process
	for _, p := range found {
		all = append(all, *p)
	}
	SortProcesses(all)
	return all, nil
}

// SortProcesses sorts as AllProcesses does: by database, the writer first, then by age.
func SortProcesses(all []Process) {
	slices.SortFunc(all, func(a, b Process) int {
		return cmp.Or(cmp.Compare(a.Database, b.Database), cmp.Compare(b.Role, a.Role), cmp.Compare(a.Started, b.Started), cmp.Compare(a.ID, b.ID))
	})
}

// read sets the fields that come from the statistics of a service.
func (p *Process) read(stats *micro.Stats) {
	p.Error, p.Started = "", stats.Started.UTC().Format(time.RFC3339)
	for _, endpoint := range stats.Endpoints { // each has the same data
		var data struct {
			Process struct {
				Seq     uint64 `json:"seq"`
				Waiting int    `json:"waiting"`
			} `json:"process"`
		}
		var operations map[string]struct{ Requests, Errors int }
		if json.Unmarshal(endpoint.Data, &data) != nil || json.Unmarshal(endpoint.Data, &operations) != nil {
			continue
		}
		p.Seq, p.Waiting, p.Requests, p.Errors = data.Process.Seq, data.Process.Waiting, 0, 0
		for _, n := range operations {
			p.Requests += n.Requests
			p.Errors += n.Errors
		}
		return
	}
}

// gather sends a request to all subscribers and returns their replies. It ends when last
// returns true for a reply or, if last is nil, when no reply has come for the time quiet.
func gather[T any](ctx context.Context, c *Client, subject string, last func(*T) bool) (all []T, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	ctx, release := c.denials.guard(ctx, subject)
	defer release()
	inbox := c.nc.NewInbox()
	sub, err := c.nc.SubscribeSync(inbox)
	if err != nil {
		return nil, c.transportError(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := c.nc.PublishRequest(subject, inbox, nil); err != nil {
		return nil, c.transportError(err)
	}
	for {
		m, err := next(ctx, sub, len(all) > 0 && last == nil)
		switch {
		case c.denials.cause(ctx, err) != nil:
			return nil, c.denied(ctx, err, ErrUnavailable.With("this NATS user has no permission to ask all processes: let it publish to %s and receive replies", subject))
		case timeout(err), errors.Is(err, nats.ErrNoResponders):
			return all, nil
		case err != nil:
			return all, c.transportError(err)
		case len(m.Data) == 0 && m.Header.Get("Status") == noResponders:
			return all, nil
		}
		var one T
		if json.Unmarshal(m.Data, &one) != nil {
			continue
		}
		all = append(all, one)
		if last != nil && last(&one) {
			return all, nil
		}
	}
}

// next waits for a reply: for the time quiet if more is set, else until ctx is done.
func next(ctx context.Context, sub *nats.Subscription, more bool) (*nats.Msg, error) {
	if more {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, quiet)
		defer cancel()
	}
	return sub.NextMsgWithContext(ctx)
}

const noResponders = "503"
