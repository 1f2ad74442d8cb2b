package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	color "github.com/jedib0t/go-pretty/v6/text"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/schema"
)

// processes asks every process that serves the database, or all databases. Processes of
// the previous page that are missing now are returned with an error.
func (s *statusSource) processes(ctx context.Context) ([]client.Process, error) {
	if err := s.connect(ctx); err != nil {
		return nil, err
	}
	ask := s.lapse.Processes
	if s.f.databases {
		ask = s.lapse.AllProcesses
	}
	all, err := ask(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range s.before {
		if !slices.ContainsFunc(all, func(one client.Process) bool { return one.Node == p.Node && one.Database == p.Database }) {
			p.Error = "answers no more"
			all = append(all, p)
		}
	}
	client.SortProcesses(all)
	s.before = all
	return all, nil
}

// processes prints a row for each process; if there are several databases, with its
// database instead of its version.
func (out *output) processes(all []client.Process) ([]byte, error) {
	all = slices.Clone(all)
	several := all[0].Database != all[len(all)-1].Database // they are sorted
	for i := range all {
		if !several {
			all[i].Database = ""
		}
	}
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
	latest, writers := map[string]uint64{}, map[string]int{} // by database
	for _, one := range all {
		latest[one.Database] = max(latest[one.Database], one.Seq)
		writers[one.Database] += 0
		if one.Role == "writer" && one.Error == "" {
			writers[one.Database]++
		}
	}
	titles := []string{"ID", "ROLE", "VERSION", "SEQUENCE", "BEHIND", "WAITING", "REQUESTS", "ERRORS", "AGE"}
	if several {
		titles[2] = "DATABASE"
	}
	for _, one := range all {
		row := []any{printable(one.ID), printable(one.Role), printable(one.Version)}
		if several {
			row[2] = printable(one.Database)
		}
		if one.Error == "" {
			row = append(row, one.Seq, latest[one.Database]-one.Seq, one.Waiting, one.Requests, one.Errors, age(one.Started))
		} else {
			row = append(row, "?", "?", "?", "?", "?", "?")
			trouble = append(trouble, fmt.Sprintf("%s: %s", printable(strings.TrimPrefix(one.Database+" "+one.ID, " ")), one.Error))
		}
		rows = append(rows, row)
	}
	text := out.list(titles, rows, 0, 2)
	for _, database := range slices.Sorted(maps.Keys(writers)) {
		if n := writers[database]; n != 1 {
			of := ""
			if several {
				of = " of database " + printable(database)
			}
			trouble = append(trouble, fmt.Sprintf("%d writers%s: there should be one", n, of))
		}
	}
	for _, line := range trouble {
		text += p.paint(line, color.FgRed) + "\n"
	}
	return []byte(text), nil
}

// age returns how long ago a time in RFC 3339 was, in its largest unit.
func age(since string) string {
	at, err := schema.ParseTime(since)
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
