package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
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
}

// quiet is the time without another answer after which all have answered.
const quiet = 300 * time.Millisecond

// processes asks every process that serves the database.
func (s *statusSource) processes(ctx context.Context) ([]lapseProcess, error) {
	if err := s.connect(ctx); err != nil {
		return nil, err
	}
	infos, err := gather[micro.Info](ctx, s.lapse, "$SRV.INFO.lapse", s.conn.timeout)
	if err != nil {
		return nil, err
	}
	found := make(map[string]*lapseProcess)
	for _, info := range infos {
		if info.Metadata["database"] == s.lapse.Database() {
			found[info.ID] = &lapseProcess{ID: info.ID, Version: info.Version, Role: cmp.Or(info.Metadata["role"], "writer")}
		}
	}
	if len(found) == 0 {
		return nil, client.ErrUnavailable.With("no process serves database %q here: start `lapse serve --database %s`, or connect to the NATS server and account that has it",
			s.lapse.Database(), s.lapse.Database())
	}
	stats, err := gather[micro.Stats](ctx, s.lapse, "$SRV.STATS.lapse", s.conn.timeout)
	if err != nil {
		return nil, err
	}
	for _, one := range stats {
		if p := found[one.ID]; p != nil {
			p.read(&one)
		}
	}
	var all []lapseProcess
	for _, p := range found {
		all = append(all, *p)
	}
	slices.SortFunc(all, func(a, b lapseProcess) int {
		return cmp.Or(cmp.Compare(b.Role, a.Role), cmp.Compare(a.Started, b.Started), cmp.Compare(a.ID, b.ID))
	})
	return all, nil
}

// read takes over the statistics of a service.
func (p *lapseProcess) read(stats *micro.Stats) {
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
func gather[T any](ctx context.Context, lapse *client.Client, subject string, timeout time.Duration) (all []T, err error) {
	nc := lapse.Conn()
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := nc.PublishRequest(subject, inbox, nil); err != nil {
		return nil, err
	}
	wait := timeout // for the first answer
	for {
		ctx, cancel := context.WithTimeout(ctx, wait)
		m, err := sub.NextMsgWithContext(ctx)
		cancel()
		if err != nil || len(m.Data) == 0 && m.Header.Get("Status") == noResponders {
			if len(all) == 0 && err != nil && !isTimeout(err) {
				return nil, err
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
	return err == nats.ErrTimeout || err == context.DeadlineExceeded || err == nats.ErrNoResponders
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
	t := out.table("ID", "ROLE", "VERSION", "SEQUENCE", "BEHIND", "WAITING", "REQUESTS", "ERRORS", "SINCE")
	latest, writers := uint64(0), 0
	for _, one := range all {
		latest = max(latest, one.Seq)
		if one.Role == "writer" {
			writers++
		}
	}
	for _, one := range all {
		role := printable(one.Role)
		if one.Role == "writer" {
			role = p.paint(role, color.Bold)
		}
		t.AppendRow([]any{printable(one.ID), role, printable(one.Version), one.Seq, latest - one.Seq, one.Waiting, one.Requests, one.Errors, one.Started})
	}
	text := t.Render() + "\n"
	if writers != 1 {
		text += p.paint(fmt.Sprintf("%d writers: there should be one", writers), color.FgRed) + "\n"
	}
	return []byte(strings.TrimLeft(text, "\n")), nil
}
