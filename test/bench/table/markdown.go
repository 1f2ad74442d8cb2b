package main

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
)

// Marks around the table in docs/benchmarks.md.
const (
	beginMark = "<!-- bench -->\n"
	endMark   = "<!-- /bench -->"
)

func writeTable(name string, t table) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	spliced, err := splice(string(text), t.markdown())
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return os.WriteFile(name, []byte(spliced), 0o666)
}

// splice replaces the text between the marks by content.
func splice(text, content string) (string, error) {
	before, rest, ok := strings.Cut(text, beginMark)
	_, after, ended := strings.Cut(rest, endMark)
	if !ok || !ended {
		return "", fmt.Errorf("no %q followed by %q", beginMark, endMark)
	}
	return before + beginMark + content + endMark + after, nil
}

// missed marks a goal that is not reached.
const missed = "✗"

// markdown formats the table and a line above it. Cells for work and lapse that repeat
// the row above stay empty.
func (t table) markdown() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s. %s. %s: the goal is missed.\n\n", t.dates(), t.Machine, missed)
	text.WriteString("| work | lapse | peer | ratio | goal | processor time |\n|---|---|---|---|---|---|\n")
	for i, r := range t.Rows {
		work, lapse := r.Work, number(r.Lapse)+r.Unit
		if i > 0 && t.Rows[i-1].Work == r.Work {
			work = ""
			if t.Rows[i-1].Lapse == r.Lapse && t.Rows[i-1].Unit == r.Unit {
				lapse = ""
			}
		}
		peer, ratio := r.Peer, ""
		if r.Peer != "" {
			peer, ratio = number(r.Other)+r.Unit+", "+r.Peer, formatRatio(r.Ratio)
			if r.Other == 0 && r.Lapse == 0 { // the row has only a ratio
				lapse, peer = "", r.Peer
			}
			// Add digits if the rounded ratio is on the other side of the goal.
			for digits := 3; r.reached(r.Ratio) != r.reached(parse(ratio)) && digits < 6; digits++ {
				ratio = strconv.FormatFloat(r.Ratio, 'g', digits, 64)
			}
		}
		for _, cell := range []string{work, lapse, peer, ratio, r.goalText(), r.processor()} {
			text.WriteString("| ")
			if cell != "" {
				text.WriteString(strings.ReplaceAll(cell, "|", `\|`) + " ")
			}
		}
		text.WriteString("|\n")
	}
	return text.String()
}

// processor formats the processor time of an operation, for lapse and peer.
func (r row) processor() string {
	if r.LapseCPU == 0 {
		return ""
	}
	return number(r.LapseCPU) + " · " + number(r.OtherCPU) + " µs"
}

// dates formats the first and the last date at which rows were measured.
func (t table) dates() string {
	if len(t.Rows) == 0 {
		return ""
	}
	from, to := t.Rows[0].Date, t.Rows[0].Date
	for _, r := range t.Rows {
		from, to = min(from, r.Date), max(to, r.Date)
	}
	if from == to {
		return to
	}
	return from + " to " + to
}

func (r row) goalText() string {
	unit := r.Unit
	if r.Peer != "" {
		unit = ""
	}
	var text string
	switch {
	case r.Goal.Least != 0:
		text = "≥ " + number(r.Goal.Least) + unit
	case r.Goal.Most != 0:
		text = "≤ " + number(r.Goal.Most) + unit
	default:
		return ""
	}
	if !r.reached(r.value()) {
		text += " " + missed
	}
	return text
}

// number formats three significant digits, as in 121,000 or 0.12.
func number(v float64) string {
	v = round(v, 3)
	text := strconv.FormatFloat(v, 'f', -1, 64)
	whole, fraction, ok := strings.Cut(text, ".")
	sign := ""
	if strings.HasPrefix(whole, "-") {
		sign, whole = "-", whole[1:]
	}
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if ok {
		fraction = "." + fraction
	}
	return sign + whole + fraction
}

// formatRatio formats a ratio with fewer decimals the greater it is.
func formatRatio(v float64) string {
	digits := 0
	switch {
	case v < 0.1:
		digits = 3
	case v < 2:
		digits = 2
	case v < 10:
		digits = 1
	}
	return strconv.FormatFloat(v, 'f', digits, 64)
}

// round keeps this number of significant digits.
func round(v float64, digits int) float64 {
	if v == 0 || math.IsInf(v, 0) || math.IsNaN(v) {
		return v
	}
	return parse(strconv.FormatFloat(v, 'e', digits-1, 64))
}

func parse(text string) float64 {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		panic(err) // text was formatted here
	}
	return v
}
