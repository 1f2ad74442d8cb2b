package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/fatih/color"

	"github.com/lapsedb/lapse/client"
)

// processes asks every process that serves the database. It returns those, too, that do
// not answer, if they did before.
func (s *statusSource) processes(ctx context.Context) ([]client.Process, error) {
	if err := s.connect(ctx); err != nil {
		return nil, err
	}
	all, err := s.lapse.Processes(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range s.before {
		if !slices.ContainsFunc(all, func(one client.Process) bool { return one.Node == p.Node }) {
			p.Error = "answers no more"
			all = append(all, p)
		}
	}
	client.SortProcesses(all)
	s.before = all
	return all, nil
}

// processes prints a row for each process.
func (out *output) processes(all []client.Process) ([]byte, error) {
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
