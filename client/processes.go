package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/schema"
)

// Every process of lapse answers $SRV.INFO.lapse once, and names the other processes that
// it knows. So a list is complete when all that were named have answered, which takes no
// time-out where all live; one that was named and does not answer is listed with an error.
// Processes of 0.3.0 name no others: after the last reply the list waits a moment (quiet).

// Process is one process that serves a database.
type Process struct {
	Database string `json:"database,omitempty"` // set by AllProcesses only
	schema.Process
	Role     string `json:"role"`    // "writer" or "standby"
	Waiting  int    `json:"waiting"` // queued requests
	Requests uint64 `json:"requests"`
	Errors   uint64 `json:"errors"`
	Started  string `json:"started,omitempty"` // RFC 3339
	Error    string `json:"error,omitempty"`   // why the numbers are missing
}

// quiet is the time without a reply after which the list counts as complete where a process of
// 0.3.0 has replied, which knows no others.
const quiet = 300 * time.Millisecond

// maxReplies is the most replies to one request.
const maxReplies = 4096

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
	var roll schema.Roll
	add := func(p *schema.Presence, s schema.Standing, why string) {
		if s.Role != schema.RoleNone && of(string(s.Database)) {
			all = append(all, processOf(p, s, why))
		}
	}
	err = c.gather(ctx, "$SRV.INFO.lapse", func(reply []byte) (wait time.Duration) {
		p, ok := schema.ReadPresence(reply)
		if !ok {
			return c.timeout
		}
		roll.Add(&p)
		for _, s := range p.Databases {
			add(&p, s, "")
		}
		switch {
		case len(roll.Missing) > 0:
			return c.timeout
		case roll.Older:
			return quiet
		}
		return 0
	})
	if err != nil && !errors.Is(err, ErrTooLarge) {
		return nil, err
	}
	for id, roles := range roll.Missing {
		for db, role := range roles {
			add(&schema.Presence{ID: id}, schema.Standing{Database: db, Role: role}, fmt.Sprintf("no answer within %s", c.timeout))
		}
	}
	sortProcesses(all)
	return all, err
}

// processOf returns how a process stands for one database, in the words of status.
func processOf(p *schema.Presence, s schema.Standing, why string) Process {
	row := Process{Database: string(s.Database), Process: p.Process(s), Role: s.Role, Waiting: s.Waiting, Requests: s.Requests, Errors: s.Errors, Error: why}
	if row.Role == schema.RoleCopy {
		row.Role = "standby"
	}
	if p.Older {
		row.Error = "a process of 0.3.0 says no more"
	} else if !p.Started.IsZero() {
		row.Started = p.Started.Format(time.RFC3339)
	}
	return row
}

// sortProcesses sorts by database, the writer first, then by age.
func sortProcesses(all []Process) {
	slices.SortFunc(all, func(a, b Process) int {
		return cmp.Or(cmp.Compare(a.Database, b.Database), cmp.Compare(b.Role, a.Role), cmp.Compare(a.Started, b.Started), cmp.Compare(a.ID, b.ID))
	})
}

// gather sends a request to all subscribers and calls each with the replies. It ends when no
// reply has come for the time that each has returned. It fails with ErrTooLarge after
// maxReplies.
func (c *Client) gather(ctx context.Context, subject string, each func(reply []byte) (wait time.Duration)) error {
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
	for wait, replies := c.timeout, 0; wait > 0; replies++ {
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
		wait = each(m.Data)
	}
	return nil
}

// next waits for a reply at most this long, and until ctx is done.
func next(ctx context.Context, sub *nats.Subscription, wait time.Duration) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return sub.NextMsgWithContext(ctx)
}

const noResponders = "503"
