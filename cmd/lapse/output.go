package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"
)

// What commands print, in two forms. A script gets JSON, one value a line, in the form of
// the contract's replies; a person at a terminal gets tables, colours, and times from now.
// The choice is made once, by forPeople, and never by the content: a script that works with
// one document works with none and with a million.
//
// Text of documents, ids and other processes goes through printable (palette.go) before it
// reaches a terminal.

// output prints results: for people if standard output is a terminal, else as JSON
// lines.
type output struct {
	*app
	json bool // --json
}

// addOutputFlag adds --json. The output may be used once the flags are parsed.
func (a *app) addOutputFlag(cmd *cobra.Command) *output {
	out := &output{app: a}
	cmd.Flags().BoolVar(&out.json, "json", false, "print JSON lines on a terminal too")
	return out
}

// forPeople reports whether a person reads the output as it comes.
func (out *output) forPeople() bool { return !out.json && out.isTerminal(out.stdout) }

// liveOutput prints replies about one live document.
type liveOutput struct {
	*output
	deadlines bool // --deadlines
}

// addLiveFlags adds --json and --deadlines.
func (a *app) addLiveFlags(cmd *cobra.Command) *liveOutput {
	out := &liveOutput{output: a.addOutputFlag(cmd)}
	cmd.Flags().BoolVar(&out.deadlines, "deadlines", false, deadlinesUsage)
	return out
}

// leftOut reports what the output leaves out, and how to get it, on standard error: also
// for scripts, which would mistake a part for all of it.
func (a *app) leftOut(format string, args ...any) {
	fmt.Fprintf(a.stderr, "lapse: "+format+"\n", args...)
}

// palette colours standard output.
func (out *output) palette() palette { return palette(out.colour && out.forPeople()) }

// document prints one JSON value, indented for people. For programs it goes out byte for
// byte as the server has sent it, so numbers keep their digits and members their order.
func (out *output) document(body []byte) error {
	if out.forPeople() {
		body = out.palette().pretty(body)
	}
	_, err := out.stdout.Write(append(bytes.TrimSpace(body), '\n'))
	return err
}

// lines prints JSON values, one a line, in one write.
func (out *output) lines(values []json.RawMessage) error {
	var b bytes.Buffer
	for _, value := range values {
		if err := json.Compact(&b, value); err != nil {
			return fmt.Errorf("the reply cannot be read: %w", err)
		}
		b.WriteByte('\n')
	}
	_, err := out.stdout.Write(b.Bytes())
	return err
}

// table returns a table without borders, which is easy to copy from.
func (out *output) table(titles ...string) table.Writer {
	t := table.NewWriter()
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	t.SetStyle(style)
	if len(titles) > 0 {
		var header table.Row
		for _, title := range titles {
			header = append(header, out.palette().faint(title))
		}
		t.AppendHeader(header)
	}
	t.SuppressTrailingSpaces()
	return t
}

// unknownWidth is assumed of a terminal that does not report its width.
const unknownWidth = 80

// columns returns the width of the terminal.
func (out *output) columns() int { return cmp.Or(out.width(out.stdout), unknownWidth) }

// list renders a table with titles. If a line is wider than the terminal, the flexible
// columns, given by index, are shortened, always the widest of them, down to leastWidth.
// The other columns, such as numbers, are never cut: half a number is a wrong one. It
// changes titles and rows.
func (out *output) list(titles []string, rows [][]any, flexible ...int) string {
	widths := make([]int, len(titles))
	for i, title := range titles {
		widths[i] = textWidth(title)
		for _, row := range rows {
			widths[i] = max(widths[i], textWidth(fmt.Sprint(row[i])))
		}
	}
	excess := (len(titles)-1)*columnGap - out.columns()
	for _, w := range widths {
		excess += w
	}
	for ; excess > 0; excess-- {
		widest := slices.MaxFunc(flexible, func(i, j int) int { return widths[i] - widths[j] })
		if widths[widest] <= leastWidth {
			break
		}
		widths[widest]--
	}
	for _, i := range flexible {
		titles[i] = text.Snip(titles[i], widths[i], "…")
		for _, row := range rows {
			row[i] = text.Snip(fmt.Sprint(row[i]), widths[i], "…")
		}
	}
	t := out.table(titles...)
	for _, row := range rows {
		t.AppendRow(row)
	}
	return t.Render() + "\n"
}

// facts is a table of names and values, one fact a line. Long values wrap within their
// column.
type facts struct {
	table.Writer
	names palette
	width int // of the terminal
	name  int // width of the longest name
}

// facts returns an empty table whose names have the colours of names.
func (out *output) facts(names palette) *facts {
	return &facts{Writer: out.table(), names: names, width: out.columns()}
}

func (f *facts) add(name, value string) {
	f.name = max(f.name, len(name))
	f.AppendRow(table.Row{f.names.faint(name), value})
}

// leastValue is the minimum width of the column of values.
const leastValue = 30

// Render renders the table at the width that the longest name leaves.
func (f *facts) Render() string {
	width := max(f.width-f.name-columnGap, leastValue)
	f.SetColumnConfigs([]table.ColumnConfig{{Number: 2, WidthMax: width, WidthMaxEnforcer: text.WrapSoft}})
	return f.Writer.Render()
}

// textWidth returns the width of s in columns of a terminal, without its colours.
func textWidth(s string) int { return text.StringWidthWithoutEscSequences(s) }

func (out *output) render(t table.Writer) error {
	_, err := fmt.Fprintln(out.stdout, t.Render())
	return err
}

// plural writes how many of a noun there are: 1 document, 2 documents.
func plural[N int | int64 | uint64](n N, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// describeTTL describes a defaultTtl, where 0 stands for absent: off, per document for -1,
// else a duration.
func describeTTL(seconds int64) string {
	switch {
	case seconds == 0:
		return "off"
	case seconds < 0:
		return "per document"
	}
	return showDuration(time.Duration(seconds) * time.Second)
}
