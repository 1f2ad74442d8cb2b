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

const (
	// The size of one table, which is kept in memory.
	mostRows    = 1000
	mostColumns = 50

	leastWidth = 4 // to which a column may shrink
	columnGap  = 2
)

// documentPrinter prints documents: tables for people, else JSON lines.
type documentPrinter struct {
	out     *output
	people  bool
	width   int  // of the terminal
	printed int  // documents given to print
	cut     bool // some members have no column

	columns []string       // id first
	at      map[string]int // member name to column
	rows    []documentRow
}

type documentRow struct {
	cells []string // by column; the last ones may be missing
	more  int      // members without a column
}

func newDocumentPrinter(out *output) *documentPrinter {
	p := &documentPrinter{out: out, people: out.forPeople()}
	if p.people {
		p.width = out.columns()
	}
	p.reset()
	return p
}

func (p *documentPrinter) reset() {
	p.columns, p.at, p.rows = []string{"id"}, map[string]int{"id": 0}, nil
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

// add adds a row for a document.
func (p *documentPrinter) add(document []byte) error {
	d := json.NewDecoder(bytes.NewReader(document))
	if _, err := d.Token(); err != nil { // the brace
		return err
	}
	var row documentRow
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return err
		}
		column, ok := p.column(fmt.Sprint(name))
		if !ok {
			row.more++
			continue
		}
		for len(row.cells) <= column {
			row.cells = append(row.cells, "")
		}
		row.cells[column] = text.Snip(oneLine(plain(value)), p.width, "…")
	}
	p.rows = append(p.rows, row)
	return nil
}

// column returns the column of a member, a new one up to mostColumns.
func (p *documentPrinter) column(name string) (int, bool) {
	column, ok := p.at[name]
	if !ok && len(p.columns) < mostColumns {
		column, ok = len(p.columns), true
		p.columns, p.at[name] = append(p.columns, text.Snip(oneLine(name), p.width, "…")), column
	}
	return column, ok
}

// plain returns a JSON string without quotes, and any other value as JSON.
func plain(value json.RawMessage) (s string) {
	if value[0] != '"' || json.Unmarshal(value, &s) != nil {
		return string(value)
	}
	return s
}

func oneLine(s string) string { return printable(strings.ReplaceAll(s, "\n", `\n`)) }

// end flushes, and tells people if no document matched.
func (p *documentPrinter) end() error {
	if p.people && p.printed == 0 {
		_, err := fmt.Fprintln(p.out.stdout, p.out.palette().faint("no documents"))
		return err
	}
	return p.flush()
}

// flush prints the pending rows as a table.
func (p *documentPrinter) flush() error {
	if len(p.rows) == 0 {
		return nil
	}
	defer p.reset()
	if !slices.ContainsFunc(p.rows, documentRow.hasID) {
		p.leaveOutID()
	}
	counted := slices.ContainsFunc(p.rows, func(r documentRow) bool { return r.more > 0 })
	shown, most := fit(p.widths(), counted, p.width)
	counted = counted || shown < len(p.columns)
	p.cut = p.cut || counted

	titles := make([]string, 0, shown+1)
	for _, name := range p.columns[:shown] {
		titles = append(titles, text.Snip(name, most, "…"))
	}
	if counted {
		titles = append(titles, "…")
	}
	t := p.out.table(titles...)
	t.Style().Format.Header = text.FormatDefault // member names are case-sensitive
	for _, r := range p.rows {
		row := make(table.Row, 0, len(titles))
		for i, cell := range r.cells {
			if i < shown {
				row = append(row, text.Snip(cell, most, "…"))
			} else if cell != "" {
				r.more++
			}
		}
		for len(row) < shown {
			row = append(row, "") // a row without cells would be left out
		}
		if r.more > 0 {
			row = append(row, fmt.Sprintf("+%d", r.more))
		}
		t.AppendRow(row)
	}
	return p.out.render(t)
}

func (r documentRow) hasID() bool { return len(r.cells) > 0 && r.cells[0] != "" }

func (p *documentPrinter) leaveOutID() {
	p.columns = p.columns[1:]
	for i, r := range p.rows {
		p.rows[i].cells = r.cells[min(1, len(r.cells)):]
	}
}

// widths returns the natural widths of the columns.
func (p *documentPrinter) widths() []int {
	widths := make([]int, len(p.columns))
	for i, name := range p.columns {
		widths[i] = textWidth(name)
	}
	for _, r := range p.rows {
		for i, cell := range r.cells {
			widths[i] = max(widths[i], textWidth(cell))
		}
	}
	return widths
}

// fit returns how many columns fit into a line and the maximum width of a column. counted
// adds the column that counts members without a column; it is also there if not all
// columns are shown.
func fit(widths []int, counted bool, line int) (shown, most int) {
	for _, w := range widths {
		most = max(most, w)
	}
	shown = len(widths)
	taken := func(most int) int {
		sum := -columnGap
		for _, w := range widths[:shown] {
			sum += min(w, most) + columnGap
		}
		if counted || shown < len(widths) {
			sum += columnGap + leastWidth
		}
		return sum
	}
	for shown > 1 && taken(leastWidth) > line {
		shown--
	}
	for most > leastWidth && taken(most) > line {
		most--
	}
	return shown, most
}
