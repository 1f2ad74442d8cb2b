package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/lapsedb/lapse/client"
)

// A table of documents has no fixed columns: each document may have other members. So rows
// are collected, the columns are the union of their members in the order of appearance, and
// the table is printed when mostRows are there or no more come. A longer result is several
// tables, each with its own columns: memory stays bounded, and the first rows appear soon.
//
// The width of a terminal decides what is shown. Cells shrink first; then columns at the
// right are left out, and a line at the end says how many.

const (
	// The size of one table, which is kept in memory. Further columns are not counted.
	mostRows    = 1000
	mostColumns = 200

	leastWidth = 4  // to which a flexible column of a list may shrink
	leastCell  = 12 // to which a column of documents may shrink before columns are left out
	columnGap  = 2
)

// documentPrinter prints documents: tables for people, else JSON lines at once. Call end
// after the last one.
type documentPrinter struct {
	out     *output
	people  bool
	moments momentFlags
	width   int // of the terminal
	printed int // documents given to print
	dropped int // columns left out of a table, the most of any

	columns []string            // member names, id first
	rows    []map[string]string // cells by member name
}

func newDocumentPrinter(out *output, moments momentFlags) *documentPrinter {
	p := &documentPrinter{out: out, people: out.forPeople(), moments: moments}
	if p.people {
		p.width = out.columns()
	}
	return p
}

// print prints documents; tables may wait until flush.
func (p *documentPrinter) print(items []client.Item[json.RawMessage]) error {
	p.printed += len(items)
	if !p.people {
		lines := make([]json.RawMessage, 0, len(items))
		for _, item := range items {
			lines = append(lines, item.Value)
		}
		return p.out.lines(lines)
	}
	for _, item := range items {
		if err := p.add(item.Value); err != nil {
			return fmt.Errorf("the reply cannot be read: %w", err)
		}
		if len(p.rows) == mostRows {
			if err := p.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// add adds a row for a document, and a column for each new member. It reads tokens instead
// of a map, which would lose the order of the members. A cell has at most the width of the
// terminal; the rest could not be shown anyway.
func (p *documentPrinter) add(document []byte) error {
	d := json.NewDecoder(bytes.NewReader(document))
	if _, err := d.Token(); err != nil { // the brace
		return err
	}
	row := map[string]string{}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return err
		}
		name := fmt.Sprint(token)
		switch {
		case slices.Contains(p.columns, name):
		case name == "id":
			p.columns = slices.Insert(p.columns, 0, name)
		case len(p.columns) < mostColumns:
			p.columns = append(p.columns, name)
		// More than mostColumns: the member has no column. Such documents are better read
		// with --json.
		default:
			continue
		}
		cell := oneLine(plain(value))
		if isMoment(name) {
			cell = p.moments.show(cell, p.out.now())
		}
		row[name] = text.Snip(cell, p.width, "…")
	}
	p.rows = append(p.rows, row)
	return nil
}

// plain returns a JSON string without quotes, and any other value as JSON.
func plain(value json.RawMessage) (s string) {
	if value[0] != '"' || json.Unmarshal(value, &s) != nil {
		return string(value)
	}
	return s
}

func oneLine(s string) string { return printable(strings.ReplaceAll(s, "\n", `\n`)) }

// end flushes, and tells people if no document matched or columns were left out.
func (p *documentPrinter) end() error {
	if p.people && p.printed == 0 {
		_, err := fmt.Fprintln(p.out.stdout, p.out.palette().faint("no documents"))
		return err
	}
	if err := p.flush(); err != nil || p.dropped == 0 {
		return err
	}
	p.out.leftOut("%s left out: choose some with --select, or use --json or a wider terminal", plural(p.dropped, "column"))
	return nil
}

// flush prints the pending rows as a table, and begins a new one.
func (p *documentPrinter) flush() error {
	if len(p.rows) == 0 {
		return nil
	}
	shown, most := fit(p.widths(), p.width)
	p.dropped = max(p.dropped, len(p.columns)-shown)
	titles := make([]string, shown)
	for i, name := range p.columns[:shown] {
		titles[i] = text.Snip(oneLine(name), most, "…")
	}
	t := p.out.table(titles...)
	t.Style().Format.Header = text.FormatDefault // member names are case-sensitive
	for _, r := range p.rows {
		row := make(table.Row, shown)
		for i, name := range p.columns[:shown] {
			row[i] = text.Snip(r[name], most, "…")
		}
		t.AppendRow(row)
	}
	p.columns, p.rows = nil, nil
	return p.out.render(t)
}

// widths returns the natural widths of the columns.
func (p *documentPrinter) widths() []int {
	widths := make([]int, len(p.columns))
	for i, name := range p.columns {
		widths[i] = textWidth(oneLine(name))
		for _, r := range p.rows {
			widths[i] = max(widths[i], textWidth(r[name]))
		}
	}
	return widths
}

// fit returns how many columns fit into a line, and the maximum width of each: columns
// shrink to leastCell, then those on the right are left out. The first, the id, always
// remains.
func fit(widths []int, line int) (shown, most int) {
	taken := func(most int) int {
		sum := -columnGap
		for _, w := range widths[:shown] {
			sum += min(w, most) + columnGap
		}
		return sum
	}
	for shown = len(widths); shown > 1 && taken(leastCell) > line; shown-- {
	}
	for most = line; most > 1 && taken(most) > line; most-- {
	}
	return shown, most
}
