package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"
)

// output prints results: for people if standard output is a terminal, else as JSON
// lines.
type output struct {
	*app
	json bool // --json
}

func (a *app) addOutputFlag(cmd *cobra.Command) *output {
	out := &output{app: a}
	cmd.Flags().BoolVar(&out.json, "json", false, "print JSON lines on a terminal too")
	return out
}

func (out *output) forPeople() bool { return !out.json && out.isTerminal(out.stdout) }

// palette colours standard output.
func (out *output) palette() palette { return palette(out.colour && out.forPeople()) }

// document prints one JSON value.
func (out *output) document(body []byte) error {
	if out.forPeople() {
		body = out.palette().pretty(body)
	}
	_, err := out.stdout.Write(append(bytes.TrimSpace(body), '\n'))
	return err
}

// lines prints JSON values, one a line.
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

func (out *output) render(t table.Writer) error {
	_, err := fmt.Fprintln(out.stdout, t.Render())
	return err
}

// describeTTL describes a defaultTtl.
func describeTTL(seconds int64) string {
	switch {
	case seconds == 0:
		return "off"
	case seconds < 0:
		return "per document"
	}
	return showDuration(time.Duration(seconds) * time.Second)
}
