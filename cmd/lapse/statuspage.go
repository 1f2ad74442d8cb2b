package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	color "github.com/jedib0t/go-pretty/v6/text"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/schema"
)

// statusPage renders a status for people; rate is the growth of its log, such as ", 120/s",
// or "". Numbers that should be 0 are red if they are not. Groups of lines answer one
// question each: who answers, what is stored, what the log does.
func (out *output) statusPage(s client.Status, rate string) string {
	p := out.palette()
	alarm := func(n int64) string {
		if n == 0 {
			return "0"
		}
		return p.paint(fmt.Sprint(n), color.FgRed)
	}
	t := out.facts(p)
	row := t.add
	gap := func() { t.AppendRow(table.Row{"", ""}) }

	row("database", p.paint(printable(s.Database), color.Bold))
	row("role", fmt.Sprintf("%s, lapse %s", printable(s.Role), printable(s.Version)))
	if s.PID > 0 {
		row("process", fmt.Sprintf("%d at %s", s.PID, printable(s.Host)))
	}
	if s.CannotTakeOver != "" {
		row("no writer", p.paint(printable(s.CannotTakeOver), color.FgRed))
	}
	clock := "right"
	if c := s.Clock; c.Suspect {
		clock = p.paint(fmt.Sprintf("suspect for %s, %s refused: %s", ms(c.ForMs), plural(c.Refused, "write"), printable(c.Reason)), color.FgRed)
	}
	row("clock", clock)
	gap()
	row("documents", fmt.Sprint(s.Documents))
	if s.Held > 0 {
		row("held", fmt.Sprint(s.Held))
	}
	row("pending expiry", fmt.Sprint(s.PendingExpiry))
	row("overdue", alarm(s.Overdue))
	row("lateness", fmt.Sprintf("p50 %s, p99 %s, max %s (last minute)", ms(s.LatenessMs.P50), ms(s.LatenessMs.P99), ms(s.LatenessMs.Max)))
	if o := s.LatenessObjective; o != nil {
		row("objective", p.objective(o))
	}
	gap()
	row("log", fmt.Sprintf("sequence %d%s, %s", s.Seq, rate, time.UnixMilli(s.LogTime).UTC().Format("2006-01-02 15:04:05.000 MST")))
	if s.LogEnd > 0 {
		row("not folded", alarm(int64(s.LogEnd-min(s.Seq, s.LogEnd))))
	}
	if s.Storage != nil {
		row("log size", p.storage(s.Storage))
	}
	if m := s.Memory; m != nil {
		row("memory", memoryUse(m))
	}
	row("mutations behind", alarm(int64(s.MutationsBehind)))
	row("requests waiting", fmt.Sprint(s.Waiting))
	row("digest", printable(s.Digest))
	return t.Render() + "\n"
}

// objective describes whether a lateness objective was kept, red if not.
func (p palette) objective(o *client.LatenessObjective) string {
	text := fmt.Sprintf("%g%% within %s: ", 100*o.Share, ms(o.Ms))
	switch {
	case o.Kept && o.Expired == 0:
		return text + "nothing expired (last minute)"
	case o.Kept:
		return text + fmt.Sprintf("kept, %d of %d were late (last minute)", o.Late, o.Expired)
	}
	text += fmt.Sprintf("missed, %d of %d were late (last minute)", o.Late, o.Expired)
	if o.OverdueMs > o.Ms {
		text += fmt.Sprintf(", the oldest is overdue for %s", ms(o.OverdueMs))
	}
	return p.paint(text, color.FgRed)
}

// storage describes the space of the streams, red if an operator should give them more. The
// limit is that with the least space left: of a stream, an account, the server, or the
// disk.
func (p palette) storage(s *client.Storage) string {
	text := nearSize(s.LogBytes)
	if s.MutationsBytes > 0 {
		text += fmt.Sprintf(", mutations %s", nearSize(s.MutationsBytes))
	}
	l := s.Limit
	if l == nil {
		return text
	}
	text += fmt.Sprintf("; %s left of %s (%s)", nearSize(l.LeftBytes), nearSize(l.Bytes), printable(l.Name))
	if l.FullInHours != nil {
		text += fmt.Sprintf(", full in %.0f h at the rate of the last hour", *l.FullInHours)
	}
	if l.Low() {
		return p.paint(text, color.FgRed)
	}
	return text
}

// memoryUse describes the memory of the process: what the machine counts as resident, and
// of what that mostly consists.
func memoryUse(m *client.Memory) string {
	text := nearSize(uint64(m.ResidentBytes))
	if m.LimitBytes > 0 {
		text += " of " + nearSize(uint64(m.LimitBytes))
	}
	return fmt.Sprintf("%s: cache %s, memtables %s, heap %s", text, nearSize(uint64(m.CacheBytes)), nearSize(uint64(m.MemtableBytes)), nearSize(uint64(m.HeapBytes)))
}

// nearSize writes a size with one decimal in its largest unit.
func nearSize(bytes uint64) string {
	size, unit := float64(bytes), 0
	for ; size >= 1024 && unit < len(sizeUnits)-1; unit++ {
		size /= 1024
	}
	if unit == 0 {
		return fmt.Sprintf("%d B", bytes)
	}
	return fmt.Sprintf("%.1f %s", size, sizeUnits[unit])
}

// ms formats milliseconds: 1500 is 1.5s.
func ms(n int64) string { return (time.Duration(n) * time.Millisecond).String() }

// processesPage renders a row for each process; if there are several databases, with its
// database instead of its version. A process that did not answer has question marks and a
// red line with the reason, and so has a database without exactly one writer: none for
// long, or two, is what an operator has to look into.
func (out *output) processesPage(all []client.Process) ([]byte, error) {
	several := all[0].Database != all[len(all)-1].Database // they are sorted
	if !out.forPeople() {
		var b bytes.Buffer
		for _, p := range all {
			if !several {
				p.Database = ""
			}
			if err := json.NewEncoder(&b).Encode(p); err != nil {
				return nil, err
			}
		}
		return b.Bytes(), nil
	}
	latest, writers := map[string]uint64{}, map[string]int{} // by database
	for _, p := range all {
		latest[p.Database] = max(latest[p.Database], p.Seq)
		// So that a database without a writer is in the map, with 0.
		writers[p.Database] += 0
		if p.Role == "writer" && p.Error == "" {
			writers[p.Database]++
		}
	}
	titles := []string{"ID", "ROLE", "VERSION", "SEQUENCE", "BEHIND", "WAITING", "REQUESTS", "ERRORS", "AGE"}
	if several {
		titles[2] = "DATABASE"
	}
	var rows [][]any
	var trouble []string
	for _, p := range all {
		name, third := p.ID, p.Version
		if several {
			name, third = p.Database+" "+p.ID, p.Database
		}
		// Question marks where the process did not answer.
		row := []any{printable(p.ID), printable(p.Role), printable(third), "?", "?", "?", "?", "?", "?"}
		if p.Error == "" {
			row = append(row[:3], p.Seq, latest[p.Database]-p.Seq, p.Waiting, p.Requests, p.Errors, age(p.Started))
		} else {
			trouble = append(trouble, printable(name)+": "+p.Error)
		}
		rows = append(rows, row)
	}
	text := out.list(titles, rows, 0, 2)
	for _, database := range slices.Sorted(maps.Keys(writers)) {
		of := ""
		if several {
			of = " of database " + printable(database)
		}
		if n := writers[database]; n != 1 {
			trouble = append(trouble, fmt.Sprintf("%s%s: there should be one", plural(n, "writer"), of))
		}
	}
	for _, line := range trouble {
		text += out.palette().paint(line, color.FgRed) + "\n"
	}
	return []byte(text), nil
}

// age returns how long ago a time in RFC 3339 was, in its largest unit.
func age(since string) string {
	at, err := schema.ParseTime(since)
	if err != nil {
		return "?"
	}
	d := time.Since(at)
	for i, unit := range []time.Duration{24 * time.Hour, time.Hour, time.Minute} {
		if d >= 2*unit {
			return fmt.Sprintf("%d%c", d/unit, "dhm"[i])
		}
	}
	return fmt.Sprintf("%ds", d/time.Second)
}
