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
	ID       string `json:"id"`                 // the same for all databases of a process, and across restarts
	Version  string `json:"version"`
	Role     string `json:"role"` // "writer" or "standby"
	Seq      uint64 `json:"seq"`
	Waiting  int    `json:"waiting"` // queued requests
	Requests int    `json:"requests"`
	Errors   int    `json:"errors"`
	Started  string `json:"started,omitempty"` // RFC 3339
	Error    string `json:"error,omitempty"`   // why the numbers are missing
}

// quiet is the time without a reply after which the list counts as complete.
const quiet = 300 * time.Millisecond

// Whoever may subscribe to $SRV.INFO.lapse could reply more than this process can hold.
const (
	maxReplies = 4096      // to one request
	maxReply   = 256 << 10 // bytes; that of a process has 46 KiB
	maxName    = 255       // bytes of an ID, version, role or name of a database
)

// Processes returns every process that serves the database, the writer first. It fails
// with ErrUnavailable if there is none. With ErrTooLarge it returns those of the first 4096
// replies.
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
func (c *Client) processes(ctx context.Context, of func(database string) bool) (all []Process, err error) {
	found := make(map[string]*Process) // by ID of the service
	cut := c.gather(ctx, "$SRV.INFO.lapse", quiet, func(reply []byte) (last bool) {
		var info micro.ServiceIdentity // the rest is large
		if json.Unmarshal(reply, &info) == nil && of(info.Metadata["database"]) && legal(&info) {
			found[info.ID] = &Process{Database: info.Metadata["database"], ID: cmp.Or(info.Metadata["process"], info.Metadata["node"], info.ID), Version: info.Version,
				Role: cmp.Or(info.Metadata["role"], "writer"), Error: fmt.Sprintf("no answer within %s", c.timeout)}
		}
		return false
	})
	if cut != nil && !errors.Is(cut, ErrTooLarge) || len(found) == 0 {
		return nil, cut
	}
	answered := 0
	err = c.gather(ctx, "$SRV.STATS.lapse", c.timeout, func(reply []byte) (last bool) {
		var stats micro.Stats
		if json.Unmarshal(reply, &stats) != nil {
			return false
		}
		if p := found[stats.ID]; p != nil {
			p.read(&stats)
			answered++
		}
		return answered == len(found)
	})
	if err != nil && !errors.Is(err, ErrTooLarge) {
		return nil, err
	}
	for _, p := range found {
		all = append(all, *p)
	}
	SortProcesses(all)
	return all, cmp.Or(cut, err)
}

// legal reports whether a process describes itself like this.
func legal(info *micro.ServiceIdentity) bool {
	return max(len(info.ID), len(info.Version), len(info.Metadata["database"]), len(info.Metadata["role"]), len(info.Metadata["process"]), len(info.Metadata["node"])) <= maxName
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

// gather sends a request to all subscribers and calls each with the replies. It ends when
// each returns true, or when no reply has come for the time between after the first. It fails
// with ErrTooLarge after maxReplies.
func (c *Client) gather(ctx context.Context, subject string, between time.Duration, each func(reply []byte) (last bool)) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	ctx, release := c.denials.guard(ctx, subject)
	defer release()
	inbox := c.nc.NewInbox()
	sub, err := c.nc.SubscribeSync(inbox)
	if err != nil {
		return c.transportError(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := c.nc.PublishRequest(subject, inbox, nil); err != nil {
		return c.transportError(err)
	}
	for wait, replies := c.timeout, 0; ; wait = between {
		m, err := next(ctx, sub, wait)
		switch {
		case c.denials.cause(ctx, err) != nil:
			return c.denied(ctx, err, ErrUnavailable.With("this NATS user has no permission to ask all processes: let it publish to %s and receive replies", subject))
		case timeout(err), errors.Is(err, nats.ErrNoResponders):
			return nil
		case errors.Is(err, nats.ErrSlowConsumer) || replies == maxReplies:
			return ErrTooLarge.With("more than %d replies came to %s, so processes may be missing: `nats request --replies=0 '%s' ''` shows who sends them", maxReplies, subject, subject)
		case err != nil:
			return c.transportError(err)
		case len(m.Data) == 0 && m.Header.Get("Status") == noResponders:
			return nil
		}
		replies++
		if len(m.Data) <= maxReply && each(m.Data) {
			return nil
		}
	}
}

// next waits for a reply at most this long, and until ctx is done.
func next(ctx context.Context, sub *nats.Subscription, wait time.Duration) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return sub.NextMsgWithContext(ctx)
}

const noResponders = "503"
