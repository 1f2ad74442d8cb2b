package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fatih/color"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/lapsedb/lapse/client"
)

// lapseProcess is one process that serves the database, as --json prints it.
type lapseProcess struct {
	ID       string `json:"id"`
	Version  string `json:"version"`
	Role     string `json:"role"`
	Seq      uint64 `json:"seq"`
	Waiting  int    `json:"waiting"`
	Requests int    `json:"requests"`
	Errors   int    `json:"errors"`
	Started  string `json:"started,omitempty"` // RFC 3339
	Error    string `json:"error,omitempty"`   // why the numbers are missing

	node string // the same for all services of a process
}

// quiet is the time without another answer after which all have answered.
const quiet = 300 * time.Millisecond

// processes asks every process that serves the database. It returns those, too, that do
// not answer, if they did before.
func (s *statusSource) processes(ctx context.Context) ([]lapseProcess, error) {
	if err := s.connect(ctx); err != nil {
		return nil, err
	}
	infos, err := gather[micro.Info](ctx, s, "$SRV.INFO.lapse", nil)
	if err != nil {
		return nil, err
	}
	found := make(map[string]*lapseProcess) // by ID of the service
	nodes := make(map[string]bool)
	for _, info := range infos {
		if info.Metadata["database"] == s.lapse.Database() {
			node := cmp.Or(info.Metadata["node"], info.ID)
			found[info.ID] = &lapseProcess{ID: info.ID, Version: info.Version, Role: cmp.Or(info.Metadata["role"], "writer"),
				Error: fmt.Sprintf("no answer within %s", s.conn.timeout), node: node}
			nodes[node] = true
		}
	}
	if len(found) == 0 {
		return nil, client.ErrUnavailable.With("no process serves database %q here: start `lapse serve --database %s`, or connect to the NATS server and account that has it",
			s.lapse.Database(), s.lapse.Database())
	}
	answered := 0
	if _, err = gather(ctx, s, "$SRV.STATS.lapse", func(stats *micro.Stats) (all bool) {
		if p := found[stats.ID]; p != nil {
			p.read(stats)
			answered++
		}
		return answered == len(found)
	}); err != nil {
		return nil, err
	}
	for _, p := range s.before {
		if !nodes[p.node] {
			p.Error = "answers no more"
			found[p.ID] = &p
		}
	}
	var all []lapseProcess
	for _, p := range found {
		all = append(all, *p)
	}
	slices.SortFunc(all, func(a, b lapseProcess) int {
		return cmp.Or(cmp.Compare(b.Role, a.Role), cmp.Compare(a.Started, b.Started), cmp.Compare(a.ID, b.ID))
	})
	s.before = all
	return all, nil
}

// read takes over the statistics of a service.
func (p *lapseProcess) read(stats *micro.Stats) {
	p.Error, p.Started = "", stats.Started.UTC().Format(time.RFC3339)
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

// gather sends a request to all subscribers and returns their answers. It ends when last
// returns true for an answer, or, if last is nil, when no more come.
func gather[T any](ctx context.Context, s *statusSource, subject string, last func(*T) bool) (all []T, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.conn.timeout)
	defer cancel()
	ctx, deny := context.WithCancelCause(ctx)
	defer deny(nil)
	nc := s.lapse.Conn()
	before := nc.ErrorHandler()
	defer nc.SetErrorHandler(before)
	nc.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if errors.Is(err, nats.ErrPermissionViolation) {
			deny(client.ErrUnavailable.With("this NATS user has no permission to ask all processes: let it publish to %s and receive replies, or leave out --all", subject))
		}
	})
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := nc.PublishRequest(subject, inbox, nil); err != nil {
		return nil, err
	}
	for {
		wait := ctx
		if len(all) > 0 && last == nil {
			var cancel context.CancelFunc
			wait, cancel = context.WithTimeout(ctx, quiet)
			defer cancel()
		}
		m, err := sub.NextMsgWithContext(wait)
		if err != nil {
			var denied *client.Error
			if errors.As(context.Cause(ctx), &denied) {
				return nil, denied
			}
			if isTimeout(err) {
				err = nil
			}
			return all, err
		}
		if len(m.Data) == 0 && m.Header.Get("Status") == noResponders {
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

const noResponders = "503"

func isTimeout(err error) bool {
	return errors.Is(err, nats.ErrTimeout) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrNoResponders)
}

// processes prints a row for each process.
func (out *output) processes(all []lapseProcess) ([]byte, error) {
	if !out.forPeople() {
		var b bytes.Buffer
		for _, p := range all {
			text, err := json.Marshal(p)
			if err != nil {
				return nil, err
			}
			b.Write(append(text, '\n'))
		}
		return b.Bytes(), nil
	}
	p := out.palette()
	var rows [][]any
	var trouble []string
	latest, writers := uint64(0), 0
	for _, one := range all {
		latest = max(latest, one.Seq)
		if one.Role == "writer" && one.Error == "" {
			writers++
		}
	}
	for _, one := range all {
		row := []any{printable(one.ID), printable(one.Role), printable(one.Version)}
		if one.Error == "" {
			row = append(row, one.Seq, latest-one.Seq, one.Waiting, one.Requests, one.Errors, age(one.Started))
		} else {
			row = append(row, "?", "?", "?", "?", "?", "?")
			trouble = append(trouble, fmt.Sprintf("%s: %s", printable(one.ID), one.Error))
		}
		rows = append(rows, row)
	}
	text := out.list([]string{"ID", "ROLE", "VERSION", "SEQUENCE", "BEHIND", "WAITING", "REQUESTS", "ERRORS", "AGE"}, rows, 0, 2)
	if writers != 1 {
		trouble = append(trouble, fmt.Sprintf("%d writers: there should be one", writers))
	}
	for _, line := range trouble {
		text += p.paint(line, color.FgRed) + "\n"
	}
	return []byte(text), nil
}

// age is how long ago a time in RFC 3339 was, in its largest unit.
func age(since string) string {
	at, err := time.Parse(time.RFC3339, since)
	if err != nil {
		return "?"
	}
	switch d := time.Since(at); {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	case d >= 2*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d >= 2*time.Minute:
		return fmt.Sprintf("%dm", d/time.Minute)
	default:
		return fmt.Sprintf("%ds", d/time.Second)
	}
}
